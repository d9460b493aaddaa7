#!/usr/bin/env python3
"""Run LiteRT on every single-op case and write conformance/goldens/ops.

    make goldens        (or: python3 scripts/make_case_goldens.py in a venv with requirements-goldens.txt)

`cargo run -p delegraph-conformance --example make_cases` writes the cases as folders; the built-in kernels run each on
one thread. LiteRT aborts on some models, so the cases run in worker processes, and a crash is one of the outcomes.
`--probe` runs the cases in other types and lists, per op, the types that LiteRT accepts (types.tsv).
"""
import argparse
import contextlib
import importlib.metadata
import os
import pathlib
import signal
import subprocess
import sys
import tempfile

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parent.parent
OUT = ROOT / "conformance" / "goldens" / "ops"
WORKERS = max(1, os.cpu_count() or 1)
SECONDS_PER_CASE = 20
NAMES = {"float16": "FLOAT16", "bfloat16": "BFLOAT16", "float32": "FLOAT32", "float64": "FLOAT64", "complex64": "COMPLEX64",
         "complex128": "COMPLEX128", "bool": "BOOL", "int8": "INT8", "uint8": "UINT8", "int16": "INT16", "uint16": "UINT16",
         "int32": "INT32", "uint32": "UINT32", "int64": "INT64", "uint64": "UINT64", "int4": "INT4", "int2": "INT2",
         "uint4": "UINT4", "float8_e4m3fn": "FLOAT8_E4M3FN", "float8_e5m2": "FLOAT8_E5M2"}
NARROW = {"int4": (4, 2), "uint4": (4, 2), "int2": (2, 4)}


def unpack_strings(data):
    words = data[:4].view("<i4")
    ends = data[4:4 * (words[0] + 2)].view("<i4")
    return [data[a:b].tobytes() for a, b in zip(ends, ends[1:])]


def pack_strings(strings):
    end = 4 * (len(strings) + 2)
    words = [len(strings), end]
    for string in strings:
        end += len(string)
        words.append(end)
    return np.array(words, "<i4").tobytes() + b"".join(strings)


def feed(interpreter, detail, array):
    dtype = np.dtype(detail["dtype"])
    if dtype.kind in "OSU":
        strings = unpack_strings(array)
        return interpreter.set_tensor(detail["index"], np.array(strings, dtype=bytes).reshape(detail["shape"]))
    if array.dtype != dtype:
        array = array.view(dtype) if array.dtype.kind == "V" else array.astype(dtype)
    return interpreter.set_tensor(detail["index"], array)


def output(interpreter, detail):
    """The description of an output in index.tsv, and its bytes."""
    # The interface refuses to read a tensor without elements.
    empty = 0 in detail["shape"] and np.dtype(detail["dtype"]).kind not in "OSU"
    array = np.zeros(detail["shape"], detail["dtype"]) if empty else interpreter.get_tensor(detail["index"])
    if array.dtype.kind in "OSU":
        name, data = "STRING", pack_strings([s.encode() if isinstance(s, str) else bytes(s) for s in array.reshape(-1)])
    elif array.dtype.name in NARROW:
        bits, per_byte = NARROW[array.dtype.name]
        flat = array.astype(np.int8).reshape(-1).view(np.uint8) & (2**bits - 1)
        flat = np.pad(flat, (0, -flat.size % per_byte)).reshape(-1, per_byte)
        name = NAMES[array.dtype.name]
        data = np.bitwise_or.reduce(flat << np.arange(0, 8, bits, dtype=np.uint8), axis=1).astype(np.uint8).tobytes()
    else:
        name, data = NAMES[array.dtype.name], np.ascontiguousarray(array).tobytes()
    quantized = "q" if len(detail["quantization_parameters"]["scales"]) else "-"
    shape = ",".join(map(str, array.shape)) or "-"
    return f"{name} {quantized} {shape}", data


def run(folder):
    from ai_edge_litert.interpreter import Interpreter, OpResolverType
    steps = int((folder / "case.txt").read_text().split("\t")[4])
    kernels = OpResolverType.BUILTIN_REF if REFERENCE in os.environ else OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    interpreter = Interpreter(model_path=str(folder / "model.tflite"), num_threads=1, experimental_op_resolver_type=kernels,
                              experimental_preserve_all_tensors=APART in os.environ)
    interpreter.allocate_tensors()
    outputs = []
    for step in range(steps):
        for n, detail in enumerate(interpreter.get_input_details()):
            feed(interpreter, detail, np.load(folder / f"input_{step}_{n}.npy"))
        interpreter.invoke()
        outputs += [output(interpreter, detail) for detail in interpreter.get_output_details()]
    return outputs


def serve(requests, answers):
    """Reads folders, one per line; answers each with descriptions and bytes in hexadecimal."""
    for line in requests:
        try:
            answer = "ran\t" + ";".join(f"{what} {data.hex()}" for what, data in run(pathlib.Path(line.strip())))
        except Exception as e:  # The message is the outcome.
            lines = [piece for piece in str(e).replace("\t", " ").splitlines() if piece.strip()]
            answer = "refused\t" + " ".join(lines)[:200]
        answers.write(answer + "\n")
        answers.flush()


class Child:
    """A process that inherits the imported libraries, for a fast start after a model ended the previous one."""

    def __init__(self):
        requests, answers = os.pipe(), os.pipe()
        self.process = os.fork()
        if self.process == 0:
            os.close(requests[1])
            os.close(answers[0])
            serve(os.fdopen(requests[0]), os.fdopen(answers[1], "w"))
            os._exit(0)
        os.close(requests[0])
        os.close(answers[1])
        self.requests, self.answers = os.fdopen(requests[1], "w"), os.fdopen(answers[0])

    def answer(self, line):
        """The answer, and whether the process is still alive."""
        with contextlib.suppress(BrokenPipeError):
            self.requests.write(line)
            self.requests.flush()
        if answer := self.answers.readline():
            return answer, True
        with contextlib.suppress(BrokenPipeError):
            self.requests.close()
        self.answers.close()
        code = os.waitstatus_to_exitcode(os.waitpid(self.process, 0)[1])
        return f"crashed\tsignal {-code}\n", False


def work():
    """Answers lines of standard input like `serve`, from child processes."""
    import ai_edge_litert.interpreter  # noqa: F401
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    child = None
    for line in sys.stdin:
        fresh = child is None
        child = child or Child()
        answer, left = child.answer(line)
        if not left and not fresh:
            # A memory error of an earlier model may have ended the process.
            child = Child()
            answer, left = child.answer(line)
        child = child if left else None
        answers.write(answer)
        answers.flush()


# Set in the environment of a process in which no two tensors share memory, and of one with LiteRT's reference kernels.
APART, REFERENCE = "GOLDENS_TENSORS_APART", "GOLDENS_REFERENCE_KERNELS"


class Worker:
    """A process that runs cases. Allocated memory is filled with `filler`: outcomes that depend on it are undefined."""

    def __init__(self, filler, mode=None):
        self.process = None
        self.environment = {**os.environ, "MALLOC_PERTURB_": str(filler), **({mode: "1"} if mode else {})}

    def outcome(self, folder):
        import select
        if self.process is None:
            # A separate session, so that the child ends with the process.
            self.process = subprocess.Popen([sys.executable, __file__, "--work"], stdin=subprocess.PIPE, text=True, start_new_session=True,
                                            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=self.environment)
        self.process.stdin.write(f"{folder}\n")
        self.process.stdin.flush()
        ready, _, _ = select.select([self.process.stdout], [], [], SECONDS_PER_CASE)
        if ready:
            return self.process.stdout.readline().rstrip("\n").split("\t", 1)
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.process = None
        return ["crashed", "does not return"]


# Bytes of which floats are small, large, negative, NaN and infinite.
FILLERS = (0, 1, 85, 127, 128, 200, 255)


def varies(folder):
    """Whether LiteRT's outcome depends on uninitialized memory or on which tensors share memory.

    Uses more fillers than `run_all`, each in a fresh process.
    """
    def outcome(filler, mode=None):
        worker = Worker(filler, mode)
        found = worker.outcome(folder)
        if worker.process:
            worker.process.stdin.close()
            worker.process.wait()
        return found
    outcomes = [*(outcome(filler) for filler in FILLERS), outcome(0, APART)]
    return any(other != outcomes[0] for other in outcomes)


def run_all(folders, mode=None):
    from concurrent.futures import ThreadPoolExecutor
    import queue
    workers = queue.Queue()
    for _ in range(WORKERS):
        workers.put((Worker(1, mode), Worker(186, mode)))

    def one(folder):
        pair = workers.get()
        try:
            first, second = (worker.outcome(folder) for worker in pair)
            if first == second:
                return first
            return "varies", "by what was in memory before"
        finally:
            workers.put(pair)

    with ThreadPoolExecutor(WORKERS) as pool:
        outcomes = list(pool.map(one, folders))
    for worker in [worker for pair in list(workers.queue) for worker in pair]:
        if worker.process:
            worker.process.stdin.close()
            worker.process.wait()
    return outcomes


def make_cases(folder, *arguments):
    cargo = os.environ.get("CARGO", "cargo")
    subprocess.run([cargo, "run", "--quiet", "--package", "delegraph-conformance", "--example", "make_cases", "--",
                    str(folder), *arguments], cwd=ROOT, check=True)
    return sorted((path.parent for path in pathlib.Path(folder).rglob("case.txt")), key=str)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--probe", action="store_true", help="find out which types LiteRT takes, too")
    parser.add_argument("--keep", help="leave the folders of the cases here")
    arguments = parser.parse_args()
    if arguments.work:
        return work()
    OUT.mkdir(parents=True, exist_ok=True)
    taken = {}
    with tempfile.TemporaryDirectory() as temporary:
        folders = make_cases(arguments.keep or temporary)
        lines, data, places, counts = [], bytearray(), {}, {}
        for folder, (what, rest) in zip(folders, run_all(folders)):
            name, fingerprint, op, ty, _, compared = (folder / "case.txt").read_text().rstrip("\n").split("\t")
            counts[what] = counts.get(what, 0) + 1
            if what == "ran":
                taken.setdefault(op, set()).add(ty)
                pieces = []
                # Values that are not compared may be undefined.
                for piece in filter(None, rest.split(";") if compared == "compared" else []):
                    head, _, body = piece.rpartition(" ")
                    body = bytes.fromhex(body)
                    # Equal outputs are stored once.
                    place = places.setdefault(body, len(data))
                    if place == len(data):
                        data += body
                    pieces.append(f"{head} {place}+{len(body)}")
                rest = ";".join(pieces)
            lines.append(f"{name}\t{fingerprint}\t{what}\t{rest}")
    version = importlib.metadata.version("ai-edge-litert")
    (OUT / "index.tsv").write_text(f"# ai-edge-litert {version}\n" + "".join(line + "\n" for line in lines))
    (OUT / "outputs.bin").write_bytes(data)
    print(f"{len(folders)} cases: {counts}; {len(data)} bytes of outputs")
    if arguments.probe:
        with tempfile.TemporaryDirectory() as temporary:
            folders = make_cases(temporary, "--probe")
            for folder, (what, _) in zip(folders, run_all(folders)):
                _, _, op, ty, *_ = (folder / "case.txt").read_text().rstrip("\n").split("\t")
                if what == "ran":
                    taken.setdefault(op, set()).add(ty)
        (OUT / "types.tsv").write_text("".join(f"{op}\t{' '.join(sorted(types))}\n" for op, types in sorted(taken.items())))
        print(f"{len(folders)} probes")
    return None


if __name__ == "__main__":
    sys.exit(main())
