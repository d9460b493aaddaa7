"""Compares the interface and the values with `ai_edge_litert.interpreter`, if it is installed."""

import inspect
import pathlib
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from delegraph import interpreter as ours

litert = pytest.importorskip(
    "ai_edge_litert.interpreter", reason="LiteRT is not installed (pip install ai-edge-litert==2.3.0)", exc_type=ImportError
)

# Names in LiteRT's module that are imported modules, helpers of its exports, or its C++ wrapper.
LEFT_OUT = {"ctypes", "platform", "sys", "warnings"}

# Attributes of LiteRT's objects that hold its C++ objects.
NATIVE = {"__del__", "__weakref__", "_library", "_delegate_ptr", "_get_native_delegate_pointer"}

MODELS = sorted(
    str(path)
    for folder in ("assets/digits", "assets/fusion", "assets/custom")
    for path in (pathlib.Path(__file__).resolve().parents[3] / folder).glob("*.tflite")
)


def names(module: Any) -> set:
    return {name for name in vars(module) if not name.startswith("__")}


def test_the_module_has_every_name() -> None:
    private = {"_tf_export", "_interpreter_wrapper", "_IS_LITERT_PACKAGE", "_INTERPRETER_DELETION_WARNING"}
    assert names(litert) - names(ours) - LEFT_OUT - private == set()


@pytest.mark.parametrize("name", ["Interpreter", "InterpreterWithCustomOps", "SignatureRunner", "Delegate", "OpResolverType"])
def test_classes_have_every_attribute_and_signature(name: str) -> None:
    theirs, own = getattr(litert, name), getattr(ours, name)
    missing = {key for key in dir(theirs) if not hasattr(own, key)} - NATIVE
    assert not missing
    for key, value in vars(theirs).items():
        if inspect.isfunction(value) and key not in NATIVE:
            check_parameters(key, inspect.signature(value), inspect.signature(getattr(own, key)))
        elif isinstance(value, property):
            assert isinstance(inspect.getattr_static(own, key), property), key


def check_parameters(name: str, theirs: inspect.Signature, own: inspect.Signature) -> None:
    """Every call that LiteRT's signature accepts is accepted with the same meaning: additional parameters have defaults."""
    known = list(theirs.parameters.values())
    mine = list(own.parameters.values())
    for at, parameter in enumerate(known):
        if parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL):
            assert any(p.kind is parameter.kind for p in mine), name
            continue
        found = mine[at]
        assert found.name == parameter.name and found.kind is not found.KEYWORD_ONLY, (name, str(own), str(theirs))
        assert has_default(found) or not has_default(parameter), (name, parameter.name)
        if has_default(parameter) and not isinstance(parameter.default, litert.OpResolverType):
            assert found.default == parameter.default, (name, parameter.name)
    for more in mine[len(known):]:
        assert has_default(more) or more.kind in (more.VAR_KEYWORD, more.VAR_POSITIONAL), (name, more.name)


def has_default(parameter: inspect.Parameter) -> bool:
    return parameter.default is not parameter.empty


def test_functions_have_their_signatures() -> None:
    for name, value in vars(litert).items():
        if inspect.isfunction(value) and value.__module__ == litert.__name__ and name != "_tf_export":
            check_parameters(name, inspect.signature(value), inspect.signature(getattr(ours, name)))


def test_resolver_types_have_the_values() -> None:
    values = {member.name: member.value for member in litert.OpResolverType}
    assert values == {member.name: member.value for member in ours.OpResolverType}


def same(theirs: Any, own: Any, where: str) -> None:
    """Asserts equal types, dtypes, shapes and values of nested details."""
    if isinstance(theirs, np.ndarray):
        assert isinstance(own, np.ndarray) and own.dtype == theirs.dtype and own.shape == theirs.shape, where
        np.testing.assert_array_equal(own, theirs, err_msg=where)
        return
    assert type(own) is type(theirs), (where, own, theirs)
    if isinstance(theirs, dict):
        assert list(own) == list(theirs), (where, list(own), list(theirs))
        for key, value in theirs.items():
            same(value, own[key], f"{where}[{key!r}]")
    elif isinstance(theirs, (list, tuple)):
        assert len(own) == len(theirs), where
        for at, (a, b) in enumerate(zip(theirs, own)):
            same(a, b, f"{where}[{at}]")
    else:
        assert own == theirs or own is theirs, (where, own, theirs)


@pytest.mark.parametrize("model", MODELS, ids=lambda path: pathlib.Path(path).stem)
@pytest.mark.parametrize("allocated", [False, True])
def test_details_are_equal(model: str, allocated: bool) -> None:
    pair = []
    for module in (litert, ours):
        interpreter = module.Interpreter(model, experimental_op_resolver_type=module.OpResolverType.BUILTIN_REF)
        # The other models have custom ops.
        if allocated and ("digits" in model or "lstm" in model):
            interpreter.allocate_tensors()
        pair.append(interpreter)
    theirs, own = pair
    count = len(own.get_tensor_details())
    # LiteRT lists the temporaries that it created, after the model's tensors.
    same(theirs.get_tensor_details()[:count], own.get_tensor_details(), "tensors")
    for method in ("get_input_details", "get_output_details", "num_subgraphs", "get_signature_list",
                   "_get_full_signature_list", "_get_ops_details"):
        same(getattr(theirs, method)(), getattr(own, method)(), method)
    for key in theirs.get_signature_list():
        runners = [interpreter.get_signature_runner(key) for interpreter in pair]
        for method in ("get_input_details", "get_output_details"):
            same(*(getattr(runner, method)() for runner in runners), f"{key}.{method}")


def test_the_private_wrapper(digits_int8: str) -> None:
    # Delegraph's wrapper does not keep its interpreter alive.
    pair = [module.Interpreter(digits_int8, experimental_op_resolver_type=module.OpResolverType.BUILTIN_REF)
            for module in (litert, ours)]
    theirs, own = (interpreter._interpreter for interpreter in pair)
    names = {name for name in dir(theirs) if not name.startswith("__")}
    # The pointer to the C++ interpreter.
    assert names - {name for name in dir(own)} <= {"interpreter", "_pybind11_conduit_v1_"}
    for name in ("NumSubgraphs", "NumNodes", "InputIndices", "OutputIndices", "GetSignatureDefs"):
        same(getattr(theirs, name)(), getattr(own, name)(), name)
    for name in ("NodeName", "NodeInputs", "NodeOutputs"):
        same(getattr(theirs, name)(0), getattr(own, name)(0), name)
    for name in sorted(name for name in names if name.startswith("Tensor")):
        same(getattr(theirs, name)(2, 0), getattr(own, name)(2, 0), name)


def constructions(module: Any, model: str) -> list:
    content = pathlib.Path(model).read_bytes()
    return [
        lambda: module.Interpreter(),
        lambda: module.Interpreter(model, content),
        lambda: module.Interpreter("missing.tflite"),
        lambda: module.Interpreter(model_content=b"short"),
        lambda: module.Interpreter(model_content=content[:100]),
        lambda: module.Interpreter(model, num_threads=0),
        lambda: module.Interpreter(model, num_threads=1.5),
        lambda: module.Interpreter(model, experimental_op_resolver_type="builtin"),
        lambda: module.Interpreter(model, no_such_parameter=1),
        lambda: module.load_delegate("no_such_library.so"),
        lambda: module.SignatureRunner(),
        lambda: module.SignatureRunner(module.Interpreter(model)),
        lambda: module.SignatureRunner(module.Interpreter(model), "none"),
        lambda: module.InterpreterWithCustomOps(["NoSuchSymbol"], model_path=model),
    ]


def calls(module: Any, model: str) -> list:
    def ready() -> Any:
        interpreter = module.Interpreter(model)
        interpreter.allocate_tensors()
        return interpreter

    right = np.zeros((1, 8, 8, 1), np.float32)
    return [
        lambda: module.Interpreter(model).invoke(),
        lambda: module.Interpreter(model).set_tensor(0, right),
        lambda: module.Interpreter(model).get_tensor(0),
        lambda: module.Interpreter(model).tensor(0)(),
        lambda: ready().set_tensor(0, right.astype(np.float64)),
        lambda: ready().set_tensor(0, right.astype(np.int8)),
        lambda: ready().set_tensor(0, right[0]),
        lambda: ready().set_tensor(0, np.zeros((2, 8, 8, 1), np.float32)),
        lambda: ready().set_tensor(0, "text"),
        lambda: ready().set_tensor(999, right),
        lambda: ready().set_tensor("0", right),
        lambda: ready().set_tensor(0),
        lambda: ready().get_tensor(999),
        lambda: ready().get_tensor(0, 9),
        lambda: ready().get_tensor("0"),
        lambda: ready().tensor(999)(),
        lambda: ready().resize_tensor_input(0, [1, 9, 8, 1], strict=True),
        lambda: ready().resize_tensor_input(0, "x"),
        lambda: ready().resize_tensor_input(999, [1]),
        lambda: ready().resize_tensor_input(0, 5),
        lambda: resized(ready(), [1, 2]),
        lambda: ready().get_tensor_details(7),
        lambda: ready().get_signature_runner("none"),
        lambda: ready().get_signature_runner()(),
        lambda: ready().get_signature_runner()(other=right),
        lambda: ready().get_signature_runner()(image=right, more=right),
        lambda: ready().get_signature_runner()(image=right.astype(np.int64)),
        lambda: ready().get_signature_runner()(right),
        lambda: holding(ready()),
    ]


def resized(interpreter: Any, shape: list) -> None:
    interpreter.resize_tensor_input(0, shape)
    interpreter.allocate_tensors()


def holding(interpreter: Any) -> None:
    view = interpreter.tensor(0)()
    interpreter.invoke()
    del view


@pytest.mark.parametrize("group", [constructions, calls], ids=["construction", "call"])
def test_wrong_uses_raise_the_same_types(group: Any, digits: str) -> None:
    different = []
    for at, (theirs, own) in enumerate(zip(group(litert, digits), group(ours, digits))):
        wanted, found = failure(theirs), failure(own)
        assert wanted is not None, at
        if not isinstance(found, catches(wanted)):
            different.append((at, repr(wanted), repr(found)))
    assert not different


def failure(call: Any) -> Any:
    try:
        call()
    except Exception as error:  # noqa: BLE001
        return error
    return None


def catches(error: Exception) -> type:
    """Returns the builtin type with which programs catch an exception of LiteRT."""
    return next(kind for kind in type(error).__mro__ if kind.__module__ == "builtins")


@pytest.mark.parametrize("model", [m for m in MODELS if "digits" in m], ids=lambda path: pathlib.Path(path).stem)
def test_values_are_equal(model: str) -> None:
    random = np.random.default_rng(0)
    pair = [module.Interpreter(model) for module in (litert, ours)]
    for batch in (1, 3):
        (detail,) = pair[0].get_input_details()
        values = random.random((batch, 8, 8, 1))
        data = (values * 255 - 128).astype(np.int8) if detail["dtype"] is np.int8 else values.astype(detail["dtype"])
        results = []
        for interpreter in pair:
            interpreter.resize_tensor_input(0, data.shape)
            interpreter.allocate_tensors()
            interpreter.set_tensor(0, data)
            interpreter.invoke()
            output = interpreter.get_output_details()[0]["index"]
            results += [interpreter.get_tensor(output), interpreter.get_signature_runner()(image=data)["probabilities"]]
        tolerance = 1 if results[0].dtype == np.int8 else 1e-5
        for result in results[1:]:
            assert result.dtype == results[0].dtype
            np.testing.assert_allclose(result.astype(np.float64), results[0].astype(np.float64), atol=tolerance)


def test_other_modules_of_the_package_stay() -> None:
    script = """
import delegraph
delegraph.install()
from ai_edge_litert import interpreter
import ai_edge_litert.schema_py_generated as schema
from ai_edge_litert.hardware_accelerator import HardwareAccelerator
assert interpreter.Interpreter is delegraph.Interpreter and schema.Model and HardwareAccelerator.CPU
delegraph.uninstall()
from ai_edge_litert.interpreter import Interpreter
assert Interpreter is not delegraph.Interpreter
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=120)
