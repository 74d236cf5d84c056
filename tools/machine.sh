#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# The library on a machine with other CPUs than this one: qemu emulates it and boots Debian's cloud kernel; the stress
# test checks contents while CPUs go offline and come back, and while its affinity and its cpuset change.
#
#   tools/machine.sh [CPUS [NODES [MESON_OPTION]...]]    default: 64 CPUs on 4 NUMA nodes, and a default build
#
# Needs qemu-system-x86, busybox-static, cpio, apt's mirror and 3 GiB of memory. The kernel is unpacked into
# build-test/machine; nothing is installed. Emulation is some 50 times slower than this machine: 64 CPUs take some
# minutes. Each test prints one line; the last line is "N passed, N failed", and the exit status follows it.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/usage.sh"
for word in "$@"; do
    [[ $word == -D* ]] || usage "" "$word"
done

readonly ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
readonly CPUS=${1:-64} NODES=${2:-4} OUT=$ROOT/build-test/machine
readonly MEMORY=2048 # MiB
# To the kernel, which measures nothing here, since time is slow.
readonly PATIENT="nosoftlockup no_timer_check lpj=4000000 tsc=reliable rcupdate.rcu_cpu_stall_suppress=1"
readonly LOG=$OUT/console-$CPUS.log
readonly SECONDS_MOST=$((3600 + 30 * CPUS)) # of all; a loaded machine may need ten times as long as a quiet one

fail() {
    echo "machine.sh: $*" >&2
    exit 1
}

get_kernel() {
    [ ! -f "$OUT/vmlinuz" ] || return 0
    unpack_kernel >"$OUT/kernel.log" 2>&1 || fail "no kernel: $OUT/kernel.log"
}

unpack_kernel() {
    local package
    package=$(apt-cache depends linux-image-cloud-amd64 | awk '$1 == "Depends:" { print $2; exit }')
    rm -f "$OUT/$package"_*.deb
    (cd "$OUT" && apt-get -q download "$package") &&
        dpkg-deb --fsys-tarfile "$OUT/$package"_*.deb | tar -xO --wildcards './boot/vmlinuz-*' >"$OUT/vmlinuz.new" &&
        mv "$OUT/vmlinuz.new" "$OUT/vmlinuz"
}

build() {
    local reconfigure=()
    [ ! -f "$OUT/build/build.ninja" ] || reconfigure=(--wipe)
    { meson setup "${reconfigure[@]}" "$OUT/build" "$ROOT" -Dbench=false "$@" &&
        ninja -C "$OUT/build" tests/stress/stress_shared tests/limits/limits_overcommit; } >"$OUT/build.log" 2>&1 ||
        fail "the build failed: $OUT/build.log"
}

# What the emulated machine runs as its first program.
write_init() {
    cat <<'INIT'
#!/bin/sh
export PATH=/bin LD_LIBRARY_PATH=/lib
passed=0 failed=0
mkdir -p /proc /sys /dev /tmp
mount -t proc none /proc
mount -t sysfs none /sys
mount -t devtmpfs none /dev
mount -t tmpfs none /tmp
mount -t cgroup2 none /sys/fs/cgroup
echo "+cpuset +cpu" >/sys/fs/cgroup/cgroup.subtree_control
mkdir /sys/fs/cgroup/test
group=/sys/fs/cgroup/test system=/sys/devices/system
last=$(($(nproc) - 1))

# expect NAME COMMAND...
expect() {
    name=$1
    shift
    timeout 600 "$@" >/tmp/log 2>&1
    status=$?
    if [ $status -eq 0 ]; then
        passed=$((passed + 1))
        echo "ok      $name"
    else
        failed=$((failed + 1))
        echo "FAILED  $name: status $status"
        tail -n 20 /tmp/log
    fi
}

# The same while `disturb N` runs again and again, N from 0.
expect_while() {
    rm -f /tmp/ended
    (n=0; while [ ! -e /tmp/ended ]; do disturb $n; n=$((n + 1)); echo $n >/tmp/disturbed; done) 2>/dev/null &
    expect "$@"
    touch /tmp/ended
    wait
    echo "        disturbed $(cat /tmp/disturbed) times"
}

nodes=$(ls -d $system/node/node[0-9]* | wc -l)
expect "$((last + 1)) CPUs on $nodes nodes" [ "$((last + 1)) $nodes" = "@CPUS@ @NODES@" ]
expect "stress" stress_shared 4 4000 1
expect "stress, as many lanes as 16 CPUs have" stress_shared 16 8000 2
expect "stress, without restartable sequences" env GLIBC_TUNABLES=glibc.pthread.rseq=0 stress_shared 4 4000 3

disturb() {
    cpu=$system/cpu/cpu$((1 + $1 * 7 % last))/online
    echo 0 >$cpu
    sleep 0.1
    echo 1 >$cpu
}
expect_while "stress, CPUs go offline and come back" stress_shared 8 8000 4

switch_odd() {
    for cpu in $(seq 1 2 $last); do
        [ $cpu -gt 32 ] || echo $1 >$system/cpu/cpu$cpu/online
    done
}
switch_odd 0
expect "stress, ids without a CPU" stress_shared 8 4000 5
switch_odd 1

disturb() {
    taskset -ap $(printf %x $((1 << $1 % (last < 62 ? last + 1 : 62)))) $(pidof stress_shared) >/dev/null
    sleep 0.1
}
expect_while "stress, its affinity changes" stress_shared 8 8000 6

disturb() {
    echo $(($1 * 5 % (last + 1)))-$last >$group/cpuset.cpus
    sleep 0.1
    echo $(($1 * 3 % (last + 1))) >$group/cpuset.cpus
    sleep 0.1
}
echo 0-$last >$group/cpuset.cpus
expect_while "stress, its cpuset changes" in_group stress_shared 8 8000 7
echo 0-$last >$group/cpuset.cpus

echo "50000 100000" >$group/cpu.max
expect "stress, half a CPU's time" in_group stress_shared 8 4000 8
echo max >$group/cpu.max

echo 400 >/proc/sys/vm/overcommit_ratio # the test wants 2 GiB that may be committed
expect "no overcommit" env TEST_MACHINE=1 limits_overcommit
echo "$passed passed, $failed failed"
poweroff -f
INIT
}

# The programs, and the libraries that they load.
write_initramfs() {
    local tree=$OUT/tree program library applet
    rm -rf "$tree"
    mkdir -p "$tree/bin" "$tree/lib" "$tree/lib64"
    cp "$(command -v busybox)" "$tree/bin/"
    for applet in $("$tree/bin/busybox" --list); do
        [ "$applet" = busybox ] || ln -s busybox "$tree/bin/$applet"
    done
    for program in "$OUT"/build/tests/stress/stress_shared "$OUT"/build/tests/limits/limits_overcommit; do
        cp "$program" "$tree/bin/"
        for library in $(ldd "$program" | grep -o '/[^ ]*'); do
            case $library in
                */ld-linux*) cp -L "$library" "$tree/lib64/" ;;
                *) cp -L "$library" "$tree/lib/" ;;
            esac
        done
    done
    write_init | sed "s/@CPUS@/$CPUS/; s/@NODES@/$NODES/" >"$tree/init"
    printf '%s\n' '#!/bin/sh' 'echo 0 >/sys/fs/cgroup/test/cgroup.procs' 'exec "$@"' >"$tree/bin/in_group"
    chmod +x "$tree/init" "$tree/bin/in_group"
    (cd "$tree" && find . | cpio -o -H newc --quiet | gzip -1) >"$OUT/initramfs"
}

boot() {
    local nodes=() node first=0 next
    for ((node = 0; node < NODES; node++, first = next)); do
        next=$((CPUS * (node + 1) / NODES))
        nodes+=(-object "memory-backend-ram,id=m$node,size=$((MEMORY / NODES))M"
            -numa "node,nodeid=$node,cpus=$first-$((next - 1)),memdev=m$node")
    done
    nice timeout "$SECONDS_MOST" qemu-system-x86_64 -accel tcg,thread=single -cpu max -smp "$CPUS,sockets=$CPUS" \
        -m $((MEMORY / NODES * NODES)) "${nodes[@]}" -nographic -no-reboot -nic none \
        -kernel "$OUT/vmlinuz" -initrd "$OUT/initramfs" \
        -append "console=ttyS0 panic=-1 quiet $PATIENT" </dev/null
}

command -v qemu-system-x86_64 >/dev/null || fail "no qemu-system-x86_64: apt-get install qemu-system-x86"
mkdir -p "$OUT"
get_kernel
build "${@:3}"
write_initramfs
boot | tee "$LOG" | tr -d '\r' | grep --line-buffered -aE '^(ok|FAILED|  )|[0-9]+ passed, [0-9]+ failed' || true
grep -aq ' passed, 0 failed' "$LOG" || fail "not all tests passed: $LOG"
