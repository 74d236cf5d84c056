#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# A release: does what the checklist of HACKING.md asks for, in its order, up to the tag. Pushes nothing.
#
#   tools/release.sh VERSION          in a clean checkout; hours, for the long suite and the benchmarks
#   tools/release.sh --try VERSION    in a copy below build-test, with the documents' tests and one benchmark only
#
# Each check that fails ends it with one line, before the commit. Build and logs: build-release/.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/usage.sh"
usage "--try" "$@"

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
TRY=0
[ "${1:-}" != --try ] || { TRY=1; shift; }
readonly VERSION=${1:-}
readonly TODAY=$(date -u +%F)
readonly PYTHON=/usr/bin/python3

fail() {
    echo "release.sh: $*" >&2
    exit 1
}

say() {
    echo "release.sh: $*"
}

# quietly NAME COMMAND...: runs it with its output in a log.
quietly() {
    local log=$OUT/$1.log
    shift
    "$@" >"$log" 2>&1 || { tail -n 20 "$log" >&2; fail "failed: $* (whole log: $log)"; }
}

last_tag() {
    git describe --tags --abbrev=0 --match 'v[0-9]*' 2>/dev/null || true
}

check_version() {
    local last
    [[ $VERSION =~ ^[0-9]+\.[0-9]+\.[0-9]+$ ]] || fail "usage: release.sh [--try] MAJOR.MINOR.PATCH"
    [ -z "$(git status --porcelain)" ] || fail "the checkout has changes; commit them first"
    [ -z "$(git tag --list "v$VERSION")" ] || fail "there is a tag v$VERSION already"
    last=$(last_tag)
    [ -z "$last" ] || [ "$(printf '%s\n' "${last#v}" "$VERSION" | sort -V | tail -1)" = "$VERSION" ] ||
        fail "$VERSION is older than the last release, $last"
    grep -q "^## $VERSION" NEWS.md || fail "NEWS.md has no section of $VERSION"
}

# Each place that names the version; the day in NEWS.md and debian/changelog.
set_version() {
    local old=$1 name mail
    sed -i "s/^  version: '$old',/  version: '$VERSION',/" meson.build
    sed -i "s/^version = \"$old\"/version = \"$VERSION\"/" bindings/rust/Cargo.toml bindings/rust/bench/Cargo.toml
    sed -i "s/^__version__ = \"$old\"/__version__ = \"$VERSION\"/" tools/hakmem/hakmem_workbench/__init__.py
    sed -i "s/^revision = v$old/revision = v$VERSION/" tests/install/hakmem.wrap
    sed -i "s/find_package(hakmem ${old%.*} /find_package(hakmem ${VERSION%.*} /" tests/install/CMakeLists.txt
    sed -i "s/^## $VERSION.*/## $VERSION ($TODAY)/" NEWS.md
    grep -q "^hakmem ($VERSION-" debian/changelog && return
    mail=$(sed -n 's/^Maintainer: //p' debian/control)
    {
        printf 'hakmem (%s-1~upstream1) unstable; urgency=medium\n\n  * New release; NEWS.md says what is new.\n\n' \
            "$VERSION"
        printf ' -- %s  %s\n\n' "$mail" "$(LC_ALL=C date -uR)"
        cat debian/changelog
    } >"$OUT/changelog"
    cp "$OUT/changelog" debian/changelog
}

# No place has the old version any more, except for text about the past.
check_places() {
    local old=$1 left
    [ "$old" != "$VERSION" ] || return 0
    left=$(git grep -nF "$old" -- . ':!NEWS.md' ':!docs' ':!debian/changelog' \
        ':!tests/shape/interface.abi' ':!subprojects' || true)
    left=$(grep -vE "example|'hakmem $old" <<<"$left" || true)
    [ -z "$left" ] || fail "still of version $old: $left"
}

build() {
    [ -f "$OUT/build/build.ninja" ] || quietly setup meson setup "$OUT/build" -Dwerror=true
    quietly build ninja -C "$OUT/build"
}

check_interface() {
    command -v abidiff >/dev/null || fail "abidiff is missing: tools/setup.sh test"
    quietly interface meson test -C "$OUT/build" --no-rebuild 'shape interface'
    PYTHONPATH=tests "$PYTHON" tests/shape/interface.py "$OUT/build/tests/shape/libshape_interface.so" \
        src/api/hakmem.h src/hakmem.map --write
}

check_documents() {
    quietly docs ninja -C "$OUT/build" docs
    [ -z "$(git status --porcelain docs README.md ARCHITECTURE.md SECURITY.md)" ] ||
        fail "meson compile docs changed pages; look at them, and commit them first"
    quietly docs meson test -C "$OUT/build" --no-rebuild --suite docs
}

check_tests() {
    [ "$TRY" -eq 0 ] || { say "left out: tools/test.sh --long"; return 0; }
    quietly tests tools/test.sh --long
}

# slower CSV: workloads for which `hakmem ab` would say that the new library is slower.
slower() {
    "$PYTHON" - "$1" <<'END'
import sys
from pathlib import Path
sys.path.insert(0, "bench")
import run, tables
found = tables.verdicts(run.read_csv(Path(sys.argv[1])), "cpu_s", "last")
if not found:
    sys.exit("no verdicts: too few blocks, or numpy is missing")
print(" ".join(workload for (workload, name), verdict in found.items() if name == "new" and verdict == "slower"))
END
}

check_speed() {
    local tag new=$OUT/build/src/libhakmem.so old how=(-n 21) workloads
    tag=$(last_tag)
    if [ "$TRY" -eq 1 ]; then
        old=$new how=(-n 8 --quick --workloads '^fixed_64$')
    elif [ -z "$tag" ]; then
        say "left out: speed; there is no earlier release to compare with"
        return 0
    else
        rm -rf "$OUT/last"
        quietly last git worktree add --force --detach "$OUT/last" "$tag"
        quietly last meson setup "$OUT/last/build" "$OUT/last" -Dtests=false -Dbench=false
        quietly last ninja -C "$OUT/last/build"
        old=$OUT/last/build/src/libhakmem.so
    fi
    quietly speed "$PYTHON" bench/run.py "${how[@]}" --cpu --build "$OUT/build" --csv "$OUT/speed.csv" \
        --allocators "last=$old" "last2=$old" "new=$new"
    [ -z "$tag" ] || [ "$TRY" -eq 1 ] || git worktree remove --force "$OUT/last"
    workloads=$(slower "$OUT/speed.csv")
    [ -z "$workloads" ] || [ "$TRY" -eq 1 ] ||
        fail "slower than the last release: $workloads (docs: bench/run.py --from $OUT/speed.csv)"
}

main() {
    local old reserved
    check_version
    old=$(sed -n "s/^  version: '\(.*\)',/\1/p" meson.build)
    set_version "$old"
    check_places "$old"
    say "version $VERSION, after $old; builds"
    build
    say "documents"
    check_documents
    say "interface"
    check_interface
    say "tests"
    check_tests
    say "speed"
    check_speed
    git commit -qam "Release $VERSION"
    say "archive"
    quietly dist meson dist -C "$OUT/build" --no-tests --formats xztar
    git tag -a "v$VERSION" -m "hakmem $VERSION"
    say "tag v$VERSION and $(find "$OUT/build/meson-dist" -name '*.xz' -printf '%f') are made;" \
        "git push --follow-tags publishes them"
    reserved=$(git grep -lF .example/hakmem -- debian tests/install | xargs)
    [ -z "$reserved" ] || say "but first put the project's address into: $reserved"
}

cd "$ROOT"
if [ "$TRY" -eq 1 ]; then
    rm -rf build-test/release
    git clone -q . build-test/release
    cd build-test/release
fi
readonly OUT=$PWD/build-release
mkdir -p "$OUT"
main
