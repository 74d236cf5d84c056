# SPDX-License-Identifier: MIT
"""Numbers as a person writes them."""

import io

import pytest

from hakmem_workbench import text


@pytest.mark.parametrize(
    ("value", "words"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1.00 KiB"), (1536, "1.50 KiB"), (2**20, "1.00 MiB"),
     (1023.9 * 1024, "1.00 MiB"), (123 * 2**20, "123 MiB"), (5 * 2**40, "5.00 TiB")],
)  # fmt: skip
def test_size(value: float, words: str) -> None:
    assert text.size(value) == words


@pytest.mark.parametrize(
    ("value", "words"),
    [(0, "0 s"), (4e-9, "4.00 ns"), (1.5e-6, "1.50 µs"), (0.0123, "12.3 ms"), (0.99999, "1.00 s"),
     (119, "119 s"), (125, "2 min 05 s"), (7260, "2 h 01 min")],
)  # fmt: skip
def test_duration(value: float, words: str) -> None:
    assert text.duration(value) == words


def test_percent_and_count() -> None:
    assert text.percent(0.0512) == "5.1 %"
    assert text.percent(-0.9971) == "99.7 %"
    assert text.percent(1.0) == "100 %"
    assert text.count(1234567) == "1\u202f234\u202f567"
    assert text.plural(1, "run") == "1 run"
    assert text.plural(2, "process", "processes") == "2 processes"
    assert text.listing(["a", "b", "c"]) == "a, b and c"


def test_closest() -> None:
    assert text.closest("verfy", ["run", "verify"]) == "verify"
    assert text.closest("nonsense", ["run", "verify"]) is None


def test_printer_has_no_colour_in_a_file_and_wraps() -> None:
    stream = io.StringIO()
    printer = text.Printer(stream)
    printer.width = 30
    printer.line("red", "red")
    printer.paragraph("word " * 12, "    ", bullet="• ")
    printer.table([["name", "n"], ["a", "10"], ["bcd", "5"]], right=" r")
    lines = stream.getvalue().splitlines()
    assert "\x1b" not in stream.getvalue()
    assert lines[1].startswith("  • word") and lines[2].startswith("    word")
    assert all(len(line) <= 30 for line in lines)
    assert lines[-2:] == ["  a     10", "  bcd    5"]
