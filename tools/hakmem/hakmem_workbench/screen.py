# SPDX-License-Identifier: MIT
"""The rich console of the measuring commands: one width rule for all of them."""

from __future__ import annotations

from rich.console import Console


def console() -> Console:
    """Standard output; wide where it is no terminal, as a file has no edge."""
    plain = Console(highlight=False)
    return plain if plain.is_terminal else Console(highlight=False, width=120)
