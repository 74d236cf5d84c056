#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes docs/performance.md and its picture from raw samples.

  bench/run.py --quick --cpu -n 3 --csv docs/data/performance.csv --allocators hakmem ...   takes the samples
  docs/performance.py                                                    writes the page about them
  docs/performance.py --check                                            exit 1 if the page is not about them

Figures of README.md come from here too: see figures.py.
"""
import os
import platform
import re
import statistics
import sys
from pathlib import Path

DOCS = Path(__file__).resolve().parent
sys.path.insert(0, str(DOCS.parent / "bench"))
import run  # noqa: E402
import tables  # noqa: E402

BASE, OURS, BEFORE = "system", "hakmem", "before"
SIGNIFICANT = 1.05
PAGE = """\
# Performance

Written by `docs/performance.py` from `docs/data/performance.csv`; `bench/run.py --quick --cpu` took the samples, \
and [bench/README.md](../bench/README.md) describes the workloads.

- **Machine**: {machine}.
- **Method**: {repetitions} blocks of each workload; in a block every allocator runs once, in random order, \
and each ratio is taken inside its block. The cells are medians. Time is {time}. Lower is better.
- **Noise**: the system allocator runs twice in each block. Its second run against its first \
has a geometric mean of {noise:.3f}; half of the workloads lie between {low:.2f} and {high:.2f}. \
A smaller difference means nothing.
- **Peers**: {peers}.

![ratios to the system allocator](data/performance.png)

## Time, ratio to the system allocator

{time_table}

## Peak memory, ratio to the system allocator

{memory_table}

## Where we lose

Workloads in which another allocator is more than 5 % below us, and by how much.

{losses}
"""
METRIC = {"cpu_s": "user and system time", "wall_s": "wall time"}


def medians(rows, metric):
    return {key: statistics.median(values) for key, values in tables.ratios(rows, metric, BASE).items()}


def markdown(header, lines):
    rows = ["|".join(["", *line, ""]) for line in [header, ["---"] + ["--:"] * (len(header) - 1), *lines]]
    return "\n".join(rows)


def ratio_table(values, columns):
    workloads = sorted({workload for workload, _ in values})
    lines = [[workload] + [f"{values[workload, name]:.2f}" if (workload, name) in values else "failed"
                           for name in columns]
             for workload in workloads]
    means = [tables.geometric_mean([values[workload, name] for workload in workloads if (workload, name) in values])
             for name in columns]
    return markdown(["workload", *columns], lines + [["**geometric mean**"] + [f"**{mean:.3f}**" for mean in means]])


def losses(time, memory, others):
    lines = []
    for what, values in ("time", time), ("memory", memory):
        for workload in sorted({workload for workload, _ in values}):
            best = min((values[workload, name], name) for name in others if (workload, name) in values)
            if values[workload, OURS] > SIGNIFICANT * best[0]:
                lines.append([workload, what, f"{values[workload, OURS]:.2f}", f"{best[0]:.2f} {best[1]}"])
    return markdown(["workload", "what", OURS, "best"], lines) if lines else "None."


def machine():
    model = [line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines()
             if line.startswith("model name")]
    huge = Path("/sys/kernel/mm/transparent_hugepage/enabled").read_text().split("[")[1].split("]")[0]
    return (f"{len(os.sched_getaffinity(0))} cores ({model[0] if model else platform.machine()}), Linux "
            f"{platform.release().split('-')[0]}, {' '.join(platform.libc_ver())}, transparent huge pages {huge}")


def mean_of(values, name):
    return tables.geometric_mean([value for (_, of), value in values.items() if of == name])


def peers_in(rows):
    return [name for name in tables.allocators_in(rows, BASE)[1:] if name not in (OURS, BEFORE)]


def headline():
    """The figures of README.md: number of workloads, time and memory of hakmem and of the best peer, as formatted
    there.
    """
    rows = run.read_csv(DOCS / "data" / "performance.csv")
    time, memory = medians(rows, "cpu_s"), medians(rows, "peak_kib")
    peers = peers_in(rows)
    return (len(tables.names(rows, "workload")), len(peers),
            *(f"{mean:.2f}" for values in (time, memory)
              for mean in (mean_of(values, OURS), min(mean_of(values, name) for name in peers))))


def means_of(values, peers):
    return sorted([(mean_of(values, name), name) for name in (OURS, *peers)] + [(1.0, "glibc")], reverse=True)


def draw_means(path, values_of, peers):
    """A picture of geometric means beside the system allocator."""
    import matplotlib
    matplotlib.use("svg")
    matplotlib.rcParams.update({"svg.hashsalt": "hakmem", "svg.fonttype": "none", "font.size": 10})
    from matplotlib import pyplot
    figure, axes = pyplot.subplots(1, 2, figsize=(8, 2.8), layout="constrained")
    for axis, (title, values) in zip(axes, values_of.items()):
        means = means_of(values, peers)
        bars = axis.barh([name for _, name in means], [mean for mean, _ in means],
                         color=["#1b6ca8" if name == OURS else "#b8c4cf" for _, name in means])
        axis.bar_label(bars, fmt="%.2f", padding=3)
        axis.set(title=f"{title}, glibc = 1", xlim=(0, 1.15 * means[0][0]), xticks=[])
        axis.spines[["top", "right", "bottom"]].set_visible(False)
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)


def said_in(picture):
    return re.findall(r">(\d\.\d\d)<", picture.read_text())


def check(path, page):
    """All but the line about the machine, which only the machine knows that took the samples."""
    old, new = ([line for line in text.splitlines() if not line.startswith("- **Machine**")]
                for text in (path.read_text(), page))
    if old != new:
        sys.exit(f"{path.name} is not what {path.stem}.csv says; write it anew: docs/{path.stem}.py")


def main():
    rows = run.read_csv(DOCS / "data" / "performance.csv")
    metric = sys.argv[1] if len(sys.argv) > 1 and sys.argv[1] in METRIC else "cpu_s"
    time, memory = medians(rows, metric), medians(rows, "peak_kib")
    noise, peers = tables.allocators_in(rows, BASE)[0], peers_in(rows)
    names = [OURS, *peers]
    spread = statistics.quantiles([value for (_, name), value in time.items() if name == noise], n=4)
    page = PAGE.format(
        machine=machine(), repetitions=len(tables.names(rows, "repetition")), time=METRIC[metric],
        noise=mean_of(time, noise),
        low=spread[0], high=spread[2], peers=", ".join(peers),
        time_table=ratio_table(time, [*names, noise]), memory_table=ratio_table(memory, names),
        losses=losses(time, memory, peers))
    path = DOCS / "performance.md"
    if "--check" in sys.argv:
        check(path, page)
        return
    tables.draw(rows, metric, BASE, DOCS / "data" / "performance.png")
    path.write_text(page)


if __name__ == "__main__":
    main()
