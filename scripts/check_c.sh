#!/bin/sh
# Builds libtensorflowlite_c, compares its symbols with the committed list, and runs a program in C and in C++ on it.
set -eu

cd "$(dirname "$0")/.."
out=target/c-check
cc=${CC:-cc}
if ! command -v "$cc" >/dev/null 2>&1; then
    echo "c-check: left out: there is no C compiler ($cc)"
    exit 0
fi
sh scripts/build_c.sh "$out" --profile dev

if [ "$(uname -s)" = Linux ] && command -v nm >/dev/null 2>&1 && command -v readelf >/dev/null 2>&1; then
    library=$out/lib/libtensorflowlite_c.so
    nm -D --defined-only --with-symbol-versions "$library" | awk '$2 != "A" { print $3 }' | sort >"$out/symbols"
    sed 's/$/@@VERS_1.0/' bindings/c/exports.txt | LC_ALL=C sort >"$out/expected"
    LC_ALL=C sort -o "$out/symbols" "$out/symbols"
    diff "$out/expected" "$out/symbols" || { echo "c-check: exported symbols differ from bindings/c/exports.txt" >&2; exit 1; }
    readelf -d "$library" | grep -q 'SONAME.*\[libtensorflowlite_c.so\]' || { echo "c-check: wrong soname" >&2; exit 1; }
fi

for language in "c -std=c11" "c++ -std=c++17"; do
    # shellcheck disable=SC2086 # Two words.
    if ! "$cc" -Wall -Wextra -Werror -x $language -I"$out/include" bindings/c/tests/api.c -x none -L"$out/lib" -ltensorflowlite_c \
        -Wl,-rpath,"$PWD/$out/lib" -o "$out/api" 2>"$out/cc.log"; then
        if grep -q "cc1plus" "$out/cc.log"; then
            echo "c-check: left out: there is no C++ compiler"
            continue
        fi
        cat "$out/cc.log" >&2
        exit 1
    fi
    "$out/api" assets/digits/digits_float32.tflite
done
echo "c-check: symbols, headers and a program in C and C++"
