#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# From a clean checkout to a program that runs under hakmem, in one command:
# installs what is missing, builds, runs Python under the library, says which
# allocator served it, and compares with the system malloc.
#
#   tools/quickstart.sh [BUILD_DIRECTORY]    (build when nothing is said)
#
# The comparison takes turns (one run of each, in changing order), so that a
# machine that slows down meanwhile slows both; it prints what was measured,
# whoever is ahead.
set -euo pipefail

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
    headline "building (log: $BUILD/quickstart.log)"
    mkdir -p "$BUILD"
    {
        [ -f "$BUILD/build.ninja" ] || meson setup "$BUILD" --buildtype=release
        ninja -C "$BUILD"
    } >"$BUILD/quickstart.log" 2>&1 || { tail -20 "$BUILD/quickstart.log" >&2; fail "the build failed"; }
    LIBRARY=$(find "$BUILD" -name libhakmem.so.0 -print -quit)
    [ -n "$LIBRARY" ] || fail "the build made no libhakmem.so.0"
    echo "$LIBRARY"
}

run_program() {
    headline "Python under hakmem: LD_PRELOAD=$LIBRARY python3 ${PROGRAM##*/}"
    env LD_PRELOAD="$LIBRARY" HAKMEM_STATS=json HAKMEM_STATS_FILE="$WORK/stats.json" PYTHONMALLOC=malloc \
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

# compare ROUNDS TITLE COMMAND: the command with and without the library, by turns.
compare() {
    local rounds=$1 title=$2 command=$3 round
    local system="env PYTHONMALLOC=malloc $command" ours="env LD_PRELOAD=$LIBRARY PYTHONMALLOC=malloc $command"
    local order=("$system" "$ours")
    rm -f "$WORK"/round-*.json
    for ((round = 0; round < rounds; round++)); do
        hyperfine -N --style none --runs 1 --export-json "$WORK/round-$round.json" "${order[@]}" >/dev/null 2>&1 ||
            fail "$title did not run: $command"
        order=("${order[1]}" "${order[0]}")
    done
    "$PYTHON" - "$title" "$WORK"/round-*.json <<'EOF'
import json, statistics, sys
system, ours = [], []
for path in sys.argv[2:]:
    for result in json.load(open(path))["results"]:
        (ours if "LD_PRELOAD=" in result["command"] else system).append(result["mean"])
for name, times in (("system", system), ("hakmem", ours)):
    print(f"  {name}  median {1e3 * statistics.median(times):8.1f} ms"
          f"   ({1e3 * min(times):.1f} to {1e3 * max(times):.1f}, {len(times)} runs)")
ratios = [a / b for a, b in zip(system, ours)]
low, middle, high = statistics.quantiles(ratios, n=4)
if low > 1:
    verdict = f"hakmem is {middle:.2f} times as fast as the system malloc"
elif high < 1:
    verdict = f"hakmem is SLOWER: it takes {1 / middle:.2f} times as long as the system malloc"
else:
    verdict = "no clear difference"
print(f"  {sys.argv[1]}: {verdict} (middle half of the rounds: {low:.2f} to {high:.2f})")
EOF
}

tools/setup.sh build
WORK=$(mktemp -d)
readonly WORK
trap 'rm -rf "$WORK"' EXIT

build
run_program
headline "hakmem and the system malloc, by turns (hyperfine)"
compare 15 "random sizes (bench_random_mixed 1000000 400 1)" "$BUILD/bench/bench_random_mixed 1000000 400 1"
compare 7 "Python (${PROGRAM##*/})" "$PYTHON $PROGRAM"
headline "every test: tools/test.sh"
