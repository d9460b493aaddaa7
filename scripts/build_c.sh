#!/bin/sh
# Builds libtensorflowlite_c into a folder as it is installed: lib, include, pkg-config and CMake files.
#
#     scripts/build_c.sh FOLDER [--profile PROFILE] [--no-gpu] [--prefix PREFIX]
#
# The files of pkg-config and CMake name PREFIX, by default FOLDER. Only rustc's linker driver (cc) is needed beside Rust.
set -eu

cd "$(dirname "$0")/.."
CARGO=${CARGO:-cargo}
out=$1
shift
profile=release features="" prefix=
while [ $# -gt 0 ]; do
    case $1 in
        --profile) profile=$2; shift ;;
        --no-gpu) features="--no-default-features" ;;
        --prefix) prefix=$2; shift ;;
        *) echo "build_c: unknown option $1" >&2; exit 2 ;;
    esac
    shift
done
mkdir -p "$out/lib/pkgconfig" "$out/lib/cmake/tensorflowlite_c" "$out/include"
out=$(cd "$out" && pwd)
prefix=${prefix:-$out}
target=${CARGO_TARGET_DIR:-target}
folder=$profile
[ "$profile" = dev ] && folder=debug
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)

# shellcheck disable=SC2086 # Flags are separate words.
"$CARGO" build --quiet ${CARGO_FLAGS:-} --profile "$profile" -p delegraph-c --lib $features

case $(uname -s) in
    Darwin)
        cp "$target/$folder/libtensorflowlite_c.dylib" "$out/lib/"
        ;;
    *)
        # rustc exports symbols without a version, and does not combine its list with another: the shared library is linked
        # from the static one, with the list of symbols and the version that TensorFlow Lite gives them.
        script=$target/$folder/tensorflowlite_c.lds
        { echo "VERS_1.0 {"; echo "  global:"; sed 's/.*/    &;/' bindings/c/exports.txt; echo "  local: *;"; echo "};"; } >"$script"
        ${CC:-cc} -shared -o "$out/lib/libtensorflowlite_c.so" \
            -Wl,-soname,libtensorflowlite_c.so -Wl,--version-script="$script" -Wl,--gc-sections -Wl,-z,relro,-z,now \
            -Wl,--no-undefined -Wl,--whole-archive "$target/$folder/libtensorflowlite_c.a" -Wl,--no-whole-archive \
            -lgcc_s -lpthread -lm -ldl -lc
        [ "$profile" = dev ] || strip --strip-unneeded "$out/lib/libtensorflowlite_c.so" 2>/dev/null || true
        ;;
esac
cp "$target/$folder/libtensorflowlite_c.a" "$out/lib/"
[ "$profile" = dev ] || strip --strip-debug "$out/lib/libtensorflowlite_c.a" 2>/dev/null || true

# TensorFlow's tree has each header in two places, and that of LiteRT under another name.
cp -R bindings/c/include/. "$out/include/"
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

for file in tensorflowlite_c.pc:lib/pkgconfig tensorflowlite_c-config.cmake:lib/cmake/tensorflowlite_c \
    tensorflowlite_c-config-version.cmake:lib/cmake/tensorflowlite_c; do
    sed -e "s|@PREFIX@|$prefix|g" -e "s|@VERSION@|$version|g" "bindings/c/${file%%:*}.in" >"$out/${file#*:}/${file%%:*}"
done
