#!/usr/bin/env python3
"""Runs folders of conformance cases with TensorFlow Lite's C API, and compares the outcomes with the command's.

    scripts/check_c_corpus.py FOLDER [--library FILE] [--command FILE]

A case is a folder with model.tflite, input_0.npy, … and expected_0.npy, … (docs/conformance.md). Needs NumPy. Each
process runs 200 cases, so that a crash is a result.
"""

import argparse
import ctypes as c
import json
import subprocess
import sys
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
CHUNK = 200
INT4, BFLOAT16, INT2, UINT4, STRING = 18, 19, 20, 21, 5
NUMPY = {1: "f4", 2: "i4", 3: "u1", 4: "i8", 6: "?", 7: "i2", 8: "c8", 9: "i1", 10: "f2", 11: "f8", 12: "c16", 13: "u8", 16: "u4", 17: "u2"}
PACKED = {INT4: 4, UINT4: 4, INT2: 2}
# Names of functions whose result is a pointer.
POINTERS = ("ModelCreateFromFile", "InterpreterOptionsCreate", "InterpreterCreate", "InterpreterGetInputTensor",
    "InterpreterGetOutputTensor", "TensorData", "InterpreterGetSignatureRunner", "SignatureRunnerGetInputTensor",
    "SignatureRunnerGetOutputTensor")
REPORTER = c.CFUNCTYPE(None, c.c_void_p, c.c_char_p, c.c_void_p)


class Library:
    def __init__(self, path):
        self.lib = c.CDLL(str(path))
        for name in POINTERS:
            getattr(self.lib, "TfLite" + name).restype = c.c_void_p
        self.lib.TfLiteTensorByteSize.restype = c.c_size_t
        self.quiet = REPORTER(lambda *_: None)

    def __getattr__(self, name):
        return getattr(self.lib, "TfLite" + name)


def shape(api, tensor):
    return [api.TensorDim(tensor, i) for i in range(api.TensorNumDims(tensor))]


def encoded(ty, array):
    if ty in PACKED:
        bits, per = PACKED[ty], 8 // PACKED[ty]
        flat = array.astype(np.int64).flatten() & ((1 << bits) - 1)
        flat = np.concatenate([flat, np.zeros(-len(flat) % per, np.int64)]).reshape(-1, per)
        return (flat << (np.arange(per) * bits)).sum(axis=1).astype(np.uint8).tobytes()
    if ty == BFLOAT16:
        bits = array.astype(np.float32).view(np.uint32).astype(np.uint64)
        return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16).tobytes()
    return np.ascontiguousarray(array).astype(NUMPY[ty], copy=False).tobytes()


def decoded(ty, data, dims):
    count = int(np.prod(dims, dtype=np.int64))
    if ty == STRING:
        head = np.frombuffer(data, np.int32)
        return [data[head[1 + i] : head[2 + i]] for i in range(head[0])]
    if ty in PACKED:
        bits, per = PACKED[ty], 8 // PACKED[ty]
        values = (np.frombuffer(data, np.uint8)[:, None] >> (np.arange(per) * bits)) & ((1 << bits) - 1)
        values = values.flatten()[:count].astype(np.int64)
        return (values if ty == UINT4 else np.where(values >= 1 << (bits - 1), values - (1 << bits), values)).reshape(dims)
    if ty == BFLOAT16:
        return (np.frombuffer(data, np.uint16).astype(np.uint32) << 16).view(np.float32).reshape(dims)
    return np.frombuffer(data, NUMPY[ty]).reshape(dims)


def agrees(ty, actual, expected, tolerance):
    if ty == STRING:
        return actual == [s if isinstance(s, bytes) else str(s).encode() for s in expected.flatten().tolist()]
    if list(actual.shape) != list(expected.shape):
        return False
    if actual.size == 0 or np.array_equal(actual, expected, equal_nan=expected.dtype.kind in "fc"):
        return True
    if expected.dtype.kind in "fc":
        finite = np.isfinite(expected)
        if not np.array_equal(actual[~finite], expected[~finite], equal_nan=True):
            return False
        largest = np.abs(expected[finite]).max(initial=0)
        half = ty in (10, BFLOAT16)
        limit = tolerance.get("abs", 0 if half else 1e-5) + tolerance.get("rel", 5e-3 if half else 1e-4) * largest
        return bool((np.abs(actual[finite] - expected[finite]) <= limit).all())
    return bool(np.abs(actual.astype(np.int64) - expected.astype(np.int64)).max() <= tolerance.get("quantum", 0))


def run_case(api, folder):
    details = json.loads((folder / "case.json").read_text()) if (folder / "case.json").exists() else {}
    if details.get("signature") or (folder / "step_1").exists():
        return "left out"
    model = api.ModelCreateFromFile(str(folder / "model.tflite").encode())
    options = api.InterpreterOptionsCreate()
    api.InterpreterOptionsSetErrorReporter(c.c_void_p(options), api.quiet, None)
    it = api.InterpreterCreate(c.c_void_p(model), c.c_void_p(options))
    try:
        return run(api, c.c_void_p(it), folder, details.get("tolerance", {})) if it else "error"
    finally:
        api.InterpreterDelete(c.c_void_p(it))
        api.InterpreterOptionsDelete(c.c_void_p(options))
        api.ModelDelete(c.c_void_p(model))


def run(api, it, folder, tolerance):
    inputs = [np.load(folder / f"input_{i}.npy", allow_pickle=False) for i in range(api.InterpreterGetInputTensorCount(it))]
    for i, array in enumerate(inputs):
        tensor = c.c_void_p(api.InterpreterGetInputTensor(it, i))
        if shape(api, tensor) != list(array.shape):
            dims = (c.c_int * array.ndim)(*array.shape)
            if api.InterpreterResizeInputTensor(it, i, dims, array.ndim):
                return "error"
    if api.InterpreterAllocateTensors(it):
        return "error"
    for i, array in enumerate(inputs):
        tensor = c.c_void_p(api.InterpreterGetInputTensor(it, i))
        ty = api.TensorType(tensor)
        if ty not in NUMPY and ty not in PACKED and ty != BFLOAT16:
            return "left out"
        data = encoded(ty, array)
        if api.TensorCopyFromBuffer(tensor, data, c.c_size_t(len(data))):
            return "error"
    if api.InterpreterInvoke(it):
        return "error"
    for i in range(api.InterpreterGetOutputTensorCount(it)):
        tensor = c.c_void_p(api.InterpreterGetOutputTensor(it, i))
        ty, size = api.TensorType(tensor), api.TensorByteSize(tensor)
        if ty not in NUMPY and ty not in PACKED and ty not in (BFLOAT16, STRING):
            return "left out"
        data = c.string_at(api.TensorData(tensor), size) if size else b""
        expected = np.load(folder / f"expected_{i}.npy", allow_pickle=False)
        if not agrees(ty, decoded(ty, data, shape(api, tensor)), expected, tolerance):
            return "mismatch"
    return "pass"


def worker(library, folders):
    api = Library(library)
    for folder in folders:
        try:
            outcome = run_case(api, Path(folder))
        except (ValueError, KeyError, FileNotFoundError) as error:
            outcome = f"left out: {error}"
        print(json.dumps([folder, outcome]), flush=True)


def through_the_library(library, folders):
    outcomes, rest = {}, list(folders)
    while rest:
        chunk = rest[:CHUNK]
        command = [sys.executable, __file__, "--worker", library]
        done = subprocess.run(command, input="\n".join(chunk), capture_output=True, text=True, timeout=1200)
        for line in done.stdout.splitlines():
            folder, outcome = json.loads(line)
            outcomes[folder] = outcome
        left = [folder for folder in chunk if folder not in outcomes]
        if left:
            outcomes[left[0]] = f"crash ({done.returncode})"
        rest = left[1:] + rest[CHUNK:]
    return outcomes


def through_the_command(command, folder):
    done = subprocess.run([command, "conformance", "--corpus", str(folder), "--delegate", "cpu", "--json"], capture_output=True, text=True)
    document = json.loads(done.stdout)
    return {case["case"]: case["outcome"] for case in document["results"]}


def main():
    if sys.argv[1:2] == ["--worker"]:
        return worker(sys.argv[2], sys.stdin.read().split("\n"))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--library", default=str(ROOT / "target/c/lib/libtensorflowlite_c.so"))
    parser.add_argument("--command", default=str(ROOT / "target/release/delegraph"))
    options = parser.parse_args()
    root = Path(options.folder)
    folders = sorted(str(file.parent) for file in root.rglob("model.tflite") if not file.parent.name.startswith("step_"))
    ours = through_the_library(options.library, folders)
    counts = {}
    for outcome in ours.values():
        key = outcome.split(":")[0].split(" (")[0]
        counts[key] = counts.get(key, 0) + 1
    print(f"c-corpus: {len(ours)} cases: " + ", ".join(f"{count} {key}" for key, count in sorted(counts.items())))
    bad = {folder: outcome for folder, outcome in ours.items() if outcome.startswith("crash")}
    if Path(options.command).exists():
        theirs = through_the_command(options.command, root)
        for folder, outcome in ours.items():
            other = theirs.get(str(Path(folder).relative_to(root)))
            if not outcome.startswith("left out") and other is not None and (outcome == "pass") != (other == "pass"):
                bad[folder] = f"{outcome}, {other} through the command"
    for folder, outcome in sorted(bad.items())[:50]:
        print(f"c-corpus: {folder}: {outcome}", file=sys.stderr)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
