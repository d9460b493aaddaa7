#!/usr/bin/env python3
"""Counts the instructions of the inner loops of micro-kernels on aarch64, and checks them against limits.

Emulators do not measure time. The cost of a loop is its number of instructions per multiply-add, counted in the
disassembly: `scripts/inner_loops.py [--table] [OBJECT...]`. Without objects, the crate of the kernels is compiled for
aarch64.
`--table` prints the rows of docs/benchmarks.md.
"""

import argparse
import glob
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TARGET = "aarch64-unknown-linux-gnu"
OBJDUMP = "aarch64-linux-gnu-objdump"

# Multiply-adds of one instruction. `sadalp` adds the eight products of a `smull`.
MULTIPLY_ADDS = {"fmla": 4, "sdot": 16, "smmla": 32, "sadalp": 8}

# Micro-kernels (rows, vectors of four columns) and the maximum of instructions per multiply-add of their inner loops:
# the current number plus a tenth.
LIMITS = {
    ("gemm_f32", "neon", 5, 4): 0.34,
    ("gemm_f32", "neon", 8, 2): 0.35,
    ("gemm_i8", "neon", 5, 1): 0.45,
    ("gemm_i8", "neon_dot", 5, 4): 0.12,
    ("gemm_i8", "neon_dot", 4, 4): 0.112,
    ("gemm_i8", "neon_dot", 8, 2): 0.14,
    ("gemm_i8", "neon_i8mm", 4, 4): 0.086,
    ("gemm_i8", "neon_i8mm", 8, 2): 0.099,
}

SYMBOL = re.compile(r"^[0-9a-f]+ <(.*)>:$")
INSTRUCTION = re.compile(r"^\s*([0-9a-f]+):\s+(?:[0-9a-f]{8}\s+)?([a-z0-9.]+)\s*(.*)$")
KERNEL = re.compile(r"(gemm_f32|gemm_i8)::(\w+)::<(\d+)(?:usize)?, (\d+)(?:usize)?>")


def build():
    """Compiles the crate for aarch64 and returns its library."""
    flags = subprocess.run(["sh", "scripts/sysroot.sh", TARGET], cwd=ROOT, capture_output=True, text=True)
    if flags.returncode or not shutil.which(OBJDUMP):
        print(f"inner_loops: left out: needs the standard library for {TARGET} and {OBJDUMP}")
        sys.exit(0)
    # The newer mangling has the constants of functions, which are the sizes of micro-kernels.
    rustflags = f"{flags.stdout.strip()} -Csymbol-mangling-version=v0"
    command = [
        os.environ.get("CARGO", "cargo"), "build", "--release", "--quiet", "--config", "profile.release.lto=false",
        "--target", TARGET, "--target-dir", "target/inner-loops", "-p", "delegraph-compute", "--lib",
    ]
    subprocess.run(command, cwd=ROOT, check=True, env={**os.environ, "RUSTFLAGS": rustflags})
    return glob.glob(str(ROOT / "target/inner-loops" / TARGET / "release/libdelegraph_compute.rlib"))


def objects(library):
    """Yields the objects of a library that have micro-kernels: disassembling all takes minutes."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["aarch64-linux-gnu-ar", "x", os.path.abspath(library)], cwd=folder, check=True)
        for path in sorted(glob.glob(f"{folder}/*.o")):
            symbols = subprocess.run(["aarch64-linux-gnu-nm", "--demangle=rust", path], capture_output=True, text=True).stdout
            if KERNEL.search(symbols):
                yield path


def functions(path):
    """Yields the name and the instructions `(address, mnemonic, operands)` of each function of an object."""
    lines = subprocess.run(
        [OBJDUMP, "-d", "--no-show-raw-insn", "--demangle=rust", path], check=True, capture_output=True, text=True
    ).stdout.splitlines()
    name, code = None, []
    for line in lines:
        if symbol := SYMBOL.match(line):
            if name:
                yield name, code
            name, code = symbol[1], []
        elif name and (instruction := INSTRUCTION.match(line)):
            code.append((int(instruction[1], 16), instruction[2], instruction[3]))
    if name:
        yield name, code


def loops(code):
    """Yields the instructions of each innermost loop: from the target of a backward branch to the branch."""
    ranges = []
    for address, mnemonic, operands in code:
        if re.fullmatch(r"b|b\..*|cbn?z|tbn?z", mnemonic):
            target = re.findall(r"\b([0-9a-f]+)(?: <|$)", operands)
            if target and int(target[-1], 16) <= address:
                ranges.append((int(target[-1], 16), address))
    for first, last in ranges:
        if not any((f, l) != (first, last) and first <= f and l <= last for f, l in ranges):
            yield [(m, o) for a, m, o in code if first <= a <= last]


def multiply_adds(instruction):
    mnemonic, operands = instruction
    return 0 if ".2s" in operands else MULTIPLY_ADDS.get(mnemonic.removesuffix("2"), 0)


def densest(code):
    """Returns instructions and multiply-adds of the loop with the most multiply-adds."""
    counted = [(len(loop), sum(map(multiply_adds, loop))) for loop in loops(code)]
    return max(counted, key=lambda c: (c[1], -c[0]), default=(0, 0))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--table", action="store_true")
    parser.add_argument("objects", nargs="*")
    arguments = parser.parse_args()
    found = {}
    for path in arguments.objects or (path for library in build() for path in objects(library)):
        for name, code in functions(path):
            if kernel := KERNEL.search(name):
                key = (kernel[1], kernel[2], int(kernel[3]), int(kernel[4]))
                found[key] = densest(code)
    failures = []
    for key, limit in LIMITS.items():
        instructions, products = found.get(key, (0, 0))
        kind, name, rows, vectors = key
        if not products:
            failures.append(f"{kind} {name} {rows}x{vectors}: no inner loop found")
            continue
        ratio = instructions / products
        if arguments.table:
            print(f"| {kind} | {name} | {rows} × {4 * vectors} | {instructions} | {products} | {ratio:.3f} |")
        else:
            print(f"inner_loops: {kind} {name} {rows}x{4 * vectors}: {instructions} instructions, {products} multiply-adds, {ratio:.3f}")
        if ratio > limit:
            failures.append(f"{kind} {name} {rows}x{4 * vectors}: {ratio:.3f} instructions per multiply-add, at most {limit} are allowed")
    for failure in failures:
        print(f"inner_loops: {failure}", file=sys.stderr)
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
