#!/bin/sh
# Builds the files for the checks after `cargo test --workspace`: the shared libraries, the programs, one example.
#
# Cargo unifies features over the packages of a command. A build of one package has other features than the tests of the
# workspace, and would compile wgpu and the kernels again. This command has the same features, since the example adds
# the dependencies of tests.
#
# maturin runs this file instead of cargo (`CARGO=scripts/build_checks.sh maturin build`) to get the Python module from
# the same build.
set -eu

cd "$(dirname "$0")/.."
flags="--quiet --workspace --lib --bins --example cpu_delegate"
case ${1:-} in
    # shellcheck disable=SC2086 # Flags are separate words.
    "") exec "${CARGO:-cargo}" build ${CARGO_FLAGS:-} $flags ;;
    # maturin's environment variables would compile PyO3 again. The artifacts are listed on standard output. shellcheck
    # disable=SC2086
    rustc) exec env -u PYO3_CONFIG_FILE -u PYO3_BUILD_EXTENSION_MODULE cargo build ${CARGO_FLAGS:-} $flags \
        --message-format json-render-diagnostics ;;
    *) exec cargo "$@" ;;
esac
