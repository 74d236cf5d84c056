# SPDX-License-Identifier: MIT
"""Pictures of results, each as one inline SVG without any outside reference.

Text stays text, ids are unique over the page, and nothing in the file depends
on the time of day, so that the same results give the same bytes.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator, MultipleLocator

from . import explain
from .factorial import Effect
from .inference import Verdict
from .results import Results
from .sidecar import MEMORY_CALLS
from .text import count, duration, size

PALETTE = ("#4b5563", "#2563eb", "#d97706", "#059669", "#9333ea", "#dc2626", "#0891b2", "#be185d")
_VERDICT_COLOURS: dict[Verdict, str] = {
    "faster": "#059669",
    "slower": "#dc2626",
    "same": "#6b7280",
    "few": "#d97706",
}
_GRID = "#e5e7eb"
_INK = "#374151"
_STYLE = {
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 10,
    "font.sans-serif": ["DejaVu Sans", "Arial", "sans-serif"],
    "axes.edgecolor": _GRID,
    "axes.labelcolor": _INK,
    "text.color": _INK,
    "xtick.color": _INK,
    "ytick.color": _INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.left": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": _GRID,
    "grid.linewidth": 0.8,
    "xtick.major.size": 0,
    "ytick.major.size": 0,
    "figure.dpi": 100,
    "savefig.transparent": True,
}


def colour(index: int) -> str:
    return PALETTE[index % len(PALETTE)]


class Plot:
    """One picture, filled inside `with`; afterwards `svg` holds it."""

    def __init__(self, name: str, title: str, width: float = 10, height: float = 3) -> None:
        self.name, self.title = name, title
        self.size = (width, height)
        self.svg = ""

    @property
    def file(self) -> str:
        """The same as a file of its own, on white, since it may be shown on anything."""
        return self.svg.replace("<svg", '<svg style="background: white"', 1) + "\n"

    @contextmanager
    def drawn(self) -> Iterator[Axes]:
        with matplotlib.rc_context(cast(Any, {**_STYLE, "svg.hashsalt": self.name})):
            figure = Figure(figsize=self.size, layout="constrained")
            yield figure.subplots()
            self.svg = self._render(figure)

    def _render(self, figure: Figure) -> str:
        buffer = io.StringIO()
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
        svg = buffer.getvalue()
        svg = svg[svg.index("<svg") :]
        svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.S)
        svg = re.sub(r'\bid="([^"]+)"', rf'id="{self.name}-\1"', svg)
        svg = re.sub(r'(href="#|url\(#)([^")]+)', rf"\1{self.name}-\2", svg)
        label = f'<svg role="img" aria-label="{self.title}" class="plot" data-plot="{self.name}"'
        return svg.replace("<svg", label, 1)


def ab_plots(results: Results) -> list[Plot]:
    """Every picture for which these results have figures."""
    plots = [_ratios(results), _times(results), _order(results)]
    for make in (_memory, _memory_over_time, _system_calls, _causes):
        plot = make(results)
        if plot is not None:
            plots.append(plot)
    return plots


def _ratios(results: Results) -> Plot:
    """Ratio to the baseline with its interval, over the band of the noise."""
    comparisons = results.judged.comparisons
    noise = results.judged.noise
    plot = Plot(
        "ratios",
        f"Relative {results.metric_title}, with its interval",
        height=1.3 + 0.42 * (len(comparisons) + 1),
    )
    with plot.drawn() as axes:
        axes.axvspan(
            (1 / (1 + noise.floor) - 1) * 100,
            noise.floor * 100,
            color="#f3f4f6",
            zorder=0,
            label="noise",
        )
        axes.axvline(0, color=_INK, linewidth=1)
        names = [f"{results.baseline.label} (again)", *comparisons]
        ratios = [noise.ratio, *(c.ratio for c in comparisons.values())]
        colours = ["#9ca3af", *(_VERDICT_COLOURS[c.verdict] for c in comparisons.values())]
        for row, (ratio, shade) in enumerate(zip(ratios, colours, strict=True)):
            _interval(axes, row, ratio.value, ratio.low, ratio.high, shade)
        _rows(axes, names)
        axes.set_xlabel(
            f"{results.metric_title} compared with {results.baseline.label}  (← less · more →)"
        )
        axes.xaxis.set_major_formatter(FuncFormatter(_signed_percent))
    return plot


def _interval(axes: Axes, row: int, value: float, low: float, high: float, shade: str) -> None:
    percent = [(x - 1) * 100 for x in (low, value, high)]
    axes.plot(
        [percent[0], percent[2]],
        [row, row],
        color=shade,
        linewidth=5,
        alpha=0.35,
        solid_capstyle="round",
    )
    axes.plot(percent[1], row, "o", color=shade, markersize=8)
    axes.annotate(
        _signed_percent(round(percent[1], 1), None),
        (percent[1], row),
        xytext=(0, 9),
        textcoords="offset points",
        ha="center",
        fontsize=9,
        color=shade,
        bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.85, "pad": 0.5},
        zorder=5,
    )


def _rows(axes: Axes, names: Sequence[str], most: int = 34) -> None:
    axes.set_yticks(range(len(names)), [short(name, most) for name in names])
    axes.set_ylim(len(names) - 0.45, -0.75)
    axes.grid(axis="y", visible=False)


def short(name: str, most: int = 34) -> str:
    return name if len(name) <= most else name[: most - 1] + "…"


def _signed_percent(value: float, _place: int | None) -> str:
    return f"{value:+g} %".replace("-", "−") if value else "0"


def _times(results: Results) -> Plot:
    """Every run as a dot, the median as a line."""
    plot = Plot("times", "Every run", height=1.2 + 0.45 * len(results.arms))
    jitter = np.random.default_rng(0)
    with plot.drawn() as axes:
        for row, arm in enumerate(results.arms):
            values = results.series(arm)
            shade = colour(arm.variant)
            axes.plot(
                values,
                row + jitter.uniform(-0.22, 0.22, len(values)),
                "o",
                color=shade,
                markersize=4.5,
                alpha=0.45,
                markeredgewidth=0,
            )
            axes.plot([np.median(values)] * 2, [row - 0.33, row + 0.33], color=shade, linewidth=2.5)
        _rows(axes, [arm.title for arm in results.arms])
        axes.set_xlabel(f"{results.metric_title} of a run")
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: duration(value)))
    return plot


def _order(results: Results) -> Plot:
    """Times in the order of the blocks: drift and bursts show here."""
    plot = Plot("order", "In the order of the blocks", height=3)
    with plot.drawn() as axes:
        for arm in results.arms:
            values = results.series(arm)
            axes.plot(
                range(1, len(values) + 1),
                values,
                marker="o",
                markersize=3,
                linewidth=1,
                color=colour(arm.variant),
                alpha=0.5 if arm.again else 0.9,
                linestyle="--" if arm.again else "-",
                label=short(arm.title),
            )
        axes.set_xlabel("block")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: duration(value)))
        _legend(axes)
    return plot


def _legend(axes: Axes) -> None:
    axes.legend(frameon=False, fontsize=9, loc="upper left", bbox_to_anchor=(1.0, 1.0))


def _memory(results: Results) -> Plot | None:
    """Peak and final memory, with the range over the runs."""
    plot = Plot("memory", "Peak and final memory", height=1.0 + 0.6 * len(results.variants))
    with plot.drawn() as axes:
        drawn = False
        for row, _ in enumerate(results.variants):
            for offset, key, alpha in ((-0.19, "peak", 1.0), (0.19, "final", 0.45)):
                spread = results.sidecar(row, key)
                if spread is None:
                    continue
                drawn = True
                error = [[spread.median - spread.low], [spread.high - spread.median]]
                axes.barh(
                    row + offset,
                    spread.median,
                    0.34,
                    color=colour(row),
                    alpha=alpha,
                    xerr=error,
                    error_kw={"ecolor": _INK, "elinewidth": 1},
                )
                axes.annotate(
                    f" {key} {size(spread.median)}",
                    (spread.high, row + offset),
                    va="center",
                    fontsize=9,
                    xytext=(3, 0),
                    textcoords="offset points",
                )
        _rows(axes, [variant.label for variant in results.variants])
        axes.margins(x=0.25)
        _byte_axis(axes.xaxis, axes.get_xlim()[1])
    return plot if drawn else None


def _byte_axis(axis: Axis, top: float) -> None:
    """Ticks at round numbers of KiB, MiB or GiB."""
    unit = 1024.0 ** max(int(np.log(max(top, 1)) / np.log(1024)), 0)
    steps = [unit / 1024 * n for n in (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)]
    steps += [unit * n for n in (1, 2, 5, 10, 20, 50, 100, 200)]
    axis.set_major_locator(MultipleLocator(next((s for s in steps if top / s <= 8), steps[-1])))
    axis.set_major_formatter(
        FuncFormatter(lambda value, _: size(value).replace(".00", "").replace(".0 ", " "))
    )


def _memory_over_time(results: Results) -> Plot | None:
    """Resident memory of the whole process tree while it runs."""
    if all(len(sidecar.samples) < 8 for sidecar in results.sidecars):
        return None
    plot = Plot("memory-over-time", "Resident memory while it runs", height=3)
    with plot.drawn() as axes:
        for index, (variant, sidecar) in enumerate(
            zip(results.variants, results.sidecars, strict=True)
        ):
            if sidecar.samples:
                moments, amounts = zip(*sidecar.samples, strict=True)
                axes.plot(
                    moments, amounts, color=colour(index), linewidth=1.5, label=short(variant.label)
                )
        axes.set_xlabel("time since start (one untimed run)")
        axes.set_ylim(bottom=0)
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: duration(value)))
        _byte_axis(axes.yaxis, axes.get_ylim()[1])
        _legend(axes)
    return plot


_CALL_COLOURS = (
    "#2563eb",
    "#60a5fa",
    "#7c3aed",
    "#059669",
    "#d97706",
    "#f59e0b",
    "#0891b2",
    "#d1d5db",
)


def _system_calls(results: Results) -> Plot | None:
    """Calls by name: those about memory apart, all others together."""
    if any(sidecar.system_calls is None for sidecar in results.sidecars):
        return None
    plot = Plot(
        "system-calls",
        "System calls of the whole process",
        height=1.3 + 0.42 * len(results.variants),
    )
    with plot.drawn() as axes:
        left = np.zeros(len(results.variants))
        for name, shade in zip((*MEMORY_CALLS, "others"), _CALL_COLOURS, strict=True):
            amounts = np.array(
                [_calls(results, index, name) for index in range(len(left))], dtype=float
            )
            if amounts.any():
                axes.barh(range(len(left)), amounts, 0.6, left=left, color=shade, label=name)
                left += amounts
        for row, total in enumerate(left):
            axes.annotate(f"  {count(total)}", (total, row), va="center", fontsize=9)
        _rows(axes, [variant.label for variant in results.variants])
        axes.margins(x=0.1)
        _legend(axes)
    return plot


def _calls(results: Results, index: int, name: str) -> int:
    calls = results.sidecars[index].system_calls or {}
    if name != "others":
        return calls.get(name, 0)
    return sum(number for call, number in calls.items() if call not in MEMORY_CALLS)


def _causes(results: Results) -> Plot | None:
    """Time in the allocator's own system calls, by cause."""
    found = {
        index: {
            cause: sum(row.ns for row in rows) / 1e9
            for cause, rows in explain.by_cause(stats.os_calls).items()
        }
        for index, stats in enumerate(results.stats)
        if stats is not None
    }
    causes = list(dict.fromkeys(cause for costs in found.values() for cause in costs))
    if not causes or not any(cost for costs in found.values() for cost in costs.values()):
        return None
    rows = list(found)
    plot = Plot("causes", "Why the allocator called the kernel", height=1.3 + 0.42 * len(rows))
    with plot.drawn() as axes:
        left = np.zeros(len(rows))
        for number, cause in enumerate(causes):
            costs = np.array([found[index].get(cause, 0.0) for index in rows])
            axes.barh(
                range(len(rows)),
                costs,
                0.6,
                left=left,
                color=_CALL_COLOURS[number % 8],
                label=cause,
            )
            left += costs
        _rows(axes, [results.variants[index].label for index in rows])
        axes.set_xlabel("time in system calls")
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: duration(value)))
        _legend(axes)
    return plot


def effects_plot(name: str, title: str, effects: Sequence[Effect], what: str) -> Plot:
    """Effects of a factorial experiment with their intervals."""
    plot = Plot(name, title, height=1.2 + 0.42 * len(effects))
    with plot.drawn() as axes:
        axes.axvline(0, color=_INK, linewidth=1)
        for row, effect in enumerate(effects):
            ratio = effect.ratio
            _interval(
                axes, row, ratio.value, ratio.low, ratio.high, _VERDICT_COLOURS[effect.verdict]
            )
        _rows(axes, [effect.name for effect in effects], 60)
        axes.set_xlabel(what)
        axes.xaxis.set_major_formatter(FuncFormatter(_signed_percent))
    return plot


def cells_plot(names: Sequence[str], medians: Sequence[float], best: int) -> Plot:
    """The median of every cell, the fastest marked."""
    plot = Plot("cells", "Median of every combination", height=1.1 + 0.34 * len(names))
    with plot.drawn() as axes:
        for row, middle in enumerate(medians):
            shade = "#059669" if row == best else "#93c5fd"
            axes.barh(row, middle, 0.64, color=shade)
            axes.annotate(f"  {duration(middle)}", (middle, row), va="center", fontsize=9)
        _rows(axes, names, 60)
        axes.margins(x=0.12)
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: duration(value)))
    return plot
