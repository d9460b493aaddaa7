#!/usr/bin/env python3
"""Compare the time of models with and without limits: what do limits on memory and time cost?

    cargo build --release -p delegraph
    python3 scripts/bench_limits.py MODEL... [--rounds N]

Runs `delegraph bench` with `--max-memory 4G --timeout 600` and without any option, in turn, and prints the ratio of the
fastest medians per model and their geometric mean. The time of preparing a model is compared as well.
"""
import argparse
import json
import math
import pathlib
import subprocess

LIMITS = ["--max-memory", "4G", "--timeout", "600"]


def bench(program, model, limits, seconds):
    command = [program, "bench", model, "--json", "--seconds", str(seconds), *limits]
    found = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    return found["median_ms"], found["prepare_ms"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", type=pathlib.Path)
    parser.add_argument("--program", default="target/release/delegraph")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=1)
    arguments = parser.parse_args()
    print(f"{'model':36} {'run ms':>9} {'limited':>9} {'ratio':>6} {'prepare':>8}")
    ratios = []
    for model in arguments.models:
        times = {False: [], True: []}
        for n in range(2 * arguments.rounds):
            # Which one is first alternates as well.
            limited = (n + n // 2) % 2 == 1
            times[limited].append(bench(arguments.program, model, LIMITS if limited else [], arguments.seconds))
        (plain, prepare), (limited, limited_prepare) = (map(min, zip(*times[kind])) for kind in (False, True))
        ratios.append((limited / plain, limited_prepare / prepare))
        print(f"{model.stem:36} {plain:9.4f} {limited:9.4f} {ratios[-1][0]:6.3f} {ratios[-1][1]:8.3f}")
    run, prepare = (math.exp(sum(map(math.log, column)) / len(column)) for column in zip(*ratios))
    print(f"{'geometric mean':56} {run:6.3f} {prepare:8.3f}")


if __name__ == "__main__":
    main()
