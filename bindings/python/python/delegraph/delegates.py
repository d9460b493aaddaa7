"""Delegates: by name, from shared libraries, and written in Python."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Mapping, Optional, Sequence, Union

from . import _native

if TYPE_CHECKING:
    import ctypes

NAMES = "cpu, reference, wgpu[?KEY=VALUE&…], plugin:PATH[?KEY=VALUE&…], litert:PATH[?KEY=VALUE&…]"

DelegateLike = Union[str, "Delegate", Any]
"""A delegate by its name (`wgpu`, `wgpu?adapter=NAME`, `plugin:PATH?key=value`, `litert:PATH?key=value`), a `Delegate`, or an
object with the methods `supports` and `compile`."""


class Delegate:
    """A delegate that runs nodes of a model instead of the CPU.

    Args:
      library: the path of a shared library with a delegate of Delegraph or of LiteRT; `"wgpu"`, the GPU; `"plugin:PATH"` or
        `"litert:PATH"`; or an object with the methods `supports(node)` and `compile(partition)`, a delegate written in Python.
      options: options of the delegate. Keys and values are converted to `str`.

    Raises:
      OSError: if there is no such library.
      ValueError: if the library cannot create its delegate, or does not know an option.
      RuntimeError: if there is no GPU.

    One delegate may be given to any number of interpreters: they share a GPU's device.

    A library with a delegate for LiteRT's interpreter (`tflite_plugin_create_delegate`) creates a delegate when it is loaded,
    for the first interpreter, and one for each further interpreter. It sees LiteRT's C structures; one that needs the C++ objects of LiteRT's interpreter cannot run here.
    """

    def __init__(self, library: Any, options: Optional[Mapping[Any, Any]] = None) -> None:
        pairs = [(str(key), str(value)) for key, value in (options or {}).items()]
        self._source = (library, dict(pairs))
        self._path: Optional[str] = None
        if not isinstance(library, (str, bytes, os.PathLike)):
            self._native = _native.python_delegate(library)
            return
        name, more = _split(os.fsdecode(library))
        pairs = more + pairs
        if name.isidentifier() and name != "wgpu" and not os.path.exists(name):
            raise ValueError(f"there is no delegate {name!r}; there are: {NAMES}, or the path of a library")
        kind, colon, path = name.partition(":")
        if name == "wgpu":
            self._native = _native.wgpu_delegate(pairs)
        elif colon and kind == "plugin":
            self._native = _native.plugin_delegate(path, pairs)
        elif (colon and kind == "litert") or _is_external(name):
            self._path = path if colon and kind == "litert" else name
            self._native = _native.litert_delegate(self._path, pairs)
        else:
            self._native = _native.plugin_delegate(name, pairs)

    def _for_interpreter(self) -> "_native.Delegate":
        return self._native

    @property
    def is_for_litert(self) -> bool:
        """Whether the library has a delegate for LiteRT's interpreter."""
        return self._path is not None

    @property
    def _library(self) -> "ctypes.PyDLL":
        """The library of a delegate for LiteRT, whose other functions some programs call."""
        import ctypes

        if self._path is None:
            raise AttributeError("only a delegate for LiteRT has a library")
        return ctypes.PyDLL(self._path)

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
    if not text.startswith(("wgpu", "plugin:", "litert:")):
        return text, []
    from urllib.parse import unquote

    name, mark, query = text.partition("?")
    pairs = (option.partition("=") for option in query.split("&")) if mark else ()
    return name, [(unquote(key), unquote(value)) for key, _, value in pairs]


def _is_external(path: str) -> bool:
    """Whether a library has a delegate for LiteRT's interpreter and no Delegraph delegate."""
    try:
        with open(path, "rb") as file:
            data = file.read()
    except OSError as error:
        raise OSError(f"{path}: cannot open shared object file: {error.strerror}") from error
    return b"delegraph_delegate_plugin" not in data and b"tflite_plugin_create_delegate" in data
