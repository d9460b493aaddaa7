#!/usr/bin/env python3
"""Makes assets/fusion/fusable.tflite: two convolutions, and a function of their results that is marked as one fused op.

It is the example of TensorFlow's guide to operation fusion: the function `my_custom_fused_op` is marked with
`experimental_implements` and `tfl_fusable_op`, has the attribute `example_option` of 10, two outputs, and a body that
the converter drops. `allow_custom_ops` is not needed. Weights and biases are small, so that a test needs no TensorFlow.
The inputs and the results of the convolutions are written beside the model, for the test to compare with.

    python scripts/make_fusable_model.py            # needs tensorflow; 2.21.0 made the committed files
"""

import os
import pathlib
import tempfile

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")

import numpy as np
import tensorflow as tf

OUT = pathlib.Path(__file__).resolve().parent.parent / "assets" / "fusion"
IMPLEMENTS = " ".join([
    'name: "my_custom_fused_op"',
    'attr { key: "tfl_fusable_op" value { b: true } }',
    'attr { key: "example_option" value { i: 10 } }',
])
SHAPE = [1, 8, 8, 3]


@tf.function(experimental_implements=IMPLEMENTS)
def my_custom_fused_op(input_1, input_2):
    """The converter drops this body: a kernel of this name computes the outputs."""
    return (tf.constant(0.0, name="first_output"), tf.constant(0.0, name="second_output"))


class Model(tf.Module):
    def __init__(self):
        super().__init__()
        rng = np.random.default_rng(0)
        self.kernels = [tf.constant(rng.integers(-4, 5, [3, 3, 3, 1]) / 4, tf.float32) for _ in range(2)]
        self.biases = [tf.constant([0.5]), tf.constant([-0.25])]

    def convolutions(self, *inputs):
        return [tf.nn.conv2d(x, kernel, 1, "VALID") + bias
                for x, kernel, bias in zip(inputs, self.kernels, self.biases)]

    @tf.function(input_signature=[tf.TensorSpec(SHAPE, tf.float32, name="input_a"),
                                  tf.TensorSpec(SHAPE, tf.float32, name="input_b")])
    def __call__(self, input_a, input_b):
        return my_custom_fused_op(*self.convolutions(input_a, input_b))


def main():
    model = Model()
    # Converts a saved model, since other converters inline marked functions.
    with tempfile.TemporaryDirectory() as folder:
        tf.saved_model.save(model, folder)
        data = tf.lite.TFLiteConverter.from_saved_model(folder).convert()
    OUT.mkdir(exist_ok=True)
    (OUT / "fusable.tflite").write_bytes(data)
    rng = np.random.default_rng(1)
    inputs = [(rng.integers(-8, 9, SHAPE) / 8).astype(np.float32) for _ in range(2)]
    convolved = [np.asarray(y) for y in model.convolutions(*inputs)]
    for name, value in zip(["input_a", "input_b", "convolved_a", "convolved_b"], inputs + convolved):
        (OUT / f"{name}.f32").write_bytes(value.tobytes())
    print(f"{OUT / 'fusable.tflite'}: {len(data)} bytes")


if __name__ == "__main__":
    main()
