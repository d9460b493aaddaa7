#!/usr/bin/env python3
"""Compares the time from a model's file to its first result with LiteRT's, as ratios measured in one run.

    scripts/bench_first.py [--threads T] [--runs N] [--rounds R] [--worst N] MODEL...

Times reading the file, loading, preparing and the first invocation, in a process that is warmed up, with the file in
the page cache. Delegraph and LiteRT alternate, each round in fresh processes; a model's time is the shortest of --runs
times --rounds. Each run loads the model again, so that no packed weights of the previous run are used. Prints the ratio
Delegraph / LiteRT (below 1: Delegraph is faster) and the parts of Delegraph's time.

Needs a Python with ai-edge-litert and numpy, and the timing program:
cargo build --release -p delegraph-interpreter --example layers
"""
import argparse
import math
import pathlib
import subprocess
import sys
import time

import bench_layers


def peer(threads, runs, paths):
    """Prints the shortest time of LiteRT per model, in microseconds."""
    import numpy as np
    from ai_edge_litert.interpreter import Interpreter

    for path in paths:
        best = math.inf
        for _ in range(runs):
            start = time.perf_counter()
            interpreter = Interpreter(model_path=path, num_threads=threads)
            interpreter.allocate_tensors()
            spent = time.perf_counter() - start
            rng = np.random.default_rng(0)
            for detail in interpreter.get_input_details():
                shape, dtype = detail["shape"], detail["dtype"]
                wide = np.issubdtype(dtype, np.integer) and np.iinfo(dtype).bits > 16
                random = rng.uniform(-1, 1, shape) if np.issubdtype(dtype, np.floating) else rng.integers(0, 3 if wide else 127, shape)
                interpreter.set_tensor(detail["index"], random.astype(dtype))
            start = time.perf_counter()
            interpreter._interpreter.Invoke()
            best = min(best, spent + time.perf_counter() - start)
        print(f"{path}\t{best * 1e6:.1f}", flush=True)


def times(command):
    lines = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True).stdout.splitlines()
    found = {}
    for path, *values in (line.split("\t") for line in lines):
        try:
            found[path] = [float(value) for value in values]
        except ValueError:
            pass
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--runs", type=int, default=15)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--worst", type=int, default=20)
    parser.add_argument("--layers", default=bench_layers.ROOT / "target/release/examples/layers", help="the timing program")
    parser.add_argument("--time-peer", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    numbers = [str(args.threads), str(args.runs)]
    if args.time_peer:
        peer(args.threads, args.runs, args.models)
        return
    ours, litert = {}, {}
    for _ in range(args.rounds):
        # In parts, so that both sides of a ratio are measured close in time.
        for start in range(0, len(args.models), 10):
            part = args.models[start:start + 10]
            command = [sys.executable, __file__, "--time-peer", "--threads", numbers[0], "--runs", numbers[1], *part]
            for found, times_of in ((ours, [args.layers, "first", *numbers, *part]), (litert, command)):
                for path, values in times(times_of).items():
                    found[path] = list(map(min, found.get(path, values), values))
    rows = [(ours[p][0] / litert[p][0], pathlib.Path(p).stem, ours[p], litert[p][0]) for p in args.models if p in ours and p in litert]
    rows.sort(reverse=True)
    print("| model | ours us | loading | preparing | first run | LiteRT us | ratio |\n|---|---|---|---|---|---|---|")
    for ratio, name, (total, *parts), other in rows[:args.worst]:
        print(f"| {name} | {total:.0f} | {' | '.join(f'{part:.0f}' for part in parts)} | {other:.0f} | {ratio:.2f} |")
    left_out = len(args.models) - len(rows)
    print(f"\n{len(rows)} models, {left_out} not run by both: geometric mean {bench_layers.mean([row[0] for row in rows]):.2f}")


if __name__ == "__main__":
    main()
