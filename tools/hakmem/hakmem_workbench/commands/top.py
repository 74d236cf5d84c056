# SPDX-License-Identifier: MIT
"""List the processes that hakmem serves, by their memory."""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

from .. import elf, inspection, process
from ..errors import Problem
from ..inspection import Heap
from ..text import count, duration, plural, size
from .common import need
from .stat import seconds

if TYPE_CHECKING:
    from rich.console import Group

EPILOG = """\
live are blocks that the program holds, retained is what the allocator keeps
beside them, and resident is both. "most of it" is the largest reason, which
'hakmem causes PID' explains. Slow paths and bytes given back are sums at first,
then per second. A process is read from outside: it needs no setting, and is not
stopped.
"""

SORTED_BY = ("live", "retained", "resident")
_SLOW = ("bins.refills", "bins.checks", "bins.slabs_acquired")
_BACK = ("madvise", "process_madvise", "munmap")


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-i", "--interval", type=seconds, default=2.0, metavar="SECONDS", help="default 2"
    )
    parser.add_argument("--once", action="store_true", help="show it once and exit")
    parser.add_argument("--sort", choices=SORTED_BY, default="resident", help="default resident")


def main(args: argparse.Namespace) -> int:
    need("rich")
    from rich.live import Live as Screen

    from ..screen import console as make_console

    console = make_console()
    heaps, refused, at = *_look(), time.monotonic()
    first = _picture(heaps, {}, 0, refused, args.sort)
    if args.once or not console.is_terminal:
        console.print(first)
        return 0
    with Screen(first, console=console, auto_refresh=False) as screen:
        while True:
            try:
                time.sleep(args.interval)
            except KeyboardInterrupt:
                return 0
            before, since = {heap.pid: heap for heap in heaps}, at
            heaps, refused, at = *_look(), time.monotonic()
            screen.update(_picture(heaps, before, at - since, refused, args.sort), refresh=True)


def _look() -> tuple[list[Heap], int]:
    """All readable processes, and the number of unreadable ones that hakmem may serve."""
    heaps, refused = [], 0
    for entry in Path("/proc").glob("[0-9]*"):
        pid = int(entry.name)
        try:
            if pid != os.getpid() and _may_be_served(pid):
                heaps.append(inspection.look(pid))
        except PermissionError:
            refused += 1
        except (Problem, OSError):
            pass  # the process ended, or another library has our name
    return heaps, refused


def _may_be_served(pid: int) -> bool:
    """By the name of a mapped file, or by the records in a program that contains hakmem."""
    text = Path(f"/proc/{pid}/maps").read_text(errors="replace")
    if "hakmem" in text:
        return True
    try:
        return bool(elf.section(f"/proc/{pid}/exe", inspection.SECTION))
    except (elf.NotElf, OSError):
        return False


def _picture(
    heaps: list[Heap], before: dict[int, Heap], passed: float, refused: int, by: str
) -> Group:
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for title in ("PID", "live", "retained", "resident", "most of it", "slow paths", "given back", "age"):
        table.add_column(title, justify="left" if title == "most of it" else "right", no_wrap=True)
    table.add_column("program")  # the column that is truncated if a line is too short
    keys = {"live": lambda h: h.live, "retained": _retained, "resident": lambda h: h.resident}
    for heap in sorted(heaps, key=keys[by], reverse=True):
        old = before.get(heap.pid)
        most = max(heap.kept, key=lambda reason: heap.kept[reason], default="")
        table.add_row(
            str(heap.pid),
            size(heap.live),
            size(_retained(heap)),
            size(heap.resident),
            most,
            _rate(_slow(heap), _slow(old) if old else None, passed, count),
            _rate(_given_back(heap), _given_back(old) if old else None, passed, size),
            duration(heap.age_seconds),
            process.program(heap.pid)[:40],
        )
    foot = f"{plural(len(heaps), 'process', 'processes')}, read {time.strftime('%H:%M:%S')}"
    if refused:
        foot += f"; {count(refused)} more can't be read by this user"
    return Group(table, Text(foot, "dim"))


def _retained(heap: Heap) -> int:
    return sum(heap.kept.values())


def _slow(heap: Heap) -> int:
    return sum(heap.counters.get(name, 0) for name in _SLOW)


def _given_back(heap: Heap) -> int:
    return sum(call.bytes for call in heap.os_calls if call.call in _BACK and call.cause != "huge_page")


def _rate(now: int, before: int | None, passed: float, words: object) -> str:
    """Totals at first, then per second."""
    assert callable(words)
    if before is None or passed <= 0:
        return str(words(now))
    return f"{words(round((now - before) / passed))}/s"
