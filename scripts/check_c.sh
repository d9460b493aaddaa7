#!/bin/sh
# Builds libtensorflowlite_c and libdelegraph, compares their symbols with the committed lists, and runs programs in C and in C++
# on them.
set -eu

cd "$(dirname "$0")/.."
out=target/c-check
cc=${CC:-cc}
if ! command -v "$cc" >/dev/null 2>&1; then
    echo "c-check: left out: there is no C compiler ($cc)"
    exit 0
fi
sh scripts/build_c.sh "$out" --profile dev

# symbols NAME EXPORTS VERSION
symbols() {
    library=$out/lib/lib$1.so
    nm -D --defined-only --with-symbol-versions "$library" | awk '$2 != "A" { print $3 }' | LC_ALL=C sort >"$out/symbols"
    sed "s/\$/@@$3/" "$2" | LC_ALL=C sort >"$out/expected"
    diff "$out/expected" "$out/symbols" || { echo "c-check: exported symbols differ from $2" >&2; exit 1; }
    readelf -d "$library" | grep -q "SONAME.*\[lib$1.so\]" || { echo "c-check: wrong soname of $1" >&2; exit 1; }
}
if [ "$(uname -s)" = Linux ] && command -v nm >/dev/null 2>&1 && command -v readelf >/dev/null 2>&1; then
    symbols tensorflowlite_c bindings/c/exports.txt VERS_1.0
    symbols delegraph bindings/capi/exports.txt DELEGRAPH_0
fi

# compile LANGUAGE LIBRARY PROGRAM: builds a program with all warnings. Fails if the compiler lacks the language.
compile() {
    name=$(basename "$3")
    name=${name%.*}
    flags="-Wall -Wextra -Werror" libraries=-lm
    # Arrays without a length at the end of a structure, which TensorFlow Lite's interface has, are not ISO C++.
    [ "$2" = tensorflowlite_c ] || flags="$flags -Wpedantic"
    case $1 in c++*) libraries="-lstdc++ -lm" ;; esac
    # shellcheck disable=SC2086 # Flags are separate words.
    if ! "$compiler" $flags -x $1 -I"$out/include" "$3" -x none -L"$out/lib" -l"$2" $libraries \
        -Wl,-rpath,"$PWD/$out/lib" -o "$out/$name" 2>"$out/cc.log"; then
        if grep -q "cannot execute .*cc1plus\|'c[a-z]*' file not found\|cannot find -lstdc++" "$out/cc.log"; then
            return 1
        fi
        cat "$out/cc.log" >&2
        exit 1
    fi
}

# Each program as C and as C++, by each compiler that is installed, with all warnings.
models=assets/digits/digits_float32.tflite
for compiler in "$cc" clang; do
    command -v "$compiler" >/dev/null 2>&1 || { echo "c-check: left out: $compiler is not installed"; continue; }
    for language in "c -std=c11" "c++ -std=c++17"; do
        if ! { compile "$language" tensorflowlite_c bindings/c/tests/api.c && compile "$language" tensorflowlite_c examples/c/custom_op.c &&
            compile "$language" tensorflowlite_c examples/c/delegate.c && compile "$language" delegraph examples/c/run_model.c; }; then
            echo "c-check: left out: $compiler has no C++"
            continue
        fi
        "$out/api" $models
        "$out/delegate" $models | grep "nodes of the delegate: 1, runs of its kernels: 1"
        "$out/custom_op" assets/custom/sin.tflite 1.5
        "$out/run_model" $models >"$out/run_model.txt"
        "$out/run_model" assets/digits/digits_int8.tflite reference >>"$out/run_model.txt"
        if [ "$language" = "c++ -std=c++17" ]; then
            compile "c++ -std=c++17" delegraph examples/c/async_model.cpp
            "$out/async_model" $models >"$out/async_model.txt"
        fi
    done
done

# Programs find the libraries with pkg-config and CMake.
if command -v pkg-config >/dev/null 2>&1; then
    for pair in tensorflowlite_c:bindings/c/tests/api.c delegraph:examples/c/run_model.c; do
        flags=$(PKG_CONFIG_PATH="$out/lib/pkgconfig" pkg-config --cflags --libs "${pair%%:*}")
        # shellcheck disable=SC2086 # Flags are separate words.
        "$cc" "${pair#*:}" $flags -Wl,-rpath,"$PWD/$out/lib" -o "$out/by_pkg_config"
        "$out/by_pkg_config" $models >"$out/by_pkg_config.txt"
    done
else
    echo "c-check: left out: pkg-config is not installed"
fi
if command -v cmake >/dev/null 2>&1; then
    for pair in c:api:tensorflowlite_c capi:run_model:delegraph; do
        folder=${pair%%:*} program=${pair#*:}
        cmake -S "bindings/$folder/tests/cmake" -B "$out/cmake-$folder" -DCMAKE_PREFIX_PATH="$PWD/$out" >"$out/cmake.log"
        cmake --build "$out/cmake-$folder" >>"$out/cmake.log"
        "$out/cmake-$folder/${program%%:*}_${program#*:}" $models >"$out/cmake.txt"
        "$out/cmake-$folder/${program%%:*}_static" $models >"$out/cmake.txt"
    done
else
    echo "c-check: left out: cmake is not installed"
fi
echo "c-check: symbols, headers, programs and examples in C and C++"
