"""Aliases of this package: programs that import an interpreter of LiteRT get this package."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
import types
from typing import Any, Optional, Sequence

PACKAGES = ("tflite_runtime", "ai_edge_litert")
"""Packages whose interpreter is replaced. The rest of an installed package is unchanged."""


def install(tensorflow: bool = True) -> None:
    """Lets `tflite_runtime.interpreter`, `ai_edge_litert.interpreter` and `tensorflow.lite` resolve to this package.

    Call it before the program imports one of them, or run the program with `python -m delegraph run`. A package that is
    imported already is replaced in `sys.modules`, but names imported from it stay.

    Args:
      tensorflow: whether `tensorflow.lite.Interpreter` is replaced. If TensorFlow is installed, the rest of it is
        unchanged; otherwise `tensorflow` contains only `lite`.
    """
    from . import interpreter, metrics_portable

    for name in PACKAGES:
        package = types.ModuleType(name, f"{name}, as delegraph provides it")
        package.__path__ = _installed(name)
        package.__version__ = "2.3.0"  # type: ignore[attr-defined]
        package.__spec__ = importlib.machinery.ModuleSpec(name, None, is_package=True)
        package.__spec__.submodule_search_locations = package.__path__
        for child, module in (("interpreter", interpreter), ("metrics_portable", metrics_portable)):
            setattr(package, child, module)
            sys.modules[f"{name}.{child}"] = module
        sys.modules[name] = package
    if tensorflow:
        _install_tensorflow()


def _installed(name: str) -> list[str]:
    """Returns the folders of an installed package, which contain its other modules."""
    loaded = sys.modules.get(name)
    if loaded is not None:
        return list(getattr(loaded, "__path__", ()))
    spec = importlib.machinery.PathFinder.find_spec(name)
    return list((spec and spec.submodule_search_locations) or ())


def uninstall() -> None:
    """Ends the effect of `install` for imports that follow."""
    for name in [name for name in sys.modules if name.split(".")[0] in PACKAGES]:
        del sys.modules[name]
    for name in ("tensorflow", "tensorflow.lite", "tensorflow.lite.python", "tensorflow.lite.python.interpreter"):
        if getattr(sys.modules.get(name), "_delegraph", False):
            del sys.modules[name]
    sys.meta_path[:] = [finder for finder in sys.meta_path if not isinstance(finder, _LiteFinder)]


def lite_module() -> types.ModuleType:
    """Returns a module with the names of `tensorflow.lite` for interpreters."""
    from . import interpreter

    lite = types.ModuleType("tensorflow.lite", "tensorflow.lite, as delegraph provides it")
    lite.__path__ = []
    experimental = types.ModuleType("tensorflow.lite.experimental")
    experimental.load_delegate = interpreter.load_delegate  # type: ignore[attr-defined]
    experimental.OpResolverType = interpreter.OpResolverType  # type: ignore[attr-defined]
    lite.Interpreter = interpreter.Interpreter  # type: ignore[attr-defined]
    lite.experimental = experimental  # type: ignore[attr-defined]
    lite._delegraph = True  # type: ignore[attr-defined]
    return lite


class _LiteFinder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds the interpreter module that an installed TensorFlow imports."""

    NAME = "tensorflow.lite.python.interpreter"

    def find_spec(
        self, fullname: str, path: Optional[Sequence[str]], target: Optional[types.ModuleType] = None
    ) -> Optional[importlib.machinery.ModuleSpec]:
        if fullname != self.NAME:
            return None
        return importlib.machinery.ModuleSpec(fullname, self)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> None:
        return None

    def exec_module(self, module: types.ModuleType) -> None:
        from . import interpreter

        names = {name: value for name, value in vars(interpreter).items() if not name.startswith("__")}
        vars(module).update(names)


def _install_tensorflow() -> None:
    loaded: Any = sys.modules.get("tensorflow")
    if loaded is not None and not getattr(loaded, "_delegraph", False):
        lite = getattr(loaded, "lite", None)
        if lite is not None:
            from . import interpreter

            lite.Interpreter = interpreter.Interpreter
            lite.experimental.load_delegate = interpreter.load_delegate
            lite.experimental.OpResolverType = interpreter.OpResolverType
        return
    if loaded is None and importlib.machinery.PathFinder.find_spec("tensorflow") is not None:
        if not any(isinstance(finder, _LiteFinder) for finder in sys.meta_path):
            sys.meta_path.insert(0, _LiteFinder())
        return
    from . import interpreter

    lite = lite_module()
    tensorflow = types.ModuleType("tensorflow", "tensorflow.lite alone, as delegraph provides it")
    tensorflow.__path__ = []
    tensorflow.__version__ = "2.20.0"  # type: ignore[attr-defined]
    tensorflow.lite = lite  # type: ignore[attr-defined]
    tensorflow._delegraph = True  # type: ignore[attr-defined]
    python = types.ModuleType("tensorflow.lite.python")
    python.__path__ = []
    python._delegraph = True  # type: ignore[attr-defined]
    python.interpreter = interpreter  # type: ignore[attr-defined]
    sys.modules.update({
        "tensorflow": tensorflow,
        "tensorflow.lite": lite,
        "tensorflow.lite.experimental": lite.experimental,
        "tensorflow.lite.python": python,
        "tensorflow.lite.python.interpreter": interpreter,
    })
