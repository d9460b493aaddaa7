#!/bin/sh
# Runs every fuzz target of fuzz/ in turn, SECONDS in total, and fails on a finding. Findings are in
# fuzz/artifacts/TARGET/. Inputs that reach new code are kept in target/fuzz/TARGET/, where the next run continues.
set -eu
cd "$(dirname "$0")/.."
seconds=${1:-160}
only=${2:-}
cargo=${CARGO:-cargo}

if ! $cargo fuzz --version >/dev/null 2>&1; then
    echo "fuzz: cargo-fuzz is not installed (cargo install cargo-fuzz)" >&2
    exit 2
fi
# AddressSanitizer needs options of the nightly compiler, which this variable enables in the stable one.
if $cargo +nightly --version >/dev/null 2>&1; then
    nightly=+nightly
else
    nightly=
    export RUSTC_BOOTSTRAP=1
fi

targets=${only:-$(sed -n 's/^name = "\([a-z]*\)"$/\1/p' fuzz/Cargo.toml)}
each=$((seconds / $(echo "$targets" | wc -w)))
[ "$each" -gt 0 ] || each=1
# A target runs all seeds before it mutates any.
rm -rf target/fuzz/seeds
$cargo run --quiet -p delegraph-fuzz --bin seeds -- target/fuzz/seeds 800
# The sanitizer watches large buffers only on the heap.
export RUSTFLAGS="--cfg buffers_on_heap ${RUSTFLAGS:-}"
$cargo $nightly fuzz build --fuzz-dir fuzz $only

# Leaks of drivers are not findings.
export ASAN_OPTIONS="detect_leaks=0:allocator_may_return_null=1"
failed=
for target in $targets; do
    mkdir -p "target/fuzz/$target" "fuzz/corpus/$target" "fuzz/artifacts/$target"
    case $target in
    loader | model | fusion | wgpu) seeds=target/fuzz/seeds ;;
    *) seeds= ;;
    esac
    echo "fuzz: $target, $each seconds"
    $cargo $nightly fuzz run --fuzz-dir fuzz "$target" "target/fuzz/$target" "fuzz/corpus/$target" $seeds -- \
        -max_total_time="$each" -timeout=20 -rss_limit_mb=4096 -malloc_limit_mb=2048 -max_len=65536 \
        -print_final_stats=1 >"target/fuzz/$target.log" 2>&1 || failed="$failed $target"
    grep -E "^(stat::number_of_executed_units|SUMMARY|==|thread)" "target/fuzz/$target.log" || true
done
# If there were no findings before.
find fuzz/corpus fuzz/artifacts -type d -empty -delete
if [ -n "$failed" ]; then
    echo "fuzz: findings in$failed: fuzz/artifacts/, target/fuzz/TARGET.log" >&2
    exit 1
fi
echo "fuzz: nothing found"
