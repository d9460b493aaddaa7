#!/usr/bin/env python3
"""Print how many lines of each crate the profiles of `sanitize.sh coverage` executed.

    python3 scripts/coverage.py target/coverage/profiles [--files CRATE]

A profile's name begins with the campaign that wrote it: asan, miri or mutants. Test modules count as code of their
crate. With --files, the files of one crate follow, those with the most lines that no campaign executed first. Needs the component llvm-tools of rustup.
"""
import argparse
import collections
import json
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
# The folders of the workspace that are crates, the innermost first.
CRATES = sorted((path.parent.relative_to(ROOT).as_posix() for path in ROOT.glob("*/**/Cargo.toml") if "target" not in path.parts), key=len, reverse=True)


def tools():
    """The folder of llvm-profdata and llvm-cov."""
    root = pathlib.Path(subprocess.run(["rustc", "--print", "sysroot"], capture_output=True, text=True, check=True).stdout.strip())
    found = list(root.glob("lib/rustlib/*/bin/llvm-profdata"))
    if not found:
        sys.exit("coverage: there is no llvm-profdata (rustup component add llvm-tools)")
    return found[0].parent


def executables():
    """The test binaries and the program `mutants` in target/coverage."""
    files = (ROOT / "target" / "coverage").glob("debug/deps/*")
    return sorted(path for path in files if path.suffix == "" and path.is_file() and path.stat().st_mode & 0o111)


def lines(folder, campaign, binaries, llvm):
    """The executed and all lines of each file, which `llvm-cov export` counts over all binaries."""
    profiles = sorted(folder.glob(f"{campaign}-*.profraw"))
    if not profiles:
        return {}
    merged = folder / f"{campaign}.profdata"
    names = folder / "names.txt"
    names.write_text("\n".join(map(str, profiles)))
    subprocess.run([llvm / "llvm-profdata", "merge", "-sparse", "--failure-mode=warn", "-f", names, "-o", merged], check=True, stderr=subprocess.DEVNULL)
    objects = [word for path in binaries for word in ("-object", path)]
    text = subprocess.run([llvm / "llvm-cov", "export", "-summary-only", f"-instr-profile={merged}", *objects[1:]],
                          capture_output=True, text=True, check=True).stdout
    counted = {}
    for file in json.loads(text)["data"][0]["files"]:
        path = pathlib.Path(file["filename"])
        if path.is_relative_to(ROOT):
            count = file["summary"]["lines"]
            counted[path.relative_to(ROOT).as_posix()] = (count["covered"], count["count"])
    return counted


def crate(file):
    return next((folder for folder in CRATES if file.startswith(folder + "/")), "src")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("profiles", type=pathlib.Path)
    parser.add_argument("--files", metavar="CRATE", help="list the files of this crate")
    arguments = parser.parse_args()
    llvm, binaries = tools(), executables()
    campaigns = ["miri", "asan", "mutants", "*"]
    table = {campaign: lines(arguments.profiles, campaign, binaries, llvm) for campaign in campaigns}
    total = collections.defaultdict(lambda: collections.defaultdict(lambda: [0, 0]))
    for campaign, files in table.items():
        for file, (covered, count) in files.items():
            for key in (crate(file), "all"):
                total[key][campaign][0] += covered
                total[key][campaign][1] += count
    print(f"{'crate':32} {'lines':>7} {'miri':>6} {'asan':>6} {'mutants':>8} {'together':>9}")
    for key in sorted(total, key=lambda key: (key == "all", key)):
        row, count = total[key], total[key]["*"][1]
        share = [100 * row[campaign][0] / count if count else 0 for campaign in campaigns]
        print(f"{key:32} {count:7} {share[0]:5.0f}% {share[1]:5.0f}% {share[2]:7.0f}% {share[3]:8.0f}%")
    for file, (covered, count) in sorted(table["*"].items(), key=lambda entry: entry[1][0] - entry[1][1]):
        if arguments.files and crate(file) == arguments.files:
            print(f"{covered:6} of {count:6} {file}")


if __name__ == "__main__":
    main()
