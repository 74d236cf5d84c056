#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# The README's two commands on a machine made new: a minimal Debian by
# debootstrap, this checkout's files in it, and nothing else.
#
#   tools/fresh.sh [STAGE]...     the stages are handed to tools/test.sh (default: all)
#   tools/fresh.sh --release trixie [STAGE]...    on Debian 13 instead of 12 (bookworm); or unstable
#   tools/fresh.sh readme         each line of README's blocks "Use" and "Compare" as it stands there, instead
#   tools/fresh.sh deb            the Debian packages, built, tried and purged, and the service of tools/docker, instead
#   tools/fresh.sh old            Debian 11 (gcc 10, glibc 2.31, Linux 5.10's headers): builds, and runs tests, instead
#
# Needs root, debootstrap and a Debian whose apt works: mirror, keys and proxies are those of this machine. Takes as
# long as both commands on an empty machine: 5 minutes for the packages, then the time that they print.
#
# All mounts lie in a namespace of their own, and all processes too, so nothing is left of them however this ends.
# build-test/fresh holds the root; it is removed if all passed, and kept for inspection if something failed.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/usage.sh"
usage "--in-namespace --release --long" "$@"

readonly ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
RELEASE=bookworm
ARGUMENTS=("$@")
[ "${1:-}" != --in-namespace ] || shift
[ "${1:-}" != --release ] || { RELEASE=${2:?--release needs a name}; shift 2; }
case " $* " in
    *" deb "*) readonly WHAT=deb ;;
    *" readme "*) readonly WHAT=readme ;;
    *" old "*) readonly WHAT=old RELEASE=bullseye ;;
    *) readonly WHAT= ;;
esac
readonly FRESH=$ROOT/build-test/fresh-$RELEASE${WHAT:+-$WHAT}
readonly HERE=$(. /etc/os-release && echo "$VERSION_CODENAME")
readonly RELEASE ARGUMENTS
readonly CHECKOUT=/root/hakmem
readonly LINE_SECONDS=3600 # the longest line of README's compares many workloads

fail() {
    echo "fresh.sh: $*" >&2
    exit 1
}

# The mirror from which apt gets this machine's release.
mirror() {
    apt-get indextargets --format '$(REPO_URI) $(RELEASE)' 'Created-By: Packages' |
        awk -v release="$HERE" '$2 == release { print $1; exit }'
}

# Copies how this machine reaches it: sources, keys, proxies, names.
carry_apt() {
    local folder
    rm -f "$FRESH/etc/apt/sources.list"
    for folder in sources.list sources.list.d trusted.gpg trusted.gpg.d keyrings auth.conf auth.conf.d; do
        [ ! -e "/etc/apt/$folder" ] || cp -RL "/etc/apt/$folder" "$FRESH/etc/apt/"
    done
    find "$FRESH"/etc/apt/sources.list* -type f -exec sed -i "s/\b$HERE\b/$RELEASE/g" {} +
    case $RELEASE in
        unstable | sid) # has no updates beside it
            rm -rf "$FRESH"/etc/apt/sources.list*
            echo "deb $(mirror) $RELEASE main" >"$FRESH/etc/apt/sources.list"
            ;;
    esac
    apt-config dump | grep -E '^Acquire::(https?|Check-|Retries|Force)' >"$FRESH/etc/apt/apt.conf.d/00carried"
    cp -L /etc/resolv.conf /etc/hosts "$FRESH/etc/"
    [ ! -f /etc/ssl/certs/ca-certificates.crt ] ||
        install -D -t "$FRESH/etc/ssl/certs" /etc/ssl/certs/ca-certificates.crt
}

# The files of this checkout, committed or not, as a repository, from which some stages clone.
carry_checkout() {
    mkdir -p "$FRESH$CHECKOUT"
    git -C "$ROOT" ls-files -z --cached --others --exclude-standard |
        tar -C "$ROOT" --null --ignore-failed-read -T - -cf - |
        tar -C "$FRESH$CHECKOUT" --no-same-owner -xf -
    git -C "$FRESH$CHECKOUT" init -q
    git -C "$FRESH$CHECKOUT" add -A
    git -C "$FRESH$CHECKOUT" -c user.name=fresh -c user.email=fresh@localhost commit -qm checkout
}

make_root() {
    local from
    from=$(mirror)
    [ -n "$from" ] || fail "apt's sources name no mirror of $HERE"
    echo "fresh.sh: making a minimal Debian ($RELEASE) in ${FRESH#"$ROOT"/} (about a minute)"
    rm -rf --one-file-system "$FRESH"
    mkdir -p "$FRESH"
    debootstrap --variant=minbase "$RELEASE" "$FRESH" "$from" >"$FRESH.log" 2>&1 ||
        { tail -n 5 "$FRESH.log" >&2; fail "debootstrap failed (whole log: $FRESH.log)"; }
    carry_apt
    carry_checkout
}

# inside COMMAND...: in the new root, in an environment made of nothing but the proxies.
inside() {
    local name proxies=()
    for name in http_proxy https_proxy no_proxy; do
        [ -z "${!name:-}" ] || proxies+=("$name=${!name}")
    done
    printf '\nfresh.sh: ==== %s\n' "$*"
    env --default-signal=INT,QUIT -i "${proxies[@]}" HOME=/root TERM=dumb LANG=C.UTF-8 \
        PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
        chroot "$FRESH" sh -c "cd $CHECKOUT && exec \"\$@\"" sh "$@"
}

# readme_lines SECTION: the commands of its blocks.
readme_lines() {
    awk -v section="## $1" '/^## / { on = $0 == section } on && /^```/ { code = !code; next }
        on && code && NF' "$ROOT/README.md"
}

# run_lines SECTION: each line alone, by the shell, where "..." is the path that a line above has in full. Programs that
# a line links are run, too; if hakmem serves a program, it must say so.
run_lines() {
    local line verbose ran=0
    while IFS= read -r line <&4; do
        verbose=
        line=${line//LD_PRELOAD=... /LD_PRELOAD=\$PWD/build/src/libhakmem.so }
        case $line in
            cc\ *) line="${line%%#*} && ./a.out" verbose=1 ;;
            *LD_PRELOAD=*) verbose=1 ;;
        esac
        inside timeout "$LINE_SECONDS" env ${verbose:+HAKMEM_VERBOSE=1} sh -c "$line" </dev/null >"$FRESH.line" 2>&1 ||
            { cat "$FRESH.line" >&2; fail "README, $1: failed: $line"; }
        cat "$FRESH.line"
        [ -z "$verbose" ] || grep -q '^hakmem[: ]' "$FRESH.line" || fail "README, $1: hakmem did not serve: $line"
        ran=$((ran + 1))
    done 4< <(readme_lines "$1")
    [ "$ran" -gt 0 ] || fail "README has no commands in \"$1\""
}

# The program that README calls "program".
write_program() {
    printf '%s\n' '#include <stdio.h>' '#include <stdlib.h>' \
        'int main(void) { char *p = malloc(100); return snprintf(p, 100, "%d", 7) == 1 ? free(p), 0 : 1; }' \
        >"$FRESH$CHECKOUT/program.c"
    inside cc -o /usr/local/bin/program program.c
}

run_readme() {
    inside tools/setup.sh build
    inside sh -c 'meson setup build && ninja -C build'
    write_program
    run_lines Use
    run_lines Compare
}

# run_docker: executes tools/docker/Dockerfile line by line: COPY is done here, both stages in one root. The service
# answers and says that hakmem serves it.
run_docker() {
    local line
    inside ln -s "$CHECKOUT" /src
    while IFS= read -r line <&4; do
        case $line in
            RUN\ *) inside sh -c "cd /src && ${line#RUN }" ;;
            COPY\ --from*) inside cp "$(awk '{ print $3 }' <<<"$line")" "$(awk '{ print $4 }' <<<"$line")" ;;
            ENV\ *) printf 'export %s\n' "${line#ENV }" >"$FRESH/tmp/service" ;;
            CMD\ *) printf 'exec %s\n' "$(sed 's/^CMD \[//; s/\]$//; s/, / /g' <<<"$line")" >>"$FRESH/tmp/service" ;;
        esac
    done 4<"$ROOT/tools/docker/Dockerfile"
    inside sh -ec 'sh /tmp/service >/tmp/said 2>&1 & for i in 1 2 3 4 5 6 7 8 9 10; do
            redis-cli ping && break; sleep 1; done
        redis-cli info memory | grep ^used_memory_human; redis-cli config get protected-mode | grep yes
        redis-cli shutdown nosave; wait
        grep "^hakmem: version" /tmp/said'
}

run_deb() {
    inside apt-get update
    inside apt-get install -y --no-install-recommends dpkg-dev lintian
    inside apt-get build-dep -y --no-install-recommends .
    inside tools/deb.sh try
    run_docker
}

# Its Meson is too old; this machine's consists of Python alone, and serves there.
run_old() {
    local meson='PYTHONPATH=/opt python3 -m mesonbuild.mesonmain'
    inside apt-get update
    inside apt-get install -y --no-install-recommends gcc libc6-dev ninja-build pkg-config libcmocka-dev \
        python3-distutils
    cp -rL "$(/usr/bin/python3 -c 'import mesonbuild; print(mesonbuild.__path__[0])')" "$FRESH/opt/"
    inside sh -c "$meson setup build -Dbench=false"
    inside sh -c "$meson test -C build --timeout-multiplier 3 --suite unit --suite api --suite misuse --suite limits \
        --no-suite second"
}

# Runs in the namespaces: the first process of its own, so that all others end with it.
run_commands() {
    make_root
    mount -t proc proc "$FRESH/proc"
    mount --rbind /sys "$FRESH/sys"
    mount --rbind /dev "$FRESH/dev"
    if [ -n "$WHAT" ]; then
        "run_$WHAT"
        return
    fi
    inside tools/quickstart.sh --help
    inside tools/test.sh --help
    inside sh -c '! command -v gcc' || fail "--help installed something"
    inside tools/quickstart.sh "/root/a build"
    inside tools/test.sh "$@"
}

if [ "${ARGUMENTS[0]:-}" = --in-namespace ]; then
    run_commands "$@"
    exit
fi
[ "$(id -u)" -eq 0 ] || fail "run it as root: it makes a root directory and mounts into it"
command -v debootstrap >/dev/null || fail "install debootstrap"
began=$SECONDS
# unshare ignores termination signals, and so does the first process of a namespace; this ends both.
trap 'kill -KILL "$namespace"; exit 1' INT TERM
unshare --mount --pid --fork --kill-child "$0" --in-namespace "${ARGUMENTS[@]}" &
namespace=$!
wait "$namespace" ||
    fail "FAILED after $((SECONDS - began)) s; the machine is kept: chroot $FRESH"
rm -rf --one-file-system "$FRESH"
echo "fresh.sh: all commands passed on a fresh Debian, $((SECONDS - began)) s"
