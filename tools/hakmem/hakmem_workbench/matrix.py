# SPDX-License-Identifier: MIT
"""The result of a factorial experiment: analysis, terminal report and page.

Measured like any comparison (`experiment`), judged by `factorial`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from functools import cached_property
from html import escape
from typing import Any

import numpy as np
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from .factorial import Analysis, Effect, Factor, analyse, cells
from .glossary import explained
from .inference import amount, change, noise_sentence, same
from .page import figures, header, machine_sections, page, prose, section, table, tag
from .page import legend as page_legend
from .plots import Plot, cells_plot, effects_plot
from .results import Results
from .screen import legend, titled_table
from .text import duration, percent, plural, size

FORMAT = "hakmem-matrix/1"
_COLOURS = {"faster": "green", "slower": "red", "same": "dim", "few": "yellow"}
_CAPTIONS = {
    "main": "Each option against the first value of its kind, averaged over all other options.",
    "interactions": "What two options do together beyond what each does alone; at 0 they add up.",
    "cells": "The fastest combination is green.",
}


class MatrixResults:
    """Factors, and the runs of all their combinations."""

    def __init__(self, factors: Sequence[Factor], results: Results) -> None:
        self.factors = list(factors)
        self.results = results

    @cached_property
    def analysis(self) -> Analysis:
        arms = [arm for arm in self.results.arms if not arm.again]
        times = np.stack([self.results.series(arm) for arm in arms], axis=1)
        return analyse(
            self.factors,
            times,
            self.results.judged.noise,
            self.results.seed,
            self.results.metric_title,
        )

    @property
    def best(self) -> int:
        middles = [self.results.median(index) for index in range(len(self.results.variants))]
        return int(np.argmin(middles))

    def sentences(self) -> list[tuple[str, str]]:
        """(verdict, sentence): first the effects found, then all others in one sentence."""
        effects = [*self.analysis.main, *self.analysis.interactions]
        told = [(e.verdict, e.sentence) for e in effects if e.verdict != "same"]
        return told + [
            ("same", f"No {what} above the noise: {'; '.join(names)}")
            for what, group in (
                ("difference", self.analysis.main),
                ("interaction", self.analysis.interactions),
            )
            if (names := [effect.name for effect in group if effect.verdict == "same"])
        ]

    @property
    def found(self) -> bool:
        """Whether any option has an effect above the noise."""
        effects = [*self.analysis.main, *self.analysis.interactions]
        return any(effect.verdict in ("faster", "slower") for effect in effects)

    def outcome(self) -> str:
        best = self.results.variants[self.best].label
        if any(effect.verdict == "few" for effect in self.analysis.main):
            return "Too few runs for a verdict."
        if not self.found:
            return "No option does anything above the noise."
        return f"Smallest median: {best}. {self.shares()}"

    def shares(self) -> str:
        parts = sorted(self.analysis.shares.items(), key=lambda item: -item[1])
        return (
            "Of the spread between the combinations: "
            + ", ".join(f"{name} {percent(share)}" for name, share in parts)
            + "."
        )

    def to_json(self) -> dict[str, Any]:
        return {
            **self.results.to_json(),
            "format": FORMAT,
            "factors": [asdict(factor) for factor in self.factors],
            "cells": [
                dict(zip((f.name for f in self.factors), cell, strict=True))
                for cell in cells(self.factors)
            ],
            "analysis": asdict(self.analysis),
        }


def show(matrix: MatrixResults, console: Console) -> None:
    """Everything that a reader needs to decide."""
    results = matrix.results
    console.print()
    console.print(Text(results.shell_command, "bold"), soft_wrap=True)
    console.print(Text(_facts(matrix), "dim"), soft_wrap=True)
    console.print()
    console.print(_cell_table(matrix))
    console.print(legend(_cell_words(results)))
    console.print()
    for title, effects in (
        ("Main effects", matrix.analysis.main),
        ("Interactions", matrix.analysis.interactions),
    ):
        if effects:
            console.print(_effect_table(title, effects))
    console.print(legend(explained("effects")))
    console.print()
    console.print(Text(matrix.outcome(), "bold"), soft_wrap=True)
    noise = noise_sentence(results.baseline.label, results.judged.noise)
    console.print(Text(noise, "dim"), soft_wrap=True)
    for note in results.notes:
        console.print(Text(f"note: {note}", "yellow"), soft_wrap=True)


def _facts(matrix: MatrixResults) -> str:
    factors = " × ".join(factor.name for factor in matrix.factors)
    results = matrix.results
    return (
        f"{factors}: {plural(len(results.variants), 'combination')}, "
        f"{plural(results.blocks, 'block')} in random order, seed {results.seed}, "
        f"{duration(results.elapsed)} in all"
        f"{f', {results.stopped.sentence}' if results.stopped else ''}"
    )


def _cell_table(matrix: MatrixResults) -> Table:
    grid = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="dim")
    for factor in matrix.factors:
        grid.add_column(factor.name)
    for title in (matrix.results.metric_title, "ratio", "peak memory"):
        grid.add_column(title, justify="right")
    for index, row in enumerate(_cell_rows(matrix)):
        grid.add_row(*row, style="bold green" if matrix.found and index == matrix.best else "")
    return grid


def _cell_words(results: Results) -> list[tuple[str, str]]:
    return explained("cells", (results.metric_title, "ratio", "peak memory"))


def _cell_rows(matrix: MatrixResults) -> list[list[str]]:
    results = matrix.results
    rows = []
    for index, cell in enumerate(cells(matrix.factors)):
        comparison = results.judged.comparisons.get(results.variants[index].label)
        peak = results.sidecar(index, "peak")
        rows.append(
            [
                *cell,
                duration(results.median(index)),
                f"{comparison.ratio.value:.3f}" if comparison else "1",
                size(peak.median) if peak else "–",
            ]
        )
    return rows


def _effect_table(title: str, effects: Sequence[Effect]) -> Table:
    grid = titled_table(title)
    grid.add_column("")
    for name in ("effect", "interval"):
        grid.add_column(name, justify="right")
    grid.add_column("verdict")
    for effect in effects:
        grid.add_row(
            effect.name,
            change(effect.ratio.value),
            _span(effect),
            Text(_word(effect), _COLOURS[effect.verdict]),
        )
    return grid


def _span(effect: Effect) -> str:
    return f"{change(effect.ratio.low)} … {change(effect.ratio.high)}"


def _word(effect: Effect) -> str:
    if effect.verdict == "few":
        return "too few runs"
    if effect.verdict == "same":
        return same(effect.reason)
    return amount(effect.ratio, effect.verdict)


def matrix_page(matrix: MatrixResults) -> str:
    """The page of one factorial experiment."""
    results, analysis = matrix.results, matrix.analysis
    items = "".join(
        f'<li class="{verdict}">{prose(words)}.</li>' for verdict, words in matrix.sentences()
    )
    noise = noise_sentence(results.baseline.label, results.judged.noise)
    items += f'<li class="noise">{prose(noise)}</li>'
    plots = matrix_plots(matrix)
    parts = [
        header("hakmem matrix", results.shell_command, _facts(matrix)),
        section(
            "Verdict",
            f'<p>{prose(matrix.outcome())}</p><ul class="verdicts">{items}</ul>',
        ),
        section(
            "Main effects",
            _effects(analysis.main, "main", plots[0]),
        ),
    ]
    if analysis.interactions:
        parts.append(
            section(
                "Interactions",
                _effects(analysis.interactions, "interactions", plots[1]),
            )
        )
    heading = (
        *(factor.name for factor in matrix.factors),
        results.metric_title,
        "ratio",
        "peak memory",
    )
    rows = [[escape(cell) for cell in row] for row in _cell_rows(matrix)]
    parts.append(
        section(
            "Combinations",
            table(heading, rows, "cells", left=len(matrix.factors))
            + page_legend(_cell_words(results))
            + figures(plots[-1:], _CAPTIONS),
        )
    )
    parts += machine_sections(results.machine, results.notes, results.hyperfine)
    return page(
        f"hakmem matrix: {' × '.join(f.name for f in matrix.factors)}", parts, matrix.to_json()
    )


def matrix_plots(matrix: MatrixResults) -> list[Plot]:
    """Main effects, interactions if there are any, and every combination."""
    results, analysis = matrix.results, matrix.analysis
    names = [variant.label for variant in results.variants]
    middles = [results.median(index) for index in range(len(names))]
    found = [
        effects_plot(
            "main", "Main effects", analysis.main, f"{results.metric_title} (← less · more →)"
        )
    ]
    if analysis.interactions:
        found.append(
            effects_plot(
                "interactions",
                "Interactions",
                analysis.interactions,
                "beyond the sum of both (← less · more →)",
            )
        )
    return [*found, cells_plot(names, middles, matrix.best if matrix.found else -1)]


def _effects(effects: Sequence[Effect], name: str, plot: Plot) -> str:
    rows = [
        (
            escape(effect.name),
            change(effect.ratio.value),
            escape(_span(effect)),
            tag(effect.verdict, _word(effect)),
        )
        for effect in effects
    ]
    return (
        table(("", "effect", "interval", "verdict"), rows, f"effects-{name}")
        + page_legend(explained("effects"))
        + figures([plot], _CAPTIONS)
    )
