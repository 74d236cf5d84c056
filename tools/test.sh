#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# All tests: every build variant's own suites, what must be refused at
# configure time, and real programs under the library.
#
#   tools/test.sh [--long] [STAGE]...
#
# A stage is setup, refusals, reconfigure, aarch64, quickstart, workbench, programs, the
# name of a variant below, or `variants` for all of them; without one everything runs.
# --long adds the long stress in every variant without a sanitizer.
#
# Builds and logs go to build-test/.  The last line is "N passed, N failed",
# and the exit status says whether anything failed.
set -euo pipefail

# name | compiler | options | which tests, all when empty
# The limits (refused calls, a thousand forks) take the longest and differ by header mode, not by compiler or subset.
readonly VARIANTS=(
    "default      | gcc   |                                                                   |"
    "header       | gcc   | -Dtiny_header=true -Dbench=false                                  | --no-suite limits --no-suite memory"
    "small-header | clang | -Dtiny_header=small -Dbench=false                                 | --no-suite limits --no-suite memory"
    "clang        | clang |                                                                   | --suite unit --suite shape"
    "tiny-large   | gcc   | -Dbuildtype=debug -Dfrontends=tiny,large -Dbench=false            | --no-suite limits --no-suite memory"
    "large-legacy | gcc   | -Dfrontends=large -Dbackends=legacy -Dbench=false                 | --no-suite limits --no-suite memory"
    "pool-large   | gcc   | -Dfrontends=pool,large -Dbackends=shared_pool -Dbench=false       | --no-suite limits --no-suite memory"
    "hardened     | gcc   | -Dhardened=true -Dbench=false                                     | --suite unit --suite misuse"
    "external     | gcc   | -Dexternal=example_backend -Dbench=false                          | --suite api --suite stress"
    "no-override  | gcc   | -Doverride=false -Dbench=false                                    | --suite unit --suite shape"
    "address      | gcc   | -Dbuildtype=debugoptimized -Db_sanitize=address,undefined -Dbench=false | --suite unit --suite stress"
    "thread       | gcc   | -Dbuildtype=debugoptimized -Db_sanitize=thread -Dbench=false      | --suite unit --suite stress"
)
readonly COMMON=(-Dwerror=true -Dwarning_level=3)

# label | variant | what its reports must say | environment
readonly PROGRAM_BUILDS=(
    "default      | default      | tiny_header=false backend=shared_pool |"
    "header       | header       | tiny_header=true backend=shared_pool  |"
    "small-header | small-header | tiny_header=small backend=shared_pool |"
    "legacy       | default      | tiny_header=false backend=legacy      | HAKMEM_BACKEND=legacy"
)

# a choice that makes no sense | a word that the sentence which refuses it must contain
readonly REFUSALS=(
    "-Dfrontends=tiny                               | large"
    "-Dfrontends=pool                               | large"
    "-Dfrontends=tiny,pool                          | large"
    "-Dfrontends=                                   | large"
    "-Dbackends=batch                               | shared_pool"
    "-Dbackends=                                    | shared_pool"
    "-Dbackends=shared_pool -Ddefault_backend=legacy | legacy"
    "-Dbackends=legacy -Ddefault_backend=shared_pool | shared_pool"
    "-Ddefault_backend=batch                        | batch"
    "-Ddefault_backend=nonsense                     | nonsense"
    "-Dfrontends=large -Dtiny_header=small           | tiny"
)

cd "$(dirname "${BASH_SOURCE[0]}")/.."
readonly OUT=$PWD/build-test
readonly PYTHON=/usr/bin/python3
PASSED=0
FAILED=0
LONG=0

trim() {
    local text=$1
    text=${text#"${text%%[![:space:]]*}"}
    printf '%s' "${text%"${text##*[![:space:]]}"}"
}

# field LINE NUMBER: one column of the arrays above.
field() {
    local columns
    IFS='|' read -r -a columns <<<"$1"
    trim "${columns[$2]:-}"
}

# report NAME PASSED FAILED SECONDS [LOG]: one line for a stage, and the end of its log when it failed.
report() {
    local verdict=ok
    [ "$3" -eq 0 ] || verdict=FAILED
    PASSED=$((PASSED + $2))
    FAILED=$((FAILED + $3))
    printf '%-7s%-24s%5d passed, %d failed %6d s\n' "$verdict" "$1" "$2" "$3" "$4"
    if [ "$3" -ne 0 ] && [ $# -ge 5 ]; then
        { grep -E '[0-9]+/[0-9]+ .* (FAIL|TIMEOUT|ERROR) |\[  (ERROR  |FAILED ) \]|FAILED|\[   LINE   \]|error:' "$5" || true; } | head -40 | sed 's/^/        > /'
        tail -20 "$5" | sed 's/^/        | /'
        echo "        | (all of it: ${5#"$PWD"/})"
    fi
}

variant_line() {
    local line
    for line in "${VARIANTS[@]}"; do
        if [ "$(field "$line" 0)" = "$1" ]; then
            printf '%s' "$line"
            return 0
        fi
    done
    return 1
}

# build_variant NAME LOG: configure and compile build-test/NAME.
build_variant() {
    local line options dir=$OUT/$1 log=$2
    line=$(variant_line "$1")
    read -r -a options <<<"$(field "$line" 2)"
    if [ -f "$dir/build.ninja" ]; then
        meson configure "$dir" "${COMMON[@]}" "${options[@]}" >>"$log" 2>&1 || return 1
    else
        rm -rf "$dir"
        CC=$(field "$line" 1) meson setup "$dir" "${COMMON[@]}" "${options[@]}" >>"$log" 2>&1 || return 1
    fi
    ninja -C "$dir" >>"$log" 2>&1
}

# Prints "PASSED FAILED" of the last `meson test` in the directory.
count_tests() {
    "$PYTHON" - "$1" <<'EOF'
import json, sys
passed = failed = 0
try:
    for line in open(sys.argv[1] + "/meson-logs/testlog.json"):
        result = json.loads(line)["result"]
        passed += result in ("OK", "EXPECTEDFAIL")
        failed += result not in ("OK", "EXPECTEDFAIL", "SKIP")
except OSError:
    pass
print(passed, failed)
EOF
}

# meson_test NAME LOG [ARGUMENT]...: adds the results to `passed` and `failed` of the caller.
meson_test() {
    local dir=$OUT/$1 log=$2 now status=0
    shift 2
    rm -f "$dir/meson-logs/testlog.json"
    meson test -C "$dir" --no-rebuild --print-errorlogs --timeout-multiplier 3 "$@" >>"$log" 2>&1 || status=$?
    read -r -a now <<<"$(count_tests "$dir")"
    # No test at all, or a runner that broke, is a failure too.
    if [ "${now[1]}" -eq 0 ] && { [ "${now[0]}" -eq 0 ] || [ "$status" -ne 0 ]; }; then
        now[1]=1
    fi
    passed=$((passed + now[0]))
    failed=$((failed + now[1]))
}

stage_variant() {
    local name=$1 log=$OUT/$1.log began=$SECONDS passed=0 failed=0 line tests
    line=$(variant_line "$name")
    read -r -a tests <<<"$(field "$line" 3)"
    : >"$log"
    if build_variant "$name" "$log"; then
        meson_test "$name" "$log" "${tests[@]}"
        if [ "$LONG" -eq 1 ] && [[ $line != *b_sanitize* ]]; then
            STRESS_LONG=1 meson_test "$name" "$log" --suite long
        fi
    else
        failed=1
    fi
    report "$name" "$passed" "$failed" $((SECONDS - began)) "$log"
}

# beside_others NAME: one variant whose lines come at its end, and whose counts go to a file.
beside_others() {
    (
        PASSED=0 FAILED=0
        stage_variant "$1"
        echo "$PASSED $FAILED" >"$OUT/$1.count"
    ) >"$OUT/$1.said" 2>&1 || true
    cat "$OUT/$1.said"
}

# Two at a time, since much of a suite is waiting; but alone what runs the limits, which change a setting of
# the whole machine for a moment.
stage_variants() {
    local line name running=0 counts beside=()
    for line in "${VARIANTS[@]}"; do
        name=$(field "$line" 0)
        if [ -z "$(field "$line" 3)" ]; then
            stage_variant "$name"
        else
            beside+=("$name")
        fi
    done
    for name in "${beside[@]}"; do
        rm -f "$OUT/$name.count"
        [ "$running" -lt 2 ] || { wait -n || true; running=$((running - 1)); }
        beside_others "$name" &
        running=$((running + 1))
    done
    wait
    for name in "${beside[@]}"; do
        read -r -a counts < <(cat "$OUT/$name.count" 2>/dev/null || echo 0 1)
        PASSED=$((PASSED + counts[0]))
        FAILED=$((FAILED + counts[1]))
    done
}

# refused OPTIONS WORD LOG: meson must fail, of its own will, with a sentence that holds the word.
refused() {
    local options dir=$OUT/refused said=$OUT/refused.out status=0
    read -r -a options <<<"$1"
    rm -rf "$dir"
    meson setup "$dir" "${options[@]}" >"$said" 2>&1 || status=$?
    rm -rf "$dir"
    if [ "$status" -ne 0 ] && grep -E "ERROR: .*\b$2\b" "$said" | grep -qE 'ERROR:( [^ ]+){4,}' &&
        ! grep -qE 'Traceback|Unhandled python' "$said"; then
        rm -f "$said"
        return 0
    fi
    {
        echo "not refused, or without saying why (status $status, expected a word on $2): meson setup $1"
        tail -5 "$said"
    } >>"$3"
    rm -f "$said"
    return 1
}

stage_refusals() {
    local line log=$OUT/refusals.log began=$SECONDS passed=0 failed=0
    : >"$log"
    for line in "${REFUSALS[@]}"; do
        if refused "$(field "$line" 0)" "$(field "$line" 1)" "$log"; then
            passed=$((passed + 1))
        else
            failed=$((failed + 1))
        fi
    done
    report refusals "$passed" "$failed" $((SECONDS - began)) "$log"
}

library_of() {
    find "$OUT/$1" -name libhakmem.so.0 -print -quit
}

# says DIR KEY VALUE: what the library that was built there says of itself.
says() {
    local stats=$OUT/$1/says.json
    rm -f "$stats"
    LD_PRELOAD=$(library_of "$1") HAKMEM_STATS=json HAKMEM_STATS_FILE=$stats /bin/ls / >/dev/null
    "$PYTHON" - "$stats" "$2" <<'EOF' | grep -qx "$3"
import json, sys
print(str(json.load(open(sys.argv[1]))["allocator"][sys.argv[2]]).lower())
EOF
}

# One build directory is switched from policy to policy, without a new setup.
reconfigure() {
    local header dir=$OUT/reconfigure
    rm -rf "$dir"
    meson setup "$dir" -Dtests=false -Dbench=false || return 1
    for header in true false small; do
        meson configure "$dir" -Dtiny_header=$header || return 1
        ninja -C "$dir" || return 1
        says reconfigure tiny_header $header || return 1
    done
    meson configure "$dir" -Ddefault_backend=legacy || return 1
    ninja -C "$dir" || return 1
    says reconfigure backend legacy
}

# aarch64, by Debian's cross compiler and qemu-user: pairs, foreign frees and ending threads, served by the library.
cross() {
    local work library dir=$OUT/aarch64
    rm -rf "$dir"
    meson setup "$dir" --cross-file tools/cross/aarch64.ini -Dtests=false "${COMMON[@]}" || return 1
    ninja -C "$dir" || return 1
    library=$(library_of aarch64)
    for work in "random_mixed 200000 400 1" "remote 2 100000 1000 50 42" "larson --ops 100000 8 128 1024 1 12345 4"; do
        # shellcheck disable=SC2086
        qemu-aarch64 -L /usr/aarch64-linux-gnu -E LD_PRELOAD="$library" "$dir/bench/bench_"$work |
            grep "allocator=hakmem" || return 1
    done
}

# stage_command NAME COMMAND...: passed when the command is.
stage_command() {
    local name=$1 log=$OUT/$1.log began=$SECONDS
    shift
    if "$@" >"$log" 2>&1; then
        report "$name" 1 0 $((SECONDS - began))
    else
        report "$name" 0 1 $((SECONDS - began)) "$log"
    fi
}

program_tests() {
    local line=$1 log=$2 label expect settings variant passed=0 failed=0 began=$SECONDS said
    label=$(field "$line" 0)
    variant=$(field "$line" 1)
    read -r -a expect <<<"$(field "$line" 2)"
    read -r -a settings <<<"$(field "$line" 3)"
    : >"$log"
    if build_variant "$variant" "$log"; then
        "$PYTHON" tests/programs/run.py "$(library_of "$variant")" --jobs 2 --label "$label" \
            --baseline-dir "$OUT/baselines" --expect "${expect[@]}" --env "${settings[@]}" 2>&1 | tee -a "$log" |
            sed '/^[0-9]* passed, /d' || true
        said=$(tail -1 "$log")
    fi
    if [[ ${said:-} =~ ^([0-9]+)\ passed,\ ([0-9]+)\ failed$ ]]; then
        passed=${BASH_REMATCH[1]}
        failed=${BASH_REMATCH[2]}
    else
        failed=1
    fi
    report "programs, $label" "$passed" "$failed" $((SECONDS - began)) "$log"
}

stage_programs() {
    local line
    rm -rf "$OUT/baselines"
    for line in "${PROGRAM_BUILDS[@]}"; do
        program_tests "$line" "$OUT/programs-$(field "$line" 0).log"
    done
}

# The command as a user gets it, in a place of its own.
workbench_installs() {
    local prefix=$OUT/prefix
    rm -rf "$prefix"
    PREFIX=$prefix tools/setup.sh workbench &&
        "$prefix/bin/hakmem" verify --library "$OUT/default" -- /bin/ls / &&
        "$prefix/bin/hakmem" run --library "$OUT/default" -- /bin/true
}

stage_workbench() {
    local log=$OUT/workbench.log began=$SECONDS passed=0 failed=0 said
    : >"$log"
    if build_variant default "$log" && workbench_installs >>"$log" 2>&1; then
        passed=1
        TEST_HAKMEM_LIBRARY=$OUT/default "$PYTHON" -B -m pytest tools/hakmem -p no:cacheprovider -rs >>"$log" 2>&1 || true
        said=$(tail -1 "$log")
        [[ $said =~ ([0-9]+)\ failed ]] && failed=${BASH_REMATCH[1]}
        if [[ $said =~ ([0-9]+)\ passed ]]; then
            passed=$((passed + BASH_REMATCH[1]))
        else
            failed=$((failed + 1))
        fi
    else
        failed=1
    fi
    report workbench "$passed" "$failed" $((SECONDS - began)) "$log"
}

stage_setup() {
    stage_command setup tools/setup.sh all
}

run_stage() {
    case $1 in
        setup | refusals | variants | workbench | programs) "stage_$1" ;;
        reconfigure) stage_command reconfigure reconfigure ;;
        aarch64) stage_command aarch64 cross ;;
        quickstart) stage_command quickstart tools/quickstart.sh "$OUT/default" ;;
        *) stage_variant "$1" ;;
    esac
}

STAGES=()
for word in "$@"; do
    case $word in
        --long)
            LONG=1
            ;;
        setup | refusals | reconfigure | aarch64 | quickstart | workbench | programs | variants)
            STAGES+=("$word")
            ;;
        *)
            variant_line "$word" >/dev/null || {
                echo "test.sh: unknown stage '$word' (the head of the file lists them)" >&2
                exit 2
            }
            STAGES+=("$word")
            ;;
    esac
done
[ ${#STAGES[@]} -gt 0 ] || STAGES=(setup refusals variants reconfigure aarch64 quickstart workbench programs)

# A finding of these tools must end the process, or a test would pass over it.
export ASAN_OPTIONS=halt_on_error=1:allocator_may_return_null=1
export UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1
export TSAN_OPTIONS=halt_on_error=1

mkdir -p "$OUT"
for stage in "${STAGES[@]}"; do
    run_stage "$stage"
done
echo "$PASSED passed, $FAILED failed"
[ "$FAILED" -eq 0 ]
