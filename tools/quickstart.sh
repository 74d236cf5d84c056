#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# From a clean checkout to a program that runs under hakmem, in one command:
# installs what is missing, builds, runs Python under the library, says which
# allocator served it, and compares with the system malloc.
#
#   tools/quickstart.sh [BUILD_DIRECTORY]    (default: build)
#
# The comparison takes turns in random order, so that a machine that slows down
# meanwhile slows both; it prints all results, whichever is ahead, and claims
# a difference by the rule of the workbench only.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/usage.sh"
usage "" "$@"

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
BUILD=$(realpath -m "${1:-$ROOT/build}")
cd "$ROOT"
readonly ROOT BUILD
readonly PYTHON=/usr/bin/python3
readonly PROGRAM=$ROOT/tests/programs/word_index.py

fail() {
    echo "quickstart.sh: $*" >&2
    exit 1
}

headline() {
    printf '\n== %s\n' "$*"
}

build() {
    headline "building: half a minute (log: $BUILD/quickstart.log)"
    mkdir -p "$BUILD"
    {
        [ -f "$BUILD/build.ninja" ] || meson setup "$BUILD" --buildtype=release
        ninja -C "$BUILD"
    } >"$BUILD/quickstart.log" 2>&1 || {
        grep -nE 'ERROR|error:|FAILED' "$BUILD/quickstart.log" | head -8 >&2 || true
        fail "the build failed (whole log: $BUILD/quickstart.log)"
    }
    LIBRARY=$(find "$BUILD" -name libhakmem.so.0 -print -quit)
    [ -n "$LIBRARY" ] || fail "the build made no libhakmem.so.0"
    echo "$LIBRARY"
}

# PRELOAD: where LD_PRELOAD can name the library.
run_program() {
    PRELOAD=$LIBRARY
    is_preloadable "$LIBRARY" || PRELOAD=$WORK/${LIBRARY##*/}
    is_preloadable "$PRELOAD" || fail "TMPDIR has a space or a colon in its path, at which LD_PRELOAD splits names"
    [ "$PRELOAD" = "$LIBRARY" ] || ln -s "$LIBRARY" "$PRELOAD"
    headline "Python under hakmem: LD_PRELOAD=$PRELOAD python3 ${PROGRAM##*/}"
    env LD_PRELOAD="$PRELOAD" HAKMEM_STATS=json HAKMEM_STATS_FILE="$WORK/stats.json" PYTHONMALLOC=malloc \
        "$PYTHON" "$PROGRAM"
    [ -s "$WORK/stats.json" ] || fail "the library wrote no report: it did not serve the program"
    "$PYTHON" - "$WORK/stats.json" <<'EOF'
import json, sys
stats = json.load(open(sys.argv[1]))
who = stats["allocator"]
calls = sum(call["calls"] for call in stats["os_calls"])
print(f"served by: {who['name']} {who['version']}, backend {who['backend']}, tiny_header {who['tiny_header']};"
      f" {calls} system calls for memory")
EOF
}

# compare BLOCKS TITLE COMMAND...: the command with and without the library, by turns, and the verdict.
compare() {
    local blocks=${TEST_SHORT:+3} title=$2
    blocks=${blocks:-$1}
    shift 2
    echo "$title"
    "$PYTHON" tools/compare.py "$PRELOAD" "$blocks" "$@" || fail "$title could not be compared"
}

echo "quickstart.sh: builds hakmem, runs Python under it, compares: about a minute,"
echo "               and two or three more where packages must be installed first"
tools/setup.sh quickstart
WORK=$(mktemp -d)
readonly WORK
trap 'rm -rf "$WORK"' EXIT

build
run_program
headline "hakmem and the system malloc, by turns: a quarter of a minute"
compare 15 "random sizes (bench_random_mixed 1000000 400 1)" "$BUILD/bench/bench_random_mixed" 1000000 400 1
compare 9 "Python (${PROGRAM##*/})" "$PYTHON" "$PROGRAM"

headline "next, after $SECONDS s"
if [ "$PRELOAD" != "$LIBRARY" ]; then
    echo "LD_PRELOAD splits names at spaces and colons: link $LIBRARY to a path without them."
    LIBRARY=THAT_PATH
fi
echo "Try it on your own program, LD_PRELOAD=$LIBRARY PROGRAM, then let docs/tuning.md lead you to its best policy."
