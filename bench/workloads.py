# SPDX-License-Identifier: MIT
"""The workloads that run.py measures: one table, first the synthetic ones, then real programs.

A command is written as one line. Its first word is a program of bench/ (without the prefix
"bench_") or one found in $PATH; {N} is an amount of work, {Nms} a time, see SCALES.
"""
import re
import shlex
import shutil
import sys
from dataclasses import dataclass, field
from pathlib import Path

# Divisors for amounts of work and times. "smoke" shows that a workload runs; its figures mean nothing.
SCALES = {"full": (1, 1), "quick": (4, 1), "smoke": (500, 20)}


@dataclass(frozen=True)
class Workload:
    name: str
    command: str
    repeat: int = 1             # processes in one sample, run one after the other
    own_time: bool = False      # time as printed by the program, where it also idles
    env: dict = field(default_factory=dict)
    links_allocator: bool = False   # so the system's malloc must be preloaded too
    figures: tuple = ()         # what service.py shows: names in the program's line; the less the better


OWN = [
    Workload("random_mixed_400", "random_mixed {10000000} 400 1"),
    Workload("random_mixed_8192", "random_mixed {10000000} 8192 42"),
    Workload("random_mixed_100k", "random_mixed {5000000} 100000 42"),
    Workload("random_mixed_processes", "random_mixed 100000 256 42", repeat=200),
    Workload("startup_true", "/bin/true", repeat=400),
    Workload("fixed_16", "fixed_size {10000000} 16 42 256"),
    Workload("fixed_64", "fixed_size {10000000} 64 42 256"),
    Workload("fixed_256", "fixed_size {10000000} 256 42 256"),
    Workload("fixed_1024", "fixed_size {10000000} 1024 42 256"),
    Workload("fixed_4096", "fixed_size {5000000} 4096 42 256"),
    Workload("mid_large_1", "mid_large_mt 1 {1000000} 256 42"),
    Workload("mid_large_2", "mid_large_mt 2 {1000000} 256 42"),
    Workload("mid_large_2_ws32", "mid_large_mt 2 {1000000} 32 42"),
    Workload("pool_tls_1", "pool_tls 1 {1000000} 256 42"),
    Workload("pool_tls_2", "pool_tls 2 {1000000} 256 42"),
    Workload("pool_tls_2_ws32", "pool_tls 2 {1000000} 32 42"),
    Workload("pool_tls_4", "pool_tls 4 {500000} 256 42"),
    Workload("independent_2", "remote 2 {4000000} 1000 0 42"),
    Workload("remote_10", "remote 2 {3000000} 1000 10 42"),
    Workload("remote_50", "remote 2 {2000000} 1000 50 42"),
    Workload("remote_90", "remote 2 {2000000} 1000 90 42"),
    Workload("larson_1", "larson --ops {8000000} 8 1000 5000 100 4141 1"),
    Workload("larson_2", "larson --ops {8000000} 8 1000 5000 100 4141 2"),
    Workload("larson_exit_1", "larson --ops {4000000} 8 128 1024 1 12345 1"),
    Workload("larson_exit_2", "larson --ops {4000000} 8 128 1024 1 12345 2"),
    Workload("larson_exit_4", "larson --ops {4000000} 8 128 1024 1 12345 4"),
    Workload("large", "large {4000} 64 42"),
    Workload("large_grow", "large --grow 1"),
    Workload("large_replace", "large --replace {600} 20 5120 25600 42"),
    Workload("large_replace_58", "large --replace {400} 20 1000 56640 42"),
    Workload("large_turns_2", "large --turns {10} 2 100000 0 29296"),
    Workload("large_turns_32", "large --turns {10} 32 65536 0 1024"),
    Workload("large_element", "large --turns {4} 1 8 0 23437"),
    Workload("large_percent_50", "large --turns {10} 32 4096 50 3906"),
    Workload("large_percent_100", "large --turns {10} 32 4096 100 3906"),
    Workload("short_threads", "short_threads {16000} 200 4 42"),
    Workload("grow_shrink", "grow_shrink 50000 {20} 42"),
    Workload("bulk_order", "bulk 1 20000 {60} order 42"),
    Workload("bulk_reverse", "bulk 1 20000 {60} reverse 42"),
    Workload("bulk_random", "bulk 1 20000 {60} random 42"),
    Workload("bulk_2", "bulk 2 20000 {40} random 42"),
    Workload("destroy_ended", "destroy ended {1000000} 3 42", own_time=True),
    Workload("destroy_waiting", "destroy waiting {1000000} 3 42", own_time=True),
    Workload("destroy_same", "destroy same {1000000} 3 42", own_time=True),
    Workload("prodcons", "prodcons 1 {3000000} 4096 42"),
    Workload("cache_active", "cache_thrash active 2 {60000} 8 2000"),
    Workload("cache_passive", "cache_thrash passive 2 {60000} 8 2000"),
    Workload("realloc_mix", "realloc_mix {4000000} 1000 42"),
    Workload("burst_small", "burst_idle small {512} same 1000 42", own_time=True),
    Workload("burst_mixed_other", "burst_idle mixed {512} other 1000 42", own_time=True),
]

# For memory.py: the peak, and the memory left after idleness and a few small pairs.
MEMORY = [
    Workload("prodcons_small", "footprint prodcons small {8000} 2000 42"),
    Workload("prodcons_pool", "footprint prodcons pool {8000} 2000 42"),
    Workload("prodcons_mixed", "footprint prodcons mixed {8000} 2000 42"),
    Workload("threads_mixed", "footprint threads mixed {10000} 2000 42"),
    Workload("threads_pool", "footprint threads pool {10000} 2000 42"),
    *(Workload(f"burst_{kind}_{freed_by}", f"burst_idle {kind} {{512}} {freed_by} 2000 42")
      for kind in ("small", "pool", "large", "mixed") for freed_by in ("same", "other")),
]

LATENCY_FIGURES = tuple(f"{call}_{quantile}_ns" for call in ("malloc", "free")
                        for quantile in ("p50", "p99", "p999", "p9999", "worst"))
PHASES_FIGURES = ("cpu_s", "mean_mib", "quiet_mib", "peak_mib")
ALIGNED = [(16, 64), (32, 96), (64, 64), (64, 256), (256, 1024), (4096, 4096), (4096, 65536)]

HERE = Path(__file__).resolve().parent

# What programs call beside malloc and free (decision 0061), each at sizes that they ask for.
CALLS = [Workload(f"{call}_{size}", f"calls {call} {size} {{{20000000 if size < 10000 else 1000000}}} 256")
         for call, sizes in {
             "calloc": (64, 1000), "realloc_grow": (64, 1000), "realloc_same": (64, 100000), "aligned": (64, 1000),
             "usable": (24, 1000), "free_null": (64,), "new_sized": (64,), "new_aligned": (256,), "mallinfo": (64,),
             "trim": (64,)}.items()
         for size in sizes]

# Debian does not install it in a folder of $PATH.
POSTGRES = next((str(path) for path in sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"), reverse=True)),
                "postgres")


def idle_programs():
    """Servers that worked and wait."""
    return [
        Workload("idle_redis", shlex.join(["sh", str(HERE / "idle_redis.sh"), "SCRATCH", "{300000}"]),
                 links_allocator=True, figures=("start_mib", "full_mib", "idle_mib")),
        Workload("idle_postgres", shlex.join(["sh", str(HERE / "idle_postgres.sh"), POSTGRES, "{600000}"]),
                 figures=("start_mib", "idle_mib")),
    ]


# For service.py: a long-lived process.
SERVICE = [
    Workload("phases_1", "phases 1 {3000000} {2000ms} 42", figures=PHASES_FIGURES),
    Workload("phases_2", "phases 2 {3000000} {2000ms} 42", figures=PHASES_FIGURES),
    Workload("phases_short_2", "phases 2 {750000} 0 42", figures=PHASES_FIGURES),
    Workload("pinned", "pinned {350} 256 50 {200}", figures=("held_mib", "again_mib", "peak_mib")),
    Workload("idle_threads", "idle_threads small {1000} {1000ms} no 42", figures=("kib_each", "ended_mib")),
    Workload("idle_threads_brief", "idle_threads small {1000} {100ms} no 42", figures=("kib_each", "ended_mib")),
    Workload("idle_threads_classes", "idle_threads classes {100} {1000ms} trim 42", figures=("kib_each", "ended_mib")),
    Workload("idle_process", "idle_process {100} 4096 {4000ms}", figures=("freed_mib", "idle_mib")),
    Workload("sweep", "sweep {40000} 1024 {300} 42", figures=("before_percent", "after_percent", "held_mib")),
    Workload("latency_1", "latency steady 1 {4000000} 20000 0", figures=LATENCY_FIGURES),
    Workload("latency_2", "latency steady 2 {4000000} 20000 20", figures=LATENCY_FIGURES),
    Workload("latency_16", "latency steady 16 {500000} 20000 20", figures=LATENCY_FIGURES),
    Workload("latency_large_2", "latency steady 2 {1000000} 2000000 20", figures=LATENCY_FIGURES),
    Workload("latency_bursts_2", "latency bursts 2 {2000000} 20000 20", figures=LATENCY_FIGURES),
    Workload("latency_purge_1", "latency purge 1 {1000000} 20000 0 {4000ms} {1024}", figures=LATENCY_FIGURES),
    *(Workload(f"aligned_{alignment}_{size}", f"aligned {alignment} {size} 256 {{4000}}",
               figures=("aligned_ns", "malloc_ns", "aligned_free_ns", "malloc_free_ns"))
      for alignment, size in ALIGNED),
    *(Workload(f"row_{count}", f"fixed_size --row {{20000000}} 64 42 {count}", figures=("cpu_s",))
      for count in (25, 100, 400, 1600)),
    *idle_programs(),
]

P999_FIGURES = ("cpu_s", "malloc_p999_ns", "free_p999_ns")

# What caches.py compares. Workloads whose name begins with "1 " stay on one CPU.
COMPARED = [
    Workload("1 thread, 64 B", "fixed_size {10000000} 64 42 256", figures=("cpu_s",)),
    Workload("1 thread, mixed sizes", "random_mixed {10000000} 400 1", figures=("cpu_s",)),
    Workload("1 thread, cold frees in order", "bulk 1 20000 {60} order 42", figures=("cpu_s",)),
    Workload("1 thread, cold frees at random", "bulk 1 20000 {60} random 42", figures=("cpu_s",)),
    Workload("1 thread, grow and shrink", "grow_shrink 50000 {20} 42", figures=("cpu_s",)),
    Workload("1 thread, tails", "latency steady 1 {2000000} 20000 0", figures=P999_FIGURES),
    Workload("2 threads, one allocates", "prodcons 1 {3000000} 4096 42", figures=("cpu_s",)),
    Workload("2 threads, half of the frees remote", "remote 2 {2000000} 1000 50 42", figures=("cpu_s",)),
    Workload("2 threads, bursts", "latency bursts 2 {1000000} 20000 20", figures=P999_FIGURES),
    Workload("16 threads", "larson --ops {500000} 8 1000 5000 100 4141 16", figures=("cpu_s",)),
    Workload("16 threads, tails", "latency steady 16 {125000} 20000 20", figures=P999_FIGURES),
    Workload("1000 threads that wait", "idle_threads small 1000 {200ms} no 42", figures=("cpu_s", "kib_each")),
    Workload("the same after a trim", "idle_threads small 1000 {200ms} trim 42", figures=("cpu_s", "kib_each")),
    Workload("100 threads, each class held once", "idle_threads classes 100 {200ms} no 42",
             figures=("cpu_s", "kib_each")),
    Workload("short threads", "short_threads {16000} 200 4 42", figures=("cpu_s",)),
]

# pymalloc would hide the allocator from Python's small objects.
PLAIN_PYTHON = {"PYTHONMALLOC": "malloc", "PYTHONHASHSEED": "0"}

PYTHON_JSON = """
import json
rows = [{"id": i, "name": "row %d" % i, "tags": ["a%d" % (i % 7), "b"], "x": i / 3}
        for i in range(4000)]
for _ in range({6}):
    assert json.loads(json.dumps(rows)) == rows
"""
PYTHON_OBJECTS = """
class Node:
    def __init__(self, key, left):
        self.key = str(key)
        self.left = left
        self.more = [key]
for _ in range({6}):
    nodes = {}
    for i in range(20000):
        nodes[i * 7919 % 20011] = Node(i, nodes.get(i // 2))
"""
SQLITE = """
CREATE TABLE t(id INTEGER PRIMARY KEY, name TEXT, x REAL);
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {60000})
  INSERT INTO t SELECT i, 'name ' || (i * 7919 % 65521), i / 3.0 FROM n;
CREATE INDEX by_name ON t(name);
SELECT count(*), sum(x) FROM t WHERE name LIKE 'name 1%';
SELECT count(*) FROM (SELECT substr(name, 1, 7) AS p, avg(x) FROM t GROUP BY p ORDER BY 2);
DELETE FROM t WHERE id % 3 = 0;
"""
PERL = """
for my $round (1 .. {3}) {
    my %h;
    push @{$h{"key " . ($_ * 7919 % 5003)}}, "value $_" for 1 .. 60000;
    my @sorted = sort { @{$h{$a}} <=> @{$h{$b}} || $a cmp $b } keys %h;
}
"""
# The server's clients use the system's malloc; the peak is that of the larger of both.
REDIS = """
redis-server --port 0 --unixsocket SCRATCH/redis.sock --save '' --appendonly no \
  --dir SCRATCH >/dev/null &
unset LD_PRELOAD
for i in 1 2 3 4 5 6 7 8 9; do test -S SCRATCH/redis.sock && break; sleep 0.05; done
redis-benchmark -s SCRATCH/redis.sock -q -n {60000} -r 20000 -P 16 -d 200 \
  -t set,get,lpush,hset,zadd >/dev/null
redis-cli -s SCRATCH/redis.sock shutdown nosave
wait
"""


def programs():
    """Real programs: their command's text stays one argument."""
    return [
        Workload("python_json", shlex.join([sys.executable, "-S", "-c", PYTHON_JSON]),
                 env=PLAIN_PYTHON),
        Workload("python_objects", shlex.join([sys.executable, "-S", "-c", PYTHON_OBJECTS]),
                 env=PLAIN_PYTHON),
        Workload("sqlite", shlex.join(["sqlite3", ":memory:", SQLITE])),
        Workload("perl", shlex.join(["perl", "-e", PERL])),
        Workload("gcc", "gcc -O2 -c SCRATCH/generated.c -o /dev/null"),
        Workload("redis", shlex.join(["sh", "-c", REDIS]), links_allocator=True),
    ]


# Programs that a workload needs besides the first word of its command.
REDIS_PROGRAMS = ["redis-server", "redis-benchmark", "redis-cli"]
NEEDS = {"redis": REDIS_PROGRAMS, "idle_redis": REDIS_PROGRAMS, "idle_postgres": [POSTGRES, "setpriv"]}


def group(name):
    """The workloads of a group; "all": all except those that have their own script and tables."""
    return {"service": SERVICE, "calls": CALLS}.get(name) or OWN + programs()


def write_inputs(scratch):
    """The files that commands refer to as SCRATCH/…"""
    lines = ["#include <stddef.h>"]
    for i in range(40):
        lines.append(
            f"int f{i}(const int *a, size_t n, int k)\n{{\n    int s = k;\n"
            f"    for (size_t j = 0; j < n; j++)\n"
            f"        s += a[j] * {i + 3} + (s % {i + 2} ? a[n - 1 - j] : k << {i % 7});\n"
            f"    switch (s & 7) {{\n    case 1: return s * {i};\n    case 3: return s ^ k;\n"
            f"    case 6: return s - {i};\n    default: return s;\n    }}\n}}")
    Path(scratch, "generated.c").write_text("\n".join(lines) + "\n")


def command_line(workload, bench_dir, scratch, scale="full"):
    """The words to execute; None if a program is not installed."""
    def amount(match):
        return str(max(1, int(match[1]) // SCALES[scale][match[2] == "ms"]))

    words = [re.sub(r"\{(\d+)(ms)?\}", amount, word).replace("SCRATCH", str(scratch))
             for word in shlex.split(workload.command)]
    own = bench_dir / f"bench_{words[0]}"
    if own.is_file():
        return [str(own), *words[1:]]
    if any(shutil.which(program) is None for program in [words[0], *NEEDS.get(workload.name, [])]):
        return None
    return [shutil.which(words[0]), *words[1:]]
