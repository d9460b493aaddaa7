"""The verbs of the command as functions that return plain objects.

Each runs the command in a separate process, so that neither a driver nor a library can end the program, and returns its
JSON document: dictionaries, lists, strings, numbers. Keyword arguments are the command's options: `threads=2` is
`--threads 2`, `per_node=True` is `--per-node`, a list repeats an option.
"""

from __future__ import annotations

import os
import sys
from typing import Any, Sequence, Union

Model = Union[str, "os.PathLike[str]", bytes]
"""A model: a path, or the bytes of a file."""


class CommandError(RuntimeError):
    """The command failed. `exit_code` is 1 for a failure, 2 for usage, 3 for unsupported features, 4 for invalid files;
    `error` is its JSON document."""

    def __init__(self, message: str, exit_code: int, error: Any) -> None:
        super().__init__(message)
        self.exit_code = exit_code
        self.error = error


def explain(model: Model, delegate: Union[str, Sequence[str]] = "wgpu", **options: Any) -> dict[str, Any]:
    """Returns, for every node, its runner or the reason of the delegate, and what to change first."""
    return _document("explain", model, delegate=delegate, **options)


def bench(model: Model, delegate: Union[str, Sequence[str]] = "cpu", **options: Any) -> dict[str, Any]:
    """Returns times in milliseconds and memory in bytes: `load_ms`, `prepare_ms`, `first_ms`, `median_ms`, …"""
    return _document("bench", model, delegate=delegate, **options)


def profile(model: Model, delegate: Union[str, Sequence[str]] = "cpu", **options: Any) -> dict[str, Any]:
    """Returns the time per node and per op."""
    return _document("profile", model, delegate=delegate, **options)


def diff(model: Model, delegate: Union[str, Sequence[str]] = "wgpu", **options: Any) -> dict[str, Any]:
    """Compares a delegate with the reference kernels: maximum absolute and relative differences, ULP, cosine."""
    return _document("diff", model, accept=(0, 1), delegate=delegate, **options)


def inspect(model: Model, **options: Any) -> dict[str, Any]:
    """Returns signatures, ops with versions, the required runtime, quantization and sizes."""
    return _document("inspect", model, **options)


def fuse(model: Model, output: Union[str, "os.PathLike[str]"], **options: Any) -> dict[str, Any]:
    """Fuses nodes of a model, and writes it to the file `output`. Returns the rewritings."""
    return _document("fuse", model, output=os.fspath(output), **options)


def conformance(delegate: Union[str, Sequence[str]] = "cpu", **options: Any) -> dict[str, Any]:
    """Runs the conformance cases, and returns the result of each."""
    return _document("conformance", None, accept=(0, 1), delegate=delegate, **options)


def _document(verb: str, model: Any, accept: Sequence[int] = (0,), **options: Any) -> dict[str, Any]:
    import json
    import subprocess
    import tempfile

    if isinstance(model, (bytes, bytearray, memoryview)):
        with tempfile.TemporaryDirectory(prefix="delegraph") as folder:
            path = os.path.join(folder, "model.tflite")
            with open(path, "wb") as file:
                file.write(model)
            return _document(verb, path, accept, **options)
    command = [sys.executable, "-m", "delegraph", verb, "--json"]
    command += [] if model is None else [os.fspath(model)]
    for name, value in options.items():
        option = "--" + name.replace("_", "-")
        if value is True:
            command.append(option)
        elif value is not None and value is not False:
            values = value if isinstance(value, (list, tuple)) else [value]
            command += [f"{option}={one}" for one in values]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    document: Any
    try:
        document = json.loads(ended.stdout)
    except ValueError:
        document = None
    if ended.returncode not in accept or document is None or "error" in document:
        error = (document or {}).get("error") or {}
        message = error.get("message") or ended.stderr.strip() or f"the command ended with {ended.returncode}"
        raise CommandError(message, ended.returncode, error)
    result: dict[str, Any] = document
    return result
