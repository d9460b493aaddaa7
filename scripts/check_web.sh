#!/bin/sh
# Builds the npm package quickly, and tests it in Node and Chromium: `scripts/check_web.sh [FILTER]`.
#
# Tests without their requirements are skipped with a message: Node, a standard library for wasm32, the npm packages,
# Chromium. apt-get installs Chromium if the user is root; DELEGRAPH_BROWSER names another browser.
set -eu

cd "$(dirname "$0")/.."
CARGO=${CARGO:-cargo}
folder=target/web-check
models=${DELEGRAPH_CACHE:-$HOME/.cache/delegraph}/models
PACKAGES="playwright-core typescript esbuild"

report() { echo "web: $*"; }
leave_out() { report "left out: $*"; exit 0; }

mkdir -p "$folder/work"
log=$folder/install.log
command -v node >/dev/null && command -v npm >/dev/null || leave_out "Node and npm are not installed"
[ "$(node -p 'process.versions.node.split(".")[0]')" -ge 20 ] || leave_out "Node $(node --version) is older than 20"

for name in chromium chromium-browser google-chrome chrome; do
    [ -n "${DELEGRAPH_BROWSER:-}" ] || DELEGRAPH_BROWSER=$(command -v "$name" || true)
done
if [ -z "${DELEGRAPH_BROWSER:-}" ] && [ "${DELEGRAPH_NO_INSTALL:-}" != 1 ] && command -v apt-get >/dev/null; then
    apt-get install -y -q --no-install-recommends chromium >"$log" 2>&1 || true
    DELEGRAPH_BROWSER=$(command -v chromium || true)
fi
[ -n "${DELEGRAPH_BROWSER:-}" ] || leave_out "Chromium is not installed and cannot be (the reason is in $log)"
export DELEGRAPH_BROWSER

# shellcheck disable=SC2086 # A list of packages.
sh scripts/web_packages.sh "$folder/work" $PACKAGES >"$log" 2>&1 ||
    leave_out "the npm packages $PACKAGES cannot be installed (the reason is in $log)"
sh scripts/sysroot.sh wasm32-unknown-unknown >"$log" 2>&1 ||
    leave_out "there is no standard library for wasm32-unknown-unknown (the reason is in $log)"

sh scripts/build_checks.sh
sh scripts/build_web.sh "$folder" web-test
sh scripts/build_web_site.sh "$folder" >/dev/null
node bindings/web/tests/check.mjs "$folder/package" target/debug/delegraph "$models" "$folder/work" "$@"
