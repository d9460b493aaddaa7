#!/bin/sh
# Tests of the workspace, then those of LiteRT, C, Python and the web, as two halves that run at the same time: the GPU
# suites use about one core, since they measure the memory of their process while nothing else runs in it.
set -eu

suites="wgpu wgpu_halves"
# `test.sh run EXECUTABLE ARGUMENT...` is the runner of cargo for the half that leaves the suites out.
if [ "${1:-}" = run ]; then
    shift
    name=$(basename "$1")
    for suite in $suites; do
        if [ "${name%-*}" = "$suite" ]; then
            echo "runs beside these tests"
            exit 0
        fi
    done
    exec "$@"
fi

cd "$(dirname "$0")/.."
CARGO=${CARGO:-cargo}
MAKE=${MAKE:-make}
host=$(rustc -vV | sed -n 's/^host: //p')
# Also if CARGO_TARGET_DIR names another folder.
mkdir -p target
first=target/test-first.log
second=target/test-second.log
# With RUST_BACKTRACE, the checks of wgpu would capture a backtrace whenever they lock. Panics still print theirs.
export RUST_LIB_BACKTRACE="${RUST_LIB_BACKTRACE:-0}"

# shellcheck disable=SC2086 # Flags are separate words.
"$CARGO" test ${CARGO_FLAGS:-} --workspace --no-run
# The checks of the second half find their files up to date.
sh scripts/build_checks.sh

second_half() {
    # shellcheck disable=SC2046,SC2086
    "$CARGO" test ${CARGO_FLAGS:-} --workspace $(printf -- '--test %s ' $suites) &&
        "$MAKE" --no-print-directory litert-check c-check python-check web-check
}
second_half >"$second" 2>&1 &
job=$!
# An interrupt does not reach programs in the background.
trap 'trap - TERM; kill 0' INT TERM
# The status of a command before a pipe is lost: the file stands for it.
rm -f target/test-failed
# shellcheck disable=SC2086
{
    "$CARGO" test ${CARGO_FLAGS:-} --workspace --no-fail-fast \
        --config "target.$host.runner = ['sh', '$PWD/scripts/test.sh', 'run']" || touch target/test-failed
} 2>&1 | tee "$first"
wait $job || touch target/test-failed
cat "$second"
if [ -e target/test-failed ]; then
    # What failed is far above the end.
    echo "test: failed:" >&2
    grep -hE -A 1 "^(test .* FAILED|error(:|\[)|make.*: \*\*\* |thread .* panicked at|[A-Za-z]+Error: )|: (FAILED|failed): " "$first" "$second" | tail -n 60 >&2 || true
    exit 1
fi
