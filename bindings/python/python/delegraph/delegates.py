"""Delegates: by name, from shared libraries, and written in Python."""

from __future__ import annotations

import os
from typing import Any, Mapping, Optional, Sequence, Union
from urllib.parse import unquote

from . import _native

DelegateLike = Union[str, "Delegate", Any]
"""A delegate by its name (`wgpu`, `wgpu?adapter=NAME`, `plugin:PATH?key=value`), a `Delegate`, or an object with the methods
`supports` and `compile`."""


class Delegate:
    """A delegate that runs nodes of a model in the place of the CPU.

    Args:
      library: the path of a shared library with a delegate of Delegraph; `"wgpu"`, the GPU; `"plugin:PATH"`; or an object
        with the methods `supports(node)` and `compile(partition)`, a delegate written in Python.
      options: options of the delegate. Keys and values are converted to `str`.

    Raises:
      OSError: if there is no such library.
      ValueError: if the library has no delegate of Delegraph, or does not know an option.
      RuntimeError: if there is no GPU.

    One delegate may be given to any number of interpreters: they share a GPU's device.
    """

    def __init__(self, library: Any, options: Optional[Mapping[Any, Any]] = None) -> None:
        pairs = [(str(key), str(value)) for key, value in (options or {}).items()]
        self._source = (library, dict(pairs))
        if isinstance(library, (str, bytes, os.PathLike)):
            name, more = _split(os.fsdecode(library))
            pairs = more + pairs
            if name == "wgpu":
                self._native = _native.wgpu_delegate(pairs)
                return
            path = name[len("plugin:"):] if name.startswith("plugin:") else name
            _check_library(path)
            self._native = _native.plugin_delegate(path, pairs)
        else:
            self._native = _native.python_delegate(library)

    @property
    def name(self) -> str:
        """The delegate's name in reports."""
        return self._native.name

    def __repr__(self) -> str:
        return f"<delegraph.Delegate {self.name}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return Delegate, self._source


def load_delegate(library: Any, options: Optional[Mapping[Any, Any]] = None) -> Delegate:
    """Loads a delegate: see `Delegate`.

    Raises:
      ValueError: if the delegate cannot be loaded.
      OSError: if there is no such library.
    """
    try:
        return Delegate(library, options)
    except (ValueError, RuntimeError) as error:
        raise ValueError(f"Failed to load delegate from {library}\n{error}") from error


def devices() -> list[dict[str, str]]:
    """Returns the GPU adapters that `wgpu` can run on: `name`, `backend`, `type` and `driver` of each."""
    return _native.devices()


def opened(delegates: Sequence[DelegateLike]) -> list[Delegate]:
    """Returns the delegates of a list. `cpu` and `reference` name no delegate."""
    return [one if isinstance(one, Delegate) else Delegate(one) for one in delegates if one not in ("cpu", "reference")]


def _split(text: str) -> tuple[str, list[tuple[str, str]]]:
    """Splits `NAME?key=value&key=value`."""
    if not text.startswith(("wgpu", "plugin:")):
        return text, []
    name, mark, query = text.partition("?")
    pairs = (option.partition("=") for option in query.split("&")) if mark else ()
    return name, [(unquote(key), unquote(value)) for key, _, value in pairs]


def _check_library(path: str) -> None:
    """Raises ValueError for a library with a delegate of LiteRT, which needs LiteRT's interpreter."""
    try:
        with open(path, "rb") as file:
            data = file.read()
    except OSError as error:
        raise OSError(f"{path}: cannot open shared object file: {error.strerror}") from error
    if b"delegraph_plugin" in data or b"tflite_plugin_create_delegate" not in data:
        return
    raise ValueError(
        f"{path} is a delegate for LiteRT's interpreter: it works on structures of that interpreter that Delegraph does not "
        "have, so that it cannot be loaded safely. `delegate=\"wgpu\"` runs the model on a GPU; a delegate of Delegraph is "
        "loaded with `plugin:PATH`"
    )
