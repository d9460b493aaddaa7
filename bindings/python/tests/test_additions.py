"""Additions to LiteRT's interface: delegates by name, reports, custom ops and delegates in Python, predict, await."""

import asyncio
import gc
import pathlib
import pickle
import shutil
import subprocess

import numpy as np
import pytest

import delegraph
from delegraph import Interpreter


def images(count: int = 1) -> np.ndarray:
    return np.random.default_rng(0).random((count, 8, 8, 1), dtype=np.float32)


class Sin:
    """A kernel of the custom op `Sin`."""

    created: list = []

    def __init__(self, options: object) -> None:
        self.created.append(options)

    def prepare(self, shapes: list) -> list:
        return [shapes[0]]

    def invoke(self, x: np.ndarray) -> np.ndarray:
        return np.sin(x)


class Adder:
    """A delegate that adds without activation."""

    name = "adder"

    def supports(self, node: dict) -> object:
        if node["op"] != "ADD":
            return f"{node['op']} is not an addition"
        return node["params"]["fused_activation_function"] == "NONE"

    def compile(self, partition: dict) -> object:
        self.partition = partition
        (node,) = partition["nodes"]
        order = [t["index"] for t in partition["inputs"]]

        def run(arrays: list) -> list:
            values = dict(zip(order, arrays))
            terms = [values.get(t["index"], t["value"]) for t in node["inputs"]]
            return [terms[0] + terms[1]]

        return run


def run_sine(interpreter: Interpreter) -> tuple:
    interpreter.allocate_tensors()
    details = interpreter.get_input_details()
    values = [np.linspace(-3, 3, int(np.prod(d["shape"])), dtype=np.float32).reshape(d["shape"]) for d in details]
    for detail, value in zip(details, values):
        interpreter.set_tensor(detail["index"], value)
    interpreter.invoke()
    return values, interpreter.get_tensor(interpreter.get_output_details()[0]["index"])


def test_a_custom_op_without_a_kernel_is_shown_and_refused(sine: str) -> None:
    interpreter = Interpreter(sine)
    assert [node["op_name"] for node in interpreter._get_ops_details()] == ["ADD", "Sin"]
    with pytest.raises(RuntimeError, match="Encountered unresolved custom op: Sin"):
        interpreter.allocate_tensors()


def test_custom_ops_in_python(sine: str) -> None:
    Sin.created.clear()
    reference, result = run_sine(Interpreter(sine, custom_ops={"Sin": Sin}))
    assert len(Sin.created) == 1
    assert np.all(np.abs(result) <= 1) and np.std(result) > 0
    by_name = delegraph.InterpreterWithCustomOps(
        model_path=sine, custom_op_registerers=[lambda ops: ops.update(Sin=Sin)]
    )
    np.testing.assert_array_equal(run_sine(by_name)[1], result)
    with pytest.raises(ValueError, match="Looking up symbol 'Bogus' failed"):
        delegraph.InterpreterWithCustomOps(model_path=sine, custom_op_registerers=["Bogus"])


@pytest.mark.parametrize("method", ["__init__", "prepare", "invoke"])
def test_exceptions_of_custom_ops_are_causes(sine: str, method: str) -> None:
    def fail(*_: object) -> None:
        raise KeyError("my own")

    broken = type("Broken", (Sin,), {method: fail})
    with pytest.raises(RuntimeError, match="my own") as raised:
        run_sine(Interpreter(sine, custom_ops={"Sin": broken}))
    assert isinstance(raised.value.__cause__, KeyError)


@pytest.mark.parametrize("result", [np.zeros(3), "text", None, [1, 2, 3], np.zeros((1, 1), np.complex64)])
def test_wrong_results_of_custom_ops_are_exceptions(sine: str, result: object) -> None:
    broken = type("Broken", (Sin,), {"invoke": lambda self, x: result})
    with pytest.raises(RuntimeError):
        run_sine(Interpreter(sine, custom_ops={"Sin": broken}))


def test_delegates_in_python(sine: str) -> None:
    plain = run_sine(Interpreter(sine, custom_ops={"Sin": Sin}))[1]
    delegate = Adder()
    interpreter = Interpreter(sine, custom_ops={"Sin": Sin}, delegates=[delegate])
    np.testing.assert_allclose(run_sine(interpreter)[1], plain, atol=1e-6)
    report = interpreter.report()
    assert report.delegates == ["adder"] and report.delegated_nodes == 1
    add, sin = report.nodes
    assert (add.runner, add.delegate, sin.runner) == ("delegate", "adder", "cpu")
    assert len(delegate.partition["inputs"]) >= 1
    for text in (str(report), report._repr_html_(), repr(report)):
        assert "adder" in text or "1 of 2 nodes" in text
    with pytest.raises(RuntimeError, match="require"):
        Interpreter(sine, custom_ops={"Sin": Sin}, delegates=[delegate], policy="require").allocate_tensors()


def test_a_delegate_that_fails_leaves_its_nodes(sine: str) -> None:
    class Failing(Adder):
        def compile(self, partition: dict) -> object:
            raise OSError("no device")

    interpreter = Interpreter(sine, custom_ops={"Sin": Sin}, delegate=Failing())
    run_sine(interpreter)
    report = interpreter.report()
    assert report.delegated_nodes == 0 and "no device" in str(report.failures)


def test_delegates_by_name(digits: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("cpu", "reference"):
        interpreter = Interpreter(digits, delegate=name)
        interpreter.allocate_tensors()
        assert interpreter.report().delegates == []
    for wrong in ("wgpu?colour=red", "plugin:"):
        with pytest.raises((ValueError, OSError)):
            Interpreter(digits, delegate=wrong)
    with pytest.raises(OSError):
        Interpreter(digits, delegate="missing.so")
    with pytest.raises(ValueError, match="no delegate 'gpu'; there are: cpu, reference, wgpu"):
        Interpreter(digits, delegate="gpu")
    monkeypatch.setenv("DELEGRAPH_DELEGATE", "missing.so")
    with pytest.raises(OSError):
        Interpreter(digits)
    Interpreter(digits, delegate="cpu")


def test_libraries_without_a_delegate_are_refused(tmp_path: pathlib.Path) -> None:
    library = tmp_path / "external.so"
    library.write_bytes(b"not a library")
    with pytest.raises(ValueError, match="Failed to load delegate from"):
        delegraph.load_delegate(library)
    library.write_bytes(b"\x7fELF tflite_plugin_create_delegate")
    with pytest.raises(ValueError, match="not a shared library"):
        delegraph.load_delegate(library)
    with pytest.raises(OSError, match="cannot open shared object file"):
        delegraph.load_delegate("missing.so")


@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")
def test_delegates_of_litert(tmp_path: pathlib.Path, sine: str, root: pathlib.Path) -> None:
    library = str(tmp_path / "adder.so")
    include = ["-I", str(root / "bindings/c/include"), "-I", str(root / "bindings/litert/tests/delegate")]
    source = str(root / "bindings/litert/tests/delegate/adder.c")
    subprocess.run(["cc", "-shared", "-fPIC", *include, "-o", library, source], check=True)
    with pytest.raises(ValueError, match="Failed to load delegate from.*\n.*there are the options as and log"):
        delegraph.load_delegate(library, {"size": 9})
    log = tmp_path / "log"
    plain = run_sine(Interpreter(sine, custom_ops={"Sin": Sin}))[1]
    loaded = delegraph.load_delegate(library, {"log": log})
    assert loaded._library.tflite_plugin_create_delegate
    for delegate in (loaded, f"litert:{library}", f"litert:{library}?as=temporary"):
        interpreter = Interpreter(sine, custom_ops={"Sin": Sin}, experimental_delegates=[delegate])
        np.testing.assert_array_equal(run_sine(interpreter)[1], plain)
        assert interpreter.report().delegated_nodes == 1
    del loaded, delegate, interpreter
    gc.collect()
    lines = log.read_text().split()
    assert lines.count("init") == lines.count("free") == lines.count("destroy") == 1
    failing = Interpreter(sine, custom_ops={"Sin": Sin}, delegate=f"litert:{library}?as=invoke_fails")
    with pytest.raises(RuntimeError, match="the device is gone after 3 of 4.5 steps"):
        run_sine(failing)


def test_options_of_the_gpu_are_checked() -> None:
    wrong = {"precision": "f64", "matrix_units": "some", "backend": "cuda", "power": 1, "max_partitions": "few",
             "min_nodes": -1, "max_gpu_bytes": "much", "fusion": "some", "trusted_shaders": "maybe"}
    for name, value in wrong.items():
        with pytest.raises(ValueError, match=f'option "{name}": "{value}" is (none of: |not a number)'):
            delegraph.load_delegate("wgpu", {name: value})
    with pytest.raises(ValueError, match="wgpu has no option \"no_such\"; it has .*precision=f32.f16.auto"):
        delegraph.load_delegate("wgpu", {"no_such": 1})
    try:
        delegraph.load_delegate("wgpu", {"precision": "f32", "matrix_units": "off", "fusion": "on"})
    except RuntimeError as error:
        pytest.skip(f"there is no GPU: {error}")


@pytest.mark.skipif(not delegraph.devices(), reason="there is no GPU adapter")
def test_the_gpu(digits: str) -> None:
    wanted = Interpreter(digits).predict(images(3))
    delegate = delegraph.load_delegate("wgpu")
    for interpreter in (Interpreter(digits, delegate="wgpu"), Interpreter(digits, experimental_delegates=[delegate])):
        np.testing.assert_allclose(interpreter.predict(images(3)), wanted, atol=1e-4)
        report = interpreter.report()
        assert report.delegated_nodes > 0 and report.device_bytes > 0
    interpreter = Interpreter(digits, delegate="wgpu")
    interpreter.allocate_tensors()
    interpreter.set_tensor(0, images())
    interpreter.invoke()
    kept = Interpreter(digits, experimental_preserve_all_tensors=True)
    kept.allocate_tensors()
    kept.set_tensor(0, images())
    kept.invoke()
    np.testing.assert_allclose(interpreter.get_tensor(18), kept.get_tensor(18), atol=1e-4)
    np.testing.assert_allclose(pickle.loads(pickle.dumps(interpreter)).predict(images(3)), wanted, atol=1e-4)


def test_predict(digits: str, sine: str) -> None:
    interpreter = Interpreter(digits)
    batch = images(5)
    result = interpreter.predict(batch)
    assert result.shape == (5, 10)
    np.testing.assert_allclose(interpreter.predict(batch[2:3]), result[2:3], atol=1e-6)
    for same in ([batch], {"image": batch}, {"serving_default_image:0": batch}, batch.astype(np.float64)):
        np.testing.assert_allclose(interpreter.predict(same), result, atol=1e-6)
    for wrong in ({"picture": batch}, batch[0], [batch, batch], batch[:0]):
        with pytest.raises(ValueError):
            interpreter.predict(wrong)


def test_predict_in_pieces(root: pathlib.Path) -> None:
    """A model with a fixed batch runs once for each piece of the batch."""
    from delegraph.interpreter import Interpreter as Base

    class Fixed(Base):
        def _resized(self, arrays: list, count: int) -> bool:
            return False

    digits = str(root / "assets/digits/digits_float32.tflite")
    np.testing.assert_allclose(Fixed(digits).predict(images(5)), Interpreter(digits).predict(images(5)), atol=1e-6)


def test_awaiting(digits: str) -> None:
    async def both() -> list:
        interpreters = [Interpreter(digits), Interpreter(digits)]
        for interpreter in interpreters:
            interpreter.allocate_tensors()
            interpreter.set_tensor(0, images())
        await asyncio.gather(*(interpreter.invoke_async() for interpreter in interpreters))
        return [interpreter.get_tensor(22) for interpreter in interpreters]

    first, second = asyncio.run(both())
    np.testing.assert_array_equal(first, second)
    interpreter = Interpreter(digits)
    with pytest.raises(RuntimeError, match="not ready"):
        interpreter.submit().result()
