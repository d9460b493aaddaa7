"""Runs `.tflite` models, with LiteRT's Python interface, on the CPU and on any GPU.

    from delegraph import Interpreter

    interpreter = Interpreter("model.tflite", delegate="wgpu")
    interpreter.allocate_tensors()

`Interpreter` has the interface of `ai_edge_litert.interpreter.Interpreter`. `install()` lets programs that import
`tflite_runtime`, `ai_edge_litert` or `tensorflow.lite` find this package in their place.
"""

from ._native import __version__
from .compat import install, uninstall
from .delegates import Delegate, devices, load_delegate
from .functions import CommandError, bench, conformance, diff, explain, fuse, inspect, profile
from .interpreter import Interpreter, InterpreterWithCustomOps, OpResolverType, SignatureRunner
from .report import Report

__all__ = [
    "CommandError",
    "Delegate",
    "Interpreter",
    "InterpreterWithCustomOps",
    "OpResolverType",
    "Report",
    "SignatureRunner",
    "__version__",
    "bench",
    "conformance",
    "devices",
    "diff",
    "explain",
    "fuse",
    "inspect",
    "install",
    "load_delegate",
    "profile",
    "uninstall",
]
