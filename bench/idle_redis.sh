#!/bin/sh
# SPDX-License-Identifier: MIT
# idle_redis.sh FOLDER N: a redis-server stores N values of 200 bytes, and then deletes them all (FLUSHALL). Prints its
# resident MiB after its start, when it was full, and after an idle second, in which only its own timer ran. The
# allocator is the one of LD_PRELOAD; the clients use the system's.
set -eu
. "$(dirname "$0")/../tools/usage.sh"
usage "" "$@"
socket=$1/redis.sock
redis-server --port 0 --unixsocket "$socket" --save '' --appendonly no --dir "$1" > /dev/null &
server=$!
unset LD_PRELOAD
trap 'kill $server' EXIT

resident() {
    awk '/^VmRSS:/ { printf "%.1f", $2 / 1024 }' "/proc/$server/status"
}

for _ in $(seq 100); do
    test -S "$socket" && break
    sleep 0.05
done
start=$(resident)
redis-benchmark -s "$socket" -q -n "$2" -r "$2" -P 32 -d 200 -t set > /dev/null
full=$(resident)
redis-cli -s "$socket" flushall > /dev/null
sleep 1.2
echo "idle_redis: start_mib=$start full_mib=$full idle_mib=$(resident) "
