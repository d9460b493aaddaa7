#!/usr/bin/env python3
"""Compare random one-op models with LiteRT: models that LiteRT runs must run here, with the same results.

    python3 scripts/fuzz_litert.py --cases 100000 --seed 7     (in a venv with requirements-goldens.txt: `make goldens` makes one)

A case is a mutation of one of the conformance suite's cases: other sizes, types, params, quantization, values or versions
(conformance/src/cases/mutant.rs). LiteRT's built-in kernels run it in a worker process, since LiteRT aborts on some
models; Delegraph's optimized and reference kernels run it in another one. Cases that LiteRT rejects only must not end
Delegraph's process.

A difference is printed with the case's folder in --keep (model and inputs), unless conformance/litert-differences.toml lists it with
the reason why LiteRT is wrong or undefined there, or LiteRT's own result depends on what was in its memory, or LiteRT's kernels
contradict one another: its reference kernels return Delegraph's result in the elements that differ. --rules prints how often each rule
of that file matched. The exit code is 1 if there are other differences.
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


class Rule:
    """A listed difference matches if all keys of the rule match."""
    KEYS = {"case", "text", "classes", "most", "within", "near", "why"}

    def __init__(self, keys):
        if not {"case", "why"} < keys.keys() <= self.KEYS:
            sys.exit(f"{LISTED}: a rule has the keys {', '.join(sorted(keys))}; possible are {', '.join(sorted(self.KEYS))}")
        self.case, self.text = re.compile(keys["case"]), re.compile(keys.get("text", ""))
        self.classes = re.compile(keys["classes"]) if "classes" in keys else None
        self.most, self.within, self.near, self.why = keys.get("most"), keys.get("within"), keys.get("near"), keys["why"]
        self.count = 0

    def holds(self, name, text):
        if not (self.case.search(name) and self.text.search(text)):
            return False
        deviation = re.search(r"off by (\S+), allowed \S+, at \d+ of \d+ \[(.*?)\]", text)
        if self.most is not None and not (deviation and float(deviation[1]) <= self.most):
            return False
        if self.classes and not (deviation and all(map(self.classes.fullmatch, deviation[2].split(", ")))):
            return False
        real = re.search(r"from real numbers: here (\S+), LiteRT ([^\s;]+)", text)
        if self.within is not None:
            return bool(real) and float(real[1]) <= self.within and float(real[1]) < float(real[2])
        if self.near is not None:
            return bool(real) and float(real[1]) <= self.near
        return True


def listed():
    import tomllib
    return [Rule(keys) for keys in tomllib.loads(LISTED.read_text())["difference"]]


def check(program, folder, seed):
    """The differences of a batch: (name, resolver, text, elements). A case that ends the process is one; other cases are checked."""
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
                found.append(tuple(line.split("\t", 3)))
        if code == 0:
            return found
        if at is None:
            sys.exit(f"{program}: {code}: {errors}")
        found.append((at, "process", f"ended with {code}: {errors.strip()[-300:]}", ""))
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


def agrees_with_reference(program, case, seed, differing):
    """Whether LiteRT's reference kernels run a case, and return the result of both of Delegraph's sets of kernels where those differ."""
    [outcome] = litert.run_all([case], litert.REFERENCE)
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        write_index(folder, [(case, outcome)])
        if outcome[0] != "ran" or not all(differing):
            return False
        found = [elements for _, _, _, elements in check(program, folder, seed)]
    return all(found) and not set(" ".join(differing).split()) & set(" ".join(found).split())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=1000, help="mutants to draw; some cannot be written as a model")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="the first mutant, to continue or to repeat one")
    parser.add_argument("--only", type=re.compile, default=re.compile(""), help="a regular expression for the names of the cases to run")
    parser.add_argument("--keep", type=pathlib.Path, default=ROOT / "target" / "fuzz-litert", help="where the folders of differences go")
    parser.add_argument("--program", type=pathlib.Path, help="the built example fuzz_cases, instead of building it")
    parser.add_argument("--rules", action="store_true", help="print how often each rule matched")
    parser.add_argument("--listed", type=pathlib.Path, help="a file for the listed differences, each with its rule's reason")
    arguments = parser.parse_args()
    program, rules = arguments.program or binary(), listed()
    log = arguments.listed.open("w") if arguments.listed else None
    counts, unexplained = collections.Counter(), 0
    end = arguments.first + arguments.cases
    for first in range(arguments.first, end, BATCH):
        with tempfile.TemporaryDirectory() as temporary:
            folder = pathlib.Path(temporary)
            subprocess.run([program, "write", folder, str(arguments.seed), str(first), str(min(BATCH, end - first))], check=True)
            cases = sorted((path.parent for path in folder.rglob("case.txt")), key=str)
            cases = [case for case in cases if arguments.only.search(str(case.relative_to(folder)))]
            outcomes = list(zip(cases, litert.run_all(cases)))
            counts.update(what for _, (what, _) in outcomes)
            write_index(folder, outcomes)
            explained, differing = {}, collections.defaultdict(list)
            differences = check(program, folder, arguments.seed)
            for name, _, _, elements in differences:
                differing[name].append(elements)
            for name, resolver, text, _ in differences:
                rule = next((rule for rule in rules if rule.holds(name, text)), None)
                if rule:
                    rule.count += 1
                    if log:
                        print(f"{name}\t{resolver}\t{text}\t{rule.why}", file=log, flush=True)
                    continue
                if name not in explained:
                    how = "varies" if litert.varies(folder / name) else \
                        "contradicts its reference kernels" if agrees_with_reference(program, folder / name, arguments.seed, differing[name]) else None
                    explained[name] = how
                    counts.update([how] if how else [])
                if explained[name]:
                    if log:
                        print(f"{name}\t{resolver}\t{text}\tLiteRT {explained[name]}", file=log, flush=True)
                    continue
                unexplained += 1
                kept = arguments.keep / name.replace("/", "_")
                shutil.rmtree(kept, ignore_errors=True)
                shutil.copytree(folder / name, kept)
                print(f"{name}\t{resolver}\t{text}", flush=True)
        print(f"{min(first + BATCH, end)} of {end}: {dict(counts)}, {unexplained} unexplained", file=sys.stderr, flush=True)
    if arguments.rules:
        for rule in sorted(rules, key=lambda rule: -rule.count):
            print(f"{rule.count} by {rule.case.pattern} {rule.text.pattern}: {rule.why}")
    matched = sum(rule.count for rule in rules)
    used = sum(rule.count > 0 for rule in rules)
    print(f"LiteRT: {dict(counts)}; {matched} listed differences by {used} of {len(rules)} rules, {unexplained} others")
    return 1 if unexplained else 0


if __name__ == "__main__":
    sys.exit(main())
