# SPDX-License-Identifier: MIT
"""Output of the measuring commands: one rule for the width, one style of tables and legends."""

from __future__ import annotations

from collections.abc import Iterable

from rich import box
from rich.console import Console
from rich.table import Table


def console() -> Console:
    """Standard output; wide if it is not a terminal."""
    plain = Console(highlight=False)
    return plain if plain.is_terminal else Console(highlight=False, width=120)


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
