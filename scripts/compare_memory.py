#!/usr/bin/env python3
"""Compares Delegraph's memory with LiteRT's on the same models.

    scripts/compare_memory.py [--threads N] MODEL...

Each figure is the median over fresh processes (--repeat) that map the model, prepare it, and run it a few times. The
peak is the maximum resident memory (VmHWM), model file included, minus the peak of the same process with a model of a few
kilobytes, which removes the runtime's own code, Python and NumPy. Processes differ by some hundred KiB, because the
system also maps pages next to used pages, and load addresses vary.

Arena: reported by `delegraph bench`. For LiteRT's built-in kernels without a delegate it is computed from the addresses
of all tensors: the bytes of tensors that are not constant and outside the mapped file. XNNPACK does not report its
workspace.

Prints a Markdown table in KiB. Needs a release build (`cargo build --release`) and a Python with ai-edge-litert and
numpy: the one that runs this script. Linux only.
"""
import argparse
import json
import math
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
TINY = ROOT / "assets/digits/digits_float32.tflite"


def status(key):
    for line in open("/proc/self/status"):
        if line.startswith(key + ":"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"no {key} in /proc/self/status")


def file_backed():
    ranges = []
    for line in open("/proc/self/maps"):
        fields = line.split()
        if len(fields) > 5 and fields[5].endswith(".tflite"):
            start, end = (int(x, 16) for x in fields[0].split("-"))
            ranges.append((start, end))
    return ranges


def arena_bytes(interpreter, details):
    """The number of bytes of all tensors that are neither constant nor empty."""
    mapped, spans = file_backed(), []
    for detail in details:
        try:
            data = interpreter.tensor(detail["index"])()
        except ValueError:  # No data: not computed, or a string.
            continue
        if data is None:  # A handle.
            continue
        start, size = data.__array_interface__["data"][0], data.nbytes
        if size and not any(a <= start < b for a, b in mapped):
            spans.append((start, start + size))
    total, end = 0, 0
    for start, stop in sorted(spans):
        total += max(0, stop - max(start, end))
        end = max(end, stop)
    return total


def random_input(np, shape, dtype, rng):
    shape = [max(1, abs(int(d))) for d in shape]
    if np.issubdtype(dtype, np.floating):
        return rng.uniform(-1, 1, shape).astype(dtype)
    info = np.iinfo(dtype)
    return rng.integers(info.min, info.max, shape, dtype=dtype, endpoint=True)


def litert(model, peer, threads):
    import numpy as np
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    kind = {"xnnpack": OpResolverType.AUTO, "builtin": OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES}[peer]
    interpreter = Interpreter(model_path=model, num_threads=threads, experimental_op_resolver_type=kind)
    interpreter.allocate_tensors()
    rng = np.random.default_rng(0)
    feeds = [(d["index"], random_input(np, d["shape"], d["dtype"], rng)) for d in interpreter.get_input_details()]
    for _ in range(4):
        for index, data in feeds:
            interpreter.set_tensor(index, data)
        interpreter.invoke()
        for detail in interpreter.get_output_details():
            interpreter.get_tensor(detail["index"])
    result = {"peak": status("VmHWM"), "anonymous": status("RssAnon")}
    if peer == "builtin":
        result["arena"] = arena_bytes(interpreter, interpreter.get_tensor_details())
    return result


def run(command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError((done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1][:120])
    return json.loads(done.stdout.strip().splitlines()[-1] if command[0] == sys.executable else done.stdout)


def measure(args, side, model):
    """The medians over fresh processes, and of the peak with the small model, in alternation, because the mapped part
    of a program changes with time."""
    found = []
    for _ in range(args.repeat):
        idle = once(args, side, TINY)["peak"]
        found.append({"idle": idle, **once(args, side, model)})
    return {key: sorted(one[key] for one in found)[len(found) // 2] for key in found[0]}


def once(args, side, model):
    if side == "ours":
        command = [args.delegraph, "bench", str(model), "--delegate", "cpu", "--threads", str(args.threads)]
        memory = run(command + ["--warmup", "0", "--runs", "3", "--json"])["memory"]
        return {"peak": memory["peak_rss_bytes"], "arena": memory["arena_bytes"]}
    command = [sys.executable, __file__, "--measure", side, "--threads", str(args.threads), str(model)]
    return run(command)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--delegraph", default=str(ROOT / "target/release/delegraph"))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeat", type=int, default=5, help="processes per figure, at least 1 (default 5)")
    parser.add_argument("--measure", choices=["xnnpack", "builtin"], help=argparse.SUPPRESS)
    parser.add_argument("models", nargs="+")
    args = parser.parse_args()
    if args.measure:
        print(json.dumps(litert(args.models[0], args.measure, args.threads)))
        return 0
    sides = ["ours", "xnnpack", "builtin"]
    idle = {side: [] for side in sides}
    print("| model | file | ours | XNNPACK | ratio | built-in | ratio | our arena | built-in arena | ratio |")
    print("|---|---|---|---|---|---|---|---|---|---|", flush=True)
    ratios, failed = {"xnnpack": [], "builtin": [], "arena": []}, []
    for model in map(pathlib.Path, args.models):
        results = {}
        for side in sides:
            try:
                results[side] = measure(args, side, model)
            except RuntimeError as error:
                failed.append(f"{model.stem}, {side}: {error}")
        if "ours" not in results or len(results) == 1:
            continue
        above = {side: max(result["peak"] - result["idle"], 1024) for side, result in results.items()}
        for side, result in results.items():
            idle[side].append(result["idle"] // 1024)
        cells = [model.stem, f"{model.stat().st_size // 1024:,}", f"{above['ours'] // 1024:,}"]

        def beside(what, ours, theirs):
            if theirs is None:
                return ["", ""]
            ratios[what].append(ours / max(theirs, 1))
            return [f"{theirs // 1024:,}", f"{ratios[what][-1]:.2f}"]

        for side in sides[1:]:
            cells += beside(side, above["ours"], above.get(side))
        arena = results["ours"]["arena"]
        cells += [f"{arena // 1024:,}", *beside("arena", arena, results.get("builtin", {}).get("arena"))]
        print("| " + " | ".join(cells) + " |", flush=True)
    spans = (f"{side} {min(found):,} to {max(found):,} KiB" for side, found in idle.items() if found)
    print("\nprocess with the small model: " + ", ".join(spans))
    for what, values in ratios.items():
        if values:
            mean = math.exp(sum(map(math.log, values)) / len(values))
            print(f"\n{what}: geometric mean of {len(values)} ratios {mean:.2f}, highest {max(values):.2f}", end="")
    print()
    for line in failed:
        print("not measured: " + line)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
