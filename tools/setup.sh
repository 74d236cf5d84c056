#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Installs what is missing on Debian 12 or 13, and nothing else.
#
#   tools/setup.sh [build|quickstart|test|bench|applications|workbench|all|suites|jemalloc|wraps|site|processors]...
#
# Without a group: all.
#
# `applications`: the programs that bench/applications.py measures, some gigabytes.
# `suites` fetches the programs whose test suites tools/test.sh --long runs.
# `jemalloc`: the programs that use its interface, and its own tests of it.
# `wraps` are the sources of subprojects/*.wrap, from Debian instead of their hosts.
# `site` is what tools/site.py needs, `processors` what the long tests of other processors need.
# `workbench` also puts the command `hakmem` into /usr/local/bin (root) or
# ~/.local/bin, or into $PREFIX/bin; it stays tied to this checkout.
#
# Queries the package database first, so it is fast and silent once everything is installed; apt-get runs at most twice
# (update, install), through sudo when not root.
# A step that fails prints its line with the error, and keeps its log.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/usage.sh"
usage "" "$@"

readonly ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

readonly CODENAME=$(. /etc/os-release && echo "$VERSION_CODENAME")
if [ "$CODENAME" = bookworm ]; then
    readonly PYTHON=python3.11 CLANG_RT=libclang-rt-14-dev MIMALLOC=libmimalloc2.0 TCMALLOC=libtcmalloc-minimal4
else
    python=$(apt-cache depends python3 2>/dev/null | awk '/Depends: python3[.]/ { print $2; exit }')
    readonly PYTHON=${python:-python3.13} CLANG_RT=libclang-rt-dev
    readonly MIMALLOC=libmimalloc3 TCMALLOC=libtcmalloc-minimal4t64
fi
readonly BUILD=(gcc libc6-dev meson ninja-build pkg-config libcmocka-dev python3 binutils hyperfine)
readonly QUICKSTART=(python3-numpy)
readonly TEST=(make clang clang-tidy "$CLANG_RT" valgrind libc6-dbg strace stress-ng git xz-utils
               "$PYTHON" "lib$PYTHON-testsuite" sqlite3 redis-server redis-tools nodejs php-cli php-xml cmake g++
               gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user libfaketime fakeroot fakechroot libeatmydata1
               python3-pytest chromium musl-tools ccache clang-format abigail-tools dpkg-dev zsh systemtap-sdt-dev)
# pip builds from Debian's own packages only, so its build tools (setuptools, wheel) must be among them.
readonly WORKBENCH=(hyperfine strace python3-venv python3-setuptools python3-wheel
                    python3-numpy python3-matplotlib python3-rich)
readonly BENCH=("$MIMALLOC" libjemalloc2 "$TCMALLOC" python3-numpy sqlite3 redis-server redis-tools)

readonly SITE=(mkdocs mkdocs-material mandoc git python3)
readonly PROCESSORS=(gcc-riscv64-linux-gnu libc6-dev-riscv64-cross gcc-s390x-linux-gnu libc6-dev-s390x-cross
                     gcc-powerpc64le-linux-gnu libc6-dev-ppc64el-cross qemu-user)
readonly JEMALLOC=(redis-server bind9 bind9-dnsutils varnish)
readonly APPLICATIONS=(clang cppcheck doxygen rustc ruby lua5.4 gawk php-cli nodejs default-jdk-headless octave
                       r-base-core ffmpeg ghostscript poppler-utils imagemagick librsvg2-bin jq libxml2-utils
                       xsltproc graphviz gnuplot-nox z3 openscad yosys swi-prolog-nox groff memcached postgresql
                       mariadb-server nginx-light apache2-utils bind9 bind9-dnsutils)
readonly SUITES=(make zlib1g-dev tcl perl)

readonly SUITES_DIR=$ROOT/build-test/suites

fail() {
    echo "setup.sh: $*" >&2
    exit 1
}

# step_failed SENTENCE: prints the first lines of the log that mention an error, and the log's path.
step_failed() {
    local kept
    kept=$(mktemp "${TMPDIR:-/tmp}/hakmem-setup.XXXXXX.log")
    cp "$LOG" "$kept"
    { grep -E '^(E:|Err:|fatal:)|(^|[^[:alpha:]])[Ee]rror:|No space left|command not found' "$LOG" ||
        tail -n 5 "$LOG"; } | head -n 8 | sed 's/^/    /' >&2 || true
    ! grep -qE 'Temporary failure|Could not (resolve|connect)|Unable to connect|Network is unreachable' "$LOG" ||
        fail "$1: there is no network, or none of its servers answers (whole log: $kept)"
    fail "$1 (whole log: $kept)"
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

# Turns apt's own reports of its progress, "what:package:percent:text", into a line for each fifth of the way.
show_progress() {
    local what percent shown='' now
    while IFS=: read -r what _ percent _; do
        case $what in
            dlstatus) now="downloading" ;;
            pmstatus) now="unpacking and setting up" ;;
            *) continue ;;
        esac
        now="$now: $((${percent%%.*} / 20 * 20)) %"
        [ "$now" = "$shown" ] || echo "setup.sh:   $now"
        shown=$now
    done
}

# apt_install PACKAGE...: apt reports its progress on descriptor 3; sudo would close it, so a shell opens it inside.
apt_install() {
    as_root env DEBIAN_FRONTEND=noninteractive sh -c 'log=$1; shift; exec apt-get "$@" 3>&1 >"$log" 2>&1' sh "$LOG" \
        -q -o APT::Status-Fd=3 install -y --no-install-recommends "$@" | show_progress
}

install_packages() {
    local wanted
    mapfile -t wanted < <(missing "$@")
    [ ${#wanted[@]} -gt 0 ] || return 0
    [ "$(id -u)" -eq 0 ] || command -v sudo >/dev/null || fail "missing ${wanted[*]}: run as root, or install sudo"
    echo "setup.sh: installing ${wanted[*]}"
    as_root apt-get -q update >"$LOG" 2>&1 || step_failed "apt-get update failed"
    LC_ALL=C apt-get -s -o APT::Get::Show-User-Simulation-Note=false --no-install-recommends install "${wanted[@]}" \
        2>/dev/null |
        sed -nE 's/^[0-9]+ upgraded, ([0-9]+) newly installed.*/setup.sh:   \1 packages with what they need/p'
    apt_install "${wanted[@]}" || step_failed "apt-get could not install ${wanted[*]}"
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

# fetch_source PACKAGE[/RELEASE] [VERSION]: its upstream archive, into $WORK.
fetch_source() {
    allow_sources
    source_apt update >"$LOG" 2>&1 || true
    (cd "$WORK" && source_apt source --download-only --tar-only "$1${2:+=$2}" >"$LOG" 2>&1) ||
        step_failed "apt-get could not get the source package $1${2:+=$2}"
}

# build_cmocka NAME COMPILER: in build-test/NAME-cmocka, for what Debian has no cmocka for that installs beside the
# machine's.
build_cmocka() {
    local version from=$WORK/cmocka dir=$ROOT/build-test/$1-cmocka
    version=$(dpkg-query -W -f='${source:Version}' libcmocka-dev)
    if [ -f "$dir/$version" ]; then
        return 0
    fi
    echo "setup.sh: building cmocka for $1 from its source package"
    [ -d "$from" ] || fetch_source cmocka "$version"
    rm -rf "$dir"
    mkdir -p "$dir" "$from"
    tar -xf "$WORK"/cmocka_*.orig.tar.* -C "$from" --strip-components=1
    {
        "$2" -O2 -w -D_GNU_SOURCE -DHAVE_STRUCT_TIMESPEC -DHAVE_INTTYPES_H -DHAVE_SIGNAL_H -DHAVE_STRINGS_H \
            -DHAVE_TIME_H -DHAVE_UNISTD_H -DHAVE_GCC_THREAD_LOCAL_STORAGE -I"$from/include" \
            -c "$from/src/cmocka.c" -o "$from/cmocka.o" &&
            ar rcs "$dir/libcmocka.a" "$from/cmocka.o"
    } >"$LOG" 2>&1 || step_failed "cmocka could not be built for $1"
    cp "$from/include/cmocka.h" "$dir"
    printf 'Name: cmocka\nDescription: for %s\nVersion: %s\nCflags: -I${pcfiledir}\nLibs: -L${pcfiledir} -lcmocka\n' \
        "$1" "${version%%-*}" >"$dir/cmocka.pc"
    touch "$dir/$version"
}

build_cmockas() {
    build_cmocka musl musl-gcc
    build_cmocka aarch64 aarch64-linux-gnu-gcc
}

# fetch_suite NAME PACKAGE: the tests of another project, of the release that is installed, in build-test/suites/NAME.
fetch_suite() {
    local name=$1 version dir=$SUITES_DIR/$1
    version=$(dpkg-query -W -f='${source:Upstream-Version}' "$2")
    if [ -f "$dir/.$version" ]; then
        return 0
    fi
    echo "setup.sh: getting the tests of $name from its source package"
    rm -rf "$dir"
    mkdir -p "$dir"
    fetch_source "$name/$CODENAME" # its updates may lack the archive
    tar -xf "$WORK/${name}_${version#*:}".orig.tar.* -C "$dir" --strip-components=1 ||
        fail "the source package of $name is not of release $version"
    touch "$dir/.$version"
}

# Each is laid out so that its tests find the installed programs; git's need one more.
fetch_suites() {
    local dir
    fetch_suite redis redis-server
    ln -sf /usr/bin/redis-{server,cli,benchmark,check-aof,check-rdb,sentinel} "$SUITES_DIR/redis/src/"
    fetch_suite perl perl
    ln -sf /usr/bin/perl "$SUITES_DIR/perl/t/perl"
    for dir in $(/usr/bin/perl -e 'print join " ", grep -d && m{^/usr/(lib|share)/.*(/perl-base$|perl/)}, @INC'); do
        cp -rsn "$dir/." "$SUITES_DIR/perl/lib/"
    done
    fetch_suite git git
    make -C "$SUITES_DIR/git" -j"$(nproc)" NO_CURL=1 NO_EXPAT=1 NO_GETTEXT=1 NO_TCLTK=1 NO_PYTHON=1 NO_OPENSSL=1 \
        t/helper/test-tool all >"$LOG" 2>&1 || step_failed "git could not be built for its tests"
}

# fetch_wraps takes the sources that subprojects/*.wrap name from Debian's packages and puts them where Meson looks
# before it downloads. For a wrap that clones, it makes a repository in build-test/wraps.
fetch_wraps() {
    local cache=$ROOT/subprojects/packagecache clone=$ROOT/build-test/wraps/mimalloc
    rm -rf "$clone" "$ROOT"/subprojects/{cmocka-1.1.5,jemalloc-5.3.0,mimalloc-2.0.9}
    mkdir -p "$cache" "$clone"
    fetch_source cmocka
    fetch_source jemalloc
    fetch_source mimalloc
    cp "$WORK"/cmocka_1.1.5.orig.tar.xz "$cache/cmocka-1.1.5.tar.xz"
    cp "$WORK"/jemalloc_5.3.0.orig.tar.bz2 "$cache/jemalloc-5.3.0.tar.bz2"
    tar -xf "$WORK"/mimalloc_2.0.9*.orig.tar.* -C "$clone" --strip-components=1
    git -C "$clone" init -q
    git -C "$clone" add -A
    git -C "$clone" -c user.name=setup -c user.email=setup@localhost commit -qm source
    git -C "$clone" tag v2.0.9
}

# A virtual environment over Debian's own Python packages, so that nothing comes from elsewhere.
install_workbench() {
    local prefix=${PREFIX:-} home
    [ -n "$prefix" ] || { [ "$(id -u)" -eq 0 ] && prefix=/usr/local || prefix=$HOME/.local; }
    home=$prefix/lib/hakmem-workbench
    mkdir -p "$prefix/bin"
    { /usr/bin/python3 -m venv --clear --system-site-packages "$home" &&
        "$home/bin/pip" install --no-build-isolation --no-deps --no-index -e "$ROOT/tools/hakmem"; } >"$LOG" 2>&1 ||
        step_failed "the workbench could not be installed in $home"
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
        quickstart)
            install_packages "${BUILD[@]}" "${QUICKSTART[@]}"
            ;;
        test)
            install_packages "${BUILD[@]}" "${TEST[@]}" "${WORKBENCH[@]}"
            build_cmockas
            ;;
        workbench)
            install_packages "${BUILD[@]}" "${WORKBENCH[@]}"
            install_workbench
            ;;
        bench)
            install_packages "${BUILD[@]}" "${BENCH[@]}"
            ;;
        applications)
            install_packages "${BUILD[@]}" "${BENCH[@]}" "${WORKBENCH[@]}" "${APPLICATIONS[@]}"
            ;;
        suites)
            install_packages "${BUILD[@]}" "${TEST[@]}" "${SUITES[@]}"
            fetch_suites
            ;;
        jemalloc)
            install_packages "${BUILD[@]}" "${TEST[@]}" libjemalloc2 "${JEMALLOC[@]}"
            fetch_suite jemalloc libjemalloc2
            ;;
        wraps)
            install_packages "${BUILD[@]}" git make xz-utils
            fetch_wraps
            ;;
        site) install_packages "${SITE[@]}" ;;
        processors)
            install_packages "${BUILD[@]}" "${PROCESSORS[@]}"
            build_cmocka riscv64 riscv64-linux-gnu-gcc
            build_cmocka s390x s390x-linux-gnu-gcc
            build_cmocka ppc64el powerpc64le-linux-gnu-gcc
            ;;
        all)
            install_packages "${BUILD[@]}" "${TEST[@]}" "${WORKBENCH[@]}" "${BENCH[@]}"
            build_cmockas
            ;;
        *)
            fail "unknown group '$1': build, quickstart, test, bench, workbench, suites, jemalloc, wraps, site," \
                "processors or all"
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
