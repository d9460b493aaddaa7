"""The notebook of the guide, executed cell by cell: by a Jupyter kernel if one is installed, and by this interpreter."""

import ast
import json
import pathlib
import subprocess
import sys

import pytest

RUNNER = """
import ast, json, sys
notebook = json.load(open(sys.argv[1], encoding="utf-8"))
names, shown = {"__name__": "__main__"}, []
for cell in notebook["cells"]:
    if cell["cell_type"] != "code":
        continue
    body = ast.parse("".join(cell["source"])).body
    last = body.pop() if body and isinstance(body[-1], ast.Expr) else None
    exec(compile(ast.Module(body, []), "cell", "exec"), names)
    if last is not None:
        value = eval(compile(ast.Expression(last.value), "cell", "eval"), names)
        shown.append(value._repr_html_() if hasattr(value, "_repr_html_") else repr(value))
json.dump(shown, open(sys.argv[2], "w"))
"""


@pytest.fixture
def notebook(root: pathlib.Path) -> pathlib.Path:
    return root / "docs/python.ipynb"


def test_the_notebook_runs(notebook: pathlib.Path, tmp_path: pathlib.Path) -> None:
    shown = tmp_path / "shown.json"
    ended = subprocess.run(
        [sys.executable, "-c", RUNNER, str(notebook), str(shown)], cwd=notebook.parent, capture_output=True, text=True, timeout=300
    )
    assert ended.returncode == 0, ended.stderr
    tables = [text for text in json.loads(shown.read_text()) if text.startswith("<p>")]
    assert len(tables) == 2 and "SOFTMAX" in tables[0] and "softmax in NumPy" in tables[1]
    accuracy = float(ended.stdout.split("%")[0])
    assert accuracy > 90 and "no image" not in ended.stdout and "ValueError" in ended.stdout


def test_the_notebook_has_no_results(notebook: pathlib.Path) -> None:
    """Results in the file would be stale, and large in every change."""
    document = json.loads(notebook.read_text(encoding="utf-8"))
    assert document["nbformat"] == 4
    for cell in document["cells"]:
        assert cell["metadata"] == {}
        if cell["cell_type"] == "code":
            assert cell["outputs"] == [] and cell["execution_count"] is None
            ast.parse("".join(cell["source"]))


def test_the_notebook_runs_in_a_kernel(notebook: pathlib.Path) -> None:
    nbclient = pytest.importorskip("nbclient", reason="no Jupyter kernel is installed (pip install nbclient ipykernel)")
    nbformat = pytest.importorskip("nbformat")
    pytest.importorskip("ipykernel", reason="no Jupyter kernel is installed (pip install nbclient ipykernel)")
    document = nbformat.read(notebook, as_version=4)
    nbformat.validate(document)
    nbclient.NotebookClient(document, timeout=300, resources={"metadata": {"path": str(notebook.parent)}}).execute()
    outputs = [output for cell in document.cells if cell.cell_type == "code" for output in cell.outputs]
    assert any("text/html" in output.get("data", {}) for output in outputs)
