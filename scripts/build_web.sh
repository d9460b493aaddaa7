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

# The bundler of the JavaScript. A page loads one file, as each level of imports takes a round trip to the server.
packages=$folder/work
bundler=$packages/node_modules/.bin/esbuild
sh scripts/web_packages.sh "$packages" esbuild

package=$folder/package
source=$folder/source
rm -rf "$package" "$source"
mkdir -p "$package/wasm" "$source/wasm"
cp bindings/web/js/*.js "$source"
cp bindings/web/js/*.d.ts bindings/web/js/package.json bindings/web/README.md LICENSE-APACHE LICENSE-MIT "$package"

# Builds one module: its name, the features of the crate, and of the target.
build_module() {
    # Builds with other flags would replace each other's dependencies.
    case $3 in *relaxed*) dir=$build-relaxed ;; *) dir=$build ;; esac
    RUSTFLAGS="$flags -Ctarget-feature=$3 ${RUSTFLAGS:-}" CARGO_TARGET_DIR="$dir" \
        "$CARGO" build ${CARGO_FLAGS:-} --quiet --profile "$profile" --target $target -p delegraph-web --no-default-features --features "$2"
    $bindgen "$dir/$target/$profile/delegraph_web.wasm" "$source/wasm" "$1"
}

# Moves a module to the package; its JavaScript stays with the sources.
ship() { mv "$source/wasm/$1_bg.wasm" "$package/wasm/$2_bg.wasm"; }

# Makes one file of each entry of the package, with further options of esbuild.
pack_entries() {
    "$bundler" "$@" --bundle --format=esm --target=es2022 --minify '--external:node:*' --log-level=warning \
        --outdir="$package"
}

testing=$([ "$profile" = web ] || echo testing)
build_module delegraph "wgpu $testing" +simd128
ship delegraph delegraph
build_module delegraph_cpu "$testing" +simd128
ship delegraph_cpu delegraph_cpu
# The variant with relaxed vector instructions has the same JavaScript.
mv "$source/wasm/delegraph_cpu.js" "$folder"
build_module delegraph_cpu "$testing" +simd128,+relaxed-simd
ship delegraph_cpu delegraph_cpu_relaxed
cmp "$folder/delegraph_cpu.js" "$source/wasm/delegraph_cpu.js"
rm "$folder/delegraph_cpu.js"

pack_entries "$source/index.js" "$source/cpu.js" "$source/node.js" "$source/worker.js"
pack_entries "$source/worker_host.js" --external:./index.js
for module in "$package/wasm/"*.wasm; do
    report "$(basename "$module"): $(wc -c <"$module") bytes, $(gzip -9 -c "$module" | wc -c) with gzip"
done
if [ "$profile" = web ]; then
    (cd "$package" && npm pack --silent --pack-destination .. >/dev/null)
    report "$(ls "$folder"/delegraph-*.tgz)"
fi
