#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# All tests: every build variant's own suites, what must be refused at
# configure time, and real programs under the library.
#
#   tools/test.sh [--long] [STAGE]...
#
# A stage is one of STAGES or LONG_STAGES below, the name of a variant, or
# `variants` for all of them; without one, STAGES and all variants run.
# The stage `machine` must be named: it changes vm.overcommit_memory, a setting
# of the whole machine, for some seconds.
# --long also runs LONG_STAGES, the long stress in every variant without a sanitizer, and the suites that the table
# assigns to it.
#
# As many stages run in parallel as there are CPUs, the longest first.
# A stage that has ended prints one line, with its elapsed and CPU seconds. Builds and logs go to build-test/. The last
# line is "N passed, N failed"; the exit status says whether anything failed.
# If ccache is installed, stages share compiled objects.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/usage.sh"
usage "--long" "$@"

# name | compiler | options | which tests, all when empty | which more by --long
# Suite `second` runs in the default build, elsewhere by --long only: with a backend that is not the default one unit,
# api, stress and misuse; the api but by its plain names, and what of it has no code of its own in the variant; all ways
# into a process but one; compilers that have malloc in line; what reads the sources. Suite `again` runs by --long only:
# limits, faults, memory, ledger and soak with such a backend. Suite `threads`: the unit tests that start threads;
# `same`: those of what is the same in builds with other headers and caches.
# Static probes are built where their header is.
PROBES=$(find /usr/include -path "*/sys/sdt.h" -printf " -Dprobes=true" -quit)
# Of other headers and parts: what each build alone can get wrong is what its blocks look like, and how it is put
# together. The rest, in builds with all parts or with few, is for --long.
OWN="--suite api --suite misuse --suite stress --suite shape"
REST="--suite unit --suite switches --suite observe --suite pool --suite life"
# Where neither instructions nor speed are tested, the compiler optimises little, and assertions are checked.
PLAIN="-Dbuildtype=debug -Doptimization=1 -Ddebug=false -Dbench=false"
readonly PROBES OWN REST PLAIN VARIANTS=(
    "default      | gcc   | | |"
    "thread       | gcc   | -Dbuildtype=debugoptimized -Doptimization=1 -Db_sanitize=thread -Dbench=false \
        | --suite threads --suite stress | --suite unit"
    "address      | gcc   | -Dbuildtype=debugoptimized -Doptimization=1 -Db_sanitize=address,undefined -Dbench=false \
        | --suite unit --suite stress |"
    "header       | gcc   | -Dtiny_header=true -Dbench=false \
        | $OWN --suite unit --no-suite settings --no-suite same | $REST --suite limits --suite memory"
    "small-header | clang | -Dtiny_header=small -Dbench=false | $OWN --no-suite settings | $REST"
    "tiny-large   | gcc   | $PLAIN -Dfrontends=tiny,large | $OWN | $REST"
    "large-legacy | gcc   | $PLAIN -Dfrontends=large -Dbackends=legacy | $OWN | $REST"
    "pool-large   | gcc   | $PLAIN -Dfrontends=pool,large -Dbackends=shared_pool | $OWN --suite pool | $REST"
    "clang        | clang | | --suite shape --suite models --suite fuzz | --suite unit"
    "fuzz-header  | clang | $PLAIN -Dtiny_header=true | --suite fuzz |"
    "list         | gcc   | -Dcache=list -Dbench=false$PROBES \
        | --suite unit --suite stress --suite misuse --suite shape --no-suite settings --no-suite same \
        | --suite unit --suite switches --suite limits"
    "hardened     | gcc   | -Dhardened=true -Dbench=false \
        | --suite unit --suite misuse --suite stress --suite shape --no-suite same \
        | --suite unit --suite api --suite limits --suite life --suite switches"
    "checks       | gcc   | $PLAIN -Dhardened=checks | --suite misuse --suite settings \
        | --suite unit --suite stress"
    "hardened-header | gcc | $PLAIN -Dhardened=true -Dtiny_header=true \
        | --suite misuse | --suite unit --suite stress"
    "valgrind     | gcc   | -Dvalgrind=true -Dbench=false | --suite memcheck | --suite stress"
    "external     | gcc   | $PLAIN -Dexternal=example_backend,example_frontend -Ddefault_backend=example_backend \
        | --suite api --suite stress --suite switches --no-suite settings | --suite life"
    "no-override  | gcc   | $PLAIN -Doverride=false | --suite shape | --suite unit"
)
readonly STAGES=(programs workbench wheel install subproject lto linked-backend reconfigure aarch64 musl
    quickstart refusals site tidy format)
# programs-more: those programs under the builds that the table below leaves to it.
# suites: the whole test suites of CPython, Perl, redis and git, file by file, with the library and without.
# soak: minutes of it in each variant that serves whole programs, and so many operations in all.
# jemalloc: programs that use its interface, and the tests of others for it.
readonly LONG_STAGES=(programs-more suites jemalloc soak wraps rust release fresh readme old deb riscv64 ppc64el s390x)
# name | Debian's triplet | Meson's family | qemu's name | byte order
readonly PROCESSORS=(
    "aarch64 | aarch64-linux-gnu     | aarch64 | aarch64 | little"
    "riscv64 | riscv64-linux-gnu     | riscv64 | riscv64 | little"
    "ppc64el | powerpc64le-linux-gnu | ppc64   | ppc64le | little"
    "s390x   | s390x-linux-gnu       | s390x   | s390x   | big"
)
readonly SOAK_OPERATIONS=10000000000
readonly COMMON=(-Dwerror=true -Dwarning_level=3)
# These begin first, in this order, so that no long stage is left alone at the end. The default build comes first of
# all: several stages wait for it.
readonly LONGEST=(default small-header workbench programs pool-large large-legacy tiny-large thread address header
    clang wheel)

# label | variant | what its reports must say | environment | which programs, * for all | which by programs-more
readonly PROGRAM_BUILDS=(
    "default      | default      | tiny_header=false backend=shared_pool | | * |"
    "header       | header       | tiny_header=true backend=shared_pool  | | redis | *"
    "small-header | small-header | tiny_header=small backend=shared_pool | | | *"
    "legacy       | default      | tiny_header=false backend=legacy      | HAKMEM_BACKEND=legacy | | *"
)
readonly SUITES_BUILD="suites | default | tiny_header=false backend=shared_pool | | |"

# an invalid choice | a word that the refusal must contain
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
    "-Dcache=bag                                     | list"
)

cd "$(dirname "${BASH_SOURCE[0]}")/.."
is_preloadable "$PWD" || { echo "test.sh: LD_PRELOAD splits names at spaces and colons, and $PWD has one" >&2; exit 2; }
readonly OUT=$PWD/build-test
readonly PYTHON=/usr/bin/python3
readonly WIDTH=$(nproc)
PASSED=0
FAILED=0
CPU=0
LONG=0
# Build folders differ, which need not prevent ccache from sharing objects. The compiler's name would.
export CCACHE_NOHASHDIR=1

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

# cpu_seconds: sets CPU to the CPU seconds of this shell and of the commands for which it waited.
cpu_seconds() {
    local file=$OUT/$BASHPID.times
    times >"$file"
    CPU=$(awk '{ gsub(/[ms]/, " "); sum += 60 * $1 + $2 + 60 * $3 + $4 } END { printf "%d", sum }' "$file")
    rm -f "$file"
}

# report NAME PASSED FAILED SECONDS [LOG]: one line for a stage, and the end of its log when it failed.
report() {
    local verdict=ok before=$CPU
    [ "$3" -eq 0 ] || verdict=FAILED
    PASSED=$((PASSED + $2))
    FAILED=$((FAILED + $3))
    cpu_seconds
    printf '%-7s%-24s%5d passed, %d failed %6d s %6d s CPU\n' "$verdict" "$1" "$2" "$3" "$4" $((CPU - before))
    if [ "$3" -ne 0 ] && [ $# -ge 5 ]; then
        { grep -E '[0-9]+/[0-9]+ .* (FAIL|TIMEOUT|ERROR) |\[  (ERROR  |FAILED ) \]|FAILED|\[   LINE   \]|error:' "$5" ||
            true; } | head -40 | sed 's/^/        > /'
        tail -20 "$5" | sed 's/^/        | /'
        echo "        | (all of it: ${5#"$PWD"/})"
    fi
}

# compiler NAME: behind ccache, which setup may have installed since this began.
compiler() {
    ! command -v ccache >/dev/null || printf 'ccache '
    echo "$1"
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

# build_variant NAME LOG: configure and compile build-test/NAME; stages that need it at the same time wait. If the table
# names suites, only what these need is compiled, unless --long needs more.
build_variant() {
    local lock status=0
    exec {lock}>"$OUT/$1.lock"
    flock "$lock"
    build_unlocked "$@" || status=$?
    exec {lock}>&-
    return "$status"
}

build_unlocked() {
    local line options tests dir=$OUT/$1 log=$2
    line=$(variant_line "$1")
    read -r -a options <<<"$(field "$line" 2)"
    if [ -f "$dir/build.ninja" ]; then
        meson configure "$dir" "${COMMON[@]}" "${options[@]}" >>"$log" 2>&1 || return 1
    else
        rm -rf "$dir"
        CC=$(compiler "$(field "$line" 1)") meson setup "$dir" "${COMMON[@]}" "${options[@]}" >>"$log" 2>&1 ||
            return 1
    fi
    [ "$LONG" -eq 0 ] && [ "$1" != default ] || { ninja -C "$dir" all meson-test-prereq >>"$log" 2>&1; return; }
    tests_of "$1" "$line"
    compile_for "$dir" "${TESTS[@]}" >>"$log" 2>&1
}

# tests_of NAME LINE: sets TESTS to the arguments that choose the tests of a variant.
tests_of() {
    read -r -a TESTS <<<"$(field "$2" 3)"
    [ "$LONG" -eq 1 ] || TESTS+=(--no-suite again)
    [ "$LONG" -eq 1 ] || [ "$1" = default ] || TESTS+=(--no-suite second --no-suite long)
}

# compile_for DIR [--suite NAME | --no-suite NAME]...: compiles what the chosen tests need. Meson runs first if its
# files have changed: it says which targets there are.
compile_for() {
    ninja -C "$1" build.ninja && needed_targets "$@" | xargs ninja -C "$1"
}

needed_targets() {
    "$PYTHON" - "$@" <<'EOF'
import json, os, sys
folder, chosen = sys.argv[1], list(zip(sys.argv[2::2], sys.argv[3::2]))
wanted, unwanted = ({name for how, name in chosen if how == option} for option in ("--suite", "--no-suite"))
about = lambda what: json.load(open(f"{folder}/meson-info/intro-{what}.json"))
suites = lambda test: {s.split(":")[-1] for s in test["suite"]}
needed = {target for test in about("tests") if not suites(test) & unwanted and (not wanted or suites(test) & wanted)
          for target in test["depends"]}
for target in about("targets"):
    if target["id"] in needed:
        print("\n".join(os.path.relpath(file, folder) for file in target["filename"]))
EOF
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
    # No test at all, or a broken runner, is also a failure.
    if [ "${now[1]}" -eq 0 ] && { [ "${now[0]}" -eq 0 ] || [ "$status" -ne 0 ]; }; then
        now[1]=1
    fi
    passed=$((passed + now[0]))
    failed=$((failed + now[1]))
}

# Random tests run in full in the default build, elsewhere by --long only.
stage_variant() {
    local name=$1 log=$OUT/$1.log began=$SECONDS passed=0 failed=0 line more
    [ "$name" = default ] || [ "$LONG" -eq 1 ] || local -x TEST_SHORT=1
    line=$(variant_line "$name")
    read -r -a more <<<"$(field "$line" 4)"
    : >"$log"
    if build_variant "$name" "$log"; then
        tests_of "$name" "$line"
        meson_test "$name" "$log" "${TESTS[@]}"
        if [ "$LONG" -eq 1 ]; then
            [ ${#more[@]} -eq 0 ] || meson_test "$name" "$log" "${more[@]}"
            [[ $line == *b_sanitize* ]] || STRESS_LONG=1 meson_test "$name" "$log" --suite long --no-suite soak-long
        fi
    else
        failed=1
    fi
    report "$name" "$passed" "$failed" $((SECONDS - began)) "$log"
}

# Runs when no other stage does. Its tests skip themselves unless they are told to go on.
stage_machine() {
    local log=$OUT/machine.log began=$SECONDS passed=0 failed=0
    echo "test.sh: as root, the tests of machine set vm.overcommit_memory=2 for the whole machine, some seconds each:"
    echo "         other programs may be refused memory meanwhile"
    : >"$log"
    if build_variant default "$log"; then
        TEST_MACHINE=1 meson_test default "$log" --suite machine
    else
        failed=1
    fi
    report machine "$passed" "$failed" $((SECONDS - began)) "$log"
}

stage_jemalloc() {
    local log=$OUT/jemalloc.log began=$SECONDS passed=0 failed=0
    tools/setup.sh jemalloc >"$log" 2>&1 || true # what is missing is skipped by name
    if build_variant default "$log"; then
        meson_test default "$log" --suite jemalloc
    else
        failed=1
    fi
    report jemalloc "$passed" "$failed" $((SECONDS - began)) "$log"
}

stage_soak() {
    local line name now sum=0 log=$OUT/soak.log began=$SECONDS passed=0 failed=0
    : >"$log"
    for line in "${VARIANTS[@]}"; do
        name=$(field "$line" 0)
        [[ $line != *b_sanitize* && $line != *override=false* ]] || continue
        if build_variant "$name" "$log"; then
            STRESS_LONG=1 meson_test "$name" "$log" --suite soak-long
            now=$(($(grep -oP '\d+(?= operations)' "$OUT/$name/meson-logs/testlog.json" | paste -sd+)))
            sum=$((sum + now))
            echo "        soak, $name: $now operations"
        else
            failed=$((failed + 1))
        fi
    done
    echo "        soak, all builds: $sum operations"
    [ "$sum" -ge "$SOAK_OPERATIONS" ] || failed=$((failed + 1))
    report soak "$passed" "$failed" $((SECONDS - began)) "$log"
}

# refused OPTIONS WORD LOG: meson must refuse the options with a sentence that contains the word.
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

# setup.sh on a machine whose apt-get reaches nobody.
without_network() {
    local bin=$OUT/no-network said
    mkdir -p "$bin"
    printf '#!/bin/sh\necho "Err:1 http://there InRelease"; echo "  Temporary failure resolving there"; exit 100\n' \
        >"$bin/apt-get"
    printf '#!/bin/sh\n' >"$bin/dpkg-query"
    printf '#!/bin/sh\nexec "$@"\n' >"$bin/sudo"
    chmod +x "$bin"/*
    said=$(PATH=$bin:$PATH tools/setup.sh build 2>&1) || grep -q '^    Err:1 ' <<<"$said" &&
        grep -q '^setup.sh: apt-get update failed: there is no network' <<<"$said"
}

stage_refusals() {
    local line log=$OUT/refusals.log began=$SECONDS passed=0 failed=0
    : >"$log"
    if without_network; then passed=1; else failed=1; fi
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

# says DIR KEY VALUE: checks what the library built there reports.
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
    local choice dir=$OUT/reconfigure
    rm -rf "$dir"
    # shellcheck disable=SC2086
    CC=$(compiler gcc) meson setup "$dir" $PLAIN -Djemalloc=false -Dtests=false "${COMMON[@]}" || return 1
    for choice in "true shared_pool" "small legacy"; do
        meson configure "$dir" -Dtiny_header="${choice% *}" -Ddefault_backend="${choice#* }" || return 1
        ninja -C "$dir" || return 1
        says reconfigure tiny_header "${choice% *}" && says reconfigure backend "${choice#* }" || return 1
    done
}

# cross NAME: another processor, by Debian's cross compiler and qemu-user: pairs, foreign frees and ending threads,
# served by the library. --long, and where the stage is a long one: unit and api tests; of aarch64 also the stress, and
# unit tests with pages of 16 and 64 KiB. qemu-user has no restartable sequences: tests of the cache of CPUs see locks,
# and what each sequence does alone.
cross() {
    local line file triplet qemu workload library tests=true targets=() dir=$OUT/$1
    [ "$1" = aarch64 ] || flock "$OUT/processors.lock" tools/setup.sh processors || return 1
    [ "$1" != aarch64 ] || [ "$LONG" -eq 1 ] || tests=false
    for line in "${PROCESSORS[@]}"; do
        [ "$(field "$line" 0)" != "$1" ] || break
    done
    triplet=$(field "$line" 1) qemu=qemu-$(field "$line" 3)
    rm -rf "$dir"
    for file in aarch64 qemu-aarch64; do
        sed "s/qemu-aarch64/$qemu/; s/aarch64-linux-gnu/$triplet/; s/'aarch64'/'$(field "$line" 2)'/
            s/'little'/'$(field "$line" 4)'/" tools/cross/$file.ini >"$OUT/${file/aarch64/$1}.ini" || return 1
    done
    PKG_CONFIG_LIBDIR=$OUT/$1-cmocka meson setup "$dir" --cross-file "$OUT/$1.ini" --cross-file "$OUT/qemu-$1.ini" \
        "${COMMON[@]}" -Dtests=$tests || return 1
    [ $tests = true ] ||
        targets=("src/$(readlink "$dir/src/libhakmem.so.0")" bench/bench_{random_mixed,remote,larson})
    ninja -C "$dir" "${targets[@]}" || return 1
    library=$(library_of "$1")
    for workload in "random_mixed 200000 400 1" "remote 2 100000 1000 50 42" \
        "larson --ops 100000 8 128 1024 1 12345 4"; do
        # shellcheck disable=SC2086
        "$qemu" -L "/usr/$triplet" -E LD_PRELOAD="$library" "$dir/bench/bench_"$workload |
            grep "allocator=hakmem" || return 1
    done
    [ $tests = false ] || emulated "$1" "$qemu" "/usr/$triplet"
}

emulated_tests() {
    meson test --no-rebuild --print-errorlogs --timeout-multiplier 10 -C "$OUT/$1" "${@:2}"
}

# emulated NAME QEMU PREFIX
emulated() {
    local -x UNIT_RUN_BY=$2 QEMU_LD_PREFIX=$3 QEMU_PAGESIZE=4096
    emulated_tests "$1" --suite unit --suite api || return 1
    [ "$1" = aarch64 ] || return 0
    emulated_tests "$1" --suite stress || return 1
    for QEMU_PAGESIZE in 16384 65536; do
        emulated_tests "$1" --suite unit || return 1
    done
}

# musl: the library and its tests, except for those that need seccomp (Debian's musl has no kernel headers).
musl() {
    [ "$LONG" -eq 1 ] || local -x TEST_SHORT=1
    local dir=$OUT/musl suites=(--no-suite machine --suite unit --suite api --suite stress --suite misuse)
    [ "$LONG" -eq 0 ] && suites+=(--no-suite second --no-suite long) || suites+=(--suite memory --suite limits)
    rm -rf "$dir"
    # shellcheck disable=SC2086
    PKG_CONFIG_LIBDIR=$OUT/musl-cmocka meson setup "$dir" --cross-file tools/cross/musl.ini $PLAIN \
        "${COMMON[@]}" || return 1
    compile_for "$dir" "${suites[@]}" || return 1
    meson test -C "$dir" --no-rebuild --print-errorlogs --timeout-multiplier 3 "${suites[@]}"
}

# The files that `meson install` installs below bin, include, lib and share.
readonly INSTALLED=(bin/hakmem include/hakmem{.h,/{inline,layout}.h} lib/libhakmem{,-profile}.a lib/libhakmem.so{,.0}
    lib/pkgconfig/hakmem.pc lib/hakmem/{libhakmem-{profile,trace}.so,hakmem-replay}
    lib/cmake/hakmem/hakmem-config{,-version}.cmake share/man/man{1/hakmem.1,3/hakmem.3,7/hakmem.7}
    share/doc/hakmem/{LICENSE,NEWS.md,README.md,SECURITY.md,docs/production.md,examples/hakmem.conf}
    share/bash-completion/completions/hakmem share/zsh/site-functions/_hakmem share/hakmem/hakmem_workbench/cli.py)

# completes PREFIX: bash completes the commands, each of which the man page names, and options.
completes() {
    local tool=$1/bin/hakmem name
    # shellcheck disable=SC1091
    source "$1/share/bash-completion/completions/hakmem"
    COMP_WORDS=("$tool" "") COMP_CWORD=1
    _hakmem "$tool"
    for name in "${COMPREPLY[@]}"; do
        grep -q "^[. A-Z\"]*hakmem $name" "$1/share/man/man1/hakmem.1" || return 1
    done
    COMP_WORDS=("$tool" run --lib) COMP_CWORD=2
    _hakmem "$tool"
    [ "${COMPREPLY[*]}" = --library ] || return 1
    COMP_WORDS=("$tool" set 4711 HAKMEM_BACKG) COMP_CWORD=3
    _hakmem "$tool"
    [ "${COMPREPLY[*]}" = HAKMEM_BACKGROUND ] || return 1
    # zsh: a stub in place of its completion function receives the commands and options.
    zsh -fc '_describe() { print -l ${(P)2} }; compadd() { print -l -- $@ }; words=($1 "") CURRENT=2; source $2
        words=($1 run --lib) CURRENT=3 PREFIX=--lib; source $2
        words=($1 set 4711 HAK) CURRENT=4 PREFIX=HAK; source $2' zsh "$tool" "$1/share/zsh/site-functions/_hakmem" \
        >"$1/completed" &&
        grep -q '^run:' "$1/completed" && grep -qx -e --library "$1/completed" &&
        grep -qx HAKMEM_BACKGROUND "$1/completed" && rm "$1/completed"
}

# Each file is at its place, below DESTDIR and its prefix; the command finds its library; uninstalling leaves nothing.
stages_install() {
    local dir=$1 stage=$OUT/staged prefix=$2 name
    rm -rf "$stage"
    DESTDIR=$stage meson install -C "$dir" --quiet || return 1
    for name in "${INSTALLED[@]}" "share/gdb/auto-load$prefix/lib/$(readlink "$dir/src/libhakmem.so.0")-gdb.py"; do
        [ -e "$stage$prefix/$name" ] || { echo "not installed: $name"; return 1; }
    done
    for name in $(grep -oP '\]\(\K[^)#:]+' docs/production.md); do
        [ -e "$stage$prefix/share/doc/hakmem/docs/$name" ] || { echo "not installed, with a link: $name"; return 1; }
    done
    "$stage$prefix/bin/hakmem" verify -- /bin/ls / | grep "$stage.*installed beside this tool" || return 1
    completes "$stage$prefix" || return 1
    ninja -C "$dir" uninstall >"$dir/uninstalled" || return 1
    [ ! -e "$stage$prefix" ]
}

# The archive of a release builds and tests itself; built in another folder, it yields the same files as the checkout.
dists() {
    local dir=$1 from=$OUT/dist file
    rm -rf "$from"
    mkdir -p "$from/build of it"
    meson dist -C "$dir" --no-tests --formats xztar --allow-dirty || return 1
    tar -xf "$dir"/meson-dist/hakmem-*.tar.xz -C "$from" --strip-components=1 || return 1
    meson setup "$from/build of it" "$from" --prefix "$OUT/installed" --libdir lib -Dbench=false "${COMMON[@]}" ||
        return 1
    meson test -C "$from/build of it" --print-errorlogs "api "{results,threads}" plain shared_pool" || return 1
    for file in libhakmem.a libhakmem.so.0; do
        ninja -C "$from/build of it" "src/$(readlink "$dir/src/$file" || echo $file)" &&
            cmp "$dir/src/$file" "$from/build of it/src/$file" || return 1
    done
}

# linked DIR LIBDIR: each program that a host built there uses hakmem's malloc; only the shared ones load the library.
linked() {
    local program how
    for program in "$1"/{program,unnamed}{,++}-{shared,static} "$1"/{shared,static}/{program,unnamed}{,++}; do
        [ -e "$program" ] || continue
        LD_LIBRARY_PATH=$2 HAKMEM_VERBOSE=1 "$program" 2>&1 | grep '^hakmem: version' ||
            { echo "hakmem does not serve $program"; return 1; }
        how=$(ldd "$program" | grep -c libhakmem)
        [[ $program == *static* ]] && [ "$how" -eq 0 ] ||
            { [[ $program == *shared* ]] && [ "$how" -eq 1 ]; } || return 1
    done
}

# README.md's ways to link an installed library, in a prefix that no loader knows; CMake and Meson find it, too. Also
# checks the other installed files.
installs() {
    local compile word how prefix=$OUT/installed dir=$OUT/install
    local -x PKG_CONFIG_PATH=$prefix/lib/pkgconfig LD_LIBRARY_PATH=
    rm -rf "$dir" "$prefix"
    CC=$(compiler gcc) meson setup "$dir" --prefix "$prefix" --libdir lib -Dtests=false -Dbench=false "${COMMON[@]}" ||
        return 1
    ninja -C "$dir" && stages_install "$dir" "$prefix" && dists "$dir" || return 1
    meson install -C "$dir" --quiet || return 1
    for word in program unnamed; do
        for compile in ":cc tests/install/$word.c" "++:c++ -x c++ tests/install/$word.c -x none"; do
            how=$dir/$word${compile%%:*}
            # shellcheck disable=SC2046,SC2086
            {
                ${compile#*:} -Wl,--as-needed $(pkg-config --cflags --libs hakmem) -o "$how-shared" &&
                    ${compile#*:} $(pkg-config --cflags --libs-only-L hakmem) -Wl,-u,malloc \
                    -l:libhakmem.a -pthread -o "$how-static" &&
                    ${compile#*:} -static $(pkg-config --cflags --libs --static hakmem) -o "$dir/whole" &&
                    HAKMEM_VERBOSE=1 "$dir/whole" 2>&1 | grep '^hakmem: version'
            } || return 1
        done
    done
    linked "$dir" "$prefix/lib" || return 1
    # shellcheck disable=SC2046
    cc -Wall -Werror tests/shape/inline.c $(pkg-config --cflags --libs-only-L hakmem) -l:libhakmem.a -o "$dir/inline" &&
        "$dir/inline" 1000 || return 1
    for word in frontends="tiny pool large" backends="shared_pool legacy" default_backend=shared_pool cache=array \
        tiny_header=false abi=0; do
        pkg-config --variable="${word%%=*}" hakmem | tr -d '\\' | grep -qx "${word#*=}" || return 1
    done
    cmake -S tests/install -B "$dir/cmake" -DCMAKE_PREFIX_PATH="$prefix" && cmake --build "$dir/cmake" &&
        linked "$dir/cmake" "$prefix/lib" || return 1
    for how in shared static; do
        meson setup "$dir/meson/$how" tests/install -Dlibrary=$how --wrap-mode nofallback &&
            ninja -C "$dir/meson/$how" || return 1
    done
    linked "$dir/meson" "$prefix/lib"
}

# A Meson project that embeds the checkout by a wrap, linked in both ways: because no hakmem is installed, and by force
# where another one is; of hakmem it installs nothing. Also a CMake project that builds it.
embeds() {
    local how force='' dir=$OUT/parent
    local -x PKG_CONFIG_LIBDIR=$dir/none
    rm -rf "$dir"
    mkdir -p "$dir/subprojects" "$dir/other"
    cp tests/install/* "$dir"
    sed "s|^url = .*|url = file://$PWD|; s/^revision.*/revision = HEAD/" tests/install/hakmem.wrap \
        >"$dir/subprojects/hakmem.wrap"
    printf 'Name: hakmem\nDescription: another\nVersion: 99\nLibs: -lthere_is_none\n' >"$dir/other/hakmem.pc"
    for how in shared static; do
        meson setup "$dir/$how" "$dir" --prefix "$dir/$how/prefix" -Dlibrary=$how $force "${COMMON[@]}" || return 1
        PKG_CONFIG_LIBDIR=$dir/other force="--force-fallback-for hakmem"
        ninja -C "$dir/$how" || return 1
        meson install -C "$dir/$how" || return 1
        [ "$(cd "$dir/$how/prefix" && find . -type f)" = ./bin/program ] || return 1
    done
    linked "$dir" "" || return 1
    cmake -S tests/install -B "$dir/cmake" -DHAKMEM_SOURCE="$PWD" && cmake --build "$dir/cmake" &&
        linked "$dir/cmake" "$dir/cmake/hakmem/lib"
}

site() {
    tools/setup.sh site && tools/site.py &&
        TEST_SITE=$PWD/build-site/site "$PYTHON" -B -m pytest tools/hakmem/tests/test_page.py -k site \
            -p no:cacheprovider
}

# Library and host compiled with LTO, with the inline fast pair; and the library alone.
lto() {
    local dir=$OUT/lto
    rm -rf "$dir"
    CC=gcc meson setup "$dir" -Db_lto=true -Dtests=false -Dbench=false "${COMMON[@]}" && ninja -C "$dir" || return 1
    gcc -O3 -flto -Wall -Wextra -Werror -Isrc/api -I"$dir/src/api" tests/shape/inline.c "$dir/src/libhakmem.a" \
        -o "$dir/host" &&
        "$dir/host" check >"$dir/host.json" && says lto backend shared_pool || return 1
    gcc -O3 -flto -Werror -Isrc/api tests/install/program.c "$dir/src/libhakmem.a" -o "$dir/program" && "$dir/program"
}

# guide_block LANGUAGE N: the n-th block of that language in the guide to parts.
guide_block() {
    awk -v fence='```'"$1" -v n="$2" '$0 == "```" { on = 0 } on; $0 == fence { on = ++count == n }' \
        docs/write-your-own-part.md
}

# Parts from outside of src, made as the guide says: a copy of the example backend, in a folder elsewhere, with the
# table of settings that the guide prints, the guide's whole frontend, and two frontends with locks; threads fork with
# them. And a link whose name is not that of the struct, which must be refused with the name that was expected.
links_backend() {
    local entry dir=$OUT/linked
    rm -rf "$dir"
    mkdir -p "$dir/subprojects/mid" "$dir/subprojects/high"
    for entry in meson.build meson_options.txt src docs bench tests tools *.md LICENSE; do
        ln -s "$PWD/$entry" "$dir/$entry"
    done
    cp -r subprojects/example_{backend,frontend} "$dir/subprojects"
    sed 's/example_frontend/high/; s/2048:6144/16384:32768/' subprojects/example_frontend/meson.build \
        >"$dir/subprojects/high/meson.build"
    sed 's/example_frontend/high/; s/EXAMPLE_FRONTEND/HIGH/' subprojects/example_frontend/example_frontend.c \
        >"$dir/subprojects/high/high.c"
    guide_block c 5 >"$dir/subprojects/example_backend/settings.def"
    (cd "$dir" && bash -ec "$(sed -n '/^NAME=/,/^sed/p' "$OLDPWD/docs/write-your-own-part.md")") || return 1
    mv "$dir/subprojects/my_backend" "$dir/elsewhere"
    ln -s ../elsewhere "$dir/subprojects/my_backend"
    ln -s ../elsewhere "$dir/subprojects/misnamed"
    guide_block meson 1 | sed 's/NAME/mid/; s/2048/1024/' >"$dir/subprojects/mid/meson.build"
    guide_block c 4 >"$dir/subprojects/mid/mid.c"
    # shellcheck disable=SC2086
    meson setup "$dir/build" "$dir" -Dexternal=my_backend,mid,example_frontend,high -Ddefault_backend=my_backend \
        $PLAIN -Djemalloc=false -Dtests=false "${COMMON[@]}" || return 1
    ninja -C "$dir/build" || return 1
    says linked/build backend my_backend &&
        says linked/build frontends "tiny pool large mid example_frontend high" || return 1
    gcc -O2 tests/limits/forks.c -pthread -o "$dir/forks" &&
        LD_PRELOAD=$dir/build/src/libhakmem.so "$dir/forks" 50 4 everyone || return 1
    ! meson setup "$dir/refused" "$dir" -Dexternal=misnamed -Dtests=false >"$dir/refused.out" 2>&1 || return 1
    grep 'ERROR: .*misnamed: .*struct hak_backend hak_backend_misnamed' "$dir/refused.out"
}

# Each of subprojects/*.wrap works if the system lacks the package.
wraps() {
    local library dir=$OUT/wraps/build
    tools/setup.sh wraps || return 1
    rm -rf "$dir"
    GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=url.file://$OUT/wraps/mimalloc.insteadOf \
        GIT_CONFIG_VALUE_0=https://github.com/microsoft/mimalloc.git \
        meson setup "$dir" --force-fallback-for cmocka -Dpeers=mimalloc,jemalloc -Dbench=false "${COMMON[@]}" ||
        return 1
    ninja -C "$dir" tests/unit/test_options \
        subprojects/{mimalloc-2.0.9/libmimalloc.so.2.0,jemalloc-5.3.0/libjemalloc.so.2} || return 1
    "$dir/tests/unit/test_options" || return 1
    for library in mimalloc-2.0.9/libmimalloc.so.2.0 jemalloc-5.3.0/libjemalloc.so.2; do
        LD_PRELOAD=$dir/subprojects/$library LD_DEBUG=bindings /bin/ls / 2>&1 | grep "symbol \`malloc'" |
            grep -q "to .*/$library " || return 1
    done
}

# Debian 12's clang-tidy; newer ones have more checks. --long: tests and bench, too, and with clang's analyzer, which
# takes twenty times as long.
tidy() {
    [[ $(clang-tidy --version) == *" version 14."* ]] || { echo "clang-tidy is not 14: nothing is checked"; return; }
    local checks=-clang-analyzer-* commands=$OUT/tidy folders=src
    [ "$LONG" -eq 0 ] || checks='' folders='(src|tests|bench)'
    mkdir -p "$commands"
    # without gcc's own flags, and each file once
    "$PYTHON" - "$1/compile_commands.json" >"$commands/compile_commands.json" <<'EOF' || return 1
import json, re, sys
each = {entry["file"]: entry for entry in reversed(json.load(open(sys.argv[1])))}
for entry in each.values():
    entry["command"] = re.sub(" -f(fixed|align)-[a-z0-9=]*", "", entry["command"])
print(json.dumps(list(each.values())))
EOF
    run-clang-tidy -quiet -p "$commands" -checks="$checks" "$PWD/$folders/.*[.]c$"
}

# The layout of each file in C, as Debian 12's clang-format makes it; others differ. No line has more than 120
# characters.
laid_out() {
    if [[ $(clang-format --version) == *" version 14."* ]]; then
        git ls-files -z '*.[ch]' | xargs -0 clang-format --dry-run -Werror || return 1
    else
        echo "clang-format is not 14: only the length of lines is checked"
    fi
    git ls-files -z '*.[ch]' '*.cc' '*.py' '*.sh' '*.rs' '*meson.build' | "$PYTHON" -c '
import sys
long = [f"{file}:{number}: {len(line)} characters" for file in sys.stdin.read().split("\0")[:-1]
        for number, line in enumerate(open(file, encoding="utf-8").read().split("\n"), 1) if len(line) > 120]
sys.exit("\n".join(long) or None)'
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

in_default_build() {
    build_variant default /dev/stdout && "$@" "$OUT/default"
}

# program_tests LINE LOG PROGRAM...: the programs named, under the library of one line of PROGRAM_BUILDS.
program_tests() {
    local line=$1 log=$2 label expect settings variant passed=0 failed=0 began=$SECONDS said
    shift 2
    label=$(field "$line" 0)
    variant=$(field "$line" 1)
    read -r -a expect <<<"$(field "$line" 2)"
    read -r -a settings <<<"$(field "$line" 3)"
    : >"$log"
    if build_variant "$variant" "$log"; then
        "$PYTHON" tests/programs/run.py "$(library_of "$variant")" --jobs "$WIDTH" --label "$label" --only "$@" \
            --baseline-dir "$OUT/baselines" --expect "${expect[@]}" --env "${settings[@]}" >>"$log" 2>&1 || true
        grep -A15 '^FAILED' "$log" || true
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

# programs_of COLUMN: the programs that a column of the table names, under each build.
programs_of() {
    local line only
    for line in "${PROGRAM_BUILDS[@]}"; do
        read -r -a only <<<"$(field "$line" "$1")"
        [ ${#only[@]} -eq 0 ] || program_tests "$line" "$OUT/programs-$(field "$line" 0)-$1.log" "${only[@]}"
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
        TEST_HAKMEM_LIBRARY=$OUT/default "$PYTHON" -B -m pytest tools/hakmem -p no:cacheprovider -rs >>"$log" 2>&1 ||
            true
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

# Its progress is shown: on a new machine it takes minutes.
stage_setup() {
    local log=$OUT/setup.log began=$SECONDS failed=0
    tools/setup.sh all 2>&1 | tee "$log" || failed=1
    report setup $((1 - failed)) "$failed" $((SECONDS - began)) "$log"
}

run_stage() {
    case $1 in
        setup | machine | refusals | workbench | soak) "stage_$1" ;;
        programs) programs_of 4 ;;
        programs-more) programs_of 5 ;;
        suites)
            tools/setup.sh suites >"$OUT/suites-setup.log" 2>&1 || true # what is missing fails by name
            program_tests "$SUITES_BUILD" "$OUT/suites.log" '*' --suites
            ;;
        format) stage_command format laid_out ;;
        jemalloc) stage_jemalloc ;;
        tidy) stage_command tidy in_default_build tidy ;;
        wheel) stage_command wheel tools/wheel.sh ;;
        wraps) stage_command wraps wraps ;;
        rust) stage_command rust tools/rust.sh ;;
        fresh) stage_command fresh tools/fresh.sh ;;
        readme) stage_command readme tools/fresh.sh readme ;;
        deb) stage_command deb tools/fresh.sh deb ;;
        old) stage_command old tools/fresh.sh old ;;
        reconfigure) stage_command reconfigure reconfigure ;;
        aarch64 | riscv64 | ppc64el | s390x) stage_command "$1" cross "$1" ;;
        musl) stage_command musl musl ;;
        install) stage_command install installs ;;
        lto) stage_command lto lto ;;
        site) stage_command site site ;;
        release) stage_command release tools/release.sh --try 1.0.0 ;;
        subproject) stage_command subproject embeds ;;
        linked-backend) stage_command linked-backend links_backend ;;
        quickstart) TEST_SHORT=1 stage_command quickstart in_default_build tools/quickstart.sh ;;
        *) stage_variant "$1" ;;
    esac
}

# aside STAGE: its lines come at its end; its counts go to a file.
aside() {
    (
        PASSED=0 FAILED=0 CPU=0
        run_stage "$1"
        echo "$PASSED $FAILED" >"$OUT/$1.count"
    ) >"$OUT/$1.said" 2>&1 || true
    cat "$OUT/$1.said"
}

# side_by_side STAGE...: each in a process group of its own, which ends with this script.
side_by_side() {
    local stage counts running=0
    set -m
    for stage in "$@"; do
        rm -f "$OUT/$stage.count"
        [ "$running" -lt "$WIDTH" ] || { wait -n || true; running=$((running - 1)); }
        aside "$stage" &
        running=$((running + 1))
    done
    wait
    set +m
    for stage in "$@"; do
        read -r -a counts < <(cat "$OUT/$stage.count" 2>/dev/null || echo 0 1)
        PASSED=$((PASSED + counts[0]))
        FAILED=$((FAILED + counts[1]))
    done
}

stop_stages() {
    local job
    for job in $(jobs -p); do
        kill -- "-$job" 2>/dev/null || true
    done
}

variant_names() {
    local line
    for line in "${VARIANTS[@]}"; do
        field "$line" 0
        echo
    done
}

# longest_first STAGE...: the stages, those of LONGEST before the others.
longest_first() {
    local stage
    for stage in "${LONGEST[@]}"; do
        [[ " $* " != *" $stage "* ]] || echo "$stage"
    done
    for stage in "$@"; do
        [[ " ${LONGEST[*]} " == *" $stage "* ]] || echo "$stage"
    done
}

# in_turn STAGE...: setup before all others, machine after them, the rest side by side.
in_turn() {
    local stage beside=()
    for stage in "$@"; do
        [ "$stage" != setup ] || run_stage setup
        [ "$stage" = setup ] || [ "$stage" = machine ] || beside+=("$stage")
    done
    mapfile -t beside < <(longest_first "${beside[@]}")
    side_by_side "${beside[@]}"
    cpu_seconds
    for stage in "$@"; do
        [ "$stage" != machine ] || run_stage machine
    done
}

main() {
    local word names chosen=()
    mapfile -t names < <(variant_names)
    for word in "$@"; do
        case " --long variants setup machine ${STAGES[*]} ${LONG_STAGES[*]} ${names[*]} " in
            *" $word "*) ;;
            *)
                echo "test.sh: unknown stage '$word' (the head of the file lists them)" >&2
                return 2
                ;;
        esac
        case $word in
            --long) LONG=1 ;;
            variants) chosen+=("${names[@]}") ;;
            *) chosen+=("$word") ;;
        esac
    done
    if [ ${#chosen[@]} -eq 0 ]; then
        chosen=(setup "${STAGES[@]}" "${names[@]}")
        if [ "$LONG" -eq 1 ]; then
            chosen+=("${LONG_STAGES[@]}")
            echo "test.sh: all tests, and the long ones: some hours"
        else
            echo "test.sh: all tests: 10 to 15 minutes on two quiet processors, and some more on a new machine, for" \
                "packages that"
            echo "         must be installed first. Stages run side by side; each says a line at its end." \
                "Logs: build-test/*.log"
        fi
    fi
    mkdir -p "$OUT"
    trap stop_stages EXIT
    in_turn "${chosen[@]}"
    cpu_seconds
    echo "all: $SECONDS s, $CPU s CPU"
    echo "$PASSED passed, $FAILED failed"
    [ "$FAILED" -eq 0 ]
}

# In one line, so that a change of this file does not reach a run that has begun.
main "$@"; exit
