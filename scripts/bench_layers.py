#!/usr/bin/env python3
"""Compares times of single layers with LiteRT's, as ratios measured in one run.

    scripts/bench_layers.py [--seed S] [--count N] [--threads T] [--seconds S] [--rounds R] [--peer builtin] [MODEL...]

Without models, N layers of random shapes, types and params are generated from the seed; with models, each of their
distinct nodes is a layer. Delegraph and LiteRT alternate, each round in fresh processes; a layer's time is the shortest
of all rounds. Prints the ratio Delegraph / LiteRT (below 1: Delegraph is faster) in groups, and the worst layers; --csv
FILE writes all.

Needs a Python with ai-edge-litert and numpy: the one that runs this script.
"""
import argparse
import collections
import csv
import math
import os
import pathlib
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent


def peer(kind, threads, seconds, paths):
    """Prints the shortest time of LiteRT per model, like `layers time`."""
    import numpy as np
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    resolver = {"xnnpack": OpResolverType.AUTO, "builtin": OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES}[kind]
    for path in paths:
        try:
            interpreter = Interpreter(model_path=path, num_threads=threads, experimental_op_resolver_type=resolver)
            interpreter.allocate_tensors()
            rng = np.random.default_rng(0)
            for detail in interpreter.get_input_details():
                shape, dtype = detail["shape"], detail["dtype"]
                if np.issubdtype(dtype, np.floating):
                    data = rng.uniform(-1, 1, shape).astype(dtype)
                elif dtype == np.bool_:
                    data = rng.integers(0, 2, shape).astype(dtype)
                else:
                    info = np.iinfo(dtype)
                    wide = info.bits > 16
                    low, high = (0, 3) if wide else (info.min, info.max)
                    data = rng.integers(low, high, shape, dtype=dtype, endpoint=True)
                interpreter.set_tensor(detail["index"], data)
            # The native method, without the Python layer.
            invoke = interpreter._interpreter.Invoke
            invoke()
            best, end = math.inf, time.perf_counter() + seconds
            while time.perf_counter() < end:
                count = 10 if best < 20e-6 else 1
                start = time.perf_counter()
                for _ in range(count):
                    invoke()
                best = min(best, (time.perf_counter() - start) / count)
            print(f"{path}\t{best * 1e6:.3f}", flush=True)
        except (RuntimeError, ValueError) as error:
            print(f"{path}\t{str(error).splitlines()[0]}", flush=True)


def times(command):
    found = {}
    result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True)
    for line in result.stdout.splitlines():
        path, _, value = line.partition("\t")
        try:
            found[path] = float(value)
        except ValueError:
            pass
    return found


def mean(values):
    return math.exp(sum(map(math.log, values)) / len(values))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=0.05)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--peer", choices=["xnnpack", "builtin"], default="xnnpack")
    parser.add_argument("--keep", help="the folder for the layers; an existing one is timed as it is")
    parser.add_argument("--only", default="", help="layers whose file name contains this")
    parser.add_argument("--worst", type=int, default=20)
    parser.add_argument("--csv")
    parser.add_argument("--layers", default=ROOT / "target/release/examples/layers", help="the timing program")
    parser.add_argument("--time-peer", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.time_peer:
        peer(args.peer, args.threads, args.seconds, args.models)
        return
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(args.keep or temporary)
        if not any(folder.glob("*.tflite")):
            what = ["extract", folder, *args.models] if args.models else ["draw", folder, args.seed, args.count]
            subprocess.run([args.layers, *map(str, what)], check=True)
        paths = sorted(str(p) for p in folder.glob("*.tflite") if args.only in p.name)
        ours, theirs = collections.defaultdict(lambda: math.inf), collections.defaultdict(lambda: math.inf)
        for _ in range(args.rounds):
            # In parts, so that both sides of a ratio are measured close in time.
            for start in range(0, len(paths), 20):
                part = paths[start:start + 20]
                numbers = [str(args.threads), str(args.seconds)]
                for path, value in times([args.layers, "time", *numbers, *part]).items():
                    ours[path] = min(ours[path], value)
                command = [sys.executable, __file__, "--time-peer", "--peer", args.peer, "--threads", numbers[0]]
                for path, value in times([*command, "--seconds", numbers[1], *part]).items():
                    theirs[path] = min(theirs[path], value)
    rows = [(ours[p] / theirs[p], ours[p], theirs[p], pathlib.Path(p).stem) for p in paths if p in ours and p in theirs]
    left_out = [p for p in paths if p not in ours or p not in theirs]
    rows.sort(reverse=True)
    groups = collections.defaultdict(list)
    for row in rows:
        words = row[3].split("_")
        groups["_".join(words[1:3]) if not args.models else words[-1]].append(row[0])
    print("| layers | number | ratio | worst |\n|---|---|---|---|")
    for name, ratios in sorted(groups.items()):
        print(f"| {name} | {len(ratios)} | {mean(ratios):.2f} | {max(ratios):.2f} |")
    if rows:
        print(f"| all | {len(rows)} | {mean([r[0] for r in rows]):.2f} | {rows[0][0]:.2f} |")
    print(f"\n{len(left_out)} of {len(paths)} layers were not run by both.\n")
    print("| layer | ours us | LiteRT us | ratio |\n|---|---|---|---|")
    for ratio, our, their, name in rows[:args.worst]:
        print(f"| {name} | {our:.1f} | {their:.1f} | {ratio:.2f} |")
    if args.csv:
        with open(args.csv, "w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(["layer", "ours_us", "litert_us", "ratio"])
            writer.writerows((name, f"{our:.3f}", f"{their:.3f}", f"{ratio:.3f}") for ratio, our, their, name in rows)


if __name__ == "__main__":
    main()
