#!/usr/bin/env python3
"""Compare random one-op models with LiteRT: what LiteRT runs must run here, with the same results.

    python3 scripts/fuzz_litert.py --cases 100000 --seed 7     (in a venv with requirements-goldens.txt: `make goldens` makes one)

A case is a mutation of one of the conformance suite's cases: other sizes, types, params, quantization, values or versions
(conformance/src/cases/mutant.rs). LiteRT's built-in kernels run it in a worker process, since some models make LiteRT abort;
the optimized and the reference kernels run it in another one. Cases that LiteRT refuses only must not end our process.

A difference is printed with the case's folder in --keep (model and inputs), unless conformance/litert-differences.toml lists it with
the reason why LiteRT is wrong or undefined there. The exit code is 1 if there are others.
"""
import argparse
import collections
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import make_case_goldens as litert

ROOT = litert.ROOT
LISTED = ROOT / "conformance" / "litert-differences.toml"
BATCH = 500
SECONDS_PER_BATCH = 600


def binary():
    cargo = os.environ.get("CARGO", "cargo")
    # Kernels are optimised in every profile; this one checks arithmetic for overflow as well.
    subprocess.run([cargo, "build", "--quiet", "--package", "delegraph-conformance", "--example", "fuzz_cases"], cwd=ROOT, check=True)
    return ROOT / "target" / "debug" / "examples" / "fuzz_cases"


def listed():
    import tomllib
    rules = tomllib.loads(LISTED.read_text()).get("difference", []) if LISTED.exists() else []
    return [(re.compile(rule["case"]), re.compile(rule["text"]), rule["why"]) for rule in rules]


def check(program, folder, seed):
    """The differences of a batch: (name, resolver, text). A case that ends the process is one; the others are still checked."""
    index = folder / "index.tsv"
    found = []
    while True:
        try:
            done = subprocess.run([program, "check", folder, str(seed)], capture_output=True, text=True, timeout=SECONDS_PER_BATCH)
            output, code, errors = done.stdout, done.returncode, done.stderr
        except subprocess.TimeoutExpired as e:
            output, code, errors = (e.stdout or b"").decode(), "timeout", ""
        at = None
        for line in output.splitlines():
            if line.startswith("> "):
                at = line[2:]
            else:
                found.append(tuple(line.split("\t", 2)))
        if code == 0:
            return found
        if at is None:
            sys.exit(f"{program}: {code}: {errors}")
        found.append((at, "process", f"ended with {code}: {errors.strip()[-300:]}"))
        lines = index.read_text().splitlines(keepends=True)
        # Entries are checked in the order of their names.
        left = [line for line in lines if line.startswith("#") or line.split("\t")[0] > at]
        index.write_text("".join(left))


def write_index(folder, outcomes):
    import importlib.metadata
    lines, data = [f"# ai-edge-litert {importlib.metadata.version('ai-edge-litert')}\n"], bytearray()
    for case, (what, rest) in outcomes:
        name, fingerprint = (case / "case.txt").read_text().split("\t")[:2]
        if what == "ran":
            pieces = []
            for piece in filter(None, rest.split(";")):
                head, _, body = piece.rpartition(" ")
                body = bytes.fromhex(body)
                pieces.append(f"{head} {len(data)}+{len(body)}")
                data += body
            rest = ";".join(pieces)
        lines.append(f"{name}\t{fingerprint}\t{what}\t{rest}\n")
    (folder / "index.tsv").write_text("".join(lines))
    (folder / "outputs.bin").write_bytes(data)
    (folder / "types.tsv").write_text("")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=1000, help="mutants to draw; some cannot be written as a model")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="the first mutant, to continue or to repeat one")
    parser.add_argument("--keep", type=pathlib.Path, default=ROOT / "target" / "fuzz-litert", help="where the folders of differences go")
    arguments = parser.parse_args()
    program, rules = binary(), listed()
    counts, explained, unexplained = collections.Counter(), collections.Counter(), 0
    end = arguments.first + arguments.cases
    for first in range(arguments.first, end, BATCH):
        with tempfile.TemporaryDirectory() as temporary:
            folder = pathlib.Path(temporary)
            subprocess.run([program, "write", folder, str(arguments.seed), str(first), str(min(BATCH, end - first))], check=True)
            cases = sorted((path.parent for path in folder.rglob("case.txt")), key=str)
            outcomes = list(zip(cases, litert.run_all(cases)))
            counts.update(what for _, (what, _) in outcomes)
            write_index(folder, outcomes)
            for name, resolver, text in check(program, folder, arguments.seed):
                why = next((why for case, pattern, why in rules if case.search(name) and pattern.search(text)), None)
                if why:
                    explained[why] += 1
                    continue
                unexplained += 1
                kept = arguments.keep / name.replace("/", "_")
                shutil.rmtree(kept, ignore_errors=True)
                shutil.copytree(folder / name, kept)
                print(f"{name}\t{resolver}\t{text}", flush=True)
        print(f"{min(first + BATCH, end)} of {end}: {dict(counts)}, {unexplained} unexplained", file=sys.stderr, flush=True)
    for why, count in explained.most_common():
        print(f"{count} listed: {why}")
    print(f"LiteRT: {dict(counts)}; {sum(explained.values())} listed differences, {unexplained} others")
    return 1 if unexplained else 0


if __name__ == "__main__":
    sys.exit(main())
