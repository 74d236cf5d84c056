#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes docs/applications.md and README's picture from raw samples of real programs.

  bench/applications.py -n 3 --csv docs/data/applications.csv --allocators hakmem ...   takes the samples
  docs/applications.py            writes the page about them
  docs/applications.py --check    exit 1 if the page is not about them
"""
import sys

from performance import BASE, DOCS, OURS, SIGNIFICANT, check, draw_means, machine, markdown, mean_of, means_of, medians
from performance import peers_in, ratio_table, said_in

import run  # from bench, whose folder performance.py adds
import tables

CSV, PICTURE = DOCS / "data" / "applications.csv", DOCS / "data" / "applications.svg"
TITLES = {"cpu_s": "User and system time", "peak_kib": "Peak memory"}
METRICS = {"cpu_s": "time", "peak_kib": "peak", "idle_kib": "idle", "faults": "faults"}
# Where another allocator is more than 5 % below: by what perf and the statistics show.
SMALL = "huge pages, which a heap of less than 16 MiB does not get (decision 0102)"
CAUSES = {
    ("R", "peak"): "53 MiB of freed vectors wait, for the next ones are of other lengths",
    ("memcached", "time"): "a server's time is counted in steps of 10 ms",
    ("mariadb", "time"): "a server's time is counted in steps of 10 ms",
    ("perl", "time"): SMALL,
    ("python-objects", "time"): SMALL,
    ("redis-server", "idle"): "redis switches on jemalloc's thread; ours is `HAKMEM_BACKGROUND=1`",
}
PAGE = """\
# Real programs

Written by `docs/applications.py` from `docs/data/applications.csv`; `bench/applications.py` took the samples and \
describes how. `tools/setup.sh applications` installs the programs.

- **Machine**: {machine}.
- **Method**: {programs} programs, {repetitions} blocks of each; in a block every allocator runs once, in random \
order, and each ratio is taken inside its block. The cells are medians. Lower is better. Each program is checked to \
be served by the allocator, and to print the same under all.
- **Noise**: the system allocator runs twice in each block. The second run against the first has a geometric mean of \
{noise:.3f} in time and {memory_noise:.3f} in memory.
- **Peers**: {peers}.

![ratios to the system allocator](data/applications.svg)

## Time: user and system time of all processes; of a server, for a fixed number of requests

{cpu_s}

## Peak memory of the largest process

{peak_kib}

## Memory (PSS) of a server, three seconds after the last request

{idle_kib}

## Page faults

{faults}

## Where we lose

Programs in which another allocator is more than 5 % below us in time or memory, and why, where it is known.

{losses}
"""


def headline():
    """The figures of README.md: programs, time and memory of hakmem, other allocators, the best of them."""
    rows = run.read_csv(CSV)
    time, peak = medians(rows, "cpu_s"), medians(rows, "peak_kib")
    peers = peers_in(rows)
    best = [min(mean_of(values, name) for name in peers) for values in (time, peak)]
    figures = [mean_of(time, OURS), mean_of(peak, OURS), *best]
    return [len(tables.names(rows, "workload")), len(peers), *(f"{figure:.2f}" for figure in figures)]


def losses(values, others):
    """A row for each program and metric in which another one is better."""
    lines = []
    for metric in list(METRICS)[:3]:
        for program in sorted({program for program, _ in values[metric]}):
            ours = values[metric].get((program, OURS))
            rest = [(values[metric][program, name], name) for name in others if (program, name) in values[metric]]
            best = min(rest, default=(ours, OURS))
            if ours and ours > SIGNIFICANT * best[0]:
                lines.append([program, METRICS[metric], f"{ours:.2f}", f"{best[0]:.2f} {best[1]}",
                              CAUSES.get((program, METRICS[metric]), "")])
    return markdown(["program", "what", OURS, "best", "cause"], lines) if lines else "None."


def main():
    rows = run.read_csv(CSV)
    values = {metric: medians(rows, metric) for metric in METRICS}
    noise, peers = tables.allocators_in(rows, BASE)[0], peers_in(rows)
    time, peak = values["cpu_s"], values["peak_kib"]
    page = PAGE.format(
        machine=machine(), programs=len(tables.names(rows, "workload")),
        repetitions=len(tables.names(rows, "repetition")), noise=mean_of(time, noise),
        memory_noise=mean_of(peak, noise), peers=", ".join(peers),
        losses=losses(values, peers),
        **{metric: ratio_table(values[metric], [OURS, *peers, noise]) for metric in METRICS})
    path = DOCS / "applications.md"
    if "--check" in sys.argv:
        check(path, page)
        if said_in(PICTURE) != [f"{mean:.2f}" for one in (time, peak) for mean, _ in means_of(one, peers)]:
            sys.exit(f"{PICTURE.name} is not what {CSV.name} says; write it anew: docs/applications.py")
        return
    draw_means(PICTURE, dict(zip(TITLES.values(), (time, peak))), peers)
    path.write_text(page)


if __name__ == "__main__":
    main()
