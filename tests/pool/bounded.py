#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Memory that stays bounded: constant during the work, and back to the initial amount afterwards.

  PYTHONPATH=tests bounded.py LIBRARY BENCH_DIR prodcons|threads KIND AMOUNT [--long]
  PYTHONPATH=tests bounded.py LIBRARY BENCH_DIR burst KIND MIB same|other

prodcons, threads: bench_footprint samples the resident set ten times; the last three may not all be beyond the first
three by more than two pool chunks and the live blocks between producer and consumer: how many threads run at a time
decides how many chunks and blocks there are. A part must return to the kernel in the end.
burst: at most 5 % of the burst is held in the end.
"""
import json
import os
import re
import sys
import tempfile
from pathlib import Path

import tracing
from common import finish, skip

SLACK_KIB, CHUNK_KIB = 1024, 8192
FULL_RING_KIB = {"small": 600, "mixed": 1000, "pool": 31000}  # 1024 blocks
IDLE_MS = 2000


def run(library, command):
    """({key: value} of the program's line, statistics)."""
    with tempfile.TemporaryDirectory() as folder:
        stats = Path(folder) / "stats"
        ended = tracing.run(library, command, {"HAKMEM_STATS": "json", "HAKMEM_STATS_FILE": stats})
        if ended.returncode or "allocator=hakmem" not in ended.stdout:
            sys.exit(f"{command}: {ended.returncode}\n{ended.stdout}{ended.stderr}")
        return dict(re.findall(r"(\w+)=(\S+)", ended.stdout)), json.loads(stats.read_text())


def check_flat(fields, live_kib, problems):
    samples = [int(kib) for kib in fields["rss_kib"].split(",")]
    limit = max(samples[:3]) + 2 * CHUNK_KIB + live_kib
    if min(samples[-3:]) > limit:  # a single one depends on which threads run
        problems.append(f"resident memory grows: {samples} KiB, the limit is {limit}")
    held, before = int(fields["rss_after_kib"]), int(fields["rss_before_kib"])
    if held > before + max(samples) * 3 // 4 + SLACK_KIB:
        problems.append(f"{held} KiB held in the end, {before} before the work, at most {max(samples)} in between")
    return f"{samples} KiB, {held} after idleness"


def check_burst(fields, mib, problems):
    before, full, after = (int(fields[f"rss_{name}_kib"]) for name in ("before", "full", "after"))
    if full - before < mib * 1024:
        problems.append(f"no burst: {before} to {full} KiB")
    if after - before > mib * 1024 // 20:
        problems.append(f"{after - before} KiB above the level before a burst of {mib} MiB, more than 5 %")
    return f"{before} KiB before, {full} full, {after} after"


def check_slabs(stats, problems):
    """All was freed: allocated blocks are in bins, and the conservation laws hold."""
    laws = stats["conservation"]
    if laws["violations"] or laws["large_spans"] or laws["remote_blocks"] > laws["allocated_blocks"]:
        problems.append(f"slabs: {laws}")


def main():
    library, bench_dir, workload, kind, amount = sys.argv[1:6]
    if "--long" in sys.argv and os.environ.get("STRESS_LONG") != "1":
        skip("the long ones run with STRESS_LONG=1")
    problems = []
    if workload == "burst":
        command = [f"{bench_dir}/bench_burst_idle", kind, amount, sys.argv[6], IDLE_MS, 42]
        fields, stats = run(library, command)
        summary = check_burst(fields, int(amount), problems)
    else:
        fields, stats = run(library, [f"{bench_dir}/bench_footprint", workload, kind, amount, IDLE_MS, 42])
        summary = check_flat(fields, FULL_RING_KIB[kind] if workload == "prodcons" else 0, problems)
    check_slabs(stats, problems)
    finish(problems, summary)


if __name__ == "__main__":
    main()
