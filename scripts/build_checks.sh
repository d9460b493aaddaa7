#!/bin/sh
# Builds what the checks after `cargo test --workspace` use: the libraries in shared form, the programs, one example.
#
# Cargo unifies features over the packages that a command names. A build of one package has other features than the tests of the
# workspace, and would compile wgpu and the kernels again. This command has the same; the example brings the dependencies of tests.
#
# maturin runs this file in the place of cargo (`CARGO=scripts/build_checks.sh maturin build`) to take the Python module from the
# same build.
set -eu

cd "$(dirname "$0")/.."
flags="--quiet --workspace --lib --bins --example cpu_delegate"
case ${1:-} in
    # shellcheck disable=SC2086 # Flags are separate words.
    "") exec "${CARGO:-cargo}" build ${CARGO_FLAGS:-} $flags ;;
    # What maturin sets for its build would compile PyO3 again. The artifacts are listed on standard output.
    # shellcheck disable=SC2086
    rustc) exec env -u PYO3_CONFIG_FILE -u PYO3_BUILD_EXTENSION_MODULE cargo build ${CARGO_FLAGS:-} $flags \
        --message-format json-render-diagnostics ;;
    *) exec cargo "$@" ;;
esac
