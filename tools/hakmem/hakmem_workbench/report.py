# SPDX-License-Identifier: MIT
"""The result of a comparison on the terminal: a table, a verdict, the other measurements."""

from __future__ import annotations

import numpy as np
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from . import explain
from .glossary import explained
from .inference import Comparison, Judgement, amount, noise_sentence, same
from .results import Arm, Results, Spread
from .screen import legend, titled_table
from .sidecar import MEMORY_CALLS, METRICS, Metric
from .text import count, duration, size

_LEDGER = ("cause", "calls", "bytes", "time", "regret")
_MARKS = {
    "faster": ("▼", "green"),
    "slower": ("▲", "red"),
    "same": ("=", "dim"),
    "few": ("?", "yellow"),
}


def show(results: Results, console: Console) -> None:
    """Everything that a reader needs to decide."""
    console.print()
    console.print(Text(results.shell_command, "bold"), soft_wrap=True)
    console.print(Text(results.facts, "dim"), soft_wrap=True)
    console.print()
    console.print(_times(results))
    console.print(legend(explained("times", _shown(results))))
    console.print()
    _verdict(results, console)
    beside = _beside(results)
    console.print(beside)
    console.print(legend(explained("beside", [*beside_words(results), "(1.20)"])))
    console.print()
    ledger = _ledger(results)
    if ledger is not None:
        console.print(ledger)
        console.print(legend([*explained("ledger", _LEDGER), *causes_met(results)]))
        console.print()
    for note in results.notes:
        console.print(Text(f"note: {note}", "yellow"), soft_wrap=True)


def _shown(results: Results) -> list[str]:
    """The words of the first table; without the column that has no name."""
    return [
        results.metric_title,
        "least … most",
        results.other[1],
        *("ratio", "interval", "verdict", "baseline", "again", "the noise"),
    ]


def _times(results: Results) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="dim")
    table.add_column("variant", style="bold", overflow="fold")
    for title in (
        results.metric_title,
        "least … most",
        results.other[1],
        "ratio",
        "interval",
    ):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("verdict")
    for arm in results.arms:
        table.add_row(*_arm(results, arm))
    return table


def _arm(results: Results, arm: Arm) -> list[Text | str]:
    series = results.series(arm)
    cells: list[Text | str] = [
        arm.title,
        duration(float(np.median(series))),
        f"{duration(series.min())} … {duration(series.max())}",
        duration(float(np.median(results.series(arm, results.other[0])))),
    ]
    if arm.again:
        ratio = results.judged.noise.ratio
        return [
            *cells,
            f"{ratio.value:.3f}",
            f"{ratio.low:.3f} – {ratio.high:.3f}",
            Text("the noise", "dim"),
        ]
    comparison = results.judged.comparisons.get(arm.label)
    if comparison is None:
        return [*cells, "1", "", Text("baseline", "dim")]
    mark, colour = _MARKS[comparison.verdict]
    return [
        *cells,
        f"{comparison.ratio.value:.3f}",
        f"{comparison.ratio.low:.3f} – {comparison.ratio.high:.3f}",
        Text(f"{mark} {short(comparison)}", colour),
    ]


def short(comparison: Comparison) -> str:
    """'12.3 % less', 'no difference'."""
    if comparison.verdict == "few":
        return "too few runs"
    if comparison.verdict == "same":
        return same(comparison.reason)
    return amount(comparison.ratio, comparison.verdict)


def _verdict(results: Results, console: Console) -> None:
    console.print(Text("Verdict", "bold"))
    for comparison in results.judged.comparisons.values():
        mark, colour = _MARKS[comparison.verdict]
        console.print(
            Text.assemble(f"  {mark} ", comparison.sentence, style=colour), soft_wrap=True
        )
    for sentence in disagreements(results.judged, results.cpu):
        console.print(Text(f"  · {sentence}", "yellow"), soft_wrap=True)
    console.print(
        Text(f"  · {noise_sentence(results.baseline.label, results.judged.noise)}", "dim"),
        soft_wrap=True,
    )
    if results.floor * 5 > results.median(0, "seconds"):
        console.print(
            Text(
                f"  · A program that does nothing takes {duration(results.floor)} here: "
                "much of each figure is process start-up, the same for all.",
                "dim",
            ),
            soft_wrap=True,
        )
    console.print()


def disagreements(time: Judgement, cpu: Judgement | None) -> list[str]:
    """Whether CPU time shows something that elapsed time does not."""
    found = []
    for name, comparison in (cpu.comparisons if cpu else {}).items():
        wall = time.comparisons[name].verdict
        if comparison.verdict in ("faster", "slower") and wall != comparison.verdict:
            found.append(f"CPU time: {comparison.sentence}.")
    return found


def _beside(results: Results) -> Table:
    table = titled_table("Beside time")
    table.add_column("")
    for variant in results.variants:
        table.add_column(variant.label, justify="right", overflow="fold")
    for metric in METRICS:
        spreads = [results.sidecar(index, metric.key) for index in range(len(results.variants))]
        if _has(results, metric):
            table.add_row(metric.title, *(beside_cell(metric, s, spreads[0]) for s in spreads))
    for title, amounts in call_rows(results):
        first = amounts[0]
        table.add_row(
            title,
            *(
                "–" if amount is None else f"{count(amount)}{_ratio(amount, first, index)}"
                for index, amount in enumerate(amounts)
            ),
        )
    return table


def call_rows(results: Results) -> list[tuple[str, list[int | None]]]:
    """All system calls, and those for memory."""
    totals = [sidecar.system_call_total for sidecar in results.sidecars]
    if all(total is None for total in totals):
        return []
    rows = [("system calls", totals)]
    for name in MEMORY_CALLS:
        amounts = [
            None if sidecar.system_calls is None else sidecar.system_calls.get(name, 0)
            for sidecar in results.sidecars
        ]
        if any(amounts):
            rows.append((f"  {name}", amounts))
    return rows


def beside_words(results: Results) -> list[str]:
    """The rows of other measurements that need an explanation."""
    counted = [title for title, _ in call_rows(results)][:1]
    return [metric.title for metric in METRICS if _has(results, metric)] + counted


def _has(results: Results, metric: Metric) -> bool:
    spreads = [results.sidecar(index, metric.key) for index in range(len(results.variants))]
    return any(spread is not None and spread.high for spread in spreads)


def causes_met(results: Results) -> list[tuple[str, str]]:
    """(cause, meaning) of every cause in the ledger."""
    met = {
        row.cause: "" for stats in results.stats if stats for row in stats.os_calls if row.calls
    }
    return [(cause, explain.CAUSES.get(cause, "known to the library alone")) for cause in met]


def beside_cell(metric: Metric, spread: Spread | None, base: Spread | None) -> str:
    """The median, and the ratio to the baseline: ≈ where ranges touch, ~ after too few runs."""
    if spread is None:
        return "–"
    words = size(spread.median) if metric.unit == "bytes" else count(round(spread.median))
    if base is None or spread is base or not base.median:
        return words
    if min(spread.runs, base.runs) < 3:
        return f"{words} (~{spread.median / base.median:.2f})"
    apart = spread.low > base.high or spread.high < base.low
    return f"{words} ({spread.median / base.median:.2f})" if apart else f"{words} (≈)"


def _ratio(amount: int, first: int | None, index: int) -> str:
    return f" ({amount / first:.2f})" if index and first else ""


def _ledger(results: Results) -> Table | None:
    """What caused the allocator's own system calls, for each hakmem variant."""
    table = titled_table("Causes of the allocator's own system calls")
    table.add_column("variant")
    for title in _LEDGER:
        table.add_column(title, justify="left" if title == "cause" else "right")
    for variant, stats in zip(results.variants, results.stats, strict=True):
        name = variant.label
        for cause, rows in explain.by_cause(stats.os_calls if stats else ()).items():
            regret = sum(row.regret_bytes for row in rows)
            table.add_row(
                name,
                cause,
                " + ".join(f"{count(row.calls)} {row.call}" for row in rows),
                size(sum(row.bytes for row in rows)),
                duration(sum(row.ns for row in rows) / 1e9),
                size(regret) if regret else "",
            )
            name = ""
    return table if table.row_count else None
