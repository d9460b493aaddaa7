#!/bin/sh
# Type-checks the library for other targets: `scripts/check_targets.sh [TARGET...]`.
#
# Each target needs its standard library, which scripts/sysroot.sh provides. A target without it is skipped with a message.
set -eu

cd "$(dirname "$0")/.."
CARGO=${CARGO:-cargo}
targets=${*:-"aarch64-apple-darwin x86_64-pc-windows-msvc aarch64-linux-android wasm32-unknown-unknown aarch64-unknown-linux-gnu"}

report() { echo "check-targets: $*" >&2; }

checked=0
for target in $targets; do
    if ! flags=$(sh scripts/sysroot.sh "$target"); then
        report "left out: $target"
        continue
    fi
    report "$target"
    RUSTFLAGS="$flags ${RUSTFLAGS:-}" CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-target}/targets \
        "$CARGO" check --quiet ${CARGO_FLAGS:-} -p delegraph --lib --no-default-features --features wgpu,optimized --target "$target"
    checked=$((checked + 1))
done
report "$checked targets checked"
