#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Installs what is missing on Debian 12, and nothing else.
#
#   tools/setup.sh [build|test|bench|workbench|all]...    (all when nothing is said)
#
# `workbench` also puts the command `hakmem` into /usr/local/bin (root) or
# ~/.local/bin, or into $PREFIX/bin; it stays tied to this checkout.
#
# Asks the package database first, so it is fast and silent once all is there;
# apt-get runs at most twice (update, install), through sudo when not root.
set -euo pipefail

readonly ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

readonly BUILD=(gcc libc6-dev meson ninja-build pkg-config libcmocka-dev python3 binutils hyperfine)
readonly TEST=(clang libclang-rt-14-dev valgrind libc6-dbg strace git
               python3.11 libpython3.11-testsuite sqlite3 redis-server redis-tools nodejs php-cli php-xml
               gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user
               python3-pytest chromium)
readonly WORKBENCH=(hyperfine strace python3-venv python3-numpy python3-matplotlib python3-rich)
readonly BENCH=(libmimalloc2.0 libjemalloc2 libtcmalloc-minimal4 python3-numpy sqlite3 redis-server redis-tools)

# Debian's package of the CPython suite leaves this part out; it is in the source package.
readonly SUITE_PART=test_sqlite3
readonly SUITE_DIR=$ROOT/build-test/cpython

fail() {
    echo "setup.sh: $*" >&2
    exit 1
}

as_root() {
    if [ "$(id -u)" -eq 0 ]; then
        "$@"
    else
        sudo "$@"
    fi
}

# Prints those of the packages named that are not installed.
missing() {
    local installed package
    installed=" $(dpkg-query -W -f='${db:Status-Status}:${Package} ' "$@" 2>/dev/null || true)"
    for package in "$@"; do
        case $installed in
            *" installed:$package "*) ;;
            *) echo "$package" ;;
        esac
    done
}

install_packages() {
    local wanted
    mapfile -t wanted < <(missing "$@")
    [ ${#wanted[@]} -gt 0 ] || return 0
    [ "$(id -u)" -eq 0 ] || command -v sudo >/dev/null || fail "missing ${wanted[*]}: run as root, or install sudo"
    echo "setup.sh: installing ${wanted[*]}"
    as_root apt-get -q update >"$LOG" 2>&1 || { tail -5 "$LOG" >&2; fail "apt-get update failed"; }
    as_root env DEBIAN_FRONTEND=noninteractive apt-get -q install -y --no-install-recommends "${wanted[@]}" \
        >"$LOG" 2>&1 || { tail -5 "$LOG" >&2; fail "apt-get could not install ${wanted[*]}"; }
    mapfile -t wanted < <(missing "$@")
    [ ${#wanted[@]} -eq 0 ] || fail "still missing after the installation: ${wanted[*]}"
}

# apt-get with source packages allowed, in a state of its own: the machine's list of sources stays as it is.
source_apt() {
    apt-get -q -o Dir::Etc::SourceList=/dev/null -o Dir::Etc::SourceParts="$WORK/sources" \
        -o Dir::State::Lists="$WORK/lists" -o Dir::Cache="$WORK/cache" -o APT::Sandbox::User="$(id -un)" "$@"
}

allow_sources() {
    local file
    mkdir -p "$WORK/sources" "$WORK/lists/partial" "$WORK/cache/archives/partial"
    for file in /etc/apt/sources.list /etc/apt/sources.list.d/*; do
        if [ -f "$file" ] && grep -qi debian "$file"; then
            sed -E 's/^Types:.*/Types: deb-src/; s/^deb[[:space:]]/deb-src /' "$file" >"$WORK/sources/${file##*/}"
        fi
    done
}

# The missing part of the CPython suite, of the very version that is installed.
fetch_suite_part() {
    local version
    version=$(dpkg-query -W -f='${source:Version}' libpython3.11-testsuite)
    if [ -f "$SUITE_DIR/$version" ]; then
        return 0
    fi
    echo "setup.sh: getting $SUITE_PART from the source package of python3.11"
    allow_sources
    source_apt update >"$LOG" 2>&1 || true
    (cd "$WORK" && source_apt source --download-only --tar-only "python3.11=$version" >"$LOG" 2>&1) ||
        { tail -5 "$LOG" >&2; fail "apt-get could not get the source package python3.11=$version"; }
    rm -rf "$SUITE_DIR"
    mkdir -p "$SUITE_DIR"
    tar -xf "$WORK"/python3.11_*.orig.tar.* -C "$SUITE_DIR" --strip-components=3 --wildcards "*/Lib/test/$SUITE_PART/*" ||
        fail "no $SUITE_PART in the source package of python3.11"
    touch "$SUITE_DIR/$version"
}

# A virtual environment over Debian's own Python packages, so that nothing comes from elsewhere.
install_workbench() {
    local prefix=${PREFIX:-} home
    [ -n "$prefix" ] || { [ "$(id -u)" -eq 0 ] && prefix=/usr/local || prefix=$HOME/.local; }
    home=$prefix/lib/hakmem-workbench
    mkdir -p "$prefix/bin"
    { /usr/bin/python3 -m venv --clear --system-site-packages "$home" &&
        "$home/bin/pip" install --no-build-isolation --no-deps --no-index -e "$ROOT/tools/hakmem"; } >"$LOG" 2>&1 ||
        { tail -5 "$LOG" >&2; fail "the workbench could not be installed in $home"; }
    ln -sf "$home/bin/hakmem" "$prefix/bin/hakmem"
    echo "setup.sh: the command is $prefix/bin/hakmem"
    case :$PATH: in
        *":$prefix/bin:"*) ;;
        *) echo "setup.sh: $prefix/bin is not in PATH" ;;
    esac
}

setup() {
    case $1 in
        build)
            install_packages "${BUILD[@]}"
            ;;
        test)
            install_packages "${BUILD[@]}" "${TEST[@]}" "${WORKBENCH[@]}"
            fetch_suite_part
            ;;
        workbench)
            install_packages "${BUILD[@]}" "${WORKBENCH[@]}"
            install_workbench
            ;;
        bench)
            install_packages "${BUILD[@]}" "${BENCH[@]}"
            ;;
        all)
            install_packages "${BUILD[@]}" "${TEST[@]}" "${WORKBENCH[@]}" "${BENCH[@]}"
            fetch_suite_part
            ;;
        *)
            fail "unknown group '$1': build, test, bench, workbench or all"
            ;;
    esac
}

command -v apt-get >/dev/null && command -v dpkg-query >/dev/null ||
    fail "this needs apt-get; elsewhere install by hand: ${BUILD[*]} ${TEST[*]} ${WORKBENCH[*]} ${BENCH[*]}"

readonly WORK=$(mktemp -d)
readonly LOG=$WORK/log
trap 'rm -rf "$WORK"' EXIT

[ $# -gt 0 ] || set -- all
for group in "$@"; do
    setup "$group"
done
