#!/bin/sh
# Format, clippy and unit tests of the crates with changes: `scripts/check.sh [BASE]`. Changes are all changes since
# BASE (default: the last commit), including untracked files.
set -eu

cd "$(dirname "$0")/.."
CARGO=${CARGO:-cargo}
base=${1:-HEAD}

files=$( (git diff --name-only "$base" && git ls-files --others --exclude-standard) | sort -u)
rust=$(echo "$files" | grep '\.rs$' | grep -v schema_generated.rs || true)
existing=$(for file in $rust; do [ ! -e "$file" ] || echo "$file"; done)
[ -z "$existing" ] || rustfmt --edition 2024 --check $existing

# The package with the innermost folder that contains a file.
packages=$(for file in $files; do
    folder=$(dirname "$file")
    while [ "$folder" != . ] && [ ! -e "$folder/Cargo.toml" ]; do folder=$(dirname "$folder"); done
    [ ! -e "$folder/Cargo.toml" ] || sed -n 's/^name = "\(delegraph.*\)"$/-p \1/p' "$folder/Cargo.toml" | head -n 1
done | sort -u)
[ -n "$packages" ] || { echo "check: nothing has changed since $base"; exit 0; }
echo "check: $packages" | tr '\n' ' ' && echo
"$CARGO" clippy ${CARGO_FLAGS:-} --quiet $packages --all-targets -- -D warnings
# Only libraries: integration tests are part of `make test`. The facade's unit tests are in the command.
libraries=$(echo "$packages" | grep -v -x -e '-p delegraph' || true)
[ -z "$libraries" ] || "$CARGO" test ${CARGO_FLAGS:-} --quiet $libraries --lib
case "$packages" in *"-p delegraph
"* | "-p delegraph") "$CARGO" test ${CARGO_FLAGS:-} --quiet -p delegraph --bins ;; esac
