"""The interface of `ai_edge_litert.interpreter`: arguments, values, views, details, exceptions."""

import copy
import gc
import pathlib
import pickle
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import delegraph
from delegraph import Interpreter, OpResolverType


def images(count: int = 1, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).random((count, 8, 8, 1), dtype=np.float32)


def run(interpreter: Interpreter, data: np.ndarray) -> np.ndarray:
    interpreter.set_tensor(interpreter.get_input_details()[0]["index"], data)
    interpreter.invoke()
    return interpreter.get_tensor(interpreter.get_output_details()[0]["index"])


def test_a_model_runs_from_path_and_bytes(digits: str) -> None:
    content = pathlib.Path(digits).read_bytes()
    results = []
    for options in (
        {"model_path": digits},
        {"model_path": pathlib.Path(digits), "num_threads": 2},
        {"model_content": content},
        {"model_content": bytearray(content)},
        {"model_path": digits, "experimental_op_resolver_type": OpResolverType.BUILTIN_REF},
    ):
        interpreter = Interpreter(**options)
        interpreter.allocate_tensors()
        results.append(run(interpreter, images()))
    assert results[0].shape == (1, 10) and results[0].sum() == pytest.approx(1, abs=1e-5)
    for result in results[1:]:
        np.testing.assert_allclose(result, results[0], atol=1e-6)


def test_arguments_are_checked_as_in_litert(digits: str) -> None:
    def check(exception: type, text: str, *args: object, **kwargs: object) -> None:
        with pytest.raises(exception, match=text):
            Interpreter(*args, **kwargs)

    check(ValueError, "must be specified")
    check(ValueError, "Can't both", digits, b"x")
    check(ValueError, "num_threads should >= 1", digits, num_threads=0)
    check(ValueError, "type of num_threads should be int", digits, num_threads=4.2)
    check(ValueError, "Unrecognized passed in op resolver type: test", digits, experimental_op_resolver_type="test")
    check(ValueError, "Could not open 'missing.tflite'", "missing.tflite")
    check(ValueError, "not a valid Flatbuffer buffer", model_content=b"short")
    check(ValueError, "not a valid Flatbuffer buffer", model_content=b"wrong_identifier")
    check(TypeError, "model_content is bytes", model_content="text")
    check(ValueError, "policy is", digits, policy="always")


def test_details_have_litert_keys_and_types(digits_int8: str) -> None:
    interpreter = Interpreter(digits_int8)
    (detail,) = interpreter.get_input_details()
    assert list(detail) == [
        "name", "index", "shape", "shape_signature", "dtype", "quantization", "quantization_parameters",
        "sparsity_parameters",
    ]
    assert detail["dtype"] is np.int8 and detail["name"] == "serving_default_image:0"
    assert detail["shape"].dtype == np.int32 and detail["shape"].tolist() == [1, 8, 8, 1]
    assert detail["shape_signature"].tolist() == [-1, 8, 8, 1]
    assert detail["quantization"] == (pytest.approx(1 / 255), -128)
    parameters = detail["quantization_parameters"]
    assert list(parameters) == ["scales", "zero_points", "quantized_dimension", "block_size"]
    assert parameters["scales"].dtype == np.float32 and parameters["zero_points"].dtype == np.int32
    assert detail["sparsity_parameters"] == {}
    assert len(interpreter.get_tensor_details()) == 23
    assert any(len(d["quantization_parameters"]["scales"]) > 1 for d in interpreter.get_tensor_details())
    node = interpreter._get_ops_details()[0]
    assert node["op_name"] == "CONV_2D" and node["inputs"].dtype == np.int32 and node["operand_types"][0] is np.int8
    with pytest.raises(ValueError, match="out of range"):
        interpreter.get_tensor_details(1)
    with pytest.raises(ValueError, match="Invalid node index"):
        interpreter._get_op_details(99)


def test_calls_in_a_wrong_order_are_exceptions(digits: str) -> None:
    interpreter = Interpreter(digits)
    for call in (lambda: interpreter.get_tensor(0), lambda: interpreter.set_tensor(0, images()), interpreter.tensor(0)):
        with pytest.raises(ValueError, match="allocate_tensors"):
            call()
    with pytest.raises(RuntimeError, match="not ready"):
        interpreter.invoke()


def test_values_that_do_not_fit_are_exceptions(digits: str) -> None:
    interpreter = Interpreter(digits)
    interpreter.allocate_tensors()

    def check(exception: type, text: str, index: object, value: object) -> None:
        with pytest.raises(exception, match=text):
            interpreter.set_tensor(index, value)  # type: ignore[arg-type]

    check(ValueError, "FLOAT64 but expected type FLOAT32", 0, images().astype(np.float64))
    check(ValueError, "Got 3 but expected 4 for input 0", 0, np.zeros((1, 2, 3), np.float32))
    check(ValueError, "Got 2 but expected 1 for dimension 0", 0, images(2))
    check(ValueError, "STRING", 0, "text")
    check(ValueError, "Invalid tensor index 99 exceeds max tensor index 23", 99, images())
    check(ValueError, "Invalid tensor index -1", -1, images())
    check(ValueError, "constant", 1, interpreter.get_tensor(1))
    check(TypeError, "integer", 0.5, images())
    check(TypeError, "integer", None, images())
    check((TypeError, ValueError), "type", 0, object())
    with pytest.raises(ValueError, match="Invalid subgraph index 5"):
        interpreter.get_tensor(0, 5)


def test_arrays_of_any_layout_are_taken(digits: str) -> None:
    interpreter = Interpreter(digits)
    interpreter.allocate_tensors()
    data = images()
    wanted = run(interpreter, data)
    strided = np.zeros((1, 16, 16, 2), np.float32)[:, ::2, ::2, 1:]
    strided[...] = data
    read_only = data.copy()
    read_only.flags.writeable = False
    unaligned = np.frombuffer(b"\0" + data.tobytes(), np.uint8)[1:].view(np.float32).reshape(data.shape)
    for same in (np.asfortranarray(data), strided, read_only, data.astype(">f4"), unaligned, data[:, ::-1][:, ::-1]):
        interpreter.set_tensor(0, np.zeros_like(data))
        np.testing.assert_array_equal(run(interpreter, same), wanted)


def test_views_write_inputs_and_protect_memory(digits: str) -> None:
    interpreter = Interpreter(digits)
    interpreter.allocate_tensors()
    wanted = run(interpreter, images())
    view = interpreter.tensor(0)
    output = interpreter.tensor(interpreter.get_output_details()[0]["index"])
    view()[...] = images(seed=1)
    interpreter.invoke()
    assert not np.array_equal(output(), wanted)
    view()[...] = images()
    interpreter.invoke()
    np.testing.assert_array_equal(output(), wanted)
    held = view()[0, 2:]
    for call in (interpreter.invoke, interpreter.allocate_tensors, lambda: interpreter.resize_tensor_input(0, [2, 8, 8, 1])):
        with pytest.raises(RuntimeError, match="There is at least 1 reference"):
            call()
    assert not interpreter._safe_to_run()
    del held
    interpreter.invoke()
    constant = interpreter.tensor(1)()
    assert not constant.flags.writeable


def test_a_view_keeps_the_interpreter(digits: str) -> None:
    interpreter = Interpreter(digits)
    interpreter.allocate_tensors()
    interpreter.set_tensor(0, images())
    view = interpreter.tensor(0)()
    del interpreter
    gc.collect()
    np.testing.assert_array_equal(view, images())


def test_intermediate_tensors_have_their_values(digits: str) -> None:
    keeping = Interpreter(digits, experimental_preserve_all_tensors=True)
    keeping.allocate_tensors()
    run(keeping, images())
    for index in range(14, 22):
        interpreter = Interpreter(digits)
        interpreter.allocate_tensors()
        with pytest.raises(ValueError, match="experimental_preserve_all_tensors"):
            interpreter.get_tensor(index)
        wanted = run(interpreter, images())
        np.testing.assert_allclose(interpreter.get_tensor(index), keeping.get_tensor(index), atol=1e-6)
        assert len(interpreter.get_output_details()) == 1
        np.testing.assert_array_equal(run(interpreter, images()), wanted)
        interpreter.get_tensor(index)


def test_an_intermediate_tensor_of_other_inputs_is_refused(digits: str) -> None:
    interpreter = Interpreter(digits)
    interpreter.allocate_tensors()
    run(interpreter, images())
    interpreter.set_tensor(0, images(seed=2))
    with pytest.raises(ValueError, match="inputs have changed.*experimental_preserve_all_tensors"):
        interpreter.get_tensor(15)


def test_resizing(digits: str) -> None:
    interpreter = Interpreter(digits)
    interpreter.allocate_tensors()
    single = [run(interpreter, images(3)[i:i + 1]) for i in range(3)]
    interpreter.resize_tensor_input(0, np.array([3, 8, 8, 1]), strict=True)
    assert interpreter.get_input_details()[0]["shape"].tolist() == [3, 8, 8, 1]
    with pytest.raises(RuntimeError, match="not ready"):
        interpreter.invoke()
    interpreter.allocate_tensors()
    np.testing.assert_allclose(run(interpreter, images(3)), np.concatenate(single), atol=1e-6)
    with pytest.raises(RuntimeError, match="not mutable"):
        interpreter.resize_tensor_input(0, [1, 9, 8, 1], strict=True)
    interpreter.resize_tensor_input(0, [2.0, np.int8(8), np.float32(8), True])
    assert interpreter.get_input_details()[0]["shape"].tolist() == [2, 8, 8, 1]
    for shape in ([-1, 8, 8, 1], [2**31, 8, 8, 1], [2.5], [float("nan")], [1e300], "x", 5, None):
        with pytest.raises((ValueError, TypeError)):
            interpreter.resize_tensor_input(0, shape)
    with pytest.raises(RuntimeError, match="not an input"):
        interpreter.resize_tensor_input(1, [1])
    interpreter.resize_tensor_input(0, [1, 2])
    with pytest.raises(RuntimeError):
        interpreter.allocate_tensors()
    interpreter.resize_tensor_input(0, [1, 8, 8, 1])
    interpreter.allocate_tensors()
    np.testing.assert_allclose(run(interpreter, images(3)[:1]), single[0], atol=1e-6)


def test_signatures(digits: str) -> None:
    interpreter = Interpreter(digits)
    assert interpreter.get_signature_list() == {"serving_default": {"inputs": ["image"], "outputs": ["probabilities"]}}
    assert interpreter._get_full_signature_list() == {
        "serving_default": {"inputs": {"image": 0}, "outputs": {"probabilities": 22}}
    }
    runner = interpreter.get_signature_runner()
    result = runner(image=images(2))
    assert result["probabilities"].shape == (2, 10)
    assert runner.get_input_details()["image"]["index"] == 0
    for arguments in ({}, {"image": images(), "more": 1}, {"picture": images()}):
        with pytest.raises(ValueError):
            runner(**arguments)
    with pytest.raises(ValueError, match='Invalid signature_key provided: "zz"'):
        interpreter.get_signature_runner("zz")


def test_interpreters_are_pickled_and_copied(digits: str) -> None:
    interpreter = Interpreter(digits, num_threads=2)
    interpreter.resize_tensor_input(0, [2, 8, 8, 1])
    interpreter.allocate_tensors()
    wanted = run(interpreter, images(2))
    for other in (pickle.loads(pickle.dumps(interpreter)), copy.deepcopy(interpreter)):
        np.testing.assert_array_equal(run(other, images(2)), wanted)


def test_one_call_at_a_time(root: pathlib.Path, digits: str) -> None:
    class Slow:
        def __init__(self, options: object) -> None: ...

        def prepare(self, shapes: list) -> tuple:
            return shapes[0]

        def invoke(self, x: np.ndarray) -> np.ndarray:
            entered.set()
            assert leave.wait(30)
            return x

    entered, leave = threading.Event(), threading.Event()
    interpreter = Interpreter(str(root / "assets/custom/sin.tflite"), custom_ops={"Sin": Slow})
    interpreter.allocate_tensors()
    thread = threading.Thread(target=interpreter.invoke)
    thread.start()
    assert entered.wait(30)
    for call in (interpreter.invoke, lambda: interpreter.get_tensor(0), interpreter.allocate_tensors):
        with pytest.raises(RuntimeError, match="in use by another thread"):
            call()
    leave.set()
    thread.join()
    interpreter.invoke()


def test_threads_with_an_interpreter_each(digits: str) -> None:
    def work(seed: int) -> None:
        interpreter = Interpreter(digits)
        interpreter.allocate_tensors()
        results[seed] = [run(interpreter, images(seed=seed)) for _ in range(50)]

    results: dict = {}
    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    for seed in range(4):
        assert all(np.array_equal(result, results[seed][0]) for result in results[seed])


@pytest.mark.skipif(sys.platform == "win32", reason="there is no fork")
def test_a_forked_process(digits: str) -> None:
    script = f"""
import os, numpy as np, delegraph
single, threaded = delegraph.Interpreter({digits!r}), delegraph.Interpreter({digits!r}, num_threads=2)
[i.allocate_tensors() for i in (single, threaded)]
child = os.fork()
if child == 0:
    single.invoke()
    try:
        threaded.invoke()
    except RuntimeError as error:
        assert "forked" in str(error)
        del threaded
        os._exit(7)
    os._exit(1)
_, status = os.waitpid(child, 0)
assert os.waitstatus_to_exitcode(status) == 7, status
threaded.invoke()
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=120)


def test_subclasses(digits: str) -> None:
    class Mine(Interpreter):
        def __init__(self, path: str) -> None:
            super().__init__(model_path=path)
            self.extra = 1

    class Broken(Interpreter):
        def __init__(self) -> None: ...

    interpreter = Mine(digits)
    interpreter.allocate_tensors()
    assert run(interpreter, images()).shape == (1, 10) and interpreter.extra == 1
    with pytest.raises(RuntimeError, match="super"):
        Broken().invoke()


def test_memory_stands_still(digits: str) -> None:
    def resident() -> int:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * 4096

    def cycle(count: int) -> None:
        for _ in range(count):
            interpreter = Interpreter(digits)
            interpreter.allocate_tensors()
            run(interpreter, images())
            interpreter.tensor(22)()
            interpreter.get_tensor(15)

    if sys.platform != "linux":
        pytest.skip("resident memory is read from /proc")
    cycle(200)
    before = resident()
    cycle(1_000)
    interpreter = Interpreter(digits)
    interpreter.allocate_tensors()
    data, runner = images(), Interpreter(digits).get_signature_runner()
    for _ in range(100_000):
        interpreter.set_tensor(0, data)
        interpreter.invoke()
        interpreter.get_tensor(22)
    for _ in range(5_000):
        runner(image=data)
        interpreter.tensor(22)()
        interpreter.get_input_details()
    gc.collect()
    assert resident() - before < 8 << 20


def test_damaged_models_are_exceptions(digits: str) -> None:
    content = pathlib.Path(digits).read_bytes()
    random = np.random.default_rng(0)
    refused = 0
    for _ in range(200):
        damaged = bytearray(content)
        for at in random.integers(0, len(content), 8):
            damaged[at] = random.integers(0, 256)
        try:
            interpreter = Interpreter(model_content=bytes(damaged[: random.integers(8, len(content) + 1)]))
            interpreter.allocate_tensors()
            interpreter.invoke()
        except (ValueError, RuntimeError, MemoryError):
            refused += 1
    assert refused > 50


def test_variables_are_reset(root: pathlib.Path) -> None:
    model = root / "assets/fusion/lstm_int8.tflite"
    interpreter = Interpreter(str(model))
    interpreter.allocate_tensors()
    detail = interpreter.get_input_details()[0]
    data = np.ones(detail["shape"], detail["dtype"])
    first = run(interpreter, data)
    interpreter.allocate_tensors()
    np.testing.assert_array_equal(run(interpreter, data), first)
    interpreter.reset_all_variables()
    np.testing.assert_array_equal(run(interpreter, data), first)


def test_version() -> None:
    assert delegraph.__version__.count(".") == 2
