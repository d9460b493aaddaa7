#!/usr/bin/env python3
"""Compares times of generated small nets with LiteRT's, with one and two threads, as ratios measured in one run.

    scripts/bench_nets.py [--seed S] [--count N] [--seconds S] [--rounds R] [--worst N] [--csv FILE]

The nets are generated from the seed: convolutions, dense layers, attention, recurrent layers and called subgraphs, in
float, with float16 weights, dynamic ranges, INT8 per channel and per tensor, UINT8, and INT16 activations. Delegraph
and LiteRT alternate, with one thread and then with two, each in fresh processes; a net's time is the shortest of all
rounds. Prints the ratio Delegraph / LiteRT (below 1: Delegraph is faster) per family and type, and the ratio of
Delegraph's times with two threads and with one.

Needs a Python with ai-edge-litert and numpy, and the timing program:
cargo build --release -p delegraph-interpreter --example layers
"""
import argparse
import collections
import csv
import math
import pathlib
import subprocess
import sys
import tempfile

import bench_layers

THREADS = (1, 2)


def measure(args, paths):
    """Returns the shortest times, by threads and side, of each path."""
    shortest = collections.defaultdict(lambda: collections.defaultdict(lambda: math.inf))
    peer = [sys.executable, bench_layers.__file__, "--time-peer", "--seconds", str(args.seconds)]
    for _ in range(args.rounds):
        # In parts, so that all sides of a ratio are measured close in time.
        for start in range(0, len(paths), 15):
            part = paths[start:start + 15]
            for threads in THREADS:
                ours = [args.layers, "time", str(threads), str(args.seconds), *part]
                for side, command in (("ours", ours), ("litert", [*peer, "--threads", str(threads), *part])):
                    for path, value in bench_layers.times(command).items():
                        shortest[threads, side][path] = min(shortest[threads, side][path], value)
    return shortest


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=150)
    parser.add_argument("--seconds", type=float, default=0.05)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="", help="nets whose file name contains this")
    parser.add_argument("--worst", type=int, default=10)
    parser.add_argument("--csv")
    parser.add_argument("--keep", help="the folder for the nets; an existing one is timed as it is")
    parser.add_argument("--layers", default=bench_layers.ROOT / "target/release/examples/layers", help="the timing program")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(args.keep or temporary)
        if not any(folder.glob("*.tflite")):
            subprocess.run([args.layers, "nets", folder, str(args.seed), str(args.count)], check=True)
        paths = sorted(str(p) for p in folder.glob("*.tflite") if args.only in p.name)
        shortest = measure(args, paths)
    rows, left_out = [], []
    for path in paths:
        if not all(path in shortest[threads, side] for threads in THREADS for side in ("ours", "litert")):
            left_out.append(pathlib.Path(path).stem)
            continue
        ours, litert = ([shortest[threads, side][path] for threads in THREADS] for side in ("ours", "litert"))
        rows.append((pathlib.Path(path).stem, ours, litert, [o / p for o, p in zip(ours, litert)], ours[1] / ours[0]))
    groups = collections.defaultdict(list)
    for row in rows:
        _, family, kind = row[0].split("_")
        groups[family].append(row)
        groups[kind].append(row)
    groups["all"] = rows
    print("| nets | number | one thread | worst | two threads | worst | two threads / one, ours | worst |")
    print("|---|---|---|---|---|---|---|---|")
    for name, group in groups.items():
        cells = [[row[3][0] for row in group], [row[3][1] for row in group], [row[4] for row in group]]
        numbers = [f"{value:.2f}" for ratios in cells for value in (bench_layers.mean(ratios), max(ratios))]
        print(f"| {name} | {len(group)} | {' | '.join(numbers)} |")
    print(f"\n{len(left_out)} of {len(paths)} nets were not run by both{': ' if left_out else ''}{', '.join(left_out)}.\n")
    print("| net | ours us | LiteRT us | ratio | two threads: ours us | LiteRT us | ratio |\n|---|---|---|---|---|---|---|")
    rows.sort(key=lambda row: -max(row[3]))
    for name, ours, litert, ratios, _ in rows[:args.worst]:
        one, two = (f"{o:.1f} | {p:.1f} | {r:.2f}" for o, p, r in zip(ours, litert, ratios))
        print(f"| {name} | {one} | {two} |")
    if args.csv:
        with open(args.csv, "w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(["net", "ours_1_us", "ours_2_us", "litert_1_us", "litert_2_us"])
            writer.writerows((row[0], *(f"{x:.3f}" for x in row[1] + row[2])) for row in rows)


if __name__ == "__main__":
    main()
