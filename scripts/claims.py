#!/usr/bin/env python3
"""Lists the nodes that a delegate claims in real models and in cases from other sources.

    python3 scripts/claims.py models MODEL...       each model: nodes claimed, and why the others are not
    python3 scripts/claims.py cases RESULTS.csv...  each op of the GPU accelerators' table, and the sum of all others

`models` runs `target/release/delegraph explain MODEL --delegate wgpu` (DELEGRAPH names another program). `delegraph
conformance --corpus DIR --delegate wgpu --report OUT` writes `RESULTS.csv` to OUT; a case counts as claimed if one of
its nodes is.
"""
import collections
import csv
import json
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
PROGRAM = os.environ.get("DELEGRAPH", str(ROOT / "target/release/delegraph"))


def models(paths: list[str]) -> None:
    whole, all_models = 0, 0
    for path in paths:
        ran = subprocess.run([PROGRAM, "explain", path, "--delegate", "wgpu", "--json"], capture_output=True, text=True)
        name = pathlib.Path(path).name
        if ran.returncode:
            errors = [line for line in ran.stderr.splitlines() if line.strip() and "XDG_RUNTIME_DIR" not in line]
            print(f"does not run  {name}: {' '.join(errors)[:200]}")
            continue
        nodes = json.loads(ran.stdout)["nodes"]
        left = [node for node in nodes if node["runner"] != "wgpu"]
        all_models += 1
        whole += not left
        print(f"{len(nodes) - len(left):4} of {len(nodes):4}  {name}")
        reasons = collections.Counter((node["op"], (node["rejections"] or [{}])[0].get("reason")) for node in left)
        for (op, reason), count in reasons.most_common():
            print(f"              {count} {op}: {reason}")
    print(f"{whole} of {all_models} models are claimed whole")


def cases(paths: list[str]) -> None:
    lines = (ROOT / "tests/data/gpu_ops.tsv").read_text().splitlines()
    table = [line.split("\t")[0] for line in lines if line and not line.startswith("#")]
    claimed = collections.defaultdict(lambda: [0, 0])
    for path in paths:
        with open(path, newline="") as file:
            for row in csv.DictReader(file):
                op = row["op"] if row["op"] in table else "all others"
                for key in [op, *["all of the table"] * (op in table)]:
                    claimed[key][0] += 1
                    claimed[key][1] += int(row["claimed"] or 0) > 0
    print("| op | cases | claimed |\n|---|---|---|")
    for op in [*table, "all of the table", "all others"]:
        if op in claimed:
            print("| {} | {:,} | {:,} |".format(op, *claimed[op]))


if __name__ == "__main__":
    kinds = {"models": models, "cases": cases}
    if len(sys.argv) < 3 or sys.argv[1] not in kinds:
        sys.exit(__doc__)
    kinds[sys.argv[1]](sys.argv[2:])
