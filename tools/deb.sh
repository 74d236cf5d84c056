#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Debian packages of this checkout: libhakmem0, libhakmem-dev, hakmem-tools, hakmem-doc.
#
#   tools/deb.sh             builds them in build-test/deb; fails if lintian finds an error or a warning
#   tools/deb.sh try         then installs them, runs debian/tests, purges them, and checks that nothing is left
#
# Needs dpkg-dev, lintian, and what debian/control asks for (apt-get build-dep .). `try` needs root,
# and a machine to throw away: `tools/fresh.sh deb` makes one.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/usage.sh"
usage "" "$@"

readonly ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
readonly OUT=$ROOT/build-test/deb
readonly PACKAGES=(libhakmem0 libhakmem-dev hakmem-tools hakmem-doc)

build() {
    local version
    version=$(sed -n "s/^  version: '\(.*\)',/\1/p" "$ROOT/meson.build")
    [[ $(dpkg-parsechangelog -l "$ROOT/debian/changelog" -S Version) = "$version"-* ]] ||
        { echo "deb.sh: debian/changelog does not have version $version" >&2; return 1; }
    rm -rf "$OUT"
    mkdir -p "$OUT/hakmem-$version"
    tar -C "$ROOT" --exclude-vcs --exclude='./build*' --exclude=./debian --exclude=target --exclude=__pycache__ \
        --exclude=.github --exclude='./subprojects/*-[0-9]*' --exclude=./subprojects/packagecache \
        -cf - . | tar -C "$OUT/hakmem-$version" --no-same-owner -xf -
    tar -C "$OUT" -cJf "$OUT/hakmem_$version.orig.tar.xz" "hakmem-$version"
    cp -r "$ROOT/debian" "$OUT/hakmem-$version"
    (cd "$OUT/hakmem-$version" && dpkg-buildpackage -us -uc)
    lintian --allow-root --fail-on error,warning "$OUT"/*.changes
}

try() {
    local left
    apt-get install -y --no-install-recommends gcc libc6-dev pkg-config "$OUT"/*.deb
    "$ROOT/debian/tests/installed"
    apt-get purge -y "${PACKAGES[@]}"
    left=$(find / -xdev \( -path "$ROOT" -o -path /proc \) -prune -o -name '*hakmem*' -print)
    [ -z "$left" ] || { printf 'deb.sh: left behind:\n%s\n' "$left" >&2; return 1; }
}

build
[ "${1:-}" != try ] || try
echo "deb.sh: $(cd "$OUT" && echo ./*.deb)"
