#!/usr/bin/env python3
"""Run LiteRT on every model and write conformance/goldens.

    make goldens        (or: python3 scripts/make_goldens.py [MODELS_DIR] in a venv with requirements-goldens.txt)

The models are the embedded digit classifiers and the ten of scripts/fetch_models.py; the inputs are seeded numbers, the photo for
image models, and committed series (digits, a spoken wake word). conformance/goldens/README.md describes the files and how to make
the same inputs.
"""
import dataclasses
import importlib.metadata
import json
import math
import pathlib
import platform
import sys

import numpy as np
from ai_edge_litert.interpreter import Interpreter, OpResolverType
from PIL import Image

import fetch_models

ROOT = pathlib.Path(__file__).resolve().parent.parent
OUT = ROOT / "conformance" / "goldens"
DIGITS = ROOT / "assets" / "digits"
PHOTO = "astronaut.png"
SEED = 1
MAX_SAMPLES = 2048
MASK = (1 << 64) - 1
GAMMA = 0x9E3779B97F4A7C15


@dataclasses.dataclass(frozen=True)
class Plan:
    """How one model is run."""
    model: str
    photo: str = ""
    """Converts the photo's bytes to the model's input: `unit` [0, 1], `signed` [-1, 1], `raw`; empty: no picture."""
    invokes: int = 1
    """Consecutive seeded invokes without a reset, for models that keep state."""
    series: str = ""
    """A committed .npy file, one invoke per entry of its first axis."""
    default_resolver: bool = False
    """Use XNNPACK: the built-in kernels lack an op of this model."""
    embedded: bool = False


PLANS = (
    *(Plan(f"digits_{kind}.tflite", series="assets/digits/digits.npy", embedded=True)
      for kind in ("float32", "float16", "dynamic_range", "int8")),
    # Convolution2DTransposeBias runs in XNNPACK only.
    Plan("selfie_segmentation.tflite", photo="unit", default_resolver=True),
    Plan("face_detection_short_range.tflite", photo="signed"),
    Plan("hand_landmark_full.tflite", photo="unit"),
    Plan("palm_detection_full.tflite", photo="unit"),
    Plan("pose_detection.tflite", photo="signed"),
    Plan("iris_landmark.tflite", photo="unit"),
    Plan("basic_pitch_nmp.tflite"),
    Plan("okay_nabu.tflite", invokes=5, series="conformance/goldens/okay_nabu_features.npy"),
    Plan("deeplabv3.tflite", photo="signed"),
    Plan("efficientnet_lite0_int8.tflite", photo="raw"),
)


def draws(count, input_index, invoke_index):
    """SplitMix64 numbers, as uint64."""
    start = (SEED + GAMMA * (input_index * 1_000_003 + invoke_index + 1)) & MASK
    with np.errstate(over="ignore"):
        z = np.uint64(start) + np.uint64(GAMMA) * np.arange(1, count + 1, dtype=np.uint64)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


def seeded(detail, input_index, invoke_index):
    shape, dtype = detail["shape"], np.dtype(detail["dtype"])
    z = draws(int(np.prod(shape)), input_index, invoke_index)
    if dtype == np.float32:
        values = (z >> np.uint64(40)).astype(np.float32) * np.float32(2.0**-23) - np.float32(1)
    elif dtype == np.bool_:
        values = z >> np.uint64(63) != 0
    elif dtype.itemsize <= 2:
        unsigned = np.dtype(f"u{dtype.itemsize}")
        values = (z >> np.uint64(64 - 8 * dtype.itemsize)).astype(unsigned).view(dtype)
    else:
        values = (z % np.uint64(4)).astype(dtype)
    return values.reshape(shape)


def photo_input(detail, pixels, mapping):
    """The photo at the model's size: the nearest pixel towards the top left, RGB."""
    _, height, width, _ = detail["shape"]
    rows = np.arange(height) * pixels.shape[0] // height
    columns = np.arange(width) * pixels.shape[1] // width
    small = pixels[rows][:, columns][None]
    if mapping == "raw":
        return small
    if mapping == "unit":
        return small.astype(np.float32) / np.float32(255)
    return small.astype(np.float32) / np.float32(127.5) - np.float32(1)


def series_input(detail, entry):
    """One entry of a series in the model's shape; quantized in float64 when it isn't in the model's type yet."""
    if entry.dtype != detail["dtype"]:
        scale, zero_point = detail["quantization"]
        limits = np.iinfo(detail["dtype"])
        steps = np.round(entry.astype(np.float64) / scale) + zero_point
        entry = np.clip(steps, limits.min, limits.max).astype(detail["dtype"])
    return entry.reshape(detail["shape"])


class Samples:
    """Collects the stored elements of all outputs in one run of bytes."""

    def __init__(self):
        self.data = bytearray()

    def add(self, array, detail):
        flat = np.ascontiguousarray(array).reshape(-1)
        # Coprime to the size, so that the samples don't keep to a few rows, columns or channels.
        stride = -(-flat.size // MAX_SAMPLES)
        while math.gcd(stride, flat.size) != 1:
            stride += 1
        taken = flat[::stride]
        offset = len(self.data)
        self.data += taken.astype(taken.dtype.newbyteorder("<")).tobytes()
        entry = {"dtype": array.dtype.name, "shape": list(array.shape), "stride": stride, "count": int(taken.size),
                 "offset": offset, "max_abs": float(np.abs(flat.astype(np.float64)).max())}
        if detail["quantization"][0]:
            entry["scale"], entry["zero_point"] = float(detail["quantization"][0]), int(detail["quantization"][1])
        if not np.isfinite(flat.astype(np.float64)).all():
            raise ValueError("an output isn't finite")
        return entry


def run_case(path, plan, feeds, samples):
    """Runs a fresh interpreter on each list of inputs in turn; returns its outputs, per invoke."""
    resolver = OpResolverType.AUTO if plan.default_resolver else OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    interpreter = Interpreter(model_path=str(path), num_threads=1, experimental_op_resolver_type=resolver)
    interpreter.allocate_tensors()
    invokes = []
    for make_inputs in feeds:
        for index, detail in enumerate(interpreter.get_input_details()):
            interpreter.set_tensor(detail["index"], make_inputs(index, detail))
        interpreter.invoke()
        outputs = [samples.add(interpreter.get_tensor(d["index"]), d) for d in interpreter.get_output_details()]
        invokes.append({"outputs": outputs})
    return invokes


def run_model(path, plan, photo, samples):
    cases = []

    def add(inputs, feeds):
        cases.append({"inputs": inputs, "invokes": run_case(path, plan, feeds, samples)})

    add({"kind": "seeded"}, [lambda index, detail, n=n: seeded(detail, index, n) for n in range(plan.invokes)])
    if plan.photo:
        add({"kind": "photo", "mapping": plan.photo}, [lambda _, detail: photo_input(detail, photo, plan.photo)])
    if plan.series:
        entries = np.load(ROOT / plan.series)
        add({"kind": "series", "file": plan.series}, [lambda _, detail, e=e: series_input(detail, e) for e in entries])
    return {
        "model": plan.model,
        "sha256": fetch_models.sha256(path.read_bytes()),
        "embedded": plan.embedded,
        "resolver": "default" if plan.default_resolver else "builtin_without_default_delegates",
        "cases": cases,
    }


def main() -> int:
    cache = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else fetch_models.cache_dir()
    photo = np.asarray(Image.open(cache / PHOTO).convert("RGB"))
    samples, models = Samples(), []
    for plan in PLANS:
        models.append(run_model((DIGITS if plan.embedded else cache) / plan.model, plan, photo, samples))
        print(f"{plan.model}: {', '.join(case['inputs']['kind'] for case in models[-1]['cases'])}")
    index = {
        "versions": {
            "ai-edge-litert": importlib.metadata.version("ai-edge-litert"),
            "numpy": np.__version__,
            "pillow": importlib.metadata.version("pillow"),
            "python": platform.python_version(),
            "machine": platform.machine(),
        },
        "seed": SEED,
        "photo": {"file": PHOTO, "sha256": fetch_models.sha256((cache / PHOTO).read_bytes())},
        "models": models,
    }
    OUT.mkdir(parents=True, exist_ok=True)
    (OUT / "samples.bin").write_bytes(samples.data)
    (OUT / "index.json").write_text(compact(index) + "\n")
    print(f"{len(samples.data):,} bytes of samples")
    return 0


def compact(index) -> str:
    """JSON with one line per output, so that a diff shows the changed outputs."""
    lines = []
    for model in index["models"]:
        head = {k: v for k, v in model.items() if k != "cases"}
        lines.append(f"  {json.dumps(head)[:-1]}, \"cases\": [")
        for case in model["cases"]:
            lines.append(f"    {{\"inputs\": {json.dumps(case['inputs'])}, \"invokes\": [")
            for invoke in case["invokes"]:
                outputs = ",\n      ".join(json.dumps(output) for output in invoke["outputs"])
                lines.append(f"      {{\"outputs\": [{outputs}]}},")
            lines[-1] = lines[-1][:-1]
            lines.append("    ]},")
        lines[-1] = lines[-1][:-1]
        lines.append("  ]},")
    lines[-1] = lines[-1][:-1]
    head = ",\n".join(f" {json.dumps(k)}: {json.dumps(v)}" for k, v in index.items() if k != "models")
    return "{\n" + head + ",\n \"models\": [\n" + "\n".join(lines) + "\n ]\n}"


if __name__ == "__main__":
    sys.exit(main())
