#!/bin/sh
# Builds the Python wheel and tests it: scripts/check_python.sh VENV. The virtual environment has the packages in
# scripts/requirements-python.txt. Other packages for tests are installed if possible, else skipped with a message.
set -e
venv=$(cd "$1" && pwd)
cd "$(dirname "$0")/.."
pip="$venv/bin/python -m pip --quiet --disable-pip-version-check"

# The wheel of the tests shares the build of the other tests, which is optimized a little.
rm -rf target/wheels-test
CARGO="$PWD/scripts/build_checks.sh" "$venv/bin/maturin" build --quiet --profile dev --manifest-path bindings/python/Cargo.toml --target-dir target --out target/wheels-test
$pip install --force-reinstall --no-deps target/wheels-test/*.whl

optional() {
    if $pip install --retries 1 -r "scripts/requirements-python-$1.txt" >>target/python-check.log 2>&1; then return; fi
    echo "python: left out: $2 (the reason is in target/python-check.log)"
    return 1
}
optional litert "the comparison with LiteRT's interface: ai-edge-litert cannot be installed" || true
optional notebook "the notebook in a Jupyter kernel: nbclient cannot be installed; its cells run without one" || true
optional pyright "types are checked by mypy alone: pyright cannot be installed" && pyright=yes || pyright=no

cd bindings/python
"$venv/bin/python" -m pytest --quiet -rs -p no:cacheprovider
"$venv/bin/python" -m mypy
[ $pyright = no ] || PYRIGHT_PYTHON_IGNORE_WARNINGS=1 "$venv/bin/python" -m pyright --pythonpath "$venv/bin/python"
