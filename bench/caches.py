#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Compares the caches: builds them, runs COMPARED of workloads.py, draws the picture of docs/caches.md and writes its
tables.

  caches.py -n 5                          builds below build/caches, samples, picture, tables
  caches.py --from docs/data/caches.csv        picture and tables again, from the samples
  caches.py --libraries list=A array=B    with other builds; "list" comes first

Each workload runs under all of them one after the other, in random order, -n times; the first runs twice, and the
distance of that ratio from 1 is the noise. Ratios are taken inside a repetition, and their medians shown. Workloads of
one thread stay on one CPU.
"""
import argparse
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import run
import service
import workloads

ROOT = Path(__file__).resolve().parent.parent
PAGE, CSV = ROOT / "docs" / "caches.md", ROOT / "docs" / "data" / "caches.csv"
PICTURE = ROOT / "docs" / "data" / "caches.svg"
CACHES = ("list", "array")
NOISE = "noise"
TITLES = {
    "cpu_s": "User and system time, ratio to `{first}`",
    "kib_each": "Memory of each waiting thread, KiB",
    "malloc_p999_ns": "malloc, slowest of 1000 calls, ns",
    "free_p999_ns": "free, slowest of 1000 calls, ns",
}
MARKS = ("<!-- by bench/caches.py: -->\n", "<!-- until here -->\n")


def built(folder):
    """A library for each cache, built if it is missing or outdated."""
    for cache in CACHES:
        if not (folder / cache / "build.ninja").is_file():
            subprocess.run(["meson", "setup", folder / cache, ROOT, f"-Dcache={cache}", "-Dtests=false"], check=True)
        subprocess.run(["ninja", "-C", folder / cache], check=True, stdout=subprocess.DEVNULL)
    return [f"{cache}={folder / cache / 'src' / 'libhakmem.so'}" for cache in CACHES]


def samples(args, scratch):
    folder = (args.build or ROOT / "build" / "caches").resolve()
    texts = args.libraries or built(folder)
    texts.append(f"{NOISE}={texts[0].partition('=')[2]}")
    known = run.known_libraries(args.build) if args.libraries else {}
    allocators = [run.parse_allocator(text, known) for text in texts]
    bench_dir = (run.find_build(args.build) if args.libraries else folder / CACHES[0]) / "bench"
    setup = run.Setup(bench_dir, scratch, run.libc_of(bench_dir), args.scale, args.timeout)
    everywhere, rng, rows = os.sched_getaffinity(0), random.Random(1), []
    for repetition in range(args.repetitions):
        for workload in workloads.COMPARED:
            if not re.search(args.workloads, workload.name):
                continue
            os.sched_setaffinity(0, {max(everywhere)} if workload.name.startswith("1 ") else everywhere)
            command = workloads.command_line(workload, bench_dir, scratch, args.scale)
            for row in run.run_blocks([(workload, command)], allocators, setup, 1, rng):
                if row["status"] != "ok":
                    raise run.BenchError(f"{workload.name} under {row['allocator']}: {row['status']}")
                rows += [dict(zip(service.COLUMNS, (repetition, workload.name, row["allocator"], figure, value)))
                         for figure, value in row["figures"].items()]
    os.sched_setaffinity(0, everywhere)
    order = [allocator.name for allocator in allocators]
    return sorted(rows, key=lambda row: (order.index(row["allocator"]), row["repetition"]))


def tables_of(rows):
    """{figure: {workload: {allocator: median}}}; times are ratios to the first allocator, but for its own, in s."""
    values = {}
    for row in rows:
        of_workload = values.setdefault(row["figure"], {}).setdefault(row["workload"], {})
        of_workload.setdefault(row["allocator"], []).append(float(row["value"]))
    first = rows[0]["allocator"]
    order = [workload.name for workload in workloads.COMPARED]

    def median(figure, by_name, name):
        pairs = zip(by_name[name], by_name[first])
        return statistics.median(a / b for a, b in pairs) if figure == "cpu_s" and name != first \
            else statistics.median(by_name[name])

    return {figure: {workload: {name: median(figure, of_workloads[workload], name) for name in of_workloads[workload]}
                     for workload in sorted(of_workloads, key=order.index)} for figure, of_workloads in values.items()}


def cell(figure, name, first, value):
    if figure == "cpu_s":
        return f"{value:.3f} s" if name == first else f"{value:.2f}"
    return f"{value:.0f}"


def markdown(found, first):
    parts = [f"![the caches compared](data/{PICTURE.name})\n"]
    for figure, title in TITLES.items():
        names = [name for name in next(iter(found[figure].values())) if name != NOISE or figure == "cpu_s"]
        rows = [[title.format(first=first), *names], ["---", *("--:" for _ in names)]]
        rows += [[workload, *(cell(figure, name, first, by_name[name]) for name in names)]
                 for workload, by_name in found[figure].items()]
        lines = ["|".join(["", *row, ""]) for row in rows]
        parts.append("\n".join(lines) + "\n")
    return "\n".join(parts)


def write_page(text):
    page = PAGE.read_text()
    before, rest = page.split(MARKS[0])
    PAGE.write_text(before + MARKS[0] + text + MARKS[1] + rest.split(MARKS[1])[1])


def draw(found, first, path):
    """A panel for each figure, a row for each workload, a dot for each cache."""
    import matplotlib
    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "hakmem"  # the same samples make the same file
    from matplotlib import pyplot

    colours = {name: "grey" if name == NOISE else f"C{i}"
               for i, name in enumerate(found["cpu_s"][workloads.COMPARED[0].name])}
    heights = [len(found[figure]) + 1.5 for figure in TITLES]
    canvas, panels = pyplot.subplots(len(TITLES), figsize=(8, 0.32 * sum(heights) + 1.5), height_ratios=heights)
    for panel, (figure, title) in zip(panels, TITLES.items()):
        of_workloads = found[figure]
        for name in next(iter(of_workloads.values())):
            if name == first and figure == "cpu_s":
                panel.axvline(1, color=colours[name], linewidth=1.5, label=name)
            elif name != NOISE or figure == "cpu_s":
                panel.plot([by_name[name] for by_name in of_workloads.values()], range(len(of_workloads)),
                           "|" if name == NOISE else "o", markersize=6, label=name, color=colours[name])
        panel.set_yticks(range(len(of_workloads)), of_workloads)
        panel.set_ylim(len(of_workloads) - 0.5, -0.5)
        panel.set_xlim(left=0)
        panel.set_title(title.format(first=first).replace("`", ""), fontsize="medium")
        panel.grid(linewidth=0.3)
        panel.legend(fontsize="small")
    canvas.tight_layout()
    canvas.savefig(path, metadata={"Date": None})


def read_arguments():
    parser = argparse.ArgumentParser(usage=argparse.SUPPRESS, description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-n", dest="repetitions", type=int, default=5)
    parser.add_argument("--workloads", "--works", default="", metavar="REGEX")
    parser.add_argument("--libraries", nargs="+", metavar="NAME=LIBRARY")
    parser.add_argument("--build", type=Path, metavar="DIR",
                        help="where they are built; with --libraries, the build whose programs run")
    parser.add_argument("--quick", action="store_const", dest="scale", const="quick", default="full",
                        help="a quarter of the work")
    parser.add_argument("--smoke", action="store_const", dest="scale", const="smoke",
                        help="hardly any work, and no page is written: shows that all of it runs")
    parser.add_argument("--picture", type=Path, metavar="FILE", help="draw it there instead")
    parser.add_argument("--from", dest="source", type=Path, metavar="FILE", help="samples of an earlier run")
    parser.add_argument("--timeout", type=float, default=120, help="seconds for one sample")
    return parser.parse_args()


def main():
    args = read_arguments()
    try:
        if args.source:
            rows = service.read_csv(args.source)
        else:
            with tempfile.TemporaryDirectory(prefix="hakmem-bench-") as scratch:
                rows = samples(args, Path(scratch))
    except (run.BenchError, subprocess.CalledProcessError) as error:
        sys.exit(f"caches.py: {error}")
    found, first = tables_of(rows), rows[0]["allocator"]
    text = markdown(found, first) if found.keys() >= TITLES.keys() else ""
    print(text or found)
    if text and args.scale != "smoke":
        if not args.source:
            service.write_csv(CSV, rows)
        write_page(text)
        args.picture = args.picture or PICTURE
    if text and args.picture:
        draw(found, first, args.picture)


if __name__ == "__main__":
    main()
