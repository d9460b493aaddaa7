#!/usr/bin/env python3
"""Compares times of single calls of the Python package with LiteRT's, in one process, in alternating rounds.

    bench_python.py [MODEL ...] [--rounds N] [--threads N]
    bench_python.py --imports

Runs in a virtual environment with the wheel of `make python` and `ai-edge-litert`: `make python-bench`. A row is a
call; its times are the shortest of the rounds in microseconds, which depend least on other programs of the machine. A
ratio below 1: Delegraph is faster. `cycle` is
`set_tensor`, `invoke` and `get_tensor` of every input and output; `signature` is a call of the signature runner.
"""

import argparse
import gc
import math
import pathlib
import statistics
import subprocess
import sys
import time
from typing import Any, Callable

ROOT = pathlib.Path(__file__).resolve().parent.parent
DEFAULT = ["digits_float32", "digits_int8", "digits_float16", "digits_dynamic_range"]
MIN_SECONDS = 0.002


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="*", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--imports", action="store_true", help="time `import delegraph` beside `import numpy` instead")
    options = parser.parse_args()
    if options.imports:
        return time_imports(min(options.rounds, 25))
    try:
        import numpy  # noqa: F401
        from ai_edge_litert.interpreter import Interpreter as LiteRT

        from delegraph import Interpreter as Delegraph
    except ImportError as error:
        print(f"bench_python: left out: {error}", file=sys.stderr)
        return 0
    models = options.models or [path for name in DEFAULT if (path := ROOT / f"assets/digits/{name}.tflite").exists()]
    print("| model | call | LiteRT (us) | Delegraph (us) | ratio |\n|---|---|---|---|---|")
    ratios: dict[str, list[float]] = {}
    for model in models:
        peers = [prepared(kind, model, options.threads) for kind in (LiteRT, Delegraph)]
        for name in peers[0]:
            times = rounds([peer[name] for peer in peers], options.rounds)
            litert, ours = (min(of) * 1e6 for of in times)
            ratio = ours / litert
            ratios.setdefault(name, []).append(ratio)
            print(f"| {model.stem} | {name} | {litert:.2f} | {ours:.2f} | {ratio:.2f} |", flush=True)
    if len(models) > 1:
        for name, of in ratios.items():
            mean = math.exp(statistics.fmean(map(math.log, of)))
            print(f"| geometric mean | {name} | | | {mean:.2f} |")
    return 0


def time_imports(rounds: int) -> int:
    """Starts processes in alternation that import NumPy, and Delegraph with it."""
    modules = ("sys", "numpy", "delegraph")
    times: dict[str, list[float]] = {module: [] for module in modules}
    for _ in range(rounds):
        for module in modules:
            start = time.perf_counter()
            subprocess.run([sys.executable, "-c", f"import {module}"], check=True)
            times[module].append(time.perf_counter() - start)
    for name, of in (("median", statistics.median), ("shortest", min)):
        sys_, numpy, delegraph = (of(times[module]) * 1e3 for module in modules)
        print(f"{name}: Python {sys_:.1f} ms, with NumPy {numpy:.1f} ms, with Delegraph {delegraph:.1f} ms; imports alone: ratio "
              f"{(delegraph - sys_) / (numpy - sys_):.2f}")
    return 0


def prepared(kind: Any, model: pathlib.Path, threads: int) -> dict[str, Callable[[], Any]]:
    """Returns the calls of one package."""
    import numpy as np

    interpreter = kind(model_path=str(model), num_threads=threads)
    interpreter.allocate_tensors()
    random = np.random.default_rng(0)
    data = {d["index"]: sample(random, d) for d in interpreter.get_input_details()}
    outputs = [d["index"] for d in interpreter.get_output_details()]
    for index, value in data.items():
        interpreter.set_tensor(index, value)
    interpreter.invoke()
    index, value = next(iter(data.items()))
    output = outputs[0]

    def cycle() -> None:
        for index, value in data.items():
            interpreter.set_tensor(index, value)
        interpreter.invoke()
        for index in outputs:
            interpreter.get_tensor(index)

    calls: dict[str, Callable[[], Any]] = {
        "set_tensor": lambda: interpreter.set_tensor(index, value),
        "invoke": interpreter.invoke,
        "get_tensor": lambda: interpreter.get_tensor(output),
        "tensor()()": lambda: view(output),
        "get_input_details": interpreter.get_input_details,
        "cycle": cycle,
    }
    view = lambda index: interpreter.tensor(index)()  # noqa: E731
    signatures = interpreter.get_signature_list()
    if len(signatures) == 1:
        # A runner with its own interpreter, since it may prepare the model again.
        runner = kind(model_path=str(model), num_threads=threads).get_signature_runner()
        arguments = {name: sample(random, d) for name, d in runner.get_input_details().items()}
        calls["signature"] = lambda: runner(**arguments)
    return calls


def sample(random: Any, detail: dict[str, Any]) -> Any:
    import numpy as np

    shape, dtype = tuple(detail["shape"]), np.dtype(detail["dtype"])
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        return random.integers(max(info.min, -100), min(info.max, 100), shape).astype(dtype)
    return random.random(shape, np.float32).astype(dtype)


def rounds(calls: list[Callable[[], Any]], count: int) -> list[list[float]]:
    """Returns the seconds of a call in each round. Every second round begins with the other package."""
    repeats = [max(1, math.ceil(MIN_SECONDS / max(timed(call, 20), 1e-9))) for call in calls]
    times: list[list[float]] = [[] for _ in calls]
    gc.disable()
    for i in range(count):
        order = range(len(calls)) if i % 2 == 0 else reversed(range(len(calls)))
        for at in order:
            times[at].append(timed(calls[at], repeats[at]))
    gc.enable()
    return times


def timed(call: Callable[[], Any], repeats: int) -> float:
    start = time.perf_counter()
    for _ in range(repeats):
        call()
    return (time.perf_counter() - start) / repeats


if __name__ == "__main__":
    sys.exit(main())
