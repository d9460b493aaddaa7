#!/usr/bin/env python3
"""Run files that Delegraph rewrote and their originals in LiteRT, and compare the outputs bit by bit.

    cargo run -p delegraph-conformance --example rewrite -- --write DIR MODEL|FOLDER...
    python3 scripts/compare_rewritten.py DIR         (in a venv with scripts/requirements-goldens.txt)

Inputs are the `input_N.npy` beside the original, else seeded random numbers. Each file runs in a separate process,
since LiteRT aborts on some. Originals that LiteRT does not run, or whose outputs differ between runs, are counted
separately.
"""
import collections
import os
import pathlib
import pickle
import signal
import sys

import numpy as np
from ai_edge_litert.interpreter import Interpreter, OpResolverType

SECONDS = 120


def run(path: pathlib.Path, beside: pathlib.Path):
    interpreter = Interpreter(model_path=str(path), num_threads=1,
                              experimental_op_resolver_type=OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES)
    rng, values = np.random.default_rng(0), []
    for i, detail in enumerate(interpreter.get_input_details()):
        stored, dtype = beside / f"input_{i}.npy", np.dtype(detail["dtype"])
        if stored.exists():
            values.append(np.load(stored))
        elif dtype.kind in "SUO":
            values.append(np.full(detail["shape"], b"text"))
        elif dtype.kind in "fc":
            values.append(rng.uniform(-1, 1, detail["shape"]).astype(dtype))
        else:
            values.append(rng.integers(0, 2, detail["shape"]).astype(dtype))
        if list(values[-1].shape) != list(detail["shape"]):
            interpreter.resize_tensor_input(detail["index"], values[-1].shape)
    interpreter.allocate_tensors()
    # The Python interface does not support tensors without elements.
    for detail, value in zip(interpreter.get_input_details(), values):
        if value.size:
            interpreter.set_tensor(detail["index"], value)
    interpreter.invoke()
    outputs = [np.zeros(d["shape"]) if 0 in d["shape"] else np.asarray(interpreter.get_tensor(d["index"]))
               for d in interpreter.get_output_details()]
    return [(o.shape, o.tolist() if o.dtype.kind == "O" else o.tobytes()) for o in outputs]


def apart(path: pathlib.Path, beside: pathlib.Path):
    """The outputs of a separate process, or the error as text."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(SECONDS)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        try:
            result = run(path, beside)
        except Exception as error:  # LiteRT raises ValueError and RuntimeError with its own text.
            result = str(error)
        with os.fdopen(write, "wb") as pipe:
            pickle.dump(result, pipe)
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        data = pipe.read()
    _, status = os.waitpid(child, 0)
    return pickle.loads(data) if data else f"status {status}"


def main() -> int:
    if len(sys.argv) != 2:
        print(__doc__)
        return 2
    root, counts = pathlib.Path(sys.argv[1]), collections.Counter()
    for line in (root / "files.tsv").read_text().splitlines():
        number, name = line.split("\t", 1)
        original = pathlib.Path(name)
        want = apart(original, original.parent)
        if isinstance(want, str):
            counts["LiteRT does not run the original"] += 1
            continue
        for kind in ("rewritten", "restamped"):
            got = apart(root / kind / f"{number}.tflite", original.parent)
            result = "equal" if got == want else "differs"
            if result == "differs" and apart(original, original.parent) != want:
                result = "other outputs each time"
            elif result == "differs":
                print(f"{kind}: {name}: {got if isinstance(got, str) else 'other outputs'}", flush=True)
            counts[f"{kind}: {result}"] += 1
    for what, count in sorted(counts.items()):
        print(f"{count:6}  {what}")
    return int(any("differs" in what for what in counts))


if __name__ == "__main__":
    sys.exit(main())
