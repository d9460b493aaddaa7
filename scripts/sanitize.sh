#!/bin/sh
# `sanitize.sh miri` interprets the portable unsafe code: contexts of kernels, the thread pool, portable kernels.
# `sanitize.sh asan` runs the same and the code that Miri cannot run with AddressSanitizer: SIMD kernels at every
# length, tables of plugins, the bridge to LiteRT, the C APIs. `sanitize.sh c` runs only the C APIs.
# `sanitize.sh coverage` runs the tests of both without a sanitizer, and mutants of models, and prints how many lines
# of each crate they execute.
set -eu
cd "$(dirname "$0")/.."
cargo=${CARGO:-cargo}

# The compiler takes tens of minutes to optimize SIMD code with checks of every access.
checked="--config profile.dev.package.delegraph-compute.opt-level=1
    --config profile.dev.package.delegraph-compute.debug-assertions=true
    --config profile.dev.package.delegraph-compute.overflow-checks=true
    --config profile.dev.package.delegraph-kernels.opt-level=1"

# The tests that Miri interprets: `portable_tests CARGO`.
portable_tests() {
    $1 test $checked -p delegraph-core --lib kernel::
    # Two tests of safe arithmetic compare millions of values.
    $1 test $checked -p delegraph-compute --lib -- threads:: base:: --skip records_of_products_are_exact_around_each_output \
        --skip columns_of_two_outputs_are_exact
    # Preparing a sum of bytes compares two forms for all pairs of bytes, which takes many minutes in the interpreter.
    $1 test $checked -p delegraph-kernels --lib -- reference::binary reference::unary reference::gather \
        reference::concatenation reference::split reference::pad reference::reshape reference::cast --skip quantized_sums
}

# The tests that AddressSanitizer watches, all or those of the C APIs: `memory_tests CARGO all|c ARGUMENT...`.
memory_tests() {
    run=$1
    what=$2
    shift 2
    set -- "$@" -p delegraph-ffi -p delegraph-c -p delegraph-capi --no-default-features --lib --test capi_calls --test capi_models
    # All packages in one command: with other features, the kernels would be compiled again.
    [ "$what" = c ] || set -- "$@" -p delegraph-core -p delegraph-compute -p delegraph-kernels --features delegraph-kernels/optimized \
        -p delegraph-delegate-api -p delegraph-litert -p delegraph-fuzz --test replay --no-fail-fast \
        -p delegraph-interpreter --test plugins --test kernel_libraries --test fusion --test delegation --test kernels
    # Tests of folders that are not named are skipped.
    [ -n "${DELEGRAPH_HOSTILE:-}" ] || unset DELEGRAPH_HOSTILE
    # The memory of the process grows by what the sanitizer keeps.
    $run test $checked "$@" -- --skip loading_and_unloading_does_not_grow
}

case ${1:-} in
miri)
    if ! $cargo +nightly --version >/dev/null 2>&1; then
        echo "miri: there is no nightly toolchain (rustup toolchain install nightly --component miri,rust-src)" >&2
        exit 2
    fi
    missing=
    $cargo +nightly miri --version >/dev/null 2>&1 || missing="miri"
    [ -e "$(rustc +nightly --print sysroot)/lib/rustlib/src/rust/library/Cargo.lock" ] || missing="$missing rust-src"
    if [ -n "$missing" ]; then
        echo "miri: $(rustc +nightly --version) lacks: $missing (rustup component add --toolchain nightly miri rust-src)." >&2
        echo "miri: only rustup has these components; they must be of the toolchain's own date." >&2
        exit 2
    fi
    # The pool parks threads by address, which is of no use to another program; time is that of the interpreter.
    export MIRIFLAGS="-Zmiri-disable-isolation -Zmiri-permissive-provenance"
    export CARGO_TARGET_DIR=target/miri
    portable_tests "$cargo +nightly miri"
    ;;
asan | c)
    host=$(rustc -vV | sed -n 's/^host: //p')
    if $cargo +nightly --version >/dev/null 2>&1; then
        nightly=+nightly
    else
        nightly=
        export RUSTC_BOOTSTRAP=1
    fi
    # Of large buffers, it watches only those on the heap.
    export RUSTFLAGS="-Zsanitizer=address --cfg buffers_on_heap ${RUSTFLAGS:-}"
    export CARGO_TARGET_DIR=target/asan
    # Memory that libraries and drivers keep until the process ends is not an error.
    export ASAN_OPTIONS="detect_leaks=0:allocator_may_return_null=1"
    [ "$1" = c ] || set -- all
    memory_tests "$cargo $nightly" "$1" --target "$host"
    ;;
coverage)
    export RUSTFLAGS="-Cinstrument-coverage ${RUSTFLAGS:-}"
    export CARGO_TARGET_DIR=target/coverage
    profiles=$PWD/target/coverage/profiles
    rm -rf "$profiles"
    mkdir -p "$profiles"
    export LLVM_PROFILE_FILE="$profiles/asan-%p-%m.profraw"
    memory_tests "$cargo" all
    LLVM_PROFILE_FILE="$profiles/miri-%p-%m.profraw"
    portable_tests "$cargo"
    LLVM_PROFILE_FILE="$profiles/mutants-%p-%m.profraw"
    # Instrumented code is slow: a mutant that exceeds its time fails only where it is not instrumented.
    mutants="$cargo run --quiet $checked -p delegraph-fuzz --bin mutants -- --seed 1"
    $mutants --count 20000 --on cpu,reference || true
    $mutants --count 5000 --on wgpu || true
    unset LLVM_PROFILE_FILE
    ${PYTHON:-python3} scripts/coverage.py "$profiles"
    ;;
*)
    echo "usage: sanitize.sh miri|asan|c|coverage" >&2
    exit 2
    ;;
esac
