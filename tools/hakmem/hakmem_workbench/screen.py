# SPDX-License-Identifier: MIT
"""Output of the measuring commands: one rule for the width, one style of tables and legends."""

from __future__ import annotations

from collections.abc import Iterable

import rich.console
from rich import box
from rich.console import ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table

from .text import lines


class Console(rich.console.Console):
    """Text never commands the terminal, and has no markup: it may come from another program."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(lines(segment.text), segment.style)


def console() -> Console:
    """Standard output; wide if it is not a terminal."""
    plain = Console(highlight=False, markup=False)
    return plain if plain.is_terminal else Console(highlight=False, markup=False, width=120)


def titled_table(title: str) -> Table:
    return Table(
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        header_style="dim",
        title=title,
        title_justify="left",
        title_style="bold",
    )


def legend(words: Iterable[tuple[str, str]]) -> Table:
    """Below a table: each word and what it means."""
    grid = Table(box=None, show_header=False, pad_edge=False, style="dim")
    grid.add_column(no_wrap=True)
    grid.add_column()
    for word, meaning in words:
        grid.add_row(f"  {word}", meaning)
    return grid
