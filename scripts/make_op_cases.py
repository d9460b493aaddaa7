#!/usr/bin/env python3
"""Make folders of cases from the op test generators of TensorFlow's converter.

    python3 scripts/make_op_cases.py UPSTREAM DIR [--litert PYTHON] [--cases N] [GENERATOR...]

UPSTREAM is a checkout of google-ai-edge/LiteRT of which only `tflite/testing/**/*.py` is needed; this runs with
scripts/requirements-train.txt (and tf_keras==2.21.0, without which the LSTM generators fail), and PYTHON with scripts/requirements-goldens.txt. Of each generator's parameter
combinations at most N are drawn, spread evenly and the same in each run; TensorFlow runs the graph, its converter makes
the model, and LiteRT's built-in kernels compute the expected outputs for `delegraph conformance --corpus DIR`. Models
that need TensorFlow's own kernels, and models that one of the three rejects, are left out. DIR/index.tsv lists the
models, with the largest difference between TensorFlow and LiteRT, and DIR/left_out.tsv the omitted ones. Generators and
LiteRT run in separate processes, since both abort on some cases.
"""
import argparse
import itertools
import json
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile
import types

SECONDS_PER_GENERATOR = 900


def sampled(name: str, test_parameters, cases: int):
    """All combinations, in an order whose prefixes are spread evenly."""
    combinations = [dict(zip(p.keys(), values)) for p in test_parameters for values in itertools.product(*p.values())]
    chance = random.Random(name)
    strata = min(cases, len(combinations)) or 1
    edges = [len(combinations) * i // strata for i in range(strata + 1)]
    first = [chance.randrange(a, b) for a, b in zip(edges, edges[1:]) if a < b]
    rest = sorted(set(range(len(combinations))) - set(first))
    chance.shuffle(rest)
    return [(i, combinations[i]) for i in first + rest]


def load_generators(upstream: str):
    """Make upstream's generators importable, with the converter of the installed TensorFlow."""
    os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ["TF_USE_LEGACY_KERAS"] = "1"
    sys.path.insert(0, upstream)
    import tensorflow as tf
    from tensorflow.lite.python import lite
    from tensorflow.lite.tools import flatbuffer_utils

    ops_list = types.SimpleNamespace(get_ops_list=lambda model: op_names(tf, model))
    for name, value in {"tflite.python.lite": lite, "tflite.python.test_util": ops_list,
                        "tflite.tools.flatbuffer_utils": flatbuffer_utils,
                        "tflite.testing._pywrap_string_util": types.ModuleType("_pywrap_string_util")}.items():
        parent, _, leaf = name.rpartition(".")
        package = sys.modules.get(parent)
        if package is None:
            package = sys.modules[parent] = types.ModuleType(parent)
            package.__path__ = [os.path.join(upstream, *parent.split("."))]
        sys.modules[name] = value
        setattr(package, leaf, value)
    from tflite.testing import zip_test_utils
    return tf, zip_test_utils


def op_names(tf, model: bytes):
    return [op["op_name"] for op in tf.lite.Interpreter(
        model_content=model,
        experimental_op_resolver_type=tf.lite.experimental.OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES,
    )._get_ops_details()]


def generate(upstream: str, generator: str | None, root: pathlib.Path, cases: int) -> None:
    """Write the model, inputs and TensorFlow's outputs of each case of one generator."""
    tf, zip_test_utils = load_generators(upstream)
    import numpy as np

    make_zip = zip_test_utils.make_zip_of_tests
    state = {}

    def captured(make_test_inputs):
        def run(parameters, session, inputs, outputs):
            values, results = make_test_inputs(parameters, session, inputs, outputs)
            given = [v for v in values if v is not None]
            state["inputs"] = {plain(t.name): np.asarray(v) for t, v in zip(inputs, given)}
            state["outputs"] = {plain(t.name): np.asarray(v) for t, v in zip(outputs, results)}
            return values, results
        return run

    def plain(name):
        return name[:-2] if name.endswith(":0") else name

    def sample(options, test_parameters, make_graph, make_test_inputs, *args, **kwargs):
        made = 0
        combinations = sampled(options.zip_to_output, test_parameters, cases)
        kwargs.pop("expected_tf_failures", None)
        for place, parameters in combinations[: 3 * cases]:
            if made == cases:
                break
            label = ",".join(f"{k}={v!r}" for k, v in sorted(parameters.items())).replace(" ", "")
            folder = root / f"{options.zip_to_output.removesuffix('.zip')}_{place:04d}"
            if folder.exists():
                # An earlier run made it, or failed on it.
                made += (folder / "model.tflite").exists()
                continue
            folder.mkdir(parents=True)
            (folder / "label").write_text(label)
            # The old and the new quantizer are both in use.
            options.mlir_quantizer = random.Random(label).random() < 0.5
            state.clear()
            try:
                make_zip(options, [{k: [v] for k, v in parameters.items()}], make_graph, captured(make_test_inputs),
                         *args, **kwargs)
            except Exception as error:  # Upstream raises many kinds of exceptions.
                state.setdefault("log", "TensorFlow does not run it" if "not very useful" in str(error)
                                 else f"{type(error).__name__}: {error}")
            if state.get("model") is None:
                lines = [s for s in (state.get("log") or "TensorFlow does not run it").splitlines() if s.strip()]
                (folder / "why").write_text(next((s for s in lines if "error:" in s.lower()), lines[-1])[:300])
                continue
            for kind in ("inputs", "outputs"):
                arrays = {k: v.astype(bytes) if v.dtype.kind in "OU" else v for k, v in state[kind].items()}
                arrays = {k: v.astype(np.float32) if v.dtype.name == "bfloat16" else v for k, v in arrays.items()}
                np.savez(folder / f"tf_{kind}.npz", **{k.replace("/", "|"): v for k, v in arrays.items()})
            (folder / "model.tflite").write_bytes(state["model"])
            made += 1

    zip_test_utils.make_zip_of_tests = sample
    from tflite.testing import generate_examples_lib, mlir_convert

    def convert(*args, **kwargs):
        state["model"], state["log"] = mlir_convert.mlir_convert(*args, **kwargs)
        return state["model"], state["log"]

    if generator is None:
        functions = zip_test_utils._MAKE_TEST_FUNCTIONS_MAP
        print("NAMES", *sorted(n.removeprefix("make_").removesuffix("_tests") for n in functions))
        return
    options = generate_examples_lib.Options()
    options.tflite_convert_function = convert
    options.ignore_converter_errors = options.no_conversion_report = options.no_tests_limit = True
    with tempfile.TemporaryDirectory() as scratch:
        tempfile.tempdir = scratch
        options.output_path, options.zip_to_output = scratch, f"{generator}.zip"
        generate_examples_lib.generate_examples(options)


def run_litert(root: pathlib.Path, generator: str) -> None:
    """Add LiteRT's inputs and outputs to each model of a generator that has none yet."""
    import numpy as np
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    for folder in sorted(root.glob(f"{generator}_[0-9]*")):
        if (folder / "why").exists() or (folder / "expected_0.npy").exists() or not (folder / "model.tflite").exists():
            continue
        (folder / "why").write_text("LiteRT dies on it")
        given, tensorflow = ({k.replace("|", "/"): v for k, v in np.load(folder / f"tf_{kind}.npz").items()}
                             for kind in ("inputs", "outputs"))
        try:
            interpreter = Interpreter(model_path=str(folder / "model.tflite"), num_threads=1,
                                      experimental_op_resolver_type=OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES)
            signature = next(iter(interpreter._get_full_signature_list().values()))
            names = {tensor: name for name, tensor in signature["inputs"].items()}
            inputs = [(d, as_input(np, d, given.get(names[d["index"]]))) for d in interpreter.get_input_details()]
            for detail, value in inputs:
                if list(detail["shape"]) != list(value.shape):
                    interpreter.resize_tensor_input(detail["index"], value.shape)
            interpreter.allocate_tensors()
            # LiteRT's Python interface does not support tensors without elements.
            for detail, value in inputs:
                if value.size:
                    interpreter.set_tensor(detail["index"], value)
            interpreter.invoke()
            outputs = interpreter.get_output_details()
            results = [np.zeros(d["shape"], d["dtype"]) if 0 in d["shape"]
                       else np.asarray(interpreter.get_tensor(d["index"])) for d in outputs]
        except Exception as error:  # LiteRT raises ValueError and RuntimeError with its own text.
            (folder / "why").write_text(f"LiteRT: {error}"[:300].replace("\n", " "))
            continue
        results = [r.astype(bytes) if r.dtype.kind == "O" else r for r in results]
        for i, (_, value) in enumerate(inputs):
            np.save(folder / f"input_{i}.npy", value)
        for i, value in enumerate(results):
            np.save(folder / f"expected_{i}.npy", value)
        names = {tensor: name for name, tensor in signature["outputs"].items()}
        pairs = [(tensorflow.get(names.get(d["index"])), r) for d, r in zip(outputs, results)]
        apart, allowed = largest_difference(np, [p for p in pairs if p[0] is not None])
        ops = sorted({op["op_name"] for op in interpreter._get_ops_details()})
        facts = {"tags": ops, "label": (folder / "label").read_text(), "tensorflow_differs": apart,
                 "tensorflow_allowed": allowed}
        (folder / "case.json").write_text(json.dumps(facts))
        for name in ("why", "label", "tf_inputs.npz", "tf_outputs.npz"):
            (folder / name).unlink()


def as_input(np, detail, value):
    """The value in the input's type, as TensorFlow uses it. Inputs without a value upstream are not read."""
    if value is None:
        return np.zeros(detail["shape"], detail["dtype"])
    return value if value.dtype.kind == "S" else value.astype(detail["dtype"])


def largest_difference(np, pairs):
    """The largest difference between TensorFlow's and LiteRT's outputs, and the tolerance for rounding."""
    worst, allowed = 0.0, 1.0
    for tensorflow, litert in pairs:
        if tensorflow.shape != litert.shape:
            return 1e300, 0.0
        if litert.dtype.kind not in "fiuc" or tensorflow.size == 0:
            if np.any(tensorflow != litert):
                return 1.0, 0.0
            continue
        wide = complex if litert.dtype.kind == "c" else float
        with np.errstate(invalid="ignore"):
            difference = np.abs(tensorflow.astype(wide) - litert.astype(wide))
        same = (tensorflow == litert) | ((tensorflow != tensorflow) & (litert != litert))
        difference = np.where(same, 0, np.where(np.isnan(difference), np.inf, difference)).max()
        scale = np.abs(tensorflow[np.isfinite(tensorflow)]).max(initial=0)
        limit = 1e-5 + 1e-4 * float(scale) if litert.dtype.kind in "fc" else 0.0
        if float(difference) - limit >= worst - allowed:
            worst, allowed = min(float(difference), 1e300), limit
    return worst, allowed


def index(root: pathlib.Path) -> None:
    made, left_out = [], []
    if (root / "left_out.tsv").exists():
        before = (line.split("\t") for line in (root / "left_out.tsv").read_text().splitlines())
        left_out = [row for row in before if not (root / row[0]).exists()]
    for folder in sorted(root.iterdir()):
        if (folder / "case.json").exists():
            facts = json.loads((folder / "case.json").read_text())
            apart = "differs" if facts["tensorflow_differs"] > facts["tensorflow_allowed"] else "equal"
            made.append((folder.name, ",".join(facts["tags"]), apart, f"{facts['tensorflow_differs']:g}", facts["label"]))
        elif folder.is_dir():
            read = lambda name: (folder / name).read_text().replace("\n", " ") if (folder / name).exists() else ""
            left_out.append((folder.name, read("why") or "the converter dies on it", read("label")))
    for name, rows in (("index.tsv", made), ("left_out.tsv", left_out)):
        (root / name).write_text("".join("\t".join(row) + "\n" for row in rows))
    for folder, *_ in left_out:
        shutil.rmtree(root / folder, ignore_errors=True)
    print(f"{len(made)} cases in {root}, {len(left_out)} combinations left out")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("upstream")
    parser.add_argument("dir", type=pathlib.Path)
    parser.add_argument("generators", nargs="*")
    parser.add_argument("--litert", default=sys.executable, help="a Python that has ai-edge-litert")
    parser.add_argument("--cases", type=int, default=30, help="maximum number per generator")
    parser.add_argument("--only", choices=["names", "generate", "run"], help=argparse.SUPPRESS)
    arguments = parser.parse_intermixed_args()
    if arguments.only == "run":
        run_litert(arguments.dir, arguments.generators[0])
        return 0
    if arguments.only:
        generator = arguments.generators[0] if arguments.only == "generate" else None
        generate(arguments.upstream, generator, arguments.dir, arguments.cases)
        return 0

    def child(python, only, generator="-", seconds=SECONDS_PER_GENERATOR):
        command = [python, __file__, arguments.upstream, str(arguments.dir), generator, "--only", only,
                   "--cases", str(arguments.cases)]
        try:
            return subprocess.run(command, capture_output=True, text=True, timeout=seconds)
        except subprocess.TimeoutExpired as late:
            return subprocess.CompletedProcess(command, 0, "", f"no end in {late.timeout} s")

    names = arguments.generators
    if not names:
        listed = child(sys.executable, "names")
        names = next((s.split()[1:] for s in listed.stdout.splitlines() if s.startswith("NAMES ")), None)
        if not names:
            sys.exit(f"no generators found: {listed.stderr[-2000:]}")
    for name in names:
        for python, only in ((sys.executable, "generate"), (arguments.litert, "run")):
            # A crash costs one case: the next process continues after it.
            for _ in range(arguments.cases):
                done = child(python, only, name)
                if done.returncode >= 0:
                    break
        if done.returncode:
            print(f"{name}: {done.stderr.strip().splitlines()[-1:]}", file=sys.stderr)
        made = len(list(arguments.dir.glob(f"{name}_[0-9]*/case.json")))
        print(f"{name}: {made} cases", flush=True)
    index(arguments.dir)
    return 0


if __name__ == "__main__":
    sys.exit(main())
