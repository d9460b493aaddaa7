"""Damaged and demanding models, and wrong values: exceptions, never the end of the process. All run in separate processes."""

import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest

# Uses every model of a folder: its details, shapes, values and views. Prints the name before and after.
USE = """
import pathlib, sys
import numpy as np
import delegraph

FAILURES = (ValueError, RuntimeError, MemoryError, TypeError)


def use(path):
    interpreter = delegraph.Interpreter(str(path), max_memory=1 << 28, timeout=4.0, num_threads=threads)
    for method in (interpreter.get_tensor_details, interpreter.get_input_details, interpreter.get_output_details,
                   interpreter._get_ops_details, interpreter.get_signature_list):
        str(method())
    interpreter.allocate_tensors()
    random = np.random.default_rng(0)
    for detail in interpreter.get_input_details()[:64]:
        if detail["dtype"] is not np.bytes_ and np.prod(detail["shape"], dtype=float) < 1e7:
            interpreter.set_tensor(detail["index"], random.integers(0, 2, detail["shape"]).astype(detail["dtype"]))
    interpreter.invoke()
    for detail in interpreter.get_output_details()[:64]:
        if np.prod(detail["shape"], dtype=float) < 1e7:
            interpreter.get_tensor(detail["index"])
            interpreter.tensor(detail["index"])()
    interpreter.report()


threads = int(sys.argv[2])
refused = 0
for path in sorted(pathlib.Path(sys.argv[1]).rglob("*.tflite")):
    print(path.name, flush=True)
    try:
        use(path)
    except FAILURES as error:
        refused += 1
        assert str(error), path
print("refused", refused)
"""


def use_all(folder: pathlib.Path, threads: int = 1, timeout: float = 600) -> int:
    """Returns the number of rejected models."""
    ended = subprocess.run(
        [sys.executable, "-c", USE, str(folder), str(threads)], capture_output=True, text=True, timeout=timeout, check=False
    )
    lines = ended.stdout.splitlines()
    assert ended.returncode == 0, f"{ended.returncode} at {lines[-1:]}: {ended.stderr[-2000:]}"
    return int(lines[-1].split()[1])


@pytest.mark.parametrize("threads", [1, 2])
def test_damaged_models(root: pathlib.Path, tmp_path: pathlib.Path, threads: int) -> None:
    random = np.random.default_rng(threads)
    models = [path.read_bytes() for folder in ("digits", "fusion", "custom") for path in (root / "assets" / folder).glob("*.tflite")]
    for i in range(300):
        damaged = bytearray(models[i % len(models)])
        kind = i % 4
        for at in random.integers(0, len(damaged), [1, 8, 64, 4][kind]):
            damaged[at] = random.integers(0, 256)
        if kind == 3:
            # A number of the tables, not of the weights: most of them are at the end of the file.
            at = len(damaged) - 4 * int(random.integers(1, min(len(damaged) // 4, 1000)))
            damaged[at : at + 4] = int(random.choice([0, 1, 0x7FFFFFFF, 0xFFFFFFFF, 0x80000000])).to_bytes(4, "little")
        end = random.integers(8, len(damaged) + 1) if i % 10 == 0 else len(damaged)
        (tmp_path / f"{i:03}.tflite").write_bytes(damaged[:end])
    assert use_all(tmp_path, threads) > 100


@pytest.mark.skipif("DELEGRAPH_HOSTILE" not in os.environ, reason="DELEGRAPH_HOSTILE names no folder of models")
@pytest.mark.parametrize("threads", [1, 2])
def test_models_of_a_folder(threads: int) -> None:
    use_all(pathlib.Path(os.environ["DELEGRAPH_HOSTILE"]), threads, timeout=3600)


def test_limits_are_errors_of_a_call(digits: str) -> None:
    from delegraph import Interpreter

    interpreter = Interpreter(digits, max_memory=1 << 12)
    with pytest.raises((RuntimeError, MemoryError), match="above the limit.*`max_memory=`"):
        interpreter.allocate_tensors()
    with pytest.raises(RuntimeError, match="time limit of 0 s; `timeout=`"):
        Interpreter(digits, timeout=0.0)
    for wrong in (-1.0, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="timeout"):
            Interpreter(digits, timeout=wrong)
    with pytest.raises((OverflowError, ValueError, TypeError)):
        Interpreter(digits, max_memory=-1)


def test_random_calls(digits: str) -> None:
    """Calls in any order, with any arguments: results or exceptions."""
    script = f"""
import sys, numpy as np, delegraph
random = np.random.default_rng(int(sys.argv[1]))
values = [None, 0, 1, 22, -1, 10**30, 1.5, "x", b"y", [], [1, 8, 8, 1], [1, -8, 8, 1], [2**31, 1, 1, 1], (3, 8, 8, 1), {{}}, object(), int, ...,
    np.zeros((1, 8, 8, 1), np.float32), np.zeros((0, 8, 8, 1), np.float32), np.zeros((1, 8, 8, 1)), np.float32(1), np.array("text"),
    np.array([None]), np.zeros((1,) * 32, np.float32), np.zeros((1, 8, 8, 1), ">f4"), np.zeros((1, 8, 8, 1), "M8[s]"),
    np.zeros((1, 8, 8, 1), [("a", "f4")]), np.broadcast_to(np.float32(1), (1, 8, 8, 1)), np.zeros((1, 8, 8, 1), np.float32)[:, ::-1],
    memoryview(bytes(256)), bytearray(256), range(4), iter([1, 8, 8, 1]), lambda: None, float("nan"), True]
names = [n for n in dir(delegraph.Interpreter) if callable(getattr(delegraph.Interpreter, n)) and not n.startswith("__")]
names = [n for n in names if n not in ("submit", "invoke_async")]
runners = []
for round in range(300):
    if round % 20 == 0:
        interpreter, views = delegraph.Interpreter({digits!r}), []
    name = names[random.integers(len(names))]
    arguments = [values[random.integers(len(values))] for _ in range(random.integers(0, 4))]
    try:
        result = getattr(interpreter, name)(*arguments)
        if callable(result):
            result = result(**{{"image": arguments[0]}}) if name == "get_signature_runner" and arguments else result()
        views = [result]
    except (Exception, ) as error:
        str(error)
"""
    for seed in range(4):
        ended = subprocess.run([sys.executable, "-c", script, str(seed)], capture_output=True, text=True, timeout=300, check=False)
        assert ended.returncode == 0, ended.stderr[-2000:]
