#!/usr/bin/env python3
"""Fuse whole folders of models, and check that nothing but the number of nodes and the time changed.

    cargo build --release
    scripts/check_fusion.py [--bench] [--delegate wgpu] [--table [--fewer]] MODEL|FOLDER...   (a Python with ai-edge-litert)

For each model `delegraph fuse` writes another file and compares both on random inputs. Then both files run on other
inputs (the `input_N.npy` beside the model if there are any, else seeded) with the reference kernels, with the given
delegates, and with LiteRT's built-in kernels. Each must return the same results for both files: floats within 1e-5 +
1e-4 of the largest value, quantized values within one step, all others exactly. With --bench the two files alternate,
each time in a new process, and the shortest run of each counts, since load of the machine only makes runs longer.

Models that LiteRT does not run are counted separately. Each model runs in a separate process, since LiteRT aborts on
some. The exit code is 1 if anything differs, or if LiteRT rejects a fused file whose original it runs.
"""
import argparse
import collections
import json
import math
import os
import pathlib
import pickle
import shlex
import signal
import statistics
import subprocess
import sys
import tempfile

import numpy as np
from ai_edge_litert.interpreter import Interpreter, OpResolverType

ROOT = pathlib.Path(__file__).resolve().parent.parent
SECONDS = 300
# With --fuse=--allow-hybrid: ops that quantize their inputs at run time turn differences in rounding into steps.
HYBRID = 300


def litert(path, inputs=None, beside=None):
    """The inputs, and the outputs with whether they are quantized."""
    interpreter = Interpreter(model_path=str(path), num_threads=1,
                              experimental_op_resolver_type=OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES)
    details = interpreter.get_input_details()
    values = inputs if inputs is not None else [draw(d, i, beside) for i, d in enumerate(details)]
    for detail, value in zip(details, values):
        if list(value.shape) != list(detail["shape"]):
            interpreter.resize_tensor_input(detail["index"], value.shape)
    interpreter.allocate_tensors()
    # The Python interface does not support tensors without elements.
    for detail, value in zip(interpreter.get_input_details(), values):
        if value.size:
            interpreter.set_tensor(detail["index"], value)
    interpreter.invoke()
    outputs = [(np.zeros(d["shape"]) if 0 in d["shape"] else np.array(interpreter.get_tensor(d["index"])),
                len(d["quantization_parameters"]["scales"]) > 0) for d in interpreter.get_output_details()]
    return values, outputs


def draw(detail, i, beside):
    stored = beside / f"input_{i}.npy"
    if stored.exists():
        return np.load(stored)
    rng, dtype = np.random.default_rng(i), np.dtype(detail["dtype"])
    if dtype.kind in "SUO":
        return np.full(detail["shape"], b"text")
    if dtype.kind in "fc":
        return rng.uniform(-1, 1, detail["shape"]).astype(dtype)
    if dtype.kind == "b":
        return rng.integers(0, 2, detail["shape"]).astype(dtype)
    if dtype.itemsize <= 2:
        info = np.iinfo(dtype)
        return rng.integers(info.min, info.max, detail["shape"], dtype=dtype, endpoint=True)
    return rng.integers(0, 4, detail["shape"]).astype(dtype)  # often indices


def apart(function, *arguments):
    """The result of the function in a separate process, or the error as text."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        signal.alarm(SECONDS)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        try:
            result = function(*arguments)
        except Exception as error:  # LiteRT raises ValueError and RuntimeError with its own text.
            result = str(error).strip() or type(error).__name__
        with os.fdopen(write, "wb") as pipe:
            pickle.dump(result, pipe)
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        data = pipe.read()
    _, status = os.waitpid(child, 0)
    return pickle.loads(data) if data else f"status {status}"


def delegraph(binary, *arguments):
    """Standard output as JSON, or the error as text."""
    try:
        ran = subprocess.run([binary, *map(str, arguments), "--json"], capture_output=True, text=True,
                             timeout=SECONDS, errors="replace")
    except subprocess.TimeoutExpired:
        return f"more than {SECONDS} s"
    if ran.returncode:
        lines = [line.strip(" │×╰─▶") for line in (ran.stderr or ran.stdout).splitlines() if "XDG" not in line]
        return " ".join(line for line in lines if line)[:300] or f"exit code {ran.returncode}"
    return json.loads(ran.stdout)


def run(binary, model, delegate, inputs, folder):
    """The outputs of Delegraph."""
    folder.mkdir(exist_ok=True)
    for old in folder.glob("*.npy"):
        old.unlink()
    files = []
    for i, value in enumerate(inputs):
        if value.dtype.kind in "SUO":
            return None  # strings have a form of their own in files
        file = folder / f"in{i}.npy"
        np.save(file, value)
        files += ["--input", file]
    result = delegraph(binary, "run", model, "--delegate", delegate, *files, "--output-dir", folder)
    if isinstance(result, str):
        return result
    return [np.load(folder / f"output_{i}.npy", allow_pickle=False) for i in range(len(result["outputs"]))]


def difference(before, after, quantized):
    """The largest difference relative to the tolerance; a text if the shapes differ."""
    if before.shape != after.shape or before.dtype != after.dtype:
        return math.inf
    if before.dtype.kind in "SUO" or before.size == 0:
        return 0.0 if before.tolist() == after.tolist() else math.inf
    a, b = (x.astype(np.complex128 if x.dtype.kind == "c" else np.float64) for x in (before, after))
    with np.errstate(invalid="ignore"):
        distance = np.where((a == b) | (np.isnan(a) & np.isnan(b)), 0.0, np.abs(a - b))
    distance = float(np.nan_to_num(distance, nan=math.inf, posinf=math.inf).max())
    if before.dtype.kind in "fc":
        finite = np.abs(a[np.isfinite(a)])
        largest = float(finite.max()) if finite.size else 0.0
        allowed = 5e-3 * largest if before.dtype.itemsize == 2 else 1e-5 + 1e-4 * largest
        return distance / allowed if allowed else (0.0 if distance == 0 else math.inf)
    return distance if quantized else (0.0 if distance == 0 else math.inf)


def worst(before, after, quantized):
    if len(before) != len(after):
        return math.inf
    return max((difference(b, a, q) for b, a, q in zip(before, after, quantized)), default=0.0)


def bench(binary, original, fused, rounds, seconds):
    """The shortest run in milliseconds, before and after."""
    times = {original: [], fused: []}
    for i in range(rounds):
        for model in (original, fused) if i % 2 == 0 else (fused, original):
            result = delegraph(binary, "bench", model, "--seconds", seconds, "--warmup", 1, "--threads", 1)
            if isinstance(result, str):
                return None
            times[model].append(result["min_ms"])
    return tuple(min(times[model]) for model in (original, fused))


def check(model, options, folder):
    """One model: a row of results, and the errors."""
    row, wrong = {"model": str(model)}, []
    fused = folder / "fused.tflite"
    report = delegraph(options.delegraph, "fuse", model, "-o", fused, "--samples", options.samples,
                       *shlex.split(options.fuse))
    if isinstance(report, str):
        row["refused"] = report
        # A model that is rejected here must also be rejected without fusion.
        runs = delegraph(options.delegraph, "run", model, "--delegate", "reference")
        return row, [] if isinstance(runs, str) else [f"fuse: {report}"]
    row.update(nodes=report["nodes"], multiply_adds=report["multiply_adds"], left=report["left"],
               not_compared=report["not_compared"],
               passes=dict(collections.Counter(c["pass"] for c in report["changes"])))
    # Inputs, and LiteRT's outputs.
    original = apart(litert, model, None, model.parent)
    if isinstance(original, str):
        row["litert"] = "does not run the original"
        inputs, quantized = None, None
    else:
        inputs, outputs = original
        quantized = [q for _, q in outputs]
    if isinstance(original, str):
        pass
    elif "--allow-custom" in options.fuse:
        row["litert"] = "is not asked, it has no custom ops of ours"
    else:
        after = apart(litert, fused, inputs)
        again = apart(litert, model, inputs)
        if isinstance(after, str):
            wrong.append(f"LiteRT refuses the fused file: {after[:200]}")
        else:
            row["litert"] = worst([o for o, _ in outputs], [o for o, _ in after[1]], quantized)
            repeats = not isinstance(again, str) and worst([o for o, _ in outputs], [o for o, _ in again[1]],
                                                           quantized) == 0
            if row["litert"] > (HYBRID if "--allow-hybrid" in options.fuse else 1) and repeats:
                wrong.append(f"LiteRT: {row['litert']:.3g} times what is allowed")
            elif not repeats:
                row["litert"] = "other outputs each time"
    # Delegraph's outputs, on the same inputs if there are any.
    for delegate in ["reference", *options.delegate]:
        before = run(options.delegraph, model, delegate, inputs or [], folder / "before")
        if before is None or isinstance(before, str):
            row[delegate] = "strings" if before is None else before
            continue
        after = run(options.delegraph, fused, delegate, inputs or [], folder / "after")
        if isinstance(after, str):
            wrong.append(f"{delegate} does not run the fused file: {after}")
            continue
        integers = quantized if quantized and len(quantized) == len(before) else [True] * len(before)
        row[delegate] = worst(before, after, integers)
        if row[delegate] > (HYBRID if "--allow-hybrid" in options.fuse else 1):
            again = run(options.delegraph, model, delegate, inputs or [], folder / "again")
            if not isinstance(again, str) and worst(before, again, integers) == 0:
                wrong.append(f"{delegate}: {row[delegate]:.3g} times what is allowed")
    if options.bench and not (options.fewer and report["nodes"]["after"] == report["nodes"]["before"]):
        row["ms"] = bench(options.delegraph, model, fused, options.rounds, options.seconds)
    return row, wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="+", type=pathlib.Path)
    parser.add_argument("--delegraph", default=ROOT / "target/release/delegraph")
    parser.add_argument("--delegate", action="append", default=[], help="also run with it; may be repeated")
    parser.add_argument("--fuse", default="", help='more options for `delegraph fuse`: "--allow-hybrid --stateful"')
    parser.add_argument("--samples", type=int, default=2, help="of `delegraph fuse`")
    parser.add_argument("--bench", action="store_true")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=0.5, help="of each run that is timed")
    parser.add_argument("--table", action="store_true", help="print a row for each model")
    parser.add_argument("--fewer", action="store_true", help="time and show models alone that have fewer nodes then")
    parser.add_argument("--json", type=pathlib.Path, help="write all rows there")
    options = parser.parse_args()
    models = [m for p in options.paths for m in ([p] if p.is_file() else sorted(p.rglob("*.tflite")))]
    rows, counts, failed = [], collections.Counter(), 0
    if options.table:
        print("| model | nodes | fused | multiply-adds | fused | ms | fused | ratio | reference | LiteRT |\n" + "|---" * 10 + "|")
    for model in models:
        with tempfile.TemporaryDirectory() as folder:
            row, wrong = check(model, options, pathlib.Path(folder))
        rows.append(dict(row, wrong=wrong))
        failed += bool(wrong)
        for line in wrong:
            print(f"{model}: {line}", file=sys.stderr, flush=True)
        if "nodes" not in row:
            counts["not read or run, fused or not"] += not wrong
            continue
        nodes, adds = row["nodes"], row["multiply_adds"]
        counts["fused files"] += 1
        counts["of these with fewer nodes"] += nodes["after"] < nodes["before"]
        counts["nodes before"] += nodes["before"]
        counts["nodes after"] += nodes["after"]
        for kind in ["litert", "reference", *options.delegate]:
            value = row.get(kind)
            name = "LiteRT" if kind == "litert" else kind
            if isinstance(value, float):
                within = "bit-equal" if value == 0 else "within what is allowed" if value <= 1 else "different"
                counts[f"{name}: {within}"] += 1
            elif value is not None:
                counts[f"{name}: {value if kind == 'litert' else 'does not run the original on these inputs'}"] += 1
        if options.table and not (options.fewer and nodes["after"] == nodes["before"]):
            shown = lambda v: "0" if v == 0 else f"{v:.2g}" if isinstance(v, float) else "–"
            ms = row.get("ms")
            times = f"{ms[0]:.2f} | {ms[1]:.2f} | {ms[1] / ms[0]:.2f}" if ms else "– | – | –"
            name = model.parent.name if model.stem == "model" else model.stem
            print(f"| {name} | {nodes['before']} | {nodes['after']} | {adds['before']:,} | {adds['after']:,} | {times} "
                  f"| {shown(row.get('reference'))} | {shown(row.get('litert'))} |", flush=True)
    print()
    for name, count in counts.items():
        print(f"{count:8,}  {name}")
    ratios = [row["ms"][1] / row["ms"][0] for row in rows if row.get("ms")]
    changed = [row["ms"][1] / row["ms"][0] for row in rows
               if row.get("ms") and row["nodes"]["after"] < row["nodes"]["before"]]
    for what, values in (("all", ratios), ("those with fewer nodes", changed)):
        if values:
            mean = math.exp(statistics.fmean(map(math.log, values)))
            print(f"{mean:8.3f}  time fused / before, geometric mean over {what} ({len(values)}), "
                  f"from {min(values):.2f} to {max(values):.2f}")
    print(f"{failed:8,}  wrong")
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1))
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
