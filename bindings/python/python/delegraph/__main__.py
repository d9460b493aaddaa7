"""The `delegraph` command, and `python -m delegraph run SCRIPT`, which runs a program with this package in the place of
LiteRT's."""

from __future__ import annotations

import os
import runpy
import signal
import sys
from typing import Optional, Sequence

USAGE = """\
usage: python -m delegraph run [--delegate D] [--] SCRIPT | -m MODULE [ARGUMENT ...]
Runs a Python program: its imports of tflite_runtime, ai_edge_litert and tensorflow.lite resolve to delegraph.
--delegate: wgpu, wgpu?adapter=NAME, plugin:PATH or cpu, for interpreters without delegates of their own
"""


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """Runs the command and returns its exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given[:1] == ["run"]:
        program = _program(given[1:])
        if program is not None:
            return run_program(*program)
    from . import _native

    # Python would record an interrupt and continue.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    return _native.command(["delegraph", *given], [sys.executable, "-m", "delegraph"])


def run_program(target: list[str], delegate: Optional[str]) -> int:
    """Runs `SCRIPT ARGUMENT ...` or `-m MODULE ARGUMENT ...` as Python does."""
    from .compat import install

    if delegate is not None:
        os.environ["DELEGRAPH_DELEGATE"] = delegate
    install()
    if target[0] == "-m":
        sys.argv = [target[1], *target[2:]]
        sys.path[0] = os.getcwd()
        runpy.run_module(target[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = target
        sys.path[0] = os.path.dirname(os.path.abspath(target[0]))
        runpy.run_path(target[0], run_name="__main__")
    return 0


def _program(arguments: list[str]) -> Optional[tuple[list[str], Optional[str]]]:
    """Returns the Python program of the arguments of `run`, and the delegate; `None` if they name a model."""
    delegate = None
    rest = list(arguments)
    while rest:
        first = rest[0]
        if first == "--delegate" and len(rest) > 1:
            delegate, rest = rest[1], rest[2:]
        elif first.startswith("--delegate="):
            delegate, rest = first.partition("=")[2], rest[1:]
        elif first == "--":
            rest = rest[1:]
            break
        else:
            break
    if len(rest) > 1 and rest[0] == "-m":
        return rest, delegate
    if rest and not rest[0].startswith("-") and _is_script(rest[0]):
        return rest, delegate
    return None


def _is_script(path: str) -> bool:
    """Whether it is a Python program, not a model."""
    if os.path.isdir(path):
        return os.path.exists(os.path.join(path, "__main__.py"))
    if path.endswith((".py", ".pyc", ".pyz")):
        return True
    try:
        with open(path, "rb") as file:
            head = file.read(128)
    except OSError:
        return False
    return head.startswith(b"#!") and b"python" in head.splitlines()[0]


if __name__ == "__main__":
    sys.exit(main())
