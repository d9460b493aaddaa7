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

# Each program as C and as C++, by each compiler that is installed, with all warnings.
models=assets/digits/digits_float32.tflite
for compiler in "$cc" clang; do
    command -v "$compiler" >/dev/null 2>&1 || { echo "c-check: left out: $compiler is not installed"; continue; }
    for language in "c -std=c11" "c++ -std=c++17"; do
        for program in bindings/c/tests/api.c examples/c/custom_op.c examples/c/delegate.c; do
            name=$(basename "$program" .c)
            # shellcheck disable=SC2086 # Two words.
            if ! "$compiler" -Wall -Wextra -Werror -x $language -I"$out/include" "$program" -x none -L"$out/lib" -ltensorflowlite_c -lm \
                -Wl,-rpath,"$PWD/$out/lib" -o "$out/$name" 2>"$out/cc.log"; then
                if grep -q "cc1plus\|'cstd.*file not found" "$out/cc.log"; then
                    echo "c-check: left out: $compiler has no C++"
                    break
                fi
                cat "$out/cc.log" >&2
                exit 1
            fi
        done
        "$out/api" $models
        "$out/delegate" $models
        "$out/custom_op" assets/custom/sin.tflite 1.5
    done
done

# Other programs find the library by pkg-config and CMake.
if command -v pkg-config >/dev/null 2>&1; then
    flags=$(PKG_CONFIG_PATH="$out/lib/pkgconfig" pkg-config --cflags --libs tensorflowlite_c)
    # shellcheck disable=SC2086 # Flags are separate words.
    "$cc" bindings/c/tests/api.c $flags -Wl,-rpath,"$PWD/$out/lib" -o "$out/api_pkg_config"
    "$out/api_pkg_config" $models
else
    echo "c-check: left out: pkg-config is not installed"
fi
if command -v cmake >/dev/null 2>&1; then
    cmake -S bindings/c/tests/cmake -B "$out/cmake" -DCMAKE_PREFIX_PATH="$PWD/$out" >"$out/cmake.log"
    cmake --build "$out/cmake" >>"$out/cmake.log"
    "$out/cmake/api_tensorflowlite_c" $models
    "$out/cmake/api_static" $models
else
    echo "c-check: left out: cmake is not installed"
fi
echo "c-check: symbols, headers, a program and examples in C and C++"
