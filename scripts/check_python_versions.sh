#!/bin/sh
# Installs a wheel in a clean virtual environment of each CPython from 3.9 on that the machine has, and runs the tests there:
# scripts/check_python_versions.sh WHEEL. Versions are searched in PATH, pyenv and uv.
wheel=$(readlink -f "$1")
[ -f "$wheel" ] || { echo "there is no wheel $1 (make python)"; exit 2; }
cd "$(dirname "$0")/.." || exit 2
seen=" "
failed=0
mkdir -p target/venvs
for python in $(ls -d "$HOME"/.pyenv/versions/*/bin/python "$HOME"/.local/share/uv/python/*/bin/python 2>/dev/null) \
    $(for minor in 9 10 11 12 13 14 15; do command -v "python3.$minor"; done); do
    version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2] if sys.version_info >= (3, 9) else "")' 2>/dev/null)
    case "$seen" in *" $version "*) continue ;; esac
    [ -n "$version" ] || continue
    seen="$seen$version "
    venv=target/venvs/python-$version
    if ! { "$python" -m venv --clear "$venv" && "$venv/bin/python" -m pip install --quiet --disable-pip-version-check "$wheel" pytest; } >"$venv.log" 2>&1; then
        echo "Python $version: left out: the wheel, NumPy or pytest cannot be installed: $(tail -n 1 "$venv.log")"
        continue
    fi
    if (cd bindings/python && "../../$venv/bin/python" -m pytest --quiet -p no:cacheprovider >"../../$venv.log" 2>&1); then
        echo "Python $version: $(tail -n 1 "$venv.log")"
    else
        echo "Python $version: failed: $venv.log"
        failed=1
    fi
done
[ "$seen" != " " ] || echo "there is no CPython from 3.9 on"
exit $failed
