# SPDX-License-Identifier: MIT
"""Tables and the picture of run.py, made from its raw rows."""
import math
import statistics
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tools" / "hakmem"))

from hakmem_workbench.blocks import FEWEST_BLOCKS  # noqa: E402

SEED = 1

TITLES = {
    "wall_s": "Wall time",
    "cpu_s": "User and system time",
    "peak_kib": "Peak resident memory",
    "held_kib": "Resident memory after the burst, the idle time and 1000 pairs",
    "idle_kib": "Memory (PSS) of a server after the load and three idle seconds",
    "faults": "Page faults without input",
}


class TableError(Exception):
    """A message for the user."""


def names(rows, column):
    """Different values in the order of their first row."""
    return list(dict.fromkeys(row[column] for row in rows))


def by_block(rows, metric):
    """{(workload, repetition): {allocator: value}} of the rows that have a value."""
    blocks = {}
    for row in rows:
        if row["status"] == "ok" and row.get(metric):
            blocks.setdefault((row["workload"], row["repetition"]), {})[row["allocator"]] = row[metric]
    return blocks


def ratios(rows, metric, base):
    """{(workload, allocator): [ratio to the base in the same block]}."""
    result = {}
    for (workload, _), values in by_block(rows, metric).items():
        for allocator, value in values.items():
            if allocator != base and base in values:
                result.setdefault((workload, allocator), []).append(value / values[base])
    return result


def geometric_mean(values):
    return math.exp(statistics.fmean(math.log(value) for value in values))


def allocators_in(rows, base):
    """The noise column first, then by name; the order of rows is random."""
    found = sorted(set(names(rows, "allocator")) - {base, base + "2"})
    noise = [base + "2"] if base + "2" in names(rows, "allocator") else []
    return noise + found


def render(header, lines):
    """Columns as wide as needed; the first one to the left."""
    widths = [max(len(line[i]) for line in [header, *lines]) for i in range(len(header))]
    def text(line):
        cells = [line[0].ljust(widths[0])]
        cells += [cell.rjust(width) for cell, width in zip(line[1:], widths[1:])]
        return "  ".join(cells).rstrip()
    return "\n".join(map(text, [header, *lines])) + "\n"


def mean_line(table, workloads, columns):
    """Geometric means; in brackets if a workload is missing, since they cover different workloads then."""
    cells = []
    for name in columns:
        medians = [statistics.median(table[workload, name]) for workload in workloads if (workload, name) in table]
        mean = f"{geometric_mean(medians):.3f}" if medians else "fail"
        cells.append(mean if len(medians) == len(workloads) else f"({mean})")
    return [f"geometric mean of {len(workloads)}", "", *cells]


def verdicts(rows, metric, base):
    """{(workload, allocator): what `hakmem ab` would say}, of workloads with blocks enough, and with a second base."""
    blocks = {}
    for (workload, _), values in by_block(rows, metric).items():
        blocks.setdefault(workload, []).append(values)
    names_of = {workload: set.intersection(*map(set, found))
                for workload, found in blocks.items() if len(found) >= FEWEST_BLOCKS}
    judged = {workload: names for workload, names in names_of.items() if {base, base + "2"} < names}
    if not judged:
        return {}
    try:
        import numpy
        from hakmem_workbench import inference
    except ImportError:
        print("no verdicts: they need numpy (Debian: python3-numpy, for /usr/bin/python3)", file=sys.stderr)
        return {}
    found = {}
    for workload, names in judged.items():
        columns = {name: numpy.array([values[name] for values in blocks[workload]]) for name in names}
        first, again = columns.pop(base), columns.pop(base + "2")
        comparisons = inference.judge(base, first, again, columns, SEED).comparisons
        found |= {(workload, name): comparison.verdict for name, comparison in comparisons.items()}
    return found


def ratio_table(rows, metric, base, unit, scale):
    """The median ratio to the base for each workload and allocator, and the geometric means."""
    table, judged = ratios(rows, metric, base), verdicts(rows, metric, base)
    columns = allocators_in(rows, base)
    workloads = sorted({workload for workload, _ in table})
    base_values = {}
    for (workload, _), values in by_block(rows, metric).items():
        if base in values:
            base_values.setdefault(workload, []).append(values[base])
    lines = []
    for workload in workloads:
        cells = [f"{statistics.median(table[workload, name]):.2f}" + "~" * (judged.get((workload, name)) == "same")
                 if (workload, name) in table else "fail" for name in columns]
        lines.append([workload, f"{statistics.median(base_values[workload]) * scale:.1f}", *cells])
    if len(workloads) > 1:
        lines.append(mean_line(table, workloads, columns))
    title = f"{TITLES[metric]}, ratio to {base}, median of {len(names(rows, 'repetition'))} blocks"
    legend = "~: no difference above the noise\n" if judged else ""
    return f"{title}\n{legend}{render(['workload', f'{base} {unit}', *columns], lines)}"


def call_table(counts):
    """counts: {(workload, allocator): {"calls": n, "mmap": n, …}}."""
    kinds = list(next(iter(counts.values())))
    lines = [[workload, allocator, *(str(count[kind]) for kind in kinds)]
             for (workload, allocator), count in counts.items()]
    return "System calls of one whole process\n" + render(["workload", "allocator", *kinds], lines)


def draw(rows, metric, base, path):
    """One row of dots for each workload, with the range from the first to the third quartile."""
    try:
        import matplotlib
    except ImportError:
        raise TableError("--png needs matplotlib; install it or leave the picture out") from None
    matplotlib.use("Agg")
    from matplotlib import pyplot, ticker

    table = ratios(rows, metric, base)
    workloads = sorted({workload for workload, _ in table}, reverse=True)
    figure, axes = pyplot.subplots(figsize=(9, 1.5 + 0.3 * len(workloads)))
    for allocator in allocators_in(rows, base):
        shown = [(i, table[workload, allocator]) for i, workload in enumerate(workloads)
                 if (workload, allocator) in table]
        middle = [statistics.median(values) for _, values in shown]
        spread = [statistics.quantiles(values, n=4) if len(values) > 1 else [values[0]] * 3
                  for _, values in shown]
        axes.errorbar(middle, [i for i, _ in shown], fmt="o", markersize=4, label=allocator,
                      xerr=[[max(0, m - s[0]) for m, s in zip(middle, spread)],
                            [max(0, s[2] - m) for m, s in zip(middle, spread)]], elinewidth=0.6)
    axes.axvline(1, color="grey", linewidth=0.8)
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter(ticker.FormatStrFormatter("%g"))
    axes.xaxis.set_minor_formatter(ticker.NullFormatter())
    axes.set_yticks(range(len(workloads)), workloads)
    axes.set_ylim(-1, len(workloads))
    axes.grid(axis="x", linewidth=0.3)
    axes.set_xlabel(f"{TITLES[metric]}, ratio to {base} (lower is better)")
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=5, fontsize="small")
    figure.tight_layout()
    figure.savefig(path, dpi=120)
