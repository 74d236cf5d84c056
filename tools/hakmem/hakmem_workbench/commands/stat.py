# SPDX-License-Identifier: MIT
"""Show the live counters of a running process, refreshing."""

from __future__ import annotations

import argparse
import json
import re
import time
from typing import TYPE_CHECKING

from .. import inspection, shm
from ..errors import Problem
from ..shm import Live, Snapshot
from ..text import count, duration, listing, size
from .common import need, process_id

if TYPE_CHECKING:
    from rich.console import Group
    from rich.text import Text

EPILOG = """\
A process is read from outside: it needs no setting, and is not stopped.
Started with HAKMEM_STATS_SHM=1 (hakmem run --live -- CMD) it shows more
counters, and to a user who may not read its memory, too.
Without PID, the one process that shows live counters is taken.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("pid", type=process_id, metavar="PID", nargs="?", help="the process to show")
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
    parser.add_argument("--all", action="store_true", help="show counters that are zero too")


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
    if not args.json:
        need("rich")
    live = _open(args.pid if args.pid is not None else _only_one())
    try:
        if args.json:
            now = live.read()
            print(json.dumps(_as_json(live.pid, now), indent=2))
            return 0
        return _show(live, args.interval, args.once, args.all)
    finally:
        live.close()


def _open(pid: int) -> Live | inspection.Outside:
    """Its live counters, or else figures read from outside. A Problem says why neither is available."""
    return shm.open_live(pid) if shm.shows(pid) else inspection.Outside(pid)


def _only_one() -> int:
    pids = shm.running()
    if len(pids) == 1:
        return pids[0]
    if pids:
        found = [f"{pid} ({shm.program(pid)[:40]})" for pid in pids]
        raise Problem(f"several processes show counters: {listing(found)}", "Name one by its PID.")
    raise Problem(
        "no process shows live counters", "Name a process by its PID; 'hakmem top' lists them.", code=1
    )


def _as_json(pid: int, now: Snapshot) -> dict[str, object]:
    return {
        "pid": now.pid,
        "program": shm.program(pid),
        "updates": now.updates,
        "settings": shm.settings(pid),
        "configuration": now.configuration(),
        "values": now.counters(),
    }


def _show(live: Live | inspection.Outside, interval: float, once: bool, everything: bool) -> int:
    from rich.live import Live as Screen

    from ..glossary import explained
    from ..screen import console as make_console
    from ..screen import legend

    console = make_console()
    now, at = live.read(), time.monotonic()
    first = _picture(live.pid, now, None, 0, everything)
    if once or not console.is_terminal:
        console.print(first)
        console.print(legend(explained("live")))
        return 0
    with Screen(first, console=console, auto_refresh=False) as screen:
        while live.path.exists() and shm.alive(live.pid):
            try:
                time.sleep(interval)
            except KeyboardInterrupt:
                return 0
            before, since = now, at
            live.follow()
            now, at = live.read(), time.monotonic()
            screen.update(_picture(live.pid, now, before, at - since, everything), refresh=True)
    console.print(f"process {live.pid} has ended")
    return 0


def _picture(
    pid: int, now: Snapshot, before: Snapshot | None, seconds: float, everything: bool
) -> Group:
    """The process, its counters (one heading per group, one line per call in the ledger), and its settings."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    memory = _memory(pid, now)
    head = Text.assemble(
        ("process ", "dim"),
        (str(now.pid), "bold"),
        ("  " + shm.program(pid)[:80], "bold"),
        ("   updates ", "dim"),
        count(now.updates),
    )
    if now.started_ns:
        head.append(f"   up {duration(max(time.time() - now.started_ns / 1e9, 0))}", "dim")
    table = Table(box=None, padding=(0, 2), header_style="dim")
    table.add_column("counter", min_width=30)
    for title in ("value", "per second", "bytes", "time", "regret"):
        table.add_column(title, justify="right")
    for group, values in now.groups().items():
        rows = [
            _row(group, name, now, before, seconds)
            for name, value in _lines(values)
            if value or everything
        ]
        if rows:
            table.add_row(Text(group, "bold cyan"))
            for row in rows:
                table.add_row(*row)
    counters = table if table.row_count else Text("all counters are zero", "dim")
    return Group(head, *memory, counters, Text(), *_configuration(pid, now))


def _memory(pid: int, now: Snapshot) -> list[Text]:
    """The five lines of memory, or one that says why there are none."""
    from rich.text import Text

    try:
        lines = (now.heap if isinstance(now, inspection.Seen) else inspection.look(pid)).lines()
    except Problem as problem:
        lines = [f"memory    {problem.line}"]
    return [Text(f"  {line}") for line in lines]


def _configuration(pid: int, now: Snapshot) -> list[Text]:
    """Its settings, which are not counters."""
    from rich.text import Text

    lines = [Text("configuration", "bold cyan")]
    lines += [Text(f"    {words}") for words in shm.settings(pid)]
    lines += [Text(f"    {words}", "dim") for words in _set_values(now.configuration())]
    return lines


def _set_values(values: dict[str, int]) -> list[str]:
    """One line each; a table, whose names contain numbers, is also one line."""
    lines: dict[str, list[str]] = {}
    for name, value in values.items():
        table = re.fullmatch(r"(.+)\.\d+\.(\w+)", name)
        if table and table[2] == "size":
            lines.setdefault(table[1], []).append(f"{size(value)}:")
        elif table:
            lines.setdefault(table[1], []).append(f"{count(value)} {table[2]}")
        elif value:
            lines[name] = [_value(name, value)]
    return [f"{name}  {' '.join(words)}" for name, words in lines.items()]


_PIVOT = ("bytes", "ns", "regret_bytes")


def _lines(values: dict[str, int]) -> list[tuple[str, int]]:
    """The names to show: of NAME.calls, .bytes, .ns and .regret_bytes only the first."""
    calls = {name.removesuffix(".calls") for name in values if name.endswith(".calls")}
    shown = []
    for name, value in values.items():
        stem, _, last = name.rpartition(".")
        if not (stem in calls and last in _PIVOT):
            shown.append((name, value))
    return shown


def _row(
    group: str, name: str, now: Snapshot, before: Snapshot | None, seconds: float
) -> tuple[str, ...]:
    key = name if group == "other" else f"{group}.{name}"
    value = now.values[key]
    rate = ""
    if before is not None and seconds > 0:
        change = value - before.values.get(key, 0)
        rate = _rate(name, change / seconds)
    stem = key.removesuffix(".calls")
    beside = [now.values.get(f"{stem}.{last}", 0) if stem != key else 0 for last in _PIVOT]
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
