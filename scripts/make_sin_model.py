#!/usr/bin/env python3
"""Makes assets/custom/sin.tflite and atan.tflite: y = Sin(x + offset) and y = Atan(x + offset) as *custom* ops.

The offset is trained from 0 to 1, as TensorFlow's guide to custom operators does, and the function is converted with
`allow_custom_ops`. TensorFlow's Atan has no builtin op, so the converter makes it the custom op "Atan". Sin has become
a builtin op since the guide was written; it stays a custom op because the function is marked as one fused op, `Sin`.

    python scripts/make_sin_model.py            # needs tensorflow; 2.21.0 made the committed files
"""

import math
import os
import sys
import tempfile

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import tensorflow as tf

OUT = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "assets", "custom")
X = [-8.0, 0.5, 2.0, 2.2, 201.0]
FUSED = 'name: "Sin" attr { key: "tfl_fusable_op" value { b: true } }'


def train(function, wanted, x):
    """Finds the offset with which `function(x + offset)` is `wanted`, starting from 0."""
    offset = tf.Variable(0.0)
    optimizer = tf.optimizers.Adam(0.01)
    x, y = tf.constant(x), tf.constant([wanted(v + 1.0) for v in x])
    for _ in range(2000):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.square(function(x + offset) - y))
        optimizer.apply_gradients(zip(tape.gradient(loss, [offset]), [offset]))
    print(f"the offset is 1, training found {offset.numpy()}")
    assert abs(offset.numpy() - 1.0) < 1e-6
    return offset


class Shifted(tf.Module):
    """y = function(x + offset)"""

    def __init__(self, function, offset):
        super().__init__()
        self.function, self.offset = function, offset

    @tf.function(input_signature=[tf.TensorSpec([5], tf.float32, name="x")])
    def __call__(self, x):
        return self.function(x + self.offset)


def convert(function, offset, name):
    # Converts a saved model, since other converters inline marked functions.
    with tempfile.TemporaryDirectory() as folder:
        tf.saved_model.save(Shifted(function, offset), folder)
        converter = tf.lite.TFLiteConverter.from_saved_model(folder)
        converter.allow_custom_ops = True
        data = converter.convert()
    path = os.path.join(OUT, f"{name.lower()}.tflite")
    with open(path, "wb") as file:
        file.write(data)
    # A custom op has a name in the file; a builtin op has a number.
    assert name.encode() in data, f"{path}: {name} did not become a custom op"
    print(f"{path}: {len(data)} bytes")


@tf.function(experimental_implements=FUSED)
def fused_sin(x):
    return tf.sin(x)


def main():
    os.makedirs(OUT, exist_ok=True)
    convert(fused_sin, train(tf.sin, math.sin, X), "Sin")
    convert(tf.atan, train(tf.atan, math.atan, X), "Atan")
    return 0


if __name__ == "__main__":
    sys.exit(main())
