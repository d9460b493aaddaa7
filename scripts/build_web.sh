#!/bin/sh
# Builds the npm package `delegraph`: `scripts/build_web.sh FOLDER [PROFILE]` makes FOLDER/package and, with the profile `web`,
# FOLDER/delegraph-VERSION.tgz.
#
# Needs Node with npm, and a standard library for wasm32 (`scripts/sysroot.sh`). The modules do not pass through wasm-opt: with -O3
# those of the CPU are 6 % shorter, but 5 % longer with gzip, and not faster.
set -eu

cd "$(dirname "$0")/.."
CARGO=${CARGO:-cargo}
folder=$1
profile=${2:-web}
target=wasm32-unknown-unknown
build=target/web/build

report() { echo "web: $*" >&2; }

flags=$(sh scripts/sysroot.sh $target)

# The program that the tests of the workspace built, if there is one.
bindgen=target/debug/delegraph-web-bindgen
[ "$profile" != web ] || bindgen="$CARGO run ${CARGO_FLAGS:-} --quiet -p delegraph-web-bindgen --"

package=$folder/package
rm -rf "$package"
mkdir -p "$package/wasm"
cp bindings/web/js/*.js bindings/web/js/*.d.ts bindings/web/js/package.json bindings/web/README.md LICENSE-APACHE LICENSE-MIT "$package"

# Builds one module: its name, the features of the crate, and of the target.
build_module() {
    # Builds with other flags would replace each other's dependencies.
    case $3 in *relaxed*) dir=$build-relaxed ;; *) dir=$build ;; esac
    RUSTFLAGS="$flags -Ctarget-feature=$3 ${RUSTFLAGS:-}" CARGO_TARGET_DIR="$dir" \
        "$CARGO" build ${CARGO_FLAGS:-} --quiet --profile "$profile" --target $target -p delegraph-web --no-default-features --features "$2"
    $bindgen "$dir/$target/$profile/delegraph_web.wasm" "$package/wasm" "$1"
}

# Adds a variant with relaxed vector instructions of the module that was built last, on the same JavaScript.
build_relaxed() {
    mv "$package/wasm/$1_bg.wasm" "$package/wasm/$1.js" "$folder"
    build_module "$1" "$2" +simd128,+relaxed-simd
    mv "$package/wasm/$1_bg.wasm" "$package/wasm/$1_relaxed_bg.wasm"
    cmp "$folder/$1.js" "$package/wasm/$1.js"
    mv "$folder/$1_bg.wasm" "$package/wasm"
    rm "$folder/$1.js"
}

testing=$([ "$profile" = web ] || echo testing)
build_module delegraph "wgpu $testing" +simd128
build_module delegraph_cpu "$testing" +simd128
build_relaxed delegraph_cpu "$testing"
for module in "$package/wasm/"*.wasm; do
    report "$(basename "$module"): $(wc -c <"$module") bytes, $(gzip -9 -c "$module" | wc -c) with gzip"
done
if [ "$profile" = web ]; then
    (cd "$package" && npm pack --silent --pack-destination .. >/dev/null)
    report "$(ls "$folder"/delegraph-*.tgz)"
fi
