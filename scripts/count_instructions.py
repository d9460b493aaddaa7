#!/usr/bin/env python3
"""Counts the executed instructions of a run of a model on aarch64, in Delegraph and in LiteRT.

`scripts/count_instructions.py MODEL...` builds Delegraph's example `layers` and a program on LiteRT's library from its
wheel for aarch64, runs both in QEMU's user mode with a counting plugin, and prints a table. Emulation cannot measure
time. The number of instructions is the cost of a run without the effects of caches and of parallel execution of
instructions.

Needs Debian's qemu-user, gcc, gcc-aarch64-linux-gnu and libstdc++6-arm64-cross.
"""

import argparse
import glob
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
WORK = ROOT / "target/count"
TARGET = "aarch64-unknown-linux-gnu"
SYSTEM = Path("/usr/aarch64-linux-gnu")
WHEEL = "ai-edge-litert==2.3.0"
BASE = "fp asimd evtstrm aes pmull sha1 sha2 crc32 cpuid"

# QEMU's processor, and the part and the features that LiteRT reads from /proc/cpuinfo.
PROCESSORS = {
    "NEON": ("cortex-a53", "0xd03", BASE),
    "with sdot": ("cortex-a76", "0xd0b", f"{BASE} atomics fphp asimdhp asimdrdm lrcpc dcpop asimddp"),
    "with smmla": ("max,sve=off,sme=off", "0xd0b", f"{BASE} atomics fphp asimdhp asimdrdm lrcpc dcpop asimddp i8mm"),
}


def need(programs):
    missing = [program for program in programs if not shutil.which(program)]
    if missing or not SYSTEM.is_dir():
        sys.exit(f"count_instructions: left out: missing {', '.join(missing) or SYSTEM}")


def litert():
    """Returns the folder of LiteRT's library for aarch64, from its wheel."""
    folder = WORK / "litert"
    if not folder.is_dir():
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:", "--dest", WORK]
        platforms = ["--python-version", "3.11", "--platform", "manylinux_2_27_aarch64"]
        subprocess.run([*command, *platforms, WHEEL], check=True)
        with zipfile.ZipFile(glob.glob(str(WORK / "ai_edge_litert-*.whl"))[0]) as wheel:
            wheel.extractall(folder)
    return folder / "ai_edge_litert"


def build():
    """Compiles everything, and returns the plugin and the commands of both programs."""
    WORK.mkdir(parents=True, exist_ok=True)
    plugin = WORK / "libcount.so"
    subprocess.run(["gcc", "-O2", "-shared", "-fPIC", "-o", plugin, ROOT / "scripts/arm/count.c"], check=True)
    library = litert()
    theirs = WORK / "run_litert"
    link = [f"-L{library}", "-lLiteRt", "-Wl,--allow-shlib-undefined", f"-Wl,-rpath,{library}"]
    source = ROOT / "scripts/arm/run_litert.c"
    subprocess.run(["aarch64-linux-gnu-gcc", "-O1", "-w", "-o", theirs, source, *link], check=True)
    flags = subprocess.run(["sh", "scripts/sysroot.sh", TARGET], cwd=ROOT, check=True, capture_output=True, text=True)
    environment = {
        **os.environ,
        "CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUSTFLAGS": flags.stdout.strip(),
        "CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER": "aarch64-linux-gnu-gcc",
    }
    command = [os.environ.get("CARGO", "cargo"), "build", "--release", "--quiet", "--target", TARGET]
    command += ["--config", "profile.release.lto=false", "-p", "delegraph-interpreter", "--example", "layers"]
    subprocess.run(command, cwd=ROOT, check=True, env=environment)
    ours = ROOT / "target" / TARGET / "release/examples/layers"
    return plugin, [ours, "invoke"], [theirs]


def system(part, features):
    """Returns a root folder for the programs, with libraries and a processor description."""
    folder = WORK / "system"
    (folder / "proc").mkdir(parents=True, exist_ok=True)
    if not (folder / "lib").exists():
        (folder / "lib").symlink_to(SYSTEM / "lib")
    (folder / "proc/cpuinfo").write_text(
        f"processor\t: 0\nFeatures\t: {features}\nCPU implementer\t: 0x41\nCPU architecture: 8\n"
        f"CPU variant\t: 0x3\nCPU part\t: {part}\nCPU revision\t: 1\n\n"
    )
    return folder


def executed(plugin, command, model, processor):
    """Returns the number of instructions of one run: the difference of three runs and one, halved."""
    cpu, part, features = PROCESSORS[processor]
    emulator = ["qemu-aarch64", "-cpu", cpu, "-L", system(part, features), "-plugin", plugin]
    counts = []
    for runs in ("1", "3"):
        done = subprocess.run([*emulator, *command, runs, model], capture_output=True, text=True)
        found = re.search(r"instructions: (\d+)", done.stderr)
        if done.returncode or not found:
            return None
        counts.append(int(found[1]))
    return (counts[1] - counts[0]) / 2


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", type=Path)
    models = parser.parse_args().models
    need(["qemu-aarch64", "gcc", "aarch64-linux-gnu-gcc"])
    plugin, ours, theirs = build()
    print("| model | processor | Delegraph | LiteRT | ratio |\n|---|---|---|---|---|", flush=True)
    for model in models:
        for processor in PROCESSORS:
            counts = [executed(plugin, command, model.resolve(), processor) for command in (ours, theirs)]
            cells = ["fails" if count is None else f"{count / 1e6:.3f} M" for count in counts]
            ratio = f"{counts[0] / counts[1]:.2f}" if all(counts) else ""
            print(f"| {model.stem} | {processor} | {cells[0]} | {cells[1]} | {ratio} |", flush=True)


if __name__ == "__main__":
    main()
