#!/usr/bin/env python3
"""Compares Delegraph's latency with LiteRT's on the same models, as ratios measured in one run.

    make bench-litert                                    # CPU: our kernels beside XNNPACK
    scripts/bench_litert.py --delegate wgpu --peer webgpu MODEL...
    scripts/bench_litert.py --delegate wgpu --peer webgpu --first MODEL...

With --first, the time to the first result is measured: preparing the model and its first run, with an empty shader
cache of the driver (Mesa's: MESA_SHADER_CACHE_DIR) and no cache of Delegraph for every process.

The two runtimes alternate, each time in a fresh process, so that a drift of the machine affects both. A timed run
writes the inputs, invokes, and reads the outputs. Prints a Markdown table: the median over the rounds of each side, of
the ratio Delegraph / LiteRT (below 1: Delegraph is faster), and the geometric mean over models.

Needs a release build (`cargo build --release`) and a Python with ai-edge-litert and numpy: the one that runs this
script. LiteRT's GPU accelerator (--peer webgpu) needs a newer Vulkan driver than Debian 12's: set VK_ICD_FILENAMES.
"""
import argparse
import json
import math
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent


def time_runs(run, seconds):
    start = time.perf_counter()
    run()
    first = time.perf_counter() - start
    for _ in range(3):
        run()
    times, end = [], time.perf_counter() + seconds
    while time.perf_counter() < end or len(times) < 5:
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return {"first_ms": first * 1e3, "median_ms": statistics.median(times) * 1e3}


def random_input(np, shape, dtype, rng):
    shape = [max(1, abs(int(d))) for d in shape]
    if np.issubdtype(dtype, np.floating):
        return rng.uniform(-1, 1, shape).astype(dtype)
    info = np.iinfo(dtype)
    return rng.integers(info.min, info.max, shape, dtype=dtype, endpoint=True)


def litert_cpu(model, peer, threads):
    import numpy as np
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    kind = {"xnnpack": OpResolverType.AUTO, "builtin": OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES}[peer]
    interpreter = Interpreter(model_path=model, num_threads=threads, experimental_op_resolver_type=kind)
    interpreter.allocate_tensors()
    rng = np.random.default_rng(0)
    details = interpreter.get_input_details()
    feeds = [(d["index"], random_input(np, d["shape"], d["dtype"], rng)) for d in details]
    outputs = [d["index"] for d in interpreter.get_output_details()]

    def run():
        for index, data in feeds:
            interpreter.set_tensor(index, data)
        interpreter.invoke()
        for index in outputs:
            interpreter.get_tensor(index)

    return run


def litert_gpu(model):
    import numpy as np
    from ai_edge_litert.compiled_model import CompiledModel, GpuOptions, HardwareAccelerator, Options

    options = Options(HardwareAccelerator.GPU, gpu_options=GpuOptions(enforce_f32=True))
    compiled = CompiledModel.from_file(model, options=options)
    key = list(compiled.get_signature_list())[0]
    names = compiled.get_signature_list()[key]
    inputs, outputs = compiled.get_input_tensor_details(key), compiled.get_output_tensor_details(key)
    rng = np.random.default_rng(0)
    feeds = [random_input(np, inputs[n]["shape"], np.dtype(np.float32), rng) for n in names["inputs"]]
    sizes = [int(np.prod([abs(int(d)) for d in outputs[n]["shape"]])) for n in names["outputs"]]
    input_buffers, output_buffers = compiled.create_input_buffers(0), compiled.create_output_buffers(0)

    def run():
        for buffer, data in zip(input_buffers, feeds):
            buffer.write(data)
        compiled.run_by_index(0, input_buffers, output_buffers)
        for buffer, size in zip(output_buffers, sizes):
            buffer.read(size, np.float32)

    return run


def measure(command):
    with tempfile.TemporaryDirectory() as empty:
        caches = {"MESA_SHADER_CACHE_DIR": empty, "DELEGRAPH_CACHE": empty} if "--first" in sys.argv else {}
        done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **caches})
    if done.returncode:
        return None, (done.stderr.strip().splitlines() or ["no message"])[-1]
    # LiteRT's accelerator logs to stdout, around the line with the result.
    start = done.stdout.find('{"') if command[0] == sys.executable else 0
    return json.JSONDecoder().raw_decode(done.stdout[max(start, 0):].lstrip())[0], None


def compare(args, model):
    ours = [args.ours, "bench", model, "--delegate", args.delegate]
    ours += ["--threads", str(args.threads), "--seconds", str(args.seconds), "--json"]
    peer = [sys.executable, __file__, "--time", "--peer", args.peer, "--threads", str(args.threads)]
    peer += ["--seconds", str(args.seconds), model]
    a, b = [], []
    for _ in range(args.rounds):
        for command, results in ((ours, a), (peer, b)):
            result, why = measure(command)
            if result is None:
                return None, why
            results.append(result["prepare_ms"] + result["first_ms"] if args.first else result["median_ms"])
    return (a, b), None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--delegate", default="cpu")
    parser.add_argument("--peer", default="xnnpack", choices=["xnnpack", "builtin", "webgpu"])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--first", action="store_true", help="the first result, with empty shader caches")
    parser.add_argument("--ours", default=str(ROOT / "target/release/delegraph"), help="the command to measure")
    parser.add_argument("--time", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("models", nargs="+")
    args = parser.parse_args()
    if args.time:
        model = args.models[0]
        start = time.perf_counter()
        run = litert_gpu(model) if args.peer == "webgpu" else litert_cpu(model, args.peer, args.threads)
        prepare_ms = (time.perf_counter() - start) * 1e3
        print(json.dumps({"prepare_ms": prepare_ms, **time_runs(run, args.seconds)}))
        return 0
    print(f"| model | ours ({args.delegate}) ms | LiteRT ({args.peer}) ms | ratio | spread |")
    print("|---|---|---|---|---|")
    logs, failed = [], 0
    for model in args.models:
        name = pathlib.Path(model).stem
        pair, why = compare(args, model)
        if pair is None:
            failed += 1
            print(f"| {name} | failed: {why[:120]} | | | |")
            continue
        ratios = [x / y for x, y in zip(*pair)]
        ratio = statistics.median(ratios)
        logs.append(math.log(ratio))
        ours, peer = (statistics.median(times) for times in pair)
        print(f"| {name} | {ours:.3f} | {peer:.3f} | {ratio:.2f} | {min(ratios):.2f} to {max(ratios):.2f} |", flush=True)
    if logs:
        print(f"\ngeometric mean of {len(logs)} models at {args.threads} thread(s): {math.exp(sum(logs) / len(logs)):.2f}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
