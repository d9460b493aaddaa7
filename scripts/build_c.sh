#!/bin/sh
# Builds libtensorflowlite_c and libdelegraph into a folder as they are installed: lib, include, pkg-config and CMake files.
#
#     scripts/build_c.sh FOLDER [--profile PROFILE] [--no-gpu] [--prefix PREFIX] [--any-x86]
#
# On x86-64, optimized libraries need SSE4.2 (x86-64-v2), which processors have since 2009; on an older one the dynamic loader
# of Linux reports the level that is missing. With --any-x86 they run on every processor, and are 0.5 MB larger.
# The files of pkg-config and CMake name PREFIX, by default FOLDER. Needs only Rust and its linker driver (cc).
set -eu

cd "$(dirname "$0")/.."
CARGO=${CARGO:-cargo}
out=$1
shift
profile=c-api features="" prefix= level=x86-64-v2
while [ $# -gt 0 ]; do
    case $1 in
        --profile) profile=$2; shift ;;
        --no-gpu) features="--no-default-features" ;;
        --prefix) prefix=$2; shift ;;
        --any-x86) level= ;;
        *) echo "build_c: unknown option $1" >&2; exit 2 ;;
    esac
    shift
done
mkdir -p "$out/lib/pkgconfig" "$out/lib/cmake/tensorflowlite_c" "$out/lib/cmake/delegraph" "$out/include"
out=$(cd "$out" && pwd)
prefix=${prefix:-$out}
target=${CARGO_TARGET_DIR:-target}
folder=$profile
[ "$profile" = dev ] && folder=debug
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)

if [ "$profile" != dev ] && [ "$(uname -s)" = Linux ]; then
    # For a library that is linked with full RELRO, the compiler calls functions of other crates through the table of
    # addresses (GOT), which takes 0.14 MB. Calls without it become direct where the linker below finds them in the library.
    export RUSTFLAGS="${RUSTFLAGS:+$RUSTFLAGS }-C relro-level=partial"
fi

# linked: what marks a library with the level, if the linker can.
linked=
if [ "$profile" = dev ] || [ "$(uname -s)-$(uname -m)" != Linux-x86_64 ]; then
    level=
fi
if [ -n "$level" ]; then
    export RUSTFLAGS="${RUSTFLAGS:+$RUSTFLAGS }-C target-cpu=$level"
    # A linker that does not know the option ignores it.
    linked="-Wl,-z,$level"
fi

if [ "$profile" = dev ] && [ -z "$features" ]; then
    sh scripts/build_checks.sh
else
    # A crate that is also a Rust library, for its tests, would not be optimized at link time.
    kinds=staticlib
    [ "$(uname -s)" = Darwin ] && kinds=cdylib,staticlib
    for package in delegraph-c delegraph-capi; do
        # shellcheck disable=SC2086 # Flags are separate words.
        "$CARGO" rustc --quiet ${CARGO_FLAGS:-} --profile "$profile" -p $package --lib --crate-type $kinds $features
    done
fi

# library NAME BUILT EXPORTS VERSION: installs libNAME, which cargo built as libBUILT, with the symbols that the file EXPORTS
# lists. On Linux they have the VERSION.
library() {
    if [ "$(uname -s)" = Darwin ]; then
        cp "$target/$folder/lib$2.dylib" "$out/lib/lib$1.dylib"
    else
        # rustc exports symbols without a version, and does not combine its list with another. So the shared library is
        # linked from the static one, with the list of symbols and their version.
        script=$target/$folder/$1.lds
        { echo "$4 {"; echo "  global:"; sed 's/.*/    &;/' "$3"; echo "  local: *;"; echo "};"; } >"$script"
        # shellcheck disable=SC2086 # Absent for other levels.
        ${CC:-cc} -shared -o "$out/lib/lib$1.so" \
            -Wl,-soname,"lib$1.so" -Wl,--version-script="$script" -Wl,--gc-sections -Wl,-z,relro,-z,now $linked \
            -Wl,--no-undefined -Wl,--whole-archive "$target/$folder/lib$2.a" -Wl,--no-whole-archive \
            -lgcc_s -lpthread -lm -ldl -lc
        [ "$profile" = dev ] || strip --strip-unneeded "$out/lib/lib$1.so" 2>/dev/null || true
    fi
    cp "$target/$folder/lib$2.a" "$out/lib/lib$1.a"
    [ "$profile" = dev ] || strip --strip-debug "$out/lib/lib$1.a" 2>/dev/null || true
}
library tensorflowlite_c tensorflowlite_c bindings/c/exports.txt VERS_1.0
library delegraph delegraph_capi bindings/capi/exports.txt DELEGRAPH_0

# TensorFlow's tree has each header in two places, and LiteRT's tree has it under another name.
cp -R bindings/c/include/. "$out/include/"
cp bindings/capi/include/delegraph.h "$out/include/"
for header in bindings/c/include/tensorflow/lite/core/c/*.h; do
    name=$(basename "$header")
    for place in tensorflow/lite/c tflite/c tflite/core/c; do
        mkdir -p "$out/include/$place"
        echo "#include \"tensorflow/lite/core/c/$name\"" >"$out/include/$place/$name"
    done
done
mkdir -p "$out/include/tflite/core/async/c"
echo '#include "tensorflow/lite/core/async/c/types.h"' >"$out/include/tflite/core/async/c/types.h"
echo '#include "tensorflow/lite/builtin_ops.h"' >"$out/include/tflite/builtin_ops.h"

for pair in c:tensorflowlite_c capi:delegraph; do
    name=${pair#*:}
    for file in "$name.pc:lib/pkgconfig" "$name-config.cmake:lib/cmake/$name" "$name-config-version.cmake:lib/cmake/$name"; do
        sed -e "s|@PREFIX@|$prefix|g" -e "s|@VERSION@|$version|g" "bindings/${pair%%:*}/${file%%:*}.in" \
            >"$out/${file#*:}/${file%%:*}"
    done
done
