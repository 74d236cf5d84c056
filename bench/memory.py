#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Peak and idle memory beside the leanest of the other allocators.

Each work (MEMORY in works.py) runs under every allocator, one after the other; the tables show
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
import works

METRICS = {"peak_kib": "Peak resident memory", "held_kib": "Resident memory after idleness and 1000 pairs"}


def medians(rows, metric):
    """{(work, allocator): MiB}."""
    values = {}
    for row in rows:
        if row["status"] == "ok":
            values.setdefault((row["work"], row["allocator"]), []).append(row[metric] / 1024)
    return {key: statistics.median(found) for key, found in values.items()}


def leanest(values, work, others):
    found = [(values[work, name], name) for name in others if (work, name) in values]
    return min(found) if found else None


def table(rows, metric, names, within):
    """The table as text, and the works on which the first allocator is beyond `within`."""
    values = medians(rows, metric)
    lines, beyond, ratios = [], [], []
    for work in dict.fromkeys(row["work"] for row in rows):
        cells = [f"{values[work, name]:.1f}" if (work, name) in values else "fail" for name in names]
        best = leanest(values, work, names[1:])
        if best and (work, names[0]) in values:
            ratios.append(values[work, names[0]] / best[0])
            cells += [f"{ratios[-1]:.2f} of {best[1]}"]
        else:
            cells += ["-"]
        if len(ratios) < len(lines) + 1 or ratios[-1] > within:
            beyond.append(work)
        lines.append([work, *cells])
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
    chosen = [(work, works.command_line(work, bench_dir, scratch, setup.scale))
              for work in works.MEMORY if re.search(args.works, work.name)]
    rows, rng = [], random.Random()
    for _ in range(args.repetitions):
        for work, command in chosen:
            for allocator in run.shuffled(allocators, rng):
                rows.append(run.measure(work, command, allocator, setup))
    rows.sort(key=lambda row: [work.name for work, _ in chosen].index(row["work"]))
    return rows, [allocator.name for allocator in allocators]


def read_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--allocators", nargs="+", metavar="ALLOCATOR", help="the first is compared with the rest")
    parser.add_argument("--works", default="", metavar="REGEX")
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
            print(f"{row['work']} under {row['allocator']} failed: {row['status']}", file=sys.stderr)
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
