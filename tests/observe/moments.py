#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Live bytes and reasons add up to what the kernel counts as resident, at ten moments of a program.

  PYTHONPATH=tests:tools/hakmem moments.py LIBRARY PROGRAM small|large

PROGRAM prints its process id at each moment and waits. The sum of the workbench's figures, read from outside, must be
the Rss of the library's mappings in smaps, to the page. With `small` frontends half of the small blocks are freed at
one moment, and must not count as the program's.
"""
import os
import re
import subprocess
import sys
from pathlib import Path

from common import finish, skip
from hakmem_workbench import inspection
from hakmem_workbench.errors import Problem


def rss(heap):
    """The mappings within the library's ranges. The kernel may have merged one with a neighbour: then it has no figure
    of its own."""
    total = merged = 0
    for one in inspection.mappings(heap.pid):
        parts = [(max(a, one.start), min(b, one.end)) for a, b in heap.ranges if a < one.end and b > one.start]
        if sum(b - a for a, b in parts) == one.end - one.start:
            total += one.resident
        elif parts:
            merged += sum(b - a for a, b in parts)
    return total, merged


def settle(pid):
    """Waits until no thread of the program runs: after it prints, it still allocates until it waits for a line."""
    before, now = None, ""
    while now != before or re.search(r"^State:\t[RD]", now, re.M):
        before, now = now, "".join(task.read_text() for task in Path(f"/proc/{pid}/task").glob("*/status"))


def check(heap, moment, problems):
    total, merged = rss(heap)
    seen = heap.live_resident + sum(heap.kept.values())
    if seen != heap.resident:
        problems.append(f"{moment}: resident live and reasons are {seen}, the resident pages {heap.resident}")
    if not total <= heap.resident <= total + merged:
        problems.append(f"{moment}: resident are {heap.resident}, smaps has {total} "
                        f"and at most {merged} in merged mappings")
    if min([heap.live - heap.live_resident, heap.live_resident, *heap.kept.values()]) < 0:
        problems.append(f"{moment}: {heap.live} live, {heap.live_resident} of it resident, {heap.kept}")


def main():
    library, program, sizes = sys.argv[1:]
    problems, live, sparse = [], {}, {}
    with subprocess.Popen([sys.executable, program], env={**os.environ, "LD_PRELOAD": library, "HAKMEM_STATS": "0"},
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        for line in process.stdout:
            pid, _, moment = line.strip().partition(" ")
            settle(pid)
            try:
                heap = inspection.look(int(pid))
            except Problem as problem:
                if "can't be read" in problem.line:
                    process.kill()
                    skip(problem.line)
                raise
            check(heap, moment, problems)
            live[moment], sparse[moment] = heap.live, heap.kept.get("sparse", 0)
            if heap.threads < (5 if moment == "four threads" else 1) or not heap.heaps:
                problems.append(f"{moment}: {heap.threads} threads and {heap.heaps} heaps are known")
            process.stdin.write("\n")
            process.stdin.flush()
    if process.returncode or len(live) != 10:
        problems.append(f"the program ended with {process.returncode} after {len(live)} moments")
    elif sizes == "small":
        deleted = live["20000 blocks"] - live["every second deleted"]
        if not 9_000_000 < deleted < 13_000_000:
            problems.append(f"10000 blocks of 1 KB were deleted, live bytes fell by {deleted}")
        if sparse["every second deleted"] < 8_000_000:
            problems.append(f"10000 of 20000 blocks are free, and sparse slabs have {sparse['every second deleted']}")
    finish(problems, f"{len(live)} moments: live and reasons equal Rss")


if __name__ == "__main__":
    main()
