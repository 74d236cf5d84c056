#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Peak and idle memory beside the leanest of the other allocators.

Each workload (MEMORY in workloads.py) runs under every allocator, one after the other; the tables show
MiB, medians over the repetitions, and how far the first allocator is from the leanest other one.
"Idle" is the resident set 2 s after all was freed, and after 1000 small pairs.

Allocators are written as for run.py; the first is compared with the rest.
"""
import argparse
import random
import re
import statistics
import sys
import tempfile
from pathlib import Path

import run
import tables
import workloads

METRICS = {"peak_kib": "Peak resident memory", "held_kib": "Resident memory after idleness and 1000 pairs"}


def medians(rows, metric):
    """{(workload, allocator): MiB}."""
    values = {}
    for row in rows:
        if row["status"] == "ok":
            values.setdefault((row["workload"], row["allocator"]), []).append(row[metric] / 1024)
    return {key: statistics.median(found) for key, found in values.items()}


def leanest(values, workload, others):
    found = [(values[workload, name], name) for name in others if (workload, name) in values]
    return min(found) if found else None


def table(rows, metric, names, within):
    """The table as text, and the workloads on which the first allocator is beyond `within`."""
    values = medians(rows, metric)
    lines, beyond, ratios = [], [], []
    for workload in dict.fromkeys(row["workload"] for row in rows):
        cells = [f"{values[workload, name]:.1f}" if (workload, name) in values else "fail" for name in names]
        best = leanest(values, workload, names[1:])
        if best and (workload, names[0]) in values:
            ratios.append(values[workload, names[0]] / best[0])
            cells += [f"{ratios[-1]:.2f} of {best[1]}"]
        else:
            cells += ["-"]
        if len(ratios) < len(lines) + 1 or ratios[-1] > within:
            beyond.append(workload)
        lines.append([workload, *cells])
    if ratios:
        lines.append(["geometric mean", *[""] * len(names), f"{tables.geometric_mean(ratios):.2f}"])
    header = ["MiB", *names, "first / leanest"]
    return f"{METRICS[metric]}\n{tables.render(header, lines)}", beyond


def samples(args, scratch):
    build = run.find_build(args.build)
    bench_dir = build / "bench"
    setup = run.Setup(bench_dir, scratch, run.libc_of(bench_dir), args.scale, 300)
    known = run.known_libraries(build)
    allocators = [run.parse_allocator(text, known)
                  for text in args.allocators or ["hakmem", *(p for p in run.PEERS if p in known)]]
    chosen = [(workload, workloads.command_line(workload, bench_dir, scratch, setup.scale))
              for workload in workloads.MEMORY if re.search(args.workloads, workload.name)]
    rows, rng = [], random.Random()
    for _ in range(args.repetitions):
        for workload, command in chosen:
            for allocator in run.shuffled(allocators, rng):
                rows.append(run.measure(workload, command, allocator, setup))
    rows.sort(key=lambda row: [workload.name for workload, _ in chosen].index(row["workload"]))
    return rows, [allocator.name for allocator in allocators]


def read_arguments():
    parser = argparse.ArgumentParser(usage=argparse.SUPPRESS, description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--allocators", nargs="+", metavar="ALLOCATOR", help="the first is compared with the rest")
    parser.add_argument("--workloads", "--works", default="", metavar="REGEX")
    parser.add_argument("-n", dest="repetitions", type=int, default=1)
    parser.add_argument("--quick", action="store_const", dest="scale", const="quick", default="full",
                        help="a quarter of the work")
    parser.add_argument("--build", metavar="DIR", type=Path, help="Meson build directory")
    parser.add_argument("--within", type=float, metavar="RATIO",
                        help="fail if the first allocator is beyond RATIO of the leanest anywhere")
    return parser.parse_args()


def main():
    args = read_arguments()
    try:
        with tempfile.TemporaryDirectory(prefix="hakmem-bench-") as scratch:
            rows, names = samples(args, Path(scratch))
    except (run.BenchError, OSError) as error:
        print(f"memory.py: {error}", file=sys.stderr)
        return 2
    for row in rows:
        if row["status"] != "ok":
            print(f"{row['workload']} under {row['allocator']} failed: {row['status']}", file=sys.stderr)
    failed = any(row["status"] != "ok" for row in rows)
    for metric in METRICS:
        text, beyond = table(rows, metric, names, args.within or float("inf"))
        print(text)
        if args.within and beyond:
            print(f"beyond {args.within} of the leanest: {', '.join(beyond)}\n")
            failed = True
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
