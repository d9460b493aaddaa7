#!/usr/bin/env python3
"""Loads a delegate's library into LiteRT and compares the results with LiteRT's own kernels.

    check_litert_delegate.py target/release/libdelegraph_wgpu.so [--option adapter=llvmpipe] [MODEL…]

Without models, runs the models in assets/digits. Prints one row per model: nodes that the delegate runs, and the
largest difference, absolute and relative to the largest value. Then loads and unloads the delegate repeatedly and
measures the memory. Skipped with a message if neither ai_edge_litert nor tflite_runtime is installed.
"""

import argparse
import gc
import glob
import os
import re
import resource
import sys
import tempfile

try:
    import numpy as np

    try:
        from ai_edge_litert import interpreter as litert
    except ImportError:
        from tflite_runtime import interpreter as litert
except ImportError as error:
    print(f"LiteRT delegate: left out: {error} (pip install -r scripts/requirements-goldens.txt)")
    sys.exit(0)

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


class Stderr:
    """Captures the standard error of a block, also from native code."""

    def __enter__(self):
        sys.stderr.flush()
        self.file = tempfile.TemporaryFile()
        self.saved = os.dup(2)
        os.dup2(self.file.fileno(), 2)
        return self

    def __exit__(self, *_):
        os.dup2(self.saved, 2)
        os.close(self.saved)
        self.file.seek(0)
        self.text = self.file.read().decode(errors="replace")
        self.file.close()


def inputs(interpreter):
    """The same values for every interpreter of a model."""
    rng = np.random.default_rng(1)
    values = []
    for detail in interpreter.get_input_details():
        shape, dtype = detail["shape"], detail["dtype"]
        if np.issubdtype(dtype, np.floating):
            values.append(rng.random(shape).astype(dtype))
        else:
            values.append(rng.integers(0, 100, shape).astype(dtype))
    return values


def run(interpreter, runs=2):
    for detail, value in zip(interpreter.get_input_details(), inputs(interpreter)):
        interpreter.set_tensor(detail["index"], value)
    for _ in range(runs):
        interpreter.invoke()
    return [interpreter.get_tensor(d["index"]) for d in interpreter.get_output_details()]


def compare(name, expected, actual, tolerance):
    absolute = share = 0.0
    for want, got in zip(expected, actual):
        assert want.shape == got.shape, f"{name}: shape {got.shape}, not {want.shape}"
        assert want.dtype == got.dtype, f"{name}: type {got.dtype}, not {want.dtype}"
        # Kernels round quantized results differently.
        step = 1.0 if np.issubdtype(want.dtype, np.integer) else 0.0
        relative = max(tolerance, 1e-3) if want.dtype == np.float16 else tolerance
        wide = np.complex128 if np.iscomplexobj(want) else np.float64
        want, got = want.astype(wide), got.astype(wide)
        finite = np.isfinite(want)
        assert (finite == np.isfinite(got)).all(), f"{name}: other values are not finite"
        want, got = want[finite], got[finite]
        difference = float(np.abs(want - got).max(initial=0.0))
        greatest = max(1.0, float(np.abs(want).max(initial=0.0)))
        absolute, share = max(absolute, difference), max(share, difference / greatest)
        limit = max(step, relative * greatest)
        assert difference <= limit, f"{name}: differs by {difference:.2e}, more than {limit:.2e}"
    return absolute, share


def claimed(text):
    """Nodes that the delegate runs, all nodes, partitions: of the primary subgraph, which comes first."""
    found = re.search(r"runs (\d+) of (\d+) nodes? in (\d+) partitions?", text)
    assert found, f"the delegate did not report its nodes:\n{text}"
    return [int(n) for n in found.groups()]


def check(path, library, options, tolerance):
    name = os.path.splitext(os.path.basename(path))[0]
    with Stderr() as said:
        alone = litert.Interpreter(model_path=path)
        alone.allocate_tensors()
        delegate = litert.load_delegate(library, {**options, "verbose": "1"})
        together = litert.Interpreter(model_path=path, experimental_delegates=[delegate])
        together.allocate_tensors()
        results = [run(interpreter) for interpreter in (alone, together)]
        # A model amplifies rounding if LiteRT's own kernel sets differ, too.
        plain = litert.Interpreter(
            model_path=path,
            experimental_op_resolver_type=litert.OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES,
        )
        try:
            plain.allocate_tensors()
            _, spread = compare(name, results[0], run(plain), float("inf"))
        except RuntimeError:  # an op that only the default delegate has
            spread = 0.0
    ours, nodes, partitions = claimed(said.text)
    absolute, share = compare(name, *results, max(tolerance, 8 * spread))
    print(f"| {name} | {ours} of {nodes} | {partitions} | {absolute:.1e} | {share:.1e} |", flush=True)
    return ours


def run_case(path, delegates):
    """The outputs of one case: a model, and input_0.npy, … beside it."""
    interpreter = litert.Interpreter(
        model_path=path,
        experimental_delegates=delegates,
        experimental_op_resolver_type=litert.OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES,
    )
    interpreter.allocate_tensors()
    values = inputs(interpreter)
    for i, detail in enumerate(interpreter.get_input_details()):
        file = os.path.join(os.path.dirname(path), f"input_{i}.npy")
        values[i] = np.load(file) if os.path.exists(file) else values[i]
        if values[i].shape != tuple(detail["shape"]):
            interpreter.resize_tensor_input(detail["index"], values[i].shape)
    interpreter.allocate_tensors()
    for detail, value in zip(interpreter.get_input_details(), values):
        interpreter.set_tensor(detail["index"], value.astype(detail["dtype"]))
    interpreter.invoke()
    return [interpreter.get_tensor(d["index"]) for d in interpreter.get_output_details()]


def check_cases(folder, library, options):
    """Runs every case below a folder; counts the cases that LiteRT alone runs, and the cases with delegated nodes."""
    counts = {"run by LiteRT": 0, "with nodes of the delegate": 0, "of other shapes than it takes": 0, "different": 0}
    for path in sorted(glob.glob(os.path.join(folder, "**", "model.tflite"), recursive=True)):
        with Stderr() as said:
            try:
                expected = run_case(path, [])
            except (RuntimeError, ValueError):
                continue
            counts["run by LiteRT"] += 1
            delegate = litert.load_delegate(library, {**options, "verbose": "1"})
            try:
                actual = run_case(path, [delegate])
            except RuntimeError as error:
                if "with the new shapes" not in str(error):
                    raise
                counts["of other shapes than it takes"] += 1
                continue
        counts["with nodes of the delegate"] += bool(re.search(r"runs [1-9]\d* of", said.text))
        try:
            numbers = [(e, a) for e, a in zip(expected, actual) if e.dtype != object]
            compare(path, *zip(*numbers), 1e-4) if numbers else None
        except AssertionError as error:
            counts["different"] += 1
            print(error)
    print(", ".join(f"{count} {what}" for what, count in counts.items()))
    return counts["different"]


def check_resize(path, library, options, tolerance):
    """Resizes to other shapes and back: kernels are created again."""
    with Stderr():
        alone = litert.Interpreter(model_path=path)
        delegate = litert.load_delegate(library, options)
        together = litert.Interpreter(model_path=path, experimental_delegates=[delegate])
        for batch in (3, 1):
            results = []
            for interpreter in (alone, together):
                detail = interpreter.get_input_details()[0]
                interpreter.resize_tensor_input(detail["index"], [batch, *detail["shape"][1:]])
                interpreter.allocate_tensors()
                results.append(run(interpreter))
            assert results[1][0].shape[0] == batch
            compare(f"{os.path.basename(path)} with batch {batch}", *results, tolerance)
    print("shapes can change")


def check_options(library):
    try:
        litert.load_delegate(library, {"no_such_option": "1"})
    except ValueError as error:
        assert "no_such_option" in str(error), error
    else:
        raise AssertionError("an unknown option was taken")
    print("unknown options are refused")


def memory():
    with open("/proc/self/statm", encoding="ascii") as statm:
        return int(statm.read().split()[1]) * resource.getpagesize() / 2**20


def check_memory(path, library, options, cycles, limit):
    """Loads and unloads the delegate, with an interpreter every fourth time."""
    def repeat(count):
        for cycle in range(count):
            delegate = litert.load_delegate(library, options)
            if cycle % 4 == 0:
                interpreter = litert.Interpreter(model_path=path, experimental_delegates=[delegate])
                interpreter.allocate_tensors()
                run(interpreter, 1)
                del interpreter
            del delegate
        gc.collect()
        return memory()

    with Stderr():
        before = repeat(max(cycles // 5, 1))
        # A leak grows each time; memory that a thread or an allocator takes once does not.
        for _ in range(3):
            after = repeat(cycles)
            grown, before = after - before, after
            if grown <= limit:
                break
    print(f"{cycles} times loaded and unloaded: {grown:+.1f} MiB", flush=True)
    assert grown <= limit, f"memory grew by {grown:.1f} MiB, more than {limit}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("library")
    parser.add_argument("models", nargs="*")
    parser.add_argument("--option", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--cases", metavar="DIR", help="run the cases below this folder instead of models")
    parser.add_argument("--tolerance", type=float, default=1e-5, help="of the greatest value of an output")
    parser.add_argument("--cycles", type=int, default=0, help="how often the delegate is loaded and unloaded")
    parser.add_argument("--growth", type=float, default=8.0, help="by how many MiB memory may grow in that")
    args = parser.parse_args()
    options = dict(option.split("=", 1) for option in args.option)
    library = os.path.abspath(args.library)
    digits = os.path.join(ROOT, "assets", "digits")
    models = args.models or sorted(glob.glob(os.path.join(digits, "*.tflite")))
    check_options(library)
    try:
        with Stderr():
            litert.load_delegate(library, options)
    except ValueError as error:
        if "adapter" not in str(error):
            raise
        print(f"LiteRT delegate: left out: {error}")
        return
    if args.cases:
        sys.exit(bool(check_cases(args.cases, library, options)))
    print("| model | nodes | partitions | greatest difference | share |\n|---|---|---|---|---|")
    total = sum(check(model, library, options, args.tolerance) for model in models)
    assert total > 0, "the delegate runs no node at all"
    float_digits = os.path.join(digits, "digits_float32.tflite")
    check_resize(float_digits, library, options, args.tolerance)
    if args.cycles:
        check_memory(float_digits, library, options, args.cycles, args.growth)


if __name__ == "__main__":
    main()
