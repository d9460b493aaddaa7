#!/usr/bin/env python3
"""Runs LiteRT's `tflite/python/interpreter_test.py`, unchanged, on the installed package `delegraph`.

    PYTHON scripts/check_litert_tests.py LITERT

LITERT is a checkout of LiteRT, or its bare repository. PYTHON is the interpreter of an environment with the wheel and
`ai-edge-litert` (for the classes that write models). TensorFlow's base class and file functions are replaced by small
ones, the converter's result by a model that is written here, and the C++ registerer by one of `delegraph`. The library
of the delegate's tests is compiled if there is a C++ compiler. Prints the result of each test that did not pass; the
exit code is 1 if a failed test is not listed below.
"""

import argparse
import pathlib
import re
import struct
import subprocess
import sys
import tempfile

EXPECTED = {
    "testMultipleInterpreters": "each interpreter has a delegate of its own, and the test counts one for two interpreters",
}

FILES = ("tflite/python/interpreter_test.py", "tflite/python/testdata/pc_conv.bin", "tflite/testdata/sparse_tensor.bin")

SHIM = '''
import contextlib, enum, importlib, pathlib, sys, types, unittest
from unittest import mock
import numpy as np
import delegraph
from delegraph import interpreter, metrics_portable

ROOT = pathlib.Path(__file__).parent


class TestCase(unittest.TestCase):
    def assertAllEqual(self, a, b):
        if isinstance(a, dict) or isinstance(b, dict):
            self.assertEqual(a, b)
        else:
            np.testing.assert_array_equal(a, b)

    def assertLen(self, values, length):
        self.assertEqual(len(values), length)


def module(name, **names):
    made = sys.modules[name] = types.ModuleType(name)
    made.__path__ = []
    for key, value in names.items():
        setattr(made, key, value)
    parent, _, child = name.rpartition(".")
    if parent:
        setattr(sys.modules.get(parent) or module(parent), child, made)
    return made


class Converter:
    @staticmethod
    def from_concrete_functions(*_):
        return Converter()

    def convert(self):
        return (ROOT / "tflite/python/testdata/sum.tflite").read_bytes()


class Function:
    def __init__(self, function):
        pass

    def get_concrete_function(self, *_):
        return None


calls = 0


class Fake:
    def __init__(self, options):
        pass

    def prepare(self, shapes):
        return [shapes[0]]

    def invoke(self, x):
        return x


def registerer(ops):
    global calls
    calls += 1
    ops["FakeOp"] = Fake


class Registerer(types.ModuleType):
    TF_TestRegisterer = staticmethod(registerer)

    @staticmethod
    def get_num_test_registerer_calls():
        global calls
        counted, calls = calls, 0
        return counted


interpreter.register_custom_ops("TF_TestRegisterer", registerer)
model = type("Model", (), {})
module("tensorflow", float32=np.float32, function=lambda **_: Function, TensorSpec=lambda *_, **__: None,
    keras=types.SimpleNamespace(models=types.SimpleNamespace(Model=model)), zeros=lambda shape, dtype: np.zeros(shape, dtype))
module("tensorflow.python.framework", test_util=types.SimpleNamespace(TensorFlowTestCase=TestCase))
module("tensorflow.python.platform", test=types.SimpleNamespace(main=unittest.main),
    resource_loader=types.SimpleNamespace(get_path_to_datafile=lambda path: str(ROOT / "tflite/python" / path)))
module("tflite.python.metrics", metrics=metrics_portable)
sys.modules["tflite.python.interpreter"] = interpreter
module("tflite.python.lite", TFLiteConverterV2=Converter, Interpreter=interpreter.Interpreter)
sys.modules["tflite.python"].interpreter = interpreter
module("tflite.python.testdata", _pywrap_test_registerer=Registerer("registerer"))
'''


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("litert", type=pathlib.Path)
    litert = parser.parse_args().litert
    try:
        import ai_edge_litert.schema_py_generated  # noqa: F401
    except ImportError as error:
        print(f"check_litert_tests: left out: {error}", file=sys.stderr)
        return 0
    with tempfile.TemporaryDirectory(prefix="litert-tests") as name:
        folder = pathlib.Path(name)
        for path in FILES:
            write(folder / path, content(litert, path))
        write_models(folder / "tflite/python/testdata")
        if message := compile_delegate(litert, folder):
            print(f"check_litert_tests: left out: the tests of delegates: {message}")
        (folder / "shim.py").write_text(SHIM)
        # The package's folders would shadow the replaced modules.
        (folder / FILES[0]).rename(folder / "test_interpreter.py")
        run = "import shim, unittest; unittest.main('test_interpreter', verbosity=2)"
        ended = subprocess.run([sys.executable, "-c", run], cwd=folder, capture_output=True, text=True, check=False)
    return judge(ended.stderr)


def judge(output: str) -> int:
    """Prints the tests that did not pass. Returns 1 if one of them is not expected to fail, or none ran."""
    results = re.findall(r"^(test\w+) .*?\.\.\. (ok|FAIL|ERROR|skipped [^\n]*)$", output, re.MULTILINE | re.DOTALL)
    unexpected = [name for name, result in results if result in ("FAIL", "ERROR") and name not in EXPECTED]
    for name, result in results:
        if result != "ok":
            print(f"{name}: {result}{': ' + EXPECTED[name] if name in EXPECTED else ''}")
    print(f"{sum(result == 'ok' for _, result in results)} of {len(results)} pass")
    if unexpected or not results:
        print(output[-4000:])
    return 1 if unexpected or not results else 0


def content(litert: pathlib.Path, path: str) -> bytes:
    if (litert / path).exists():
        return (litert / path).read_bytes()
    return subprocess.run(["git", "-C", litert, "show", f"HEAD:{path}"], check=True, capture_output=True).stdout


def write(path: pathlib.Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def compile_delegate(litert: pathlib.Path, folder: pathlib.Path) -> str:
    """Compiles the library of the delegate's tests with the headers of the checkout. Returns the error, if any."""
    source = folder / "source"
    source.mkdir()
    if (litert / "tflite").is_dir():
        source = litert
    else:
        archive = subprocess.run(["git", "-C", litert, "archive", "HEAD", "tflite/core/c", "tflite/core/async/c", "tflite/c",
                                  "tflite/converter/core/c", "tflite/builtin_ops.h", "tflite/python/testdata"], capture_output=True, check=False)
        subprocess.run(["tar", "-x", "-C", source], input=archive.stdout, check=False)
    library = folder / "tflite/python/testdata/test_delegate.so"
    command = ["c++", "-std=c++17", "-shared", "-fPIC", "-w", "-I", source, "-o", library, source / "tflite/python/testdata/test_delegate.cc",
               source / "tflite/core/c/common.cc"]
    try:
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        return str(error)
    errors = [line for line in ended.stderr.splitlines() if "error" in line]
    return "" if ended.returncode == 0 else (errors or ["the compiler failed"])[0]


def write_models(folder: pathlib.Path) -> None:
    """Writes the models that LiteRT's build converts from TensorFlow graphs."""
    import numpy as np

    float32, int32, uint8, int64, string = 0, 2, 3, 4, 5
    permute = np.eye(4)[::-1]
    fully_connected = ("FULLY_CONNECTED", 9, 8, "FullyConnectedOptionsT")
    for name, kind, dtype, scale in (("float", float32, np.float32, None), ("uint8", uint8, np.uint8, 1.0)):
        tensors = [("input", [1, 4], kind, None, scale), ("Const", [4, 4], kind, permute.astype(dtype), scale), ("output", [1, 4], kind, None, scale)]
        save(folder / f"permute_{name}.tflite", [(tensors, fully_connected, [0, 1, -1], [2], [0], "serving_default")])
    gather = ("GATHER", 36, 23, "GatherOptionsT")
    tensors = [("input", [10], string, None, None), ("indices", [3], int64, None, None), ("output", [3], string, None, None)]
    save(folder / "gather_string.tflite", [(tensors, gather, [0, 1], [2], [0, 1], None)], version=2)
    # One string of four bytes: the number of strings, the string's start and end, and the bytes.
    constant = np.frombuffer(struct.pack("<iii4s", 1, 12, 16, b"abcd"), np.uint8)
    tensors = [("input", [], string, None, None), tensors[1], tensors[2], ("input_const", [1], string, constant, None)]
    save(folder / "gather_string_0d.tflite", [(tensors, gather, [3, 1], [2], [0, 1], None)], version=2)
    tensors = [("x", [1], float32, None, None), ("axis", [1], int32, np.array([0], np.int32), None), ("sum", [], float32, None, None)]
    save(folder / "sum.tflite", [(tensors, ("SUM", 74, 27, "ReducerOptionsT"), [0, 1], [2], [0], "serving_default")])
    graphs = []
    for name, code in (("add", ("ADD", 0, 11, "AddOptionsT")), ("multiply", ("MUL", 18, 21, "MulOptionsT"))):
        tensors = [(f"{name}_x:0", [1], float32, None, None), (f"{name}/y", [], float32, np.array(2, np.float32), None), (f"{name}:0", [1], float32, None, None)]
        graphs.append((tensors, code, [0, 1], [2], [0], name))
    save(folder / "two_signatures.tflite", graphs)


def save(path: pathlib.Path, graphs: list, version: int = 1) -> None:
    import flatbuffers
    from ai_edge_litert import schema_py_generated as schema

    model = schema.ModelT()
    model.version, model.buffers, model.operatorCodes, model.subgraphs, model.signatureDefs = 3, [schema.BufferT()], [], [], []
    for at, (tensors, (_, code, options, name), inputs, outputs, arguments, key) in enumerate(graphs):
        opcode = schema.OperatorCodeT()
        opcode.builtinCode, opcode.deprecatedBuiltinCode, opcode.version = code, code, version
        model.operatorCodes.append(opcode)
        graph = schema.SubGraphT()
        graph.tensors = []
        for title, shape, kind, data, scale in tensors:
            tensor = schema.TensorT()
            tensor.name, tensor.shape, tensor.type, tensor.buffer = title, shape, kind, 0
            if data is not None:
                buffer = schema.BufferT()
                buffer.data = list(data.tobytes())
                model.buffers.append(buffer)
                tensor.buffer = len(model.buffers) - 1
            if scale is not None:
                tensor.quantization = schema.QuantizationParametersT()
                tensor.quantization.scale, tensor.quantization.zeroPoint = [scale], [0]
            graph.tensors.append(tensor)
        node = schema.OperatorT()
        node.opcodeIndex, node.inputs, node.outputs, node.builtinOptionsType = at, inputs, outputs, options
        node.builtinOptions = getattr(schema, name)()
        graph.operators, graph.inputs, graph.outputs = [node], arguments, outputs
        model.subgraphs.append(graph)
        if key is not None:
            signature = schema.SignatureDefT()
            signature.signatureKey, signature.subgraphIndex = key, at
            signature.inputs, signature.outputs = [ports(schema, tensors, arguments)], [ports(schema, tensors, outputs)]
            model.signatureDefs.append(signature)
    builder = flatbuffers.Builder(1024)
    builder.Finish(model.Pack(builder), b"TFL3")
    write(path, bytes(builder.Output()))


def ports(schema: object, tensors: list, indices: list) -> object:
    (index,) = indices
    port = schema.TensorMapT()  # type: ignore[attr-defined]
    port.name, port.tensorIndex = tensors[index][0].split("_")[-1].split(":")[0], index
    return port


if __name__ == "__main__":
    sys.exit(main())
