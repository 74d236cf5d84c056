#!/bin/sh
# SPDX-License-Identifier: MIT
# idle_postgres.sh POSTGRES LINES: 8 backends of a PostgreSQL server sort LINES each, some 100 bytes of memory for a
# line, and wait. Prints the private MiB of all processes of the server when it started, and a second after the last one
# was done. The allocator is the one of LD_PRELOAD. The server refuses to run as root; then it runs as the user nobody.
set -eu
. "$(dirname "$0")/../tools/usage.sh"
usage "" "$@"
programs=$(dirname "$1")
library=${LD_PRELOAD:-}
unset LD_PRELOAD
folder=$(mktemp -d)
user=
if [ "$(id -u)" = 0 ]; then
    user="setpriv --reuid=nobody --regid=nogroup --clear-groups --"
    chown nobody "$folder"
fi
if [ -n "$library" ]; then # where it lies that user may not read
    cp "$library" "$folder/preloaded.so"
    chmod 755 "$folder/preloaded.so"
fi
$user "$programs/initdb" -D "$folder/data" -A trust -U sorter -N > /dev/null
LD_PRELOAD=${library:+$folder/preloaded.so} $user "$programs/postgres" -D "$folder/data" -k "$folder" \
    -c listen_addresses= -c work_mem=1GB -c shared_buffers=16MB -c max_parallel_workers_per_gather=0 -c jit=off \
    2> /dev/null &
server=$!
trap 'kill -INT $server; wait $server || true; rm -rf "$folder"' EXIT

private() {
    cat $(pgrep -P "$server" | sed "s|.*|/proc/&/smaps_rollup|") "/proc/$server/smaps_rollup" |
        awk '/^Pss_Anon:/ { sum += $2 } END { printf "%.1f", sum / 1024 }'
}

ask() {
    "$programs/psql" -h "$folder" -U sorter -q -d postgres "$@"
}

for _ in $(seq 100); do
    ask -c 'select 1' > /dev/null 2>&1 && break
    sleep 0.05
done
start=$(private)
sort="select count(*) from (select md5(i::text) as m from generate_series(1, $2) as i order by m offset 1) as sorted"
waiting="select count(*) from pg_stat_activity where state = 'active' and query = 'select pg_sleep(60)'"
for _ in 1 2 3 4 5 6 7 8; do
    ask -c "$sort" -c 'select pg_sleep(60)' > /dev/null 2>&1 &
done
until [ "$(ask -A -t -c "$waiting")" = 8 ]; do
    sleep 0.1
done
sleep 1
echo "idle_postgres: start_mib=$start idle_mib=$(private) "
