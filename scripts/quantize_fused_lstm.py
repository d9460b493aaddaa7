#!/usr/bin/env python3
"""Quantizes a recurrent layer that Delegraph fused with TensorFlow's calibrator: assets/fusion/lstm_int8.tflite.

    cargo run -p delegraph-interpreter --example fused_lstm -- FLOAT.tflite
    python scripts/quantize_fused_lstm.py FLOAT.tflite     # needs tensorflow; 2.21.0 made the committed files

The calibrator only accepts fused layers in the form of TensorFlow's converter. Beside the model are an input, and the
results of TFLite's plain kernels in a first and in a second invocation.
"""
import os
import pathlib
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")

import numpy as np
import tensorflow as tf
from tensorflow.lite.python.optimize import calibrator

OUT = pathlib.Path(__file__).resolve().parent.parent / "assets" / "fusion"


def samples(shape, count):
    rng = np.random.default_rng(0)
    return [[rng.uniform(-2, 2, shape).astype(np.float32)] for _ in range(count)]


def main():
    model = calibrator.add_intermediate_tensors(pathlib.Path(sys.argv[1]).read_bytes())
    shape = tf.lite.Interpreter(model_content=model).get_input_details()[0]["shape"]
    *calibration, [last] = samples(shape, 51)
    tool = calibrator.Calibrator(model, custom_op_registerers_by_name=None, custom_op_registerers_by_func=None)
    data = tool.calibrate_and_quantize(lambda: iter(calibration), tf.int8, tf.int8, False)
    (OUT / "lstm_int8.tflite").write_bytes(data)
    interpreter = tf.lite.Interpreter(
        model_content=data, experimental_op_resolver_type=tf.lite.experimental.OpResolverType.BUILTIN_REF)
    interpreter.allocate_tensors()
    entry, ops = interpreter.get_input_details()[0], [o["op_name"] for o in interpreter._get_ops_details()]
    scale, zero = entry["quantization"]
    value = np.clip(np.round(last / scale) + zero, -128, 127).astype(np.int8)
    (OUT / "lstm_int8.input").write_bytes(value.tobytes())
    for name in ("first", "second"):
        interpreter.set_tensor(entry["index"], value)
        interpreter.invoke()
        outputs = [interpreter.get_tensor(d["index"]) for d in interpreter.get_output_details()]
        (OUT / f"lstm_int8.{name}").write_bytes(b"".join(o.tobytes() for o in outputs))
    print(len(data), "bytes:", " ".join(ops))


if __name__ == "__main__":
    main()
