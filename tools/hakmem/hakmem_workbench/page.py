# SPDX-License-Identifier: MIT
"""One self-contained HTML page: verdict first, then figures, pictures and raw data.

No script, no font, no external picture; the page contains the raw results as JSON. All external text is escaped here.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from html import escape
from importlib import resources
from typing import Any

import numpy as np

from . import __version__, explain, inference, machine
from .glossary import explained
from .inference import Verdict, noise_sentence
from .plots import Plot, ab_plots
from .report import beside_cell, beside_words, call_rows, causes_met, disagreements, short
from .results import Arm, Results
from .sidecar import METRICS
from .text import count, duration, size

_CAPTIONS = {
    "ratios": "Dot: median over the blocks of the ratio inside a block. Bar: its bootstrap "
    "interval at 99 %, shared between comparisons. Grey: what the baseline differs from itself, "
    "and at least half a percent.",
    "times": "Each dot is one run, each line a median.",
    "order": "Arms that move together show drift of the machine; blocks cancel it.",
    "memory": "Median over untimed runs, with their range. Final is what is resident at exit.",
    "memory-over-time": "Sum over the command and its children, sampled.",
    "system-calls": "Counted by strace in a run of its own, start-up included.",
    "causes": "As the allocator itself accounts for them.",
}


# The browser refuses to fetch or run anything.
POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def prose(words: str) -> str:
    """A sentence in which no line break separates a number from its sign."""
    return escape(words).replace(" %", "&nbsp;%")


def ab_page(results: Results) -> str:
    """The page of one comparison."""
    plots = ab_plots(results)
    parts = [
        _header("hakmem A/B", results.shell_command, _facts(results)),
        _section("Verdict", _verdicts(results)),
        _section(
            _capital(results.metric_title),
            _time_table(results) + legend(_time_words()) + _figures(plots[:1]),
        ),
        _section("Every run", _figures(plots[1:3])),
        _section(
            "Beside time",
            _beside_table(results)
            + legend(explained("beside", [*beside_words(results), "(1.20)"]))
            + _figures(plots[3:]),
        ),
    ]
    ledger = _ledger_table(results)
    if ledger:
        words = legend([*explained("ledger"), *causes_met(results)])
        parts.append(_section("Causes of the allocator's own system calls", ledger + words))
    parts += [
        _section("Variants", _variants_table(results) + legend(explained("variants"))),
        *machine_sections(results.machine, results.notes, results.hyperfine),
    ]
    title = f"hakmem A/B: {' vs '.join(variant.label for variant in results.variants)}"
    return page(title, parts, results.to_json())


def page(title: str, parts: Iterable[str], data: dict[str, Any]) -> str:
    """The frame around the parts, with the data from which they were made."""
    css = resources.files(__package__).joinpath("page.css").read_text(encoding="utf-8")
    raw = json.dumps(data, ensure_ascii=False).replace("</", "<\\/")
    return (
        f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>\n{css}</style>\n</head>\n<body>\n<main>\n"
        + "\n".join(parts)
        + f"\n<footer>hakmem workbench {__version__}</footer>\n</main>\n"
        f'<script type="application/json" id="data">{raw}</script>\n</body>\n</html>\n'
    )


def _capital(words: str) -> str:
    return words[0].upper() + words[1:]


def header(
    kicker: str, command: str, facts: str, question: str = "Which serves this command best?"
) -> str:
    return (
        f'<header><p class="kicker">{escape(kicker)}</p>'
        f'<h1>{escape(question)}</h1><code class="command">{escape(command)}</code>'
        f'<p class="facts">{escape(facts)}</p></header>'
    )


def section(title: str, body: str) -> str:
    return f"<section><h2>{escape(title)}</h2>\n{body}\n</section>"


def table(heading: Sequence[str], rows: Iterable[Sequence[str]], name: str, left: int = 1) -> str:
    """Cells are HTML; the first `left` columns are left-aligned."""
    head = "".join(f"<th{_left(i, left)}>{escape(cell)}</th>" for i, cell in enumerate(heading))
    body = "".join(
        "<tr>"
        + "".join(f"<td{_left(i, left)}>{cell}</td>" for i, cell in enumerate(row))
        + "</tr>\n"
        for row in rows
    )
    return (
        f'<div class="scroll"><table id="{name}"><thead><tr>{head}</tr></thead>\n'
        f"<tbody>{body}</tbody></table></div>"
    )


def legend(words: Iterable[tuple[str, str]]) -> str:
    """Below a table: each word and what it means."""
    items = "".join(
        f"<div><dt>{escape(word)}</dt><dd>{prose(meaning)}</dd></div>" for word, meaning in words
    )
    return f'<dl class="legend">{items}</dl>'


def figures(plots: Iterable[Plot], captions: dict[str, str]) -> str:
    return "\n".join(
        f'<figure><div class="plotted">{plot.svg}</div><figcaption><b>{escape(plot.title)}.</b> '
        f"{escape(captions.get(plot.name, ''))}</figcaption></figure>"
        for plot in plots
    )


def tag(verdict: Verdict | str, words: str) -> str:
    return f'<span class="tag {verdict}">{escape(words)}</span>'


def machine_sections(state: dict[str, Any], notes: list[str], hyperfine: str) -> list[str]:
    """Where and how it was measured."""
    parts = []
    if notes:
        items = "".join(f"<li>{escape(note)}</li>" for note in notes)
        parts.append(section("Notes", f'<ul class="notes">{items}</ul>'))
    rows = [(escape(name), f"{escape(value)}") for name, value in machine.rows(state)]
    rows.append(("stopwatch", escape(hyperfine)))
    parts.append(section("Machine", table(("", "state"), rows, "machine", left=2)))
    method = (inference.__doc__ or "").strip()
    parts.append(
        section(
            "Method",
            "<details><summary>How the verdict is reached</summary>"
            f"<p>{escape(method)}</p></details>",
        )
    )
    return parts


def _left(place: int, left: int) -> str:
    return ' class="left"' if place < left else ""


_header, _section = header, section


def _figures(plots: Iterable[Plot]) -> str:
    return figures(plots, _CAPTIONS)


def _facts(results: Results) -> str:
    return f"{results.facts}, {results.machine.get('time', '')}"


def _verdicts(results: Results) -> str:
    items = [
        f'<li class="{comparison.verdict}">{prose(comparison.sentence)}.</li>'
        for comparison in results.judged.comparisons.values()
    ]
    items += [f"<li>{prose(words)}</li>" for words in disagreements(results.judged, results.cpu)]
    kind = "noise" if results.judged.noise.steady else "unsteady"
    words = noise_sentence(results.baseline.label, results.judged.noise)
    items.append(f'<li class="{kind}">{prose(words)}</li>')
    return f'<ul class="verdicts">{"".join(items)}</ul>'


def _time_table(results: Results) -> str:
    heading = (
        "variant",
        results.metric_title,
        "least",
        "most",
        results.other[1],
        "ratio",
        "interval",
        "verdict",
    )
    rows = [_time_row(results, arm) for arm in results.arms]
    return table(heading, rows, "times")


def _time_words() -> list[tuple[str, str]]:
    """Like on the terminal, where two of the columns are one."""
    halves = {"least": "the fastest run", "most": "the slowest run"}
    words = dict(explained("times"))
    del words["least … most"]
    return [*words.items(), *halves.items()]


def _time_row(results: Results, arm: Arm) -> tuple[str, ...]:
    series, beside = results.series(arm), results.series(arm, results.other[0])
    cells = (
        escape(arm.title),
        duration(float(np.median(series))),
        duration(series.min()),
        duration(series.max()),
        duration(float(np.median(beside))),
    )
    if arm.again:
        ratio = results.judged.noise.ratio
        return (
            *cells,
            f"{ratio.value:.3f}",
            f"{ratio.low:.3f} – {ratio.high:.3f}",
            tag("", "the noise"),
        )
    comparison = results.judged.comparisons.get(arm.label)
    if comparison is None:
        return (*cells, "1", "", tag("", "baseline"))
    ratio = comparison.ratio
    return (
        *cells,
        f"{ratio.value:.3f}",
        f"{ratio.low:.3f} – {ratio.high:.3f}",
        tag(comparison.verdict, short(comparison)),
    )


def _beside_table(results: Results) -> str:
    rows = []
    for metric in METRICS:
        spreads = [results.sidecar(index, metric.key) for index in range(len(results.variants))]
        if any(spread is not None and spread.high for spread in spreads):
            rows.append(
                [metric.title, *(escape(beside_cell(metric, s, spreads[0])) for s in spreads)]
            )
    for title, amounts in call_rows(results):
        shown = ["–" if amount is None else count(amount) for amount in amounts]
        rows.append([escape(title).replace("  ", "&emsp;"), *shown])
    return table(("", *(variant.label for variant in results.variants)), rows, "beside")


def _ledger_table(results: Results) -> str:
    rows = []
    for variant, stats in zip(results.variants, results.stats, strict=True):
        for cause, calls in explain.by_cause(stats.os_calls if stats else ()).items():
            rows.append(
                [
                    escape(variant.label),
                    escape(cause),
                    escape(" + ".join(f"{count(row.calls)} {row.call}" for row in calls)),
                    size(sum(row.bytes for row in calls)),
                    duration(sum(row.ns for row in calls) / 1e9),
                    size(sum(row.regret_bytes for row in calls)),
                ]
            )
    heading = ("variant", "cause", "calls", "bytes", "time", "regret")
    return table(heading, rows, "ledger", left=2) if rows else ""


def _variants_table(results: Results) -> str:
    rows = []
    for variant, stats in zip(results.variants, results.stats, strict=True):
        library = variant.library
        chosen = {**variant.environment, **variant.settings}
        settings = " ".join(f"{key}={value}" for key, value in chosen.items())
        rows.append(
            [
                escape(variant.label),
                escape(stats.title if stats else library.path if library else "C library"),
                escape(stats.policy if stats else ""),
                escape(settings),
                escape((library.build_id or "")[:16] if library else ""),
            ]
        )
    return table(
        ("variant", "allocator", "policy", "settings", "build id"), rows, "variants", left=5
    )
