"""Models and folders for the tests."""

import pathlib
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(pathlib.Path(__file__).parent))


@pytest.fixture
def digits() -> str:
    return str(ROOT / "assets/digits/digits_float32.tflite")


@pytest.fixture
def digits_int8() -> str:
    return str(ROOT / "assets/digits/digits_int8.tflite")


@pytest.fixture
def sine() -> str:
    """`sin(x + y)`, with a custom op."""
    return str(ROOT / "assets/custom/sin.tflite")


@pytest.fixture
def root() -> pathlib.Path:
    return ROOT


@pytest.fixture(autouse=True)
def no_default_delegate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DELEGRAPH_DELEGATE", raising=False)
