#!/bin/sh
# Tests on aarch64 by emulation: `scripts/test_arm.sh quick|all`.
#
# `quick` (`make test-arm ARM=quick`) runs the tests of the compute primitives on a processor with all instruction sets,
# and the tests of products on one with plain NEON. It compiles in half of the time, without auto-vectorization, and
# skips the slowest test.
# `all` runs all tests of the kernels, the conformance cases and the goldens of models on both, the corpus of the folder
# CORPUS if that is set, and the check of inner loops. Emulation shows correctness, never speed.
# Tests whose requirements can't be installed are skipped with a message.
set -eu

cd "$(dirname "$0")/.."
CARGO=${CARGO:-cargo}
mode=${1:-all}
target=aarch64-unknown-linux-gnu

left_out() {
    echo "test-arm: left out: $*"
    exit 0
}

[ "$(uname -s)" = Linux ] || left_out "needs Linux, for user-mode emulation"
[ "$(uname -m)" != aarch64 ] || left_out "this machine is aarch64: \`make test\` runs the tests on it"
sh scripts/setup.sh arm
command -v aarch64-linux-gnu-gcc >/dev/null || left_out "there is no linker (gcc-aarch64-linux-gnu)"
emulator=$(command -v qemu-aarch64-static || command -v qemu-aarch64) || left_out "there is no emulator (qemu-user-static)"
flags=$(CARGO="$CARGO" sh scripts/sysroot.sh "$target") || left_out "there is no standard library for $target"

export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUSTFLAGS="$flags"
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER="$emulator -L /usr/aarch64-linux-gnu"

# Runs tests on the processor $1.
on() {
    cpu=$1
    shift
    echo "test-arm: $cpu: cargo test $*"
    # shellcheck disable=SC2086 # a list of words
    QEMU_CPU=$cpu "$CARGO" test ${CARGO_FLAGS:-} --quiet --target "$target" "$@"
}

# Runs tests on the processor with every extension, and on one with plain NEON.
on_both() {
    on max "$@"
    on cortex-a53 "$@"
}

case $mode in
    quick)
        fast="--config profile.dev.package.delegraph-compute.opt-level=1"
        # shellcheck disable=SC2086 # a list of words
        on max $fast -p delegraph-compute --lib -- --skip rows_get_length_one
        # shellcheck disable=SC2086 # a list of words
        on cortex-a53 $fast -p delegraph-compute --lib -- tests_i8:: simd::
        ;;
    all)
        on_both -p delegraph-compute -p delegraph-kernels
        on_both -p delegraph-conformance --test cases
        on_both -p delegraph-conformance --test goldens -- cpu
        if [ -n "${CORPUS:-}" ]; then
            for cpu in max cortex-a53; do
                echo "test-arm: $cpu: $CORPUS"
                # shellcheck disable=SC2086 # a list of words
                QEMU_CPU=$cpu "$CARGO" run ${CARGO_FLAGS:-} --quiet --target "$target" -p delegraph-conformance --example corpus \
                    -- "$CORPUS"
            done
        fi
        python3 scripts/inner_loops.py
        ;;
    *)
        echo "test-arm: unknown mode: $mode (quick or all)" >&2
        exit 2
        ;;
esac
