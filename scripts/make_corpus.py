#!/usr/bin/env python3
"""Make a folder of cases from model files: the outputs of LiteRT's built-in kernels for seeded inputs.

    python3 scripts/make_corpus.py DIR MODEL...     (in a venv with scripts/requirements-goldens.txt)

`delegraph conformance --corpus DIR --delegate cpu|reference|wgpu` compares with them. Each model runs in a separate
process, since LiteRT aborts on some files. Models that LiteRT cannot run, and models with strings, are skipped with a
message.
"""
import pathlib
import subprocess
import sys

TIMEOUT = 60


def make(model: str, folder: pathlib.Path) -> None:
    import numpy as np
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    interpreter = Interpreter(model_path=model, num_threads=1,
                              experimental_op_resolver_type=OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES)
    interpreter.allocate_tensors()
    rng = np.random.default_rng(0)
    inputs = []
    for detail in interpreter.get_input_details():
        dtype, shape = np.dtype(detail["dtype"]), detail["shape"]
        if dtype.kind in "SUO":
            sys.exit("strings")
        if dtype.kind == "f":
            data = rng.uniform(-1, 1, shape).astype(dtype)
        elif dtype.kind == "c":
            data = (rng.uniform(-1, 1, shape) + 1j * rng.uniform(-1, 1, shape)).astype(dtype)
        elif dtype.kind == "b":
            data = rng.integers(0, 2, shape).astype(bool)
        elif dtype.itemsize <= 2:
            data = rng.integers(np.iinfo(dtype).min, np.iinfo(dtype).max, shape, dtype=dtype, endpoint=True)
        else:
            # Wide integers are indices and counts more often than data.
            data = rng.integers(0, 2, shape).astype(dtype)
        interpreter.set_tensor(detail["index"], data)
        inputs.append(data)
    interpreter.invoke()
    outputs = [interpreter.get_tensor(detail["index"]) for detail in interpreter.get_output_details()]
    folder.mkdir(parents=True, exist_ok=True)
    for kind, arrays in (("input", inputs), ("expected", outputs)):
        for i, array in enumerate(arrays):
            np.save(folder / f"{kind}_{i}.npy", array)
    link = folder / "model.tflite"
    link.unlink(missing_ok=True)
    link.symlink_to(pathlib.Path(model).resolve())


def main() -> int:
    if len(sys.argv) < 3:
        print(__doc__)
        return 2
    root, made = pathlib.Path(sys.argv[1]), 0
    for model in sys.argv[2:]:
        folder = root / pathlib.Path(model).stem
        command = [sys.executable, __file__, "--one", str(folder), model]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT)
            why = (done.stderr.strip().splitlines() or [f"exit {done.returncode}"])[-1] if done.returncode else ""
        except subprocess.TimeoutExpired:
            why = f"no result in {TIMEOUT} s"
        made += not why
        if why:
            print(f"{model}: left out: {why}")
    print(f"{made} of {len(sys.argv) - 2} models in {root}")
    return 0


if __name__ == "__main__":
    if len(sys.argv) == 4 and sys.argv[1] == "--one":
        make(sys.argv[3], pathlib.Path(sys.argv[2]))
    else:
        sys.exit(main())
