"""Programs for other packages, and the command."""

import json
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest

import delegraph

PROGRAM = """
import sys
import numpy as np
{imports}
interpreter = Interpreter(model_path=sys.argv[1])
interpreter.allocate_tensors()
interpreter.set_tensor(0, np.zeros((1, 8, 8, 1), np.float32))
interpreter.invoke()
print(type(interpreter).__module__, interpreter.get_tensor(22).shape, sys.argv[2:], __name__)
"""


def command(*arguments: str, **options: object) -> subprocess.CompletedProcess:
    run = [sys.executable, "-m", "delegraph", *arguments]
    return subprocess.run(run, capture_output=True, text=True, timeout=300, **options)  # type: ignore[call-overload]


@pytest.mark.parametrize(
    "imports",
    [
        "from tflite_runtime.interpreter import Interpreter",
        "from ai_edge_litert.interpreter import Interpreter, load_delegate, OpResolverType",
        "import ai_edge_litert.interpreter as tflite\nInterpreter = tflite.Interpreter",
        "import tensorflow as tf\nInterpreter = tf.lite.Interpreter",
        "import tensorflow.lite as tflite\nInterpreter = tflite.Interpreter",
        "from tensorflow.lite.python.interpreter import Interpreter",
    ],
)
def test_programs_run_unchanged(tmp_path: pathlib.Path, digits: str, imports: str) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM.format(imports=imports))
    ended = command("run", "--delegate", "cpu", str(program), digits, "--delegate", "x")
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.split(" ", 1)[1].strip() == "(1, 10) ['--delegate', 'x'] __main__"
    assert ended.stdout.startswith("delegraph.")
    module = command("run", "-m", "program", digits, cwd=tmp_path)
    assert module.returncode == 0, module.stderr


def test_programs_end_with_their_exit_code(tmp_path: pathlib.Path) -> None:
    program = tmp_path / "program.py"
    program.write_text("import sys; sys.exit(5)")
    assert command("run", str(program)).returncode == 5
    program.write_text("1 / 0")
    ended = command("run", str(program))
    assert ended.returncode == 1 and "ZeroDivisionError" in ended.stderr


def test_the_environment_names_the_delegate(tmp_path: pathlib.Path, digits: str) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM.format(imports="from tflite_runtime.interpreter import Interpreter"))
    ended = command("run", str(program), digits, env={**os.environ, "DELEGRAPH_DELEGATE": "missing.so"})
    assert ended.returncode == 1 and "missing.so" in ended.stderr


def test_install_and_uninstall() -> None:
    script = """
import sys, delegraph
delegraph.install()
from tflite_runtime.interpreter import Interpreter
from ai_edge_litert import interpreter
assert Interpreter is interpreter.Interpreter is delegraph.Interpreter
delegraph.uninstall()
try:
    import tflite_runtime
except ImportError:
    sys.exit(0)
sys.exit(1)
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)


def test_the_command_runs_models(tmp_path: pathlib.Path, digits: str) -> None:
    data = np.random.default_rng(0).random((2, 8, 8, 1), dtype=np.float32)
    np.save(tmp_path / "input.npy", data)
    output = tmp_path / "out"
    ended = command("run", digits, "--input", str(tmp_path / "input.npy"), "--output-dir", str(output))
    assert ended.returncode == 0, ended.stderr
    wanted = delegraph.Interpreter(digits).predict(data)
    np.testing.assert_allclose(np.load(output / "output_0.npy"), wanted, atol=1e-6)
    assert command("run", "missing.tflite").returncode == 4
    assert command("--nonsense").returncode == 2
    assert "delegraph" in command("--version").stdout


def test_functions_return_documents(digits: str, tmp_path: pathlib.Path) -> None:
    assert delegraph.inspect(digits)
    assert delegraph.inspect(pathlib.Path(digits).read_bytes())
    assert delegraph.bench(digits, runs=2, warmup=0)["runs"] == 2
    assert delegraph.explain(digits, delegate="cpu")
    assert delegraph.profile(digits, delegate="cpu", runs=1)
    assert delegraph.diff(digits, delegate="cpu")
    fused = tmp_path / "fused.tflite"
    assert delegraph.fuse(digits, fused) and fused.exists()
    result = delegraph.conformance(delegate="cpu", filter="^add_n/")
    assert json.dumps(result)
    with pytest.raises(delegraph.CommandError) as raised:
        delegraph.inspect("missing.tflite")
    assert raised.value.exit_code == 4
    with pytest.raises(delegraph.CommandError) as raised:
        delegraph.bench(digits, colour="red")
    assert raised.value.exit_code == 2
