#!/usr/bin/env python3
"""Injects faults into the reference kernels and counts the faults that the conformance cases detect.

    mutants.py            builds a copy of the workspace with every fault of conformance/mutants/list.toml, one of which
                          can be on at a time, and runs the cases of its ops; exit 1 where more than 5 in 100 survive
    mutants.py --check    only checks that the list still applies to the kernels

Faults are injected into a copy below target/, not into the real kernels.
"""

import argparse
import os
import pathlib
import subprocess
import sys
import tomllib

ROOT = pathlib.Path(__file__).resolve().parent.parent
LIST = ROOT / "conformance" / "mutants" / "list.toml"
KERNELS = pathlib.Path("interpreter") / "kernels" / "src"
SWITCH = """

// So that faults in this crate find their switch by the name that other crates use.
extern crate self as delegraph_core;

/// Planted faults: which one is on.
pub mod mutants {
    use std::sync::atomic::{AtomicUsize, Ordering};

    static ON: AtomicUsize = AtomicUsize::new(0);

    /// Turns fault `number` on, and every other one off; 0 is none.
    pub fn set(number: usize) {
        ON.store(number, Ordering::SeqCst);
    }

    /// Whether fault `number` is on.
    pub fn on(number: usize) -> bool {
        ON.load(Ordering::Relaxed) == number
    }

    /// Names, and the ops whose cases must notice, from number 1 on.
    pub const LIST: &[(&str, &[&str])] = &[
%s    ];
}
"""


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--check", action="store_true", help="only check that the list fits the kernels")
    arguments.add_argument("--filter", default="", help="only the faults whose name contains this")
    arguments = arguments.parse_args()
    mutants = tomllib.loads(LIST.read_text())["mutant"]
    names = [m["name"] for m in mutants]
    if len(set(names)) != len(names):
        sys.exit("mutants: two faults have one name")
    planted = plant(mutants)
    if arguments.check:
        print(f"mutants: {len(mutants)} faults fit {len(planted)} files")
        return
    entries = "".join(f"        ({quoted(m['name'])}, &[{', '.join(map(quoted, m['ops']))}]),\n" for m in mutants)
    changed = {str(place(file)): text for file, text in planted.items()}
    changed["core/src/lib.rs"] = (ROOT / "core" / "src" / "lib.rs").read_text() + SWITCH % entries
    changed["conformance/examples/mutants.rs"] = (LIST.parent / "main.rs").read_text()
    folder = ROOT / "target" / "mutants"
    copy_tree(folder / "workspace", changed)
    command = ["cargo", "run", "--release", "--quiet", "-p", "delegraph-conformance", "--example", "mutants", "--"]
    environment = {**os.environ, "CARGO_TARGET_DIR": str(folder / "target")}
    run = subprocess.run([*command, arguments.filter], cwd=folder / "workspace", env=environment)
    sys.exit(run.returncode)


def quoted(text):
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def place(file):
    """The path of a file in the list: relative to the kernels, unless it is below core/."""
    return pathlib.Path(file) if file.startswith("core/") else KERNELS / file


def plant(mutants):
    """The texts of the kernels' files with all faults."""
    places = {}
    for number, mutant in enumerate(mutants, 1):
        text = (ROOT / place(mutant["file"])).read_text()
        name, find, after = mutant["name"], mutant["find"], mutant.get("after", "")
        start = text.find(after)
        if start < 0:
            sys.exit(f"mutants: {name}: {mutant['file']} does not hold {after!r}")
        at = text.find(find, start)
        if at < 0:
            sys.exit(f"mutants: {name}: {mutant['file']} does not hold {find!r}")
        if not after and text.find(find, at + 1) >= 0:
            sys.exit(f"mutants: {name}: {mutant['file']} holds {find!r} more than once; add `after`")
        places.setdefault(mutant["file"], {}).setdefault((at, find), []).append((number, mutant["replace"]))
    planted = {}
    for file, found in places.items():
        text = (ROOT / place(file)).read_text()
        end = len(text)
        for (at, find), faults in sorted(found.items(), reverse=True):
            if at + len(find) > end:
                sys.exit(f"mutants: two faults overlap in {file} at {find!r}")
            chain = "".join(f"if delegraph_core::mutants::on({n}) {{ {fault} }} else " for n, fault in faults)
            text = f"{text[:at]}({chain}{{ {find} }}){text[at + len(find):]}"
            end = at
        planted[file] = text
    return planted


def copy_tree(copy, changed):
    """Copies all tracked files, with these texts replacing files' contents. Unchanged files are not written, so that
    their build outputs stay valid."""
    command = ["git", "ls-files", "-z", "-co", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout.decode().split("\0")
    files = {name for name in listed if name and (ROOT / name).is_file()} | set(changed)
    for old in [path for path in copy.rglob("*") if path.is_file()]:
        if str(old.relative_to(copy)) not in files:
            old.unlink()
    for name in files:
        data = changed[name].encode() if name in changed else (ROOT / name).read_bytes()
        path = copy / name
        if not path.is_file() or path.read_bytes() != data:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)


if __name__ == "__main__":
    main()
