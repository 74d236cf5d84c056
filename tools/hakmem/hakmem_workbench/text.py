# SPDX-License-Identifier: MIT
"""Readable numbers and lists, and plain terminal output. Standard library only. Colour only if the stream is a terminal
and NO_COLOR is not set.
"""

from __future__ import annotations

import difflib
import os
import re
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterable, Sequence
from typing import TextIO

_STYLES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}
# Characters that command a terminal, reorder a line, or cannot be written at all; shown as a picture instead.
_UNSEEN = {code: 0x2400 + code for code in range(32)} | {127: 0x2421}
for first, last in ((0x80, 0x9F), (0x200E, 0x200F), (0x2028, 0x202E), (0x2066, 0x2069), (0xD800, 0xDFFF)):
    _UNSEEN |= dict.fromkeys(range(first, last + 1), 0xFFFD)
_LINES = {code: shown for code, shown in _UNSEEN.items() if chr(code) not in "\n\t"}
_OWN = re.compile("\u241b(\\[(?:0|(?:[12]|3[1236])(?:;(?:[12]|3[1236]))*)m)")


def word(text: str) -> str:
    """Text of another program, without what would command a terminal or begin a line."""
    return text.translate(_UNSEEN)


def lines(text: str) -> str:
    """The same for text that has lines of its own."""
    return text.translate(_LINES)


def size(count: float) -> str:
    """1536 → '1.50 KiB'; three figures, binary units."""
    value = float(count)
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if abs(value) < 1023.5 or unit == "TiB":
            break
        value /= 1024
    return f"{value:.0f} B" if unit == "B" else f"{_three(value)} {unit}"


def of_it(total: int, resident: int) -> str:
    """The part that is resident; empty if that is hardly less."""
    return f", {size(resident)} of it resident" if resident < total * 15 / 16 else ""


def duration(seconds: float) -> str:
    """0.0123 → '12.3 ms'; three figures."""
    magnitude = abs(seconds)
    if magnitude == 0:
        return "0 s"
    if magnitude < 0.9995e-6:
        return f"{_three(seconds * 1e9)} ns"
    if magnitude < 0.9995e-3:
        return f"{_three(seconds * 1e6)} µs"
    if magnitude < 0.9995:
        return f"{_three(seconds * 1e3)} ms"
    if magnitude < 119.5:
        return f"{_three(seconds)} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {rest:02d} s"


def count(number: float) -> str:
    """1234567 → '1 234 567' with narrow spaces; fractions are rounded."""
    if number != int(number):
        return _three(number)
    return f"{int(number):,}".replace(",", "\u202f")


def percent(ratio: float) -> str:
    """0.0512 → '5.1 %'."""
    value = abs(ratio) * 100
    return f"{value:.0f} %" if value >= 99.95 else f"{value:.1f} %"


def plural(number: int, one: str, many: str = "") -> str:
    return f"{count(number)} {one if number == 1 else many or one + 's'}"


def listing(items: Sequence[str], last: str = "and") -> str:
    """'a', 'a and b', 'a, b and c'."""
    if len(items) < 2:
        return "".join(items)
    return ", ".join(items[:-1]) + f" {last} {items[-1]}"


def closest(name: str, known: Iterable[str]) -> str | None:
    """The known name that the user probably meant, or None."""
    names = {candidate.upper(): candidate for candidate in known}
    found = difflib.get_close_matches(name.upper(), names, n=1, cutoff=0.6)
    return names[found[0]] if found else None


def did_you_mean(name: str, known: Iterable[str]) -> str:
    best = closest(name, known)
    return f"did you mean {best}?" if best else ""


def said(stderr: str, otherwise: str) -> str:
    """'It said: …' with the last line of a program's complaint; else the advice."""
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    return f"It said: {lines[-1]}" if lines else otherwise


def _three(value: float) -> str:
    magnitude = abs(value)
    if magnitude >= 99.95:
        return f"{value:.0f}"
    if magnitude >= 9.995:
        return f"{value:.1f}"
    return f"{value:.2f}"


class Printer:
    """Lines and tables on one stream."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self.stream = stream or sys.stdout
        self.terminal = self.stream.isatty()
        self.colour = self.terminal and "NO_COLOR" not in os.environ
        self.width = min(shutil.get_terminal_size((100, 24)).columns, 120)
        self.left: int | None = None  # lines that still fit, while it refreshes

    def style(self, words: str, *styles: str) -> str:
        if not self.colour or not styles:
            return words
        codes = ";".join(_STYLES[style] for style in styles)
        return f"\x1b[{codes}m{words}\x1b[0m"

    def line(self, words: str = "", *styles: str) -> None:
        end = "\n"
        if self.left is not None:
            if not self.left:
                return
            self.left, words, end = self.left - 1, words[: self.width], "\x1b[K\n"
        shown = lines(self.style(words, *styles))
        print(_OWN.sub("\x1b\\1", shown) if self.colour else shown, end=end, file=self.stream)

    def refresh(self, draw: Callable[[], None]) -> None:
        """Draws in place of what the terminal shows, cut to its size; only whole lines have a style."""
        self.width, height = shutil.get_terminal_size()
        print("\x1b[H", end="", file=self.stream)
        self.left = height - 1
        draw()
        self.left = None
        print("\x1b[J", end="", flush=True, file=self.stream)

    def paragraph(self, words: str, indent: str = "", *styles: str, bullet: str = "") -> None:
        """One wrapped paragraph; `bullet` takes the place of the first indent."""
        first = indent[: len(indent) - len(bullet)] + bullet if bullet else indent
        for line in textwrap.wrap(
            words,
            self.width,
            initial_indent=first,
            subsequent_indent=indent,
            break_long_words=False,
            break_on_hyphens=False,
        ):
            self.line(line, *styles)

    def table(self, rows: Sequence[Sequence[str]], indent: str = "  ", right: str = "") -> None:
        """Columns padded to their widest cell; the first row is the heading.

        `right` has an 'r' at the index of each right-aligned column.
        """
        widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
        for number, row in enumerate(rows):
            cells = [
                cell.rjust(width) if right[i : i + 1] == "r" else cell.ljust(width)
                for i, (cell, width) in enumerate(zip(row, widths, strict=True))
            ]
            self.line((indent + "  ".join(cells)).rstrip(), *(("dim",) if number == 0 else ()))
