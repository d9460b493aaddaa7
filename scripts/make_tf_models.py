#!/usr/bin/env python3
"""Build whole models with Keras, convert each for every kind of weights and activations, and make cases of them.

    python3 scripts/make_tf_models.py DIR [TEXT]   (in a venv with requirements-train.txt and requirements-goldens.txt)

Files are written to DIR/models, outputs of LiteRT's built-in kernels to DIR/cases (see make_corpus.py), and sizes and
differences from Keras's float outputs, relative to their largest magnitude, to DIR/index.tsv. TEXT selects the names
that contain it; existing models are not made again. Weights are random and seeded. Each model is made in a separate
process.
"""
import os

# Read when TensorFlow is imported: no oneDNN, whose results depend on the CPU, and no banner.
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")

import pathlib
import subprocess
import sys

import keras
import numpy as np
import tensorflow as tf
from ai_edge_litert.interpreter import Interpreter
from keras import applications, layers, ops

from make_corpus import make

TIMEOUT = 900
KINDS = ("float32", "float16", "dynamic", "int8", "int16x8")


def mobilenet_v1():
    return applications.MobileNet((128, 128, 3), alpha=0.25, weights=None, classes=100, classifier_activation=None)


def mobilenet_v2():
    return applications.MobileNetV2((96, 96, 3), alpha=0.35, weights=None, classes=100, classifier_activation=None)


def mobilenet_v3():
    return applications.MobileNetV3Small((96, 96, 3), include_preprocessing=False, weights=None, classes=100,
                                         classifier_activation=None)


def efficientnet():
    image = keras.Input((96, 96, 3))
    pixels = layers.Rescaling(127.5, 127.5)(image)
    return keras.Model(image, applications.EfficientNetB0(weights=None, classes=50, input_tensor=pixels,
                                                          classifier_activation=None).output)


def convnext():
    image = keras.Input((64, 64, 3))
    x = layers.LayerNormalization(epsilon=1e-6)(layers.Conv2D(32, 4, 4)(image))
    for width in (32, 64):
        if width != x.shape[-1]:
            x = layers.Conv2D(width, 2, 2)(layers.LayerNormalization(epsilon=1e-6)(x))
        for _ in range(2):
            y = layers.LayerNormalization(epsilon=1e-6)(layers.DepthwiseConv2D(7, padding="same")(x))
            x = layers.Add()([x, layers.Dense(width)(layers.Dense(4 * width, "gelu")(y))])
    return keras.Model(image, layers.Dense(50)(layers.GlobalAveragePooling2D()(x)))


def norm_relu(x):
    return layers.ReLU()(layers.BatchNormalization()(x))


def resnet():
    image = keras.Input((128, 128, 3))
    x = layers.MaxPooling2D(3, 2, "same")(norm_relu(layers.Conv2D(32, 7, 2, "same", use_bias=False)(image)))
    for width, blocks in ((32, 3), (64, 4), (128, 3)):
        for i in range(blocks):
            stride = 2 if i == 0 and width > 32 else 1
            y = norm_relu(layers.Conv2D(width, 1, stride, use_bias=False)(x))
            y = norm_relu(layers.Conv2D(width, 3, padding="same", use_bias=False)(y))
            y = layers.BatchNormalization()(layers.Conv2D(4 * width, 1, use_bias=False)(y))
            skip = x if i else layers.BatchNormalization()(layers.Conv2D(4 * width, 1, stride)(x))
            x = layers.ReLU()(layers.Add()([skip, y]))
    return keras.Model(image, layers.Dense(100, "softmax")(layers.GlobalAveragePooling2D()(x)))


def densenet():
    image = keras.Input((96, 96, 3))
    x = layers.MaxPooling2D(3, 2, "same")(norm_relu(layers.Conv2D(32, 7, 2, "same", use_bias=False)(image)))
    for blocks in (4, 6, 8):
        for _ in range(blocks):
            y = layers.Conv2D(64, 1, use_bias=False)(norm_relu(x))
            x = layers.Concatenate()([x, layers.Conv2D(16, 3, padding="same", use_bias=False)(norm_relu(y))])
        x = layers.AveragePooling2D(2)(layers.Conv2D(x.shape[-1] // 2, 1)(norm_relu(x)))
    return keras.Model(image, layers.Dense(40, "softmax")(layers.GlobalMaxPooling2D()(norm_relu(x))))


def encoder(x, heads, **attention):
    width = x.shape[-1]
    y = layers.LayerNormalization(epsilon=1e-6)(x)
    x = layers.Add()([x, layers.MultiHeadAttention(heads, width // heads)(y, y, **attention)])
    y = layers.Dense(2 * width, "gelu")(layers.LayerNormalization(epsilon=1e-6)(x))
    return layers.Add()([x, layers.Dense(width)(y)])


def vision_transformer():
    image = keras.Input((64, 64, 3))
    x = layers.Reshape((64, 96))(layers.Conv2D(96, 8, 8)(image))
    for _ in range(3):
        x = encoder(x, 4)
    return keras.Model(image, layers.Dense(20, "softmax")(layers.GlobalAveragePooling1D()(x)))


def text_transformer():
    ids = keras.Input((24,), dtype="int32")
    x = layers.Embedding(500, 64)(ids) + layers.Embedding(24, 64)(ops.arange(24))
    for _ in range(2):
        x = encoder(x, 4, use_causal_mask=True)
    return keras.Model(ids, layers.Dense(100)(layers.LayerNormalization()(x)))


def recurrent(layer, unroll=False, both=False):
    """Two layers. Keras makes a WHILE unless they are unrolled."""
    sequence = keras.Input((12, 20))
    wrap = layers.Bidirectional if both else lambda x: x
    x = wrap(layer(24, return_sequences=True, unroll=unroll))(sequence)
    x = wrap(layer(16, unroll=unroll))(x)
    return keras.Model(sequence, layers.Dense(8, "softmax")(x))


class FusedLstm(tf.Module):
    """The marked function that the converter replaces with UNIDIRECTIONAL_SEQUENCE_LSTM."""
    inputs = [tf.TensorSpec((1, 16, 20), name="x")]

    def __init__(self, units=32, classes=10):
        rng, width = np.random.default_rng(1), self.inputs[0].shape[-1]
        self.weights = [tf.Variable(rng.normal(0, 0.25, shape), dtype=tf.float32) for shape in (
            (width, 4 * units), (units, 4 * units), (4 * units,), (units, classes))]

    @tf.function(experimental_attributes={"api_implements": "lstm_fused", "api_preferred_device": "CPU",
                                          "go_backwards": False, "time_major": False})
    def lstm(self, x, h, c, kernel, recurrent, bias):
        outputs = []
        for step in tf.unstack(x, axis=1):
            i, f, g, o = tf.split(step @ kernel + h @ recurrent + bias, 4, axis=1)
            c = tf.sigmoid(f) * c + tf.sigmoid(i) * tf.tanh(g)
            h = tf.sigmoid(o) * tf.tanh(c)
            outputs.append(h)
        return h, tf.stack(outputs, axis=1), h, c, tf.constant(1.0)

    def __call__(self, x):
        kernel, recurrent, bias, dense = (weight.read_value() for weight in self.weights)
        state = tf.zeros((1, recurrent.shape[0]))
        return tf.nn.softmax(self.lstm(x, state, state, kernel, recurrent, bias)[1] @ dense)


def streaming_rnn():
    """One step of a speech recogniser: features and states in, symbols and states out."""
    features, h, c = keras.Input((8, 40)), keras.Input((48,)), keras.Input((48,))
    x = layers.Flatten()(layers.Conv1D(16, 3, activation="relu")(features))
    out, (h1, c1) = layers.LSTMCell(48)(x, [h, c])
    return keras.Model([features, h, c], [layers.Dense(30, "softmax")(out), h1, c1])


def unet():
    image = x = keras.Input((96, 96, 3))
    skips = []
    for width in (8, 16, 32):
        x = norm_relu(layers.Conv2D(width, 3, padding="same", use_bias=False)(x))
        skips.append(x)
        x = layers.MaxPooling2D()(x)
    x = layers.Conv2D(64, 3, padding="same", activation="relu")(x)
    for skip in reversed(skips):
        x = layers.Conv2DTranspose(skip.shape[-1], 3, 2, "same", activation="relu")(x)
        x = norm_relu(layers.Conv2D(skip.shape[-1], 3, padding="same")(layers.Concatenate()([x, skip])))
    return keras.Model(image, layers.Conv2D(2, 1, activation="sigmoid")(x))


def audio_conv():
    wave = keras.Input((2000, 1))
    x = norm_relu(layers.Conv1D(32, 16, 4)(wave))
    for dilation in (1, 2, 4, 8):
        y = layers.Conv1D(32, 3, padding="causal", dilation_rate=dilation, activation="tanh")(x)
        x = layers.Add()([x, layers.Conv1D(32, 1)(y)])
    x = layers.MaxPooling1D(4)(norm_relu(layers.SeparableConv1D(64, 5, padding="same")(x)))
    x = layers.Conv1D(64, 3, 2, groups=4, activation="elu")(x)
    return keras.Model(wave, layers.Dense(12)(layers.GlobalAveragePooling1D()(x)))


def spectrogram(wave, bins=40):
    frames = tf.signal.stft(wave, 400, 160, 512)
    mel = tf.signal.linear_to_mel_weight_matrix(bins, 257, 16000)
    return tf.math.log(tf.abs(frames) @ mel + 1e-3)


def keyword_spotting():
    wave = keras.Input((8000,))
    x = norm_relu(layers.Conv2D(32, (10, 4), 2, "same")(layers.Lambda(lambda w: spectrogram(w)[..., None])(wave)))
    for _ in range(3):
        x = norm_relu(layers.DepthwiseConv2D(3, padding="same")(x))
        x = norm_relu(layers.Conv2D(32, 1)(x))
    return keras.Model(wave, layers.Dense(12, "softmax")(layers.GlobalAveragePooling2D()(x)))


def mfcc_gru():
    wave = keras.Input((4000,))
    cosines = np.cos(np.pi / 40 * (np.arange(40)[:, None] + 0.5) * np.arange(13)).astype("float32")
    mfcc = layers.Lambda(lambda w: spectrogram(w) @ cosines)(wave)
    return keras.Model(wave, layers.Dense(6, "softmax")(layers.GRU(24, unroll=True)(mfcc)))


def mlp():
    x = sample = keras.Input((64,))
    for i, activation in enumerate(("relu", "gelu", "silu", "tanh", "elu", "softplus", "leaky_relu", "hard_sigmoid")):
        x = layers.Dense(96 - 8 * i, activation)(x)
    return keras.Model(sample, [layers.Dense(10, "log_softmax")(x), layers.UnitNormalization()(x)])


def super_resolution():
    image = keras.Input((48, 48, 3))
    x = layers.PReLU(shared_axes=[1, 2])(layers.Conv2D(32, 5, padding="same")(image))
    for _ in range(3):
        x = layers.Add()([x, layers.PReLU(shared_axes=[1, 2])(layers.Conv2D(32, 3, padding="same")(x))])
    x = layers.Lambda(lambda t: tf.nn.depth_to_space(t, 2))(layers.Conv2D(12, 3, padding="same")(x))
    return keras.Model(image, layers.Add()([x, layers.UpSampling2D(2, interpolation="bilinear")(image)]))


def detector():
    """A feature pyramid and a head of boxes and scores, with non-maximum suppression in the graph."""
    image = keras.Input((96, 96, 3))
    x, boxes, scores = image, [], []
    for width in (16, 24, 32, 48):
        x = norm_relu(layers.SeparableConv2D(width, 3, 2, "same")(x))
        if width >= 32:
            boxes.append(layers.Reshape((-1, 4))(layers.Conv2D(8, 3, padding="same")(x)))
            scores.append(layers.Reshape((-1,))(layers.Conv2D(2, 3, padding="same", activation="sigmoid")(x)))
    boxes, scores = layers.Concatenate(1)(boxes), layers.Concatenate(1)(scores)

    def best(pair):
        center, size = pair[0][0, :, :2], 0.3 * tf.exp(pair[0][0, :, 2:])
        corners = tf.concat([center - size / 2, center + size / 2], 1)
        kept = tf.image.non_max_suppression(corners, pair[1][0], 10, 0.5)
        return tf.gather(corners, kept), tf.gather(pair[1][0], kept)

    return keras.Model(image, layers.Lambda(best, output_shape=((10, 4), (10,)))([boxes, scores]))


MODELS = {
    "mobilenet_v1": mobilenet_v1, "mobilenet_v2": mobilenet_v2, "mobilenet_v3": mobilenet_v3,
    "efficientnet": efficientnet, "convnext": convnext, "resnet": resnet, "densenet": densenet,
    "vision_transformer": vision_transformer, "text_transformer": text_transformer,
    "lstm": lambda: recurrent(layers.LSTM), "lstm_unrolled": lambda: recurrent(layers.LSTM, unroll=True),
    "lstm_both": lambda: recurrent(layers.LSTM, both=True), "lstm_fused": lambda: FusedLstm(),
    "gru": lambda: recurrent(layers.GRU), "gru_unrolled_both": lambda: recurrent(layers.GRU, True, True),
    "rnn": lambda: recurrent(layers.SimpleRNN), "streaming_rnn": streaming_rnn,
    "unet": unet, "audio_conv": audio_conv, "keyword_spotting": keyword_spotting, "mfcc_gru": mfcc_gru,
    "mlp": mlp, "super_resolution": super_resolution, "detector": detector,
}

ANY_BATCH = {"mobilenet_v2", "densenet", "text_transformer", "gru_unrolled_both", "audio_conv"}


def samples(specs, count, seed=1):
    """The inputs of make_corpus.py, from another seed."""
    rng = np.random.default_rng(seed)
    for _ in range(count):
        yield [rng.uniform(-1, 1, s.shape).astype("float32") if s.dtype.is_floating else
               rng.integers(0, 2, s.shape).astype(s.dtype.as_numpy_dtype) for s in specs]


def settle(model, specs):
    """Adds noise to all weights and computes the matching statistics, so that activations stay in range."""
    rng = np.random.default_rng(3)
    for weight in model.weights:
        if "gamma" in weight.path:
            weight.assign(rng.uniform(0.7, 1.4, weight.shape))
        elif "moving" not in weight.path and "seed_generator" not in weight.path:
            weight.assign(weight.numpy() + rng.normal(0, 0.02, weight.shape))
    for layer in model._flatten_layers():
        if isinstance(layer, layers.BatchNormalization):
            layer.momentum = 0.0
    if model.non_trainable_weights:
        batch = [rng.uniform(-1, 1, (8, *s.shape[1:])).astype("float32") for s in specs]
        model(batch if len(batch) > 1 else batch[0], training=True)


def build(name):
    """The model, and the specs of its inputs with a batch of 1, which the model's own inputs may leave open."""
    model = MODELS[name]()
    specs = [tf.TensorSpec((1, *i.shape[1:]), i.dtype, i.name) for i in model.inputs]
    if isinstance(model, keras.Model):
        settle(model, specs)
        if name not in ANY_BATCH:
            inputs = [keras.Input(batch_shape=s.shape, dtype=s.dtype, name=s.name) for s in specs]
            model = keras.Model(inputs, model(inputs if len(inputs) > 1 else inputs[0]))
    return model, specs


def convert(model, specs, kind):
    if isinstance(model, keras.Model):
        converter = tf.lite.TFLiteConverter.from_keras_model(model)
    else:
        concrete = tf.function(model).get_concrete_function(*specs)
        converter = tf.lite.TFLiteConverter.from_concrete_functions([concrete], model)
    sets = tf.lite.OpsSet
    if kind != "float32":
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
    if kind == "float16":
        converter.target_spec.supported_types = [tf.float16]
    if kind.startswith("int"):
        names = [s.name for s in specs]
        converter.representative_dataset = lambda: (dict(zip(names, sample)) for sample in samples(specs, 24))
        # In float for ops without such a kernel.
        quantized = (sets.TFLITE_BUILTINS_INT8 if kind == "int8" else
                     sets.EXPERIMENTAL_TFLITE_BUILTINS_ACTIVATIONS_INT16_WEIGHTS_INT8)
        converter.target_spec.supported_ops = [quantized, sets.TFLITE_BUILTINS]
    if kind == "int8" and all(s.dtype.is_floating for s in specs):
        converter.inference_input_type = converter.inference_output_type = tf.int8
    return converter.convert()


def distance(path, model, specs, folder):
    """The largest difference from Keras's outputs, relative to their largest magnitude."""
    interpreter = Interpreter(str(path))
    runner = interpreter.get_signature_runner()

    def real(kind, detail, ordered):
        i = [d["index"] for d in ordered].index(detail["index"])
        array, (scale, zero) = np.load(folder / f"{kind}_{i}.npy"), detail["quantization"]
        return (array.astype("float32") - zero) * np.float32(scale) if scale else array

    given = runner.get_input_details()
    inputs = [tf.constant(real("input", given[s.name], interpreter.get_input_details())) for s in specs]
    exact = tf.nest.flatten(model(inputs if len(inputs) > 1 else inputs[0]))
    worst = 0.0
    for i, wanted in enumerate(exact):
        found = real("expected", runner.get_output_details()[f"output_{i}"], interpreter.get_output_details())
        same = found.shape == wanted.shape
        worst = max(worst, np.abs(found - wanted).max() / np.abs(wanted).max() if same else np.inf)
    return worst


def one(name, kind, root):
    keras.utils.set_random_seed(0)
    model, specs = build(name)
    path, folder = root / "models" / f"{name}_{kind}.tflite", root / "cases" / f"{name}_{kind}"
    path.write_bytes(convert(model, specs, kind))
    make(str(path), folder)
    print(f"{name}_{kind}\t{path.stat().st_size}\t{distance(path, model, specs, folder):.2e}")


def main() -> int:
    if len(sys.argv) not in (2, 3):
        print(__doc__)
        return 2
    root, made, failed = pathlib.Path(sys.argv[1]), 0, 0
    for folder in (root / "models", root / "cases"):
        folder.mkdir(parents=True, exist_ok=True)
    for name, kind in ((n, k) for n in MODELS for k in KINDS):
        there = root / "cases" / f"{name}_{kind}" / "expected_0.npy"
        if (sys.argv[2:] or [""])[0] not in f"{name}_{kind}" or there.exists():
            continue
        try:
            done = subprocess.run([sys.executable, __file__, "--one", name, kind, str(root)], capture_output=True,
                                  text=True, timeout=TIMEOUT)
            why = (done.stderr.strip().splitlines() or ["no message"])[-1][:200] if done.returncode else ""
            why = f"ended by signal {-done.returncode}" if done.returncode < 0 else why
        except subprocess.TimeoutExpired:
            why = f"no result in {TIMEOUT} s"
        if why:
            print(f"{name}_{kind}: left out: {why}", flush=True)
            failed += 1
        else:
            line, made = done.stdout.strip().splitlines()[-1], made + 1
            print(line, flush=True)
            with open(root / "index.tsv", "a") as index:
                index.write(line + "\n")
    print(f"{made} made, {failed} left out, in {root}")
    return 0


if __name__ == "__main__":
    if len(sys.argv) == 5 and sys.argv[1] == "--one":
        one(sys.argv[2], sys.argv[3], pathlib.Path(sys.argv[4]))
    else:
        sys.exit(main())
