#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A long-lived process: its memory, its waiting threads, its slowest calls. Each workload (SERVICE in workloads.py)
runs under every allocator, one after the other in random order, -n times. One table for each workload shows the medians
of its figures, and the distance of the first allocator from the best other one. Less is better everywhere. --picture
draws the quantiles of the latency workloads.

Allocators are written as for run.py; the first is compared with the rest. HAKMEM_* of the caller's environment are not
passed on.
"""
import argparse
import csv
import random
import re
import statistics
import sys
import tempfile
from pathlib import Path

import run
import tables
import workloads

COLUMNS = ["repetition", "workload", "allocator", "figure", "value"]
QUANTILES = {"p50": "50", "p99": "99", "p999": "99.9", "p9999": "99.99", "worst": "worst"}
CALLS = ("malloc", "free")


def take_samples(args, scratch):
    """Rows of COLUMNS, and a sentence for each failure."""
    build = run.find_build(args.build)
    bench_dir = build / "bench"
    setup = run.Setup(bench_dir, scratch, run.libc_of(bench_dir), args.scale, args.timeout)
    known = run.known_libraries(build)
    texts = args.allocators or [name for name in ("hakmem", run.BASE, *run.PEERS) if name in (run.BASE, *known)]
    allocators = [run.parse_allocator(text, known) for text in texts]
    chosen = run.choose_workloads("service", args.workloads, setup)
    rows, failures, rng = [], [], random.Random()
    for repetition in range(args.repetitions):
        for workload, command in chosen:
            for allocator in run.shuffled(allocators, rng):
                row = run.measure(workload, command, allocator, setup)
                if row["status"] != "ok":
                    failures.append(f"{workload.name} under {allocator.name} failed: {row['status']}")
                rows += [dict(zip(COLUMNS, (repetition, workload.name, allocator.name, figure, value)))
                         for figure, value in row.get("figures", {}).items()]
    order = [allocator.name for allocator in allocators]
    workloads_order = [workload.name for workload, _ in chosen]
    rows.sort(key=lambda row: (workloads_order.index(row["workload"]), order.index(row["allocator"])))
    return rows, failures


def medians(rows):
    """{workload: {figure: {allocator: median}}}, in the order of the rows."""
    found = {}
    for row in rows:
        found.setdefault(row["workload"], {}).setdefault(row["figure"], {}).setdefault(row["allocator"], []).append(
            float(row["value"]))
    return {workload: {figure: {name: statistics.median(values) for name, values in by_name.items()}
                       for figure, by_name in figures.items()} for workload, figures in found.items()}


def beside_best(values, first):
    """The distance of the first from the best other; a figure of 0 has no ratio."""
    others = [(value, name) for name, value in values.items() if name != first]
    if first not in values or not others:
        return "-"
    best, name = min(others)
    return f"{values[first] / best:.2f} of {name}" if best > 0 else f"{name} has 0"


def number(value):
    return f"{value:.0f}" if value >= 1000 else f"{value:.2f}" if value < 10 else f"{value:.1f}"


def text_of(rows):
    names = tables.names(rows, "allocator")
    parts = []
    for workload, figures in medians(rows).items():
        lines = [[figure, *(number(values[name]) if name in values else "fail" for name in names),
                  beside_best(values, names[0])] for figure, values in figures.items()]
        parts.append(tables.render([workload, *names, "first / best other"], lines))
    return "\n".join(parts)


def draw(rows, path):
    """For each latency workload, malloc and free side by side: quantiles to the right, nanoseconds upwards."""
    try:
        import matplotlib
    except ImportError:
        raise tables.TableError("--picture needs matplotlib; install it or leave the picture out") from None
    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "hakmem"  # the same samples make the same file
    from matplotlib import pyplot

    found = {workload: figures for workload, figures in medians(rows).items() if "malloc_p50_ns" in figures}
    if not found:
        raise tables.TableError("--picture draws the latency workloads; none was measured")
    figure, axes = pyplot.subplots(len(found), len(CALLS), figsize=(10, 2.8 * len(found)), squeeze=False, sharey="row")
    for panels, (workload, figures) in zip(axes, found.items()):
        for panel, call in zip(panels, CALLS):
            draw_panel(panel, f"{workload}: {call}", [figures[f"{call}_{quantile}_ns"] for quantile in QUANTILES])
    handles, labels = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="upper center", ncols=len(labels), fontsize="small")
    figure.supylabel("nanoseconds")
    figure.tight_layout(rect=(0, 0, 1, 1 - 0.35 / (2.8 * len(found))))
    figure.savefig(path, dpi=110, metadata={"Date": None} if Path(path).suffix == ".svg" else None)


def draw_panel(panel, title, by_quantile):
    """by_quantile: for each quantile {allocator: ns}. Below the resolution of the clock a value is 0: drawn as 1."""
    for index, name in enumerate(by_quantile[0]):
        values = [max(1, quantile[name]) for quantile in by_quantile]
        panel.plot(list(QUANTILES.values()), values, marker="o", markersize=3, linewidth=2 if index == 0 else 1,
                   label=name)
    panel.set_yscale("log")
    panel.set_title(title, fontsize="medium")
    panel.grid(axis="y", linewidth=0.3)


def read_csv(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def write_csv(path, rows):
    with open(path, "w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        writer.writerows(rows)


def read_arguments():
    parser = argparse.ArgumentParser(usage=argparse.SUPPRESS, description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true", help="print the workloads and end")
    parser.add_argument("--allocators", nargs="+", metavar="ALLOCATOR", help="the first is compared with the rest")
    parser.add_argument("--workloads", "--works", default="", metavar="REGEX")
    parser.add_argument("-n", dest="repetitions", type=int, default=1)
    parser.add_argument("--quick", action="store_const", dest="scale", const="quick", default="full",
                        help="a quarter of the work")
    parser.add_argument("--smoke", action="store_const", dest="scale", const="smoke",
                        help="hardly any work: shows that each workload runs; the figures mean nothing")
    parser.add_argument("--csv", metavar="FILE", type=Path, help="write all samples")
    parser.add_argument("--from", metavar="FILE", type=Path, dest="source", help="show samples written by --csv")
    parser.add_argument("--picture", metavar="FILE", type=Path, help="draw the quantiles, as .svg or .png (matplotlib)")
    parser.add_argument("--build", metavar="DIR", type=Path, help="Meson build directory")
    parser.add_argument("--timeout", type=float, default=120, help="seconds for one sample")
    return parser.parse_args()


def main():
    args = read_arguments()
    if args.list:
        for workload in workloads.SERVICE:
            print(f"{workload.name:<24}{workload.command}")
        return 0
    failures = []
    try:
        if args.source:
            rows = [row for row in read_csv(args.source) if re.search(args.workloads, row["workload"])]
        else:
            with tempfile.TemporaryDirectory(prefix="hakmem-bench-") as scratch:
                rows, failures = take_samples(args, Path(scratch))
        print(text_of(rows))
        if args.csv:
            write_csv(args.csv, rows)
        if args.picture:
            draw(rows, args.picture)
    except (run.BenchError, tables.TableError, OSError) as error:
        print(f"service.py: {error}", file=sys.stderr)
        return 2
    for failure in failures:
        print(failure, file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
