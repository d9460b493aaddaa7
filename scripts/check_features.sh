#!/bin/sh
# Type-checks the facade and the command with every combination of their features.
set -eu

cd "$(dirname "$0")/.."
CARGO=${CARGO:-cargo}
features="cli wgpu mmap plugins optimized"

# Every subset, the empty one first.
subsets="-"
for feature in $features; do
    for subset in $subsets; do
        subsets="$subsets $subset,$feature"
    done
done
# `documents` is a part of `cli`.
for subset in $subsets documents; do
    list=$(echo "$subset" | sed 's/^-,*//')
    echo "check-features: ${list:-none}" >&2
    RUSTFLAGS="-D warnings ${RUSTFLAGS:-}" CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-target}/features \
        "$CARGO" check --quiet ${CARGO_FLAGS:-} -p delegraph --lib --bins --no-default-features --features "$list"
done
