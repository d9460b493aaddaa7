#!/bin/sh
# Installs what a fresh Debian machine lacks for `make demo` and `make test`: a Vulkan driver and loader, and Python's venv module.
# `scripts/setup.sh arm` installs a linker and an emulator for aarch64 instead.
# If it can't install (offline, no permission, another system), it prints the missing packages and succeeds: everything
# else still runs. With DELEGRAPH_NO_INSTALL=1 it only prints the missing packages.
set -u

report() { echo "setup: $*" >&2; }

# Succeeds if the library that a Vulkan driver file names exists. $1: the file. The dynamic linker finds names without a
# folder.
driver_works() {
    library=$(sed -n 's/.*"library_path"[[:space:]]*:[[:space:]]*"\([^"]*\)".*/\1/p' "$1" | head -n 1)
    case $library in
        "") return 1 ;;
        /*) [ -e "$library" ] ;;
        */*) [ -e "$(dirname "$1")/$library" ] ;;
        *) has_library "$library" ;;
    esac
}

has_library() { PATH="$PATH:/sbin:/usr/sbin" ldconfig -p 2>/dev/null | grep -qF "$1"; }

# Prints the Vulkan driver files that the loader would read, one a line.
driver_files() {
    # The loader reads these variables first, and nothing else if one is set.
    named=${VK_DRIVER_FILES:-${VK_ICD_FILENAMES:-}}
    if [ -n "$named" ]; then
        echo "$named" | tr ':' '\n'
        return
    fi
    for folder in "${XDG_CONFIG_HOME:-$HOME/.config}" /etc/xdg /usr/local/etc /etc \
                  "${XDG_DATA_HOME:-$HOME/.local/share}" /usr/local/share /usr/share; do
        ls "$folder"/vulkan/icd.d/*.json 2>/dev/null
    done
}

has_vulkan_driver() {
    driver_files | while read -r file; do
        if [ -r "$file" ] && driver_works "$file"; then
            echo yes
            break
        fi
    done | grep -q yes
}

# Runs a command with root's rights, or fails. sudo may ask for a password on a terminal only.
as_root() {
    if [ "$(id -u)" = 0 ]; then
        "$@" </dev/null
    elif ! command -v sudo >/dev/null; then
        return 1
    elif [ -t 0 ] && [ -z "${CI:-}" ]; then
        sudo "$@"
    else
        sudo -n "$@" </dev/null
    fi
}

# Quiet unless it fails. sudo drops the environment, so the variables that apt-get needs are passed on.
apt() {
    log=$(mktemp)
    as_root env DEBIAN_FRONTEND=noninteractive ${http_proxy:+"http_proxy=$http_proxy"} \
        ${https_proxy:+"https_proxy=$https_proxy"} apt-get -qq -o Dpkg::Use-Pty=0 -o DPkg::Lock::Timeout=120 \
        -o Acquire::Retries=1 -o Acquire::http::Timeout=20 -o Acquire::https::Timeout=20 "$@" >"$log" 2>&1
    status=$?
    [ $status = 0 ] || tail -n 5 "$log" >&2
    rm -f "$log"
    return $status
}

# Names the packages that `make demo` and `make test` lack.
find_missing() {
    case $(uname -s) in
        Linux)
            if ! has_vulkan_driver; then
                report "no Vulkan driver found: Debian's mesa-vulkan-drivers brings a software GPU (lavapipe)"
                packages="mesa-vulkan-drivers libvulkan1"
            elif ! has_library libvulkan.so.1; then
                report "no Vulkan loader found"
                packages="libvulkan1"
            fi
            ;;
        *) ;; # Metal and Direct3D 12 come with the system.
    esac
    if ! command -v python3 >/dev/null; then
        report "no python3 found: it fetches the real models"
        packages="$packages python3 python3-venv"
    elif ! python3 -c 'import ensurepip, venv' 2>/dev/null; then
        report "Python's venv module can't make environments: python3-venv is missing"
        packages="$packages python3-venv"
    fi
}

# Names the packages that tests on aarch64 lack.
find_missing_for_arm() {
    if ! command -v aarch64-linux-gnu-gcc >/dev/null; then
        report "no linker for aarch64 found"
        packages="gcc-aarch64-linux-gnu libc6-dev-arm64-cross"
    fi
    if ! command -v qemu-aarch64-static >/dev/null && ! command -v qemu-aarch64 >/dev/null; then
        report "no emulator of aarch64 found"
        packages="$packages qemu-user-static"
    fi
}

packages=""
case ${1:-} in
    arm) find_missing_for_arm ;;
    *) find_missing ;;
esac
[ -n "$packages" ] || exit 0

if [ -n "${DELEGRAPH_NO_INSTALL:-}" ]; then
    report "left out, as DELEGRAPH_NO_INSTALL asks: $packages"
elif ! command -v apt-get >/dev/null; then
    report "left out: this system has no apt-get. Install the equivalent of: $packages"
elif ! as_root true 2>/dev/null; then
    report "left out: installing needs root's rights. Later: apt-get install $packages"
else
    report "installing $packages"
    apt update || report "the package lists could not be refreshed; trying with those that are here"
    # shellcheck disable=SC2086 # a list of words
    if apt install -y --no-install-recommends $packages; then
        report "installed $packages"
    else
        report "left out: could not install $packages (offline?). Later: apt-get install $packages"
    fi
fi
exit 0
