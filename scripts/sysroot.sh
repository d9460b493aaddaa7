#!/bin/sh
# Prints the rustc flag for the standard library of a target: `scripts/sysroot.sh TARGET`.
#
# Prints nothing if the toolchain has the target; `rustup target add` is tried first. Where rustup can't download, the library
# is compiled from Debian's package rust-src, which must be of exactly the toolchain's version, into $DELEGRAPH_CACHE/sysroots.
# Fails if neither works.
set -eu

CARGO=${CARGO:-cargo}
cache=${DELEGRAPH_CACHE:-$HOME/.cache/delegraph}/sysroots
version=$(rustc --version | cut -d' ' -f2)
host=$(rustc -vV | sed -n 's/^host: //p')

# Fetches the standard library's source into $cache/$version/library.
fetch_source() {
    source=$cache/$version/library
    [ ! -d "$source" ] || return 0
    command -v apt-get >/dev/null && command -v dpkg >/dev/null || return 1
    apt=$cache/$version/apt
    mkdir -p "$apt/lists/partial" "$apt/cache/archives/partial"
    touch "$apt/status"
    # Package lists of the suites that may have this version, separate from the system's lists.
    mirror=$(apt-get indextargets --format '$(SITE)' 'Created-By: Packages' | head -n 1)
    [ -n "$mirror" ] || return 1
    for suite in trixie-backports forky sid; do
        echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] ${mirror%/} $suite main"
    done >"$apt/sources.list"
    cat >"$apt/apt.conf" <<EOF
Dir::Etc::sourcelist "$apt/sources.list";
Dir::Etc::sourceparts "/dev/null";
Dir::State::lists "$apt/lists";
Dir::State::status "$apt/status";
Dir::Cache "$apt/cache";
APT::Sandbox::User "root";
EOF
    APT_CONFIG=$apt/apt.conf apt-get update -q >&2 || true
    package=$(APT_CONFIG=$apt/apt.conf apt-cache madison rust-src |
        awk -F' *[|] *' -v v="$version" 'index($2, v) == 1 { print $2; exit }')
    [ -n "$package" ] || return 1
    (cd "$apt" && APT_CONFIG=$apt/apt.conf apt-get download -q "rust-src=$package" >&2 && dpkg -x rust-src_*.deb unpacked) || return 1
    cp -r "$apt"/unpacked/usr/src/rustc-*/library "$source.part"
    # Only rlibs: a dynamic library would need the target's linker.
    sed -i 's/crate-type = \["dylib", "rlib"\]/crate-type = ["rlib"]/' "$source.part/std/Cargo.toml"
    mv "$source.part" "$source"
    rm -rf "$apt"
}

# Compiles the standard library for $1; prints the sysroot.
build_sysroot() {
    sysroot=$cache/$version/$1
    if [ ! -e "$sysroot/done" ]; then
        fetch_source || return 1
        features=panic-unwind
        case $1 in wasm*) features=$features,compiler-builtins-mem ;; esac
        (cd "$source" && RUSTC_BOOTSTRAP=1 RUSTFLAGS="-Zforce-unstable-if-unmarked -Cembed-bitcode=yes" \
            __CARGO_DEFAULT_LIB_METADATA=delegraph CARGO_TARGET_DIR="$cache/$version/build" "$CARGO" build --quiet \
            --release --manifest-path sysroot/Cargo.toml --target "$1" --features "$features" >&2) || return 1
        mkdir -p "$sysroot/lib/rustlib/$1/lib"
        cp "$cache/$version/build/$1/release/deps/"*.rlib "$sysroot/lib/rustlib/$1/lib/"
        ln -sfn "$(rustc --print sysroot)/lib/rustlib/$host" "$sysroot/lib/rustlib/$host"
        touch "$sysroot/done"
    fi
    echo "$sysroot"
}

has_target() { [ -d "$(rustc --print sysroot)/lib/rustlib/$1/lib" ]; }

if has_target "$1" || { command -v rustup >/dev/null && rustup -q target add "$1" >/dev/null 2>&1 && has_target "$1"; }; then
    exit 0
fi
if ! sysroot=$(build_sysroot "$1"); then
    echo "sysroot: rustup can't download the standard library of $1, and no rust-src $version was found" >&2
    exit 1
fi
echo "--sysroot=$sysroot"
