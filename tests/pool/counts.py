#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Memory calls of the pool's benchmarks, counted by strace: bounded, and not more for more work.

  PYTHONPATH=tests counts.py LIBRARY BENCH_DIR
"""
import sys
from pathlib import Path

import tracing
from common import finish

# For the whole process with one thread, including loader and C library. Each further thread may cost a stack and its
# guard.
LIMITS = {"mmap": 19, "munmap": 2, "mprotect": 7, "mremap": 0}
PER_THREAD = {"mmap": 1, "mprotect": 1}
# The library's own purges: none is needed, but idle pages may be purged. strace makes the program slow, so the delay is
# longer.
SETTINGS = {"HAKMEM_PURGE_DELAY_MS": 500}
RELEASES = ("madvise", "process_madvise")
MOST_RELEASES = 60


def check(name, threads, calls, own, problems):
    for call, limit in LIMITS.items():
        limit += PER_THREAD.get(call, 0) * threads
        if calls[call] > limit:
            problems.append(f"{name}: {calls[call]} {call}, more than {limit}")
    if sum(own[call] for call in RELEASES) > MOST_RELEASES:
        problems.append(f"{name}: releases { {call: own[call] for call in RELEASES} }, more than {MOST_RELEASES}")


def main():
    library, bench_dir = sys.argv[1], Path(sys.argv[2])
    problems, lines = [], []
    for program in "pool_tls", "mid_large_mt":
        for threads in 1, 4:
            seen = []
            for cycles in 40_000, 400_000:
                name = f"{program} {threads} {cycles} 256 42"
                process = tracing.trace(library, [bench_dir / f"bench_{program}", threads, cycles, 256, 42],
                                        SETTINGS)[0]
                check(name, threads, process.all, process.own, problems)
                seen.append(process.all)
                lines.append(f"{name}: " + ", ".join(f"{call} {process.all[call]}" for call in tracing.CALLS
                                                     if process.all[call]))
            once, tenfold = (sum(calls[call] for call in LIMITS) for calls in seen)
            if tenfold > once + threads:
                problems.append(f"{program} with {threads} threads: {once} mapping calls, "
                                f"{tenfold} at ten times the cycles")
    finish(problems, "\n".join(lines))


if __name__ == "__main__":
    main()
