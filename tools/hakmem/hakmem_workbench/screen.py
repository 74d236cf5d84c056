# SPDX-License-Identifier: MIT
"""What the measuring commands show things with: one width rule, one look of tables."""

from __future__ import annotations

from rich import box
from rich.console import Console
from rich.table import Table


def console() -> Console:
    """Standard output; wide where it is no terminal, as a file has no edge."""
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
