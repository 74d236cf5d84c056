# SPDX-License-Identifier: MIT
"""Show the counters of a running process, refreshing."""

from __future__ import annotations

import argparse
import itertools
import json
import time

from .. import inspection, process, running
from ..errors import Problem
from ..glossary import explained
from ..inspection import Heap
from ..text import Printer, count, duration, size
from .common import process_id

EPILOG = """\
A process is read from outside: it needs no setting, and is not stopped.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("pid", type=process_id, metavar="PID", help="the process to show")
    parser.add_argument(
        "-i",
        "--interval",
        type=seconds,
        default=1.0,
        metavar="SECONDS",
        help="default 1",
    )
    parser.add_argument("--once", action="store_true", help="show it once and exit")
    parser.add_argument("--json", action="store_true", help="one JSON object, once")
    parser.add_argument("--all", action="store_true", help="show counters that are zero, and live bytes by block size")


def seconds(text: str) -> float:
    """At least 0.1, and at most a day."""
    try:
        number = float(text)
    except ValueError:
        number = 0
    if not 0.1 <= number <= 86400:
        raise argparse.ArgumentTypeError(f"'{text}' is not a number of seconds from 0.1 to 86400")
    return number


def main(args: argparse.Namespace) -> int:
    if args.json:
        print(json.dumps(_as_json(*_look(args.pid)), indent=2))
        return 0
    return _show(args.pid, args.interval, args.once, args.all)


def _look(pid: int) -> tuple[Heap, list[str]]:
    """Its heap, and its settings other than their defaults."""
    heap = inspection.look(pid)
    with running.of(pid) as process:
        return heap, [f"{one.name}={one.value}" for one in process.changed()]


def _as_json(heap: Heap, settings: list[str]) -> dict[str, object]:
    return {
        "pid": heap.pid,
        "program": process.program(heap.pid),
        "settings": settings,
        "values": heap.values(),
    }


def _show(pid: int, interval: float, once: bool, everything: bool) -> int:
    printer = Printer()
    now, set_to, at = *_look(pid), time.monotonic()
    if once or not printer.terminal:
        _picture(printer, now, set_to, {}, 0, everything)
        printer.line()
        printer.table(explained("live"))
        return 0
    printer.refresh(lambda: _picture(printer, now, set_to, {}, 0, everything))
    while True:
        try:
            time.sleep(interval)
        except KeyboardInterrupt:
            return 0
        before, since = now.values(), at
        try:
            now, set_to, at = *_look(pid), time.monotonic()
        except Problem:
            if process.alive(pid):
                raise
            break
        printer.refresh(lambda: _picture(printer, now, set_to, before, at - since, everything))  # noqa: B023
    printer.line(f"process {pid} has ended")
    return 0


def _picture(
    printer: Printer, heap: Heap, settings: list[str], before: dict[str, int], seconds: float, everything: bool
) -> None:
    """The process, its counters (one heading per group, one line per call in the ledger), and its settings."""
    program = process.program(heap.pid)[:80]
    printer.line(f"process {heap.pid}  {program}   up {duration(heap.age_seconds)}", "bold")
    for words in heap.lines():
        printer.line(f"  {words}")
    now = heap.values()
    rows: list[tuple[str, ...]] = [("counter", "value", "per second", "bytes", "time", "regret")]
    for group, names in itertools.groupby(_shown(now), lambda name: name.partition(".")[0]):
        found = [_row(name, now, before, seconds) for name in names if everything or _is_wanted(name, now[name])]
        rows += [(group, *[""] * 5), *found] if found else []
    printer.table(rows, right=" rrrrr")
    printer.line("settings", "bold")
    for words in settings or ["all at their defaults"]:
        printer.line(f"    {words}")


def _is_wanted(name: str, value: int) -> bool:
    """The live bytes of each block size would fill the screen."""
    return value != 0 and not name.endswith("_byte_blocks_bytes")


_PIVOT = ("bytes", "ns", "regret_bytes")


def _shown(values: dict[str, int]) -> list[str]:
    """Of NAME.calls, .bytes, .ns and .regret_bytes only the first."""
    names = [name.rpartition(".") for name in values]
    return [f"{stem}.{last}" for stem, _, last in names if not (f"{stem}.calls" in values and last in _PIVOT)]


def _row(key: str, now: dict[str, int], before: dict[str, int], seconds: float) -> tuple[str, ...]:
    _, _, name = key.partition(".")
    value = now[key]
    rate = _rate(name, (value - before.get(key, 0)) / seconds) if before and seconds > 0 else ""
    stem = key.removesuffix(".calls")
    beside = [now.get(f"{stem}.{last}", 0) if stem != key else 0 for last in _PIVOT]
    cells = [
        _value(last, amount) if amount else ""
        for last, amount in zip(_PIVOT, beside, strict=True)
    ]
    return (f"  {name.removesuffix('.calls')}", _value(name, value), rate, *cells)


def _rate(name: str, change: float) -> str:
    if not change:
        return "·"
    return ("−" if change < 0 else "") + _value(name, abs(change))


def _value(name: str, value: float) -> str:
    last = name.rpartition(".")[2]
    if last.endswith("bytes"):
        return size(value)
    if last == "ns" or last.endswith("_ns"):
        return duration(value / 1e9)
    return count(round(value, 1) if value < 100 and value != int(value) else round(value))
