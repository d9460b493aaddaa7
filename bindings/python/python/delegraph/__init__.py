"""Runs `.tflite` models, with LiteRT's Python interface, on the CPU and on any GPU.

    from delegraph import Interpreter

    interpreter = Interpreter("model.tflite", delegate="wgpu")
    interpreter.allocate_tensors()

`Interpreter` has the interface of `ai_edge_litert.interpreter.Interpreter`. `install()` lets programs that import
`tflite_runtime`, `ai_edge_litert` or `tensorflow.lite` find this package in their place.
"""

from typing import TYPE_CHECKING as _TYPE_CHECKING, Any as _Any

from ._native import __version__
from .delegates import Delegate, devices, load_delegate
from .interpreter import Interpreter, InterpreterWithCustomOps, OpResolverType, SignatureRunner

if _TYPE_CHECKING:
    from .compat import install, uninstall
    from .functions import CommandError, bench, conformance, diff, explain, fuse, inspect, profile
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

# Imported on first use, so that importing the package takes hardly longer than importing NumPy.
_MODULES = {
    "compat": ("install", "uninstall"),
    "functions": ("CommandError", "bench", "conformance", "diff", "explain", "fuse", "inspect", "profile"),
    "report": ("Report",),
}


def __getattr__(name: str) -> _Any:
    from importlib import import_module

    for module, names in _MODULES.items():
        if name in names:
            globals().update({each: getattr(import_module(f"{__name__}.{module}"), each) for each in names})
            return globals()[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
