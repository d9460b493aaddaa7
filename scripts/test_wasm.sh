#!/bin/sh
# Tests the kernels as WebAssembly in Node, with vector instructions and with the relaxed ones: `scripts/test_wasm.sh`.
#
# Without Node or a standard library for wasm32, it prints a message and succeeds.
set -eu

cd "$(dirname "$0")/.."
CARGO=${CARGO:-cargo}
target=wasm32-unknown-unknown

left_out() {
    echo "test-wasm: left out: $*"
    exit 0
}

command -v node >/dev/null || left_out "there is no Node"
flags=$(CARGO="$CARGO" sh scripts/sysroot.sh "$target") || left_out "there is no standard library for $target"

export CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_RUNNER="node $PWD/scripts/run_wasm.mjs"
for features in ${*:-+simd128 +simd128,+relaxed-simd}; do
    echo "test-wasm: $features"
    case $features in
        *relaxed*)
            "$CARGO" build ${CARGO_FLAGS:-} --quiet -p delegraph-web-bindgen
            export DELEGRAPH_BINDGEN="$PWD/target/debug/delegraph-web-bindgen"
            ;;
        *) export DELEGRAPH_BINDGEN= ;;
    esac
    # shellcheck disable=SC2086 # a list of words
    CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_RUSTFLAGS="$flags -Ctarget-feature=$features" \
        "$CARGO" test ${CARGO_FLAGS:-} --quiet --target "$target" -p delegraph-compute -p delegraph-kernels --lib
done
