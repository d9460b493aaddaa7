#!/usr/bin/env python3
"""Train the embedded digit classifier and write assets/digits.

    make digits        (or: python3 scripts/train_digits.py [DIR] in a venv with requirements-train.txt)

A small convnet learns scikit-learn's 8x8 digits and is converted four times, once per weight and activation type
that TFLite models commonly use. Everything is seeded, and every op runs deterministically on one thread: the same versions
on the same kind of CPU give the same files.
"""
import os

# Read when TensorFlow is imported: no oneDNN, whose results depend on the CPU, and no banner.
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")

import pathlib
import platform
import sys
import tempfile

import keras
import numpy as np
import sklearn
import tensorflow as tf
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

SEED = 7
HELD_OUT = 0.2
EPOCHS = 24
TEST_DIGITS_PER_CLASS = 2
ROOT = pathlib.Path(__file__).resolve().parent.parent


def load_split():
    """Pixels as [n, 8, 8, 1] float32 in [0, 1], and labels, as a training and a held-out set."""
    data = load_digits()
    pixels = (data.images / 16.0).astype(np.float32)[..., None]
    return train_test_split(pixels, data.target, test_size=HELD_OUT, random_state=SEED, stratify=data.target)


def build():
    """One of each layer that image models are made of: conv, depthwise, pointwise, pool, dense, softmax."""
    layers = keras.layers
    return keras.Sequential([
        keras.Input((8, 8, 1), name="image"),
        layers.Conv2D(16, 3, padding="same", activation="relu"),
        layers.DepthwiseConv2D(3, padding="same", activation="relu6"),
        layers.Conv2D(32, 1, activation="relu"),
        layers.MaxPooling2D(2),
        layers.Conv2D(32, 3, padding="valid", activation="relu"),
        # Not Flatten: that computes the batch's size with SHAPE, STRIDED_SLICE and PACK, where one RESHAPE does.
        layers.Lambda(lambda x: keras.ops.reshape(x, (-1, 2 * 2 * 32))),
        layers.Dropout(0.3),
        layers.Dense(32, activation="relu"),
        layers.Dense(10, activation="softmax", name="probabilities"),
    ], name="digits")


def shifted(pixels, rng):
    """Each image moved by at most one pixel in each direction; the free pixels are paper."""
    padded = np.pad(pixels, ((0, 0), (1, 1), (1, 1), (0, 0)))
    corners = rng.integers(0, 3, (len(pixels), 2))
    return np.stack([image[y:y + 8, x:x + 8] for image, (y, x) in zip(padded, corners)])


def train(model, pixels, labels):
    rng = np.random.default_rng(SEED)
    # As many original images as moved ones, since the digits in use are centred.
    pixels = np.concatenate([pixels] * 4 + [shifted(pixels, rng) for _ in range(4)])
    labels = np.tile(labels, 8)
    model.compile(keras.optimizers.Adam(), "sparse_categorical_crossentropy")
    slow_down = keras.callbacks.LearningRateScheduler(lambda epoch: 2e-3 * 0.5 ** (epoch // 4))
    model.fit(pixels, labels, batch_size=64, epochs=EPOCHS, callbacks=[slow_down], verbose=0)


def converter(model, directory):
    """Makes converters from a saved model, so that the files carry a signature with named tensors."""
    image = keras.Input((8, 8, 1), name="image")
    named = keras.Model({"image": image}, {"probabilities": model(image)})
    named.export(directory, format="tf_saved_model", verbose=False)
    return lambda: tf.lite.TFLiteConverter.from_saved_model(directory)


def convert_all(make, calibration):
    """File stem to bytes, one per kind of quantization."""
    float32 = make()

    float16 = make()
    float16.optimizations = [tf.lite.Optimize.DEFAULT]
    float16.target_spec.supported_types = [tf.float16]

    dynamic_range = make()
    dynamic_range.optimizations = [tf.lite.Optimize.DEFAULT]

    int8 = make()
    int8.optimizations = [tf.lite.Optimize.DEFAULT]
    int8.representative_dataset = lambda: ({"image": image[None]} for image in calibration)
    int8.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
    int8.inference_input_type = tf.int8
    int8.inference_output_type = tf.int8

    converters = {"float32": float32, "float16": float16, "dynamic_range": dynamic_range, "int8": int8}
    return {f"digits_{kind}": c.convert() for kind, c in converters.items()}


def classify(model_bytes, pixels):
    """The predicted class of each image, by TFLite's built-in kernels."""
    interpreter = tf.lite.Interpreter(
        model_content=model_bytes,
        experimental_op_resolver_type=tf.lite.experimental.OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES,
    )
    interpreter.allocate_tensors()
    given, result = interpreter.get_input_details()[0], interpreter.get_output_details()[0]
    if given["dtype"] == np.int8:
        scale, zero_point = given["quantization"]
        pixels = np.clip(np.round(pixels / scale) + zero_point, -128, 127).astype(np.int8)
    classes = []
    for image in pixels:
        interpreter.set_tensor(given["index"], image[None])
        interpreter.invoke()
        classes.append(int(interpreter.get_tensor(result["index"])[0].argmax()))
    return np.array(classes)


def pick_test_digits(labels, predictions):
    """The first held-out digits of each class that every file classifies correctly, in class order."""
    right = np.all([p == labels for p in predictions.values()], axis=0)
    return np.concatenate([np.flatnonzero(right & (labels == c))[:TEST_DIGITS_PER_CLASS] for c in range(10)])


def readme(model, files, labels, predictions, picked):
    rows = "\n".join(
        f"| `{stem}.tflite` | {len(data):,} | {(predictions[stem] == labels).mean():.1%} |" for stem, data in files.items()
    )
    return f"""# The embedded digit classifier

A convnet with {model.count_params():,} parameters that tells handwritten digits apart: `image` `[batch, 8, 8, 1]`, ink from 0 to 1, to
`probabilities` `[batch, 10]`. The batch is 1 and can be resized. Tests, doc tests and examples use it, so that none of them needs a
network.

| file | bytes | accuracy on {len(labels)} held-out digits |
|---|---:|---:|
{rows}

- `digits_float32`: everything float32.
- `digits_float16`: float16 weights, expanded by DEQUANTIZE; float32 activations.
- `digits_dynamic_range`: int8 weights where a weight tensor has 1,024 elements or more; float32 activations.
- `digits_int8`: int8 weights and activations, int8 input and output.
- `digits.npy`: `[{len(picked)}, 8, 8, 1]` float32, held-out digits in the float models' input scale, {TEST_DIGITS_PER_CLASS} per class: the first that all
  four files classify rightly. `labels.npy`: `[{len(picked)}]` uint8, what they show.
- `seven.npy`: `[1, 8, 8, 1]` float32, one of them.

Made by `make digits` (`scripts/train_digits.py`, seed {SEED}) with Python {platform.python_version()}, TensorFlow {tf.__version__},
Keras {keras.__version__}, NumPy {np.__version__} and scikit-learn {sklearn.__version__}, from the digits that ship with scikit-learn (E. Alpaydin and C. Kaynak,
"Optical Recognition of Handwritten Digits", UCI Machine Learning Repository, CC BY 4.0). The models are the project's own, under its licence.
"""


def main() -> int:
    out = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "assets" / "digits"
    out.mkdir(parents=True, exist_ok=True)
    keras.utils.set_random_seed(SEED)
    tf.config.experimental.enable_op_determinism()
    tf.config.threading.set_inter_op_parallelism_threads(1)
    tf.config.threading.set_intra_op_parallelism_threads(1)

    train_pixels, test_pixels, train_labels, test_labels = load_split()
    model = build()
    train(model, train_pixels, train_labels)
    with tempfile.TemporaryDirectory() as saved:
        files = convert_all(converter(model, saved), train_pixels[:300])

    predictions = {stem: classify(data, test_pixels) for stem, data in files.items()}
    accuracies = {stem: float((p == test_labels).mean()) for stem, p in predictions.items()}
    for stem, data in files.items():
        print(f"{stem}: {len(data):,} bytes, accuracy {accuracies[stem]:.1%}")
    if min(accuracies.values()) < 0.97:
        print("a file is below 97%: nothing written", file=sys.stderr)
        return 1

    picked = pick_test_digits(test_labels, predictions)
    for stem, data in files.items():
        (out / f"{stem}.tflite").write_bytes(data)
    np.save(out / "digits.npy", test_pixels[picked])
    np.save(out / "labels.npy", test_labels[picked].astype(np.uint8))
    np.save(out / "seven.npy", test_pixels[picked[7 * TEST_DIGITS_PER_CLASS]][None])
    (out / "README.md").write_text(readme(model, files, test_labels, predictions, picked))
    return 0


if __name__ == "__main__":
    sys.exit(main())
