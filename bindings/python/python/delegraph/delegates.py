"""Delegates: by name, from shared libraries, and written in Python."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Mapping, Optional, Sequence, Union

from . import _native

if TYPE_CHECKING:
    import ctypes

NAMES = "cpu, reference, wgpu[?KEY=VALUE&…], plugin:PATH[?KEY=VALUE&…]"

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
      ValueError: if the library cannot create its delegate, or does not know an option.
      RuntimeError: if there is no GPU.

    One delegate may be given to any number of interpreters: they share a GPU's device.

    A library with a delegate for LiteRT's interpreter (`tflite_plugin_create_delegate`) is loaded, and creates its delegate.
    An interpreter refuses it: it works on structures of LiteRT's interpreter that Delegraph does not have.
    """

    def __init__(self, library: Any, options: Optional[Mapping[Any, Any]] = None) -> None:
        self._native: Optional[_native.Delegate] = None
        self._library: Optional[ctypes.PyDLL] = None
        pairs = [(str(key), str(value)) for key, value in (options or {}).items()]
        self._source = (library, dict(pairs))
        if not isinstance(library, (str, bytes, os.PathLike)):
            self._native = _native.python_delegate(library)
            return
        name, more = _split(os.fsdecode(library))
        pairs = more + pairs
        if name.isidentifier() and name != "wgpu" and not os.path.exists(name):
            raise ValueError(f"there is no delegate {name!r}; there are: {NAMES}, or the path of a library")
        path = name[len("plugin:"):] if name.startswith("plugin:") else name
        if name == "wgpu":
            self._native = _native.wgpu_delegate(pairs)
        elif not name.startswith("plugin:") and _is_external(path):
            self._create_external(path, pairs)
        else:
            self._native = _native.plugin_delegate(path, pairs)

    def _create_external(self, path: str, pairs: list[tuple[str, str]]) -> None:
        """Creates the delegate of a library for LiteRT, with the options as lists of C strings."""
        import ctypes

        library = ctypes.pydll.LoadLibrary(path)
        strings = ctypes.c_char_p * len(pairs)
        report = ctypes.CFUNCTYPE(None, ctypes.c_char_p)
        create = library.tflite_plugin_create_delegate
        create.argtypes = [ctypes.POINTER(ctypes.c_char_p), ctypes.POINTER(ctypes.c_char_p), ctypes.c_size_t, report]
        create.restype = ctypes.c_void_p
        library.tflite_plugin_destroy_delegate.argtypes = [ctypes.c_void_p]
        library.tflite_plugin_destroy_delegate.restype = None
        messages: list[str] = []
        keys = strings(*(key.encode() for key, _ in pairs))
        values = strings(*(value.encode() for _, value in pairs))
        handler = report(lambda message: messages.append((message or b"").decode(errors="replace")))
        self._pointer = create(keys, values, len(pairs), handler)
        if self._pointer is None:
            raise ValueError("".join(messages) or "the library created no delegate")
        self._library = library

    def __del__(self) -> None:
        library = getattr(self, "_library", None)
        if library is not None:
            self._library = None
            library.tflite_plugin_destroy_delegate(self._pointer)

    def _for_interpreter(self) -> "_native.Delegate":
        if self._native is not None:
            return self._native
        raise ValueError(
            f"{self._source[0]} is a delegate for LiteRT's interpreter: it works on structures of that interpreter that "
            "Delegraph does not have, so that it cannot be applied safely. `delegate=\"wgpu\"` runs the model on a GPU; a "
            "delegate of Delegraph is loaded with `plugin:PATH`"
        )

    @property
    def name(self) -> str:
        """The delegate's name in reports."""
        return str(self._source[0]) if self._native is None else self._native.name

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
    from urllib.parse import unquote

    name, mark, query = text.partition("?")
    pairs = (option.partition("=") for option in query.split("&")) if mark else ()
    return name, [(unquote(key), unquote(value)) for key, _, value in pairs]


def _is_external(path: str) -> bool:
    """Whether a library has a delegate for LiteRT's interpreter, and none of Delegraph."""
    try:
        with open(path, "rb") as file:
            data = file.read()
    except OSError as error:
        raise OSError(f"{path}: cannot open shared object file: {error.strerror}") from error
    return b"delegraph_delegate_plugin" not in data and b"tflite_plugin_create_delegate" in data
