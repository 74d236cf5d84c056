# SPDX-License-Identifier: MIT
"""List the processes that hakmem serves, or the heaps in them, by their memory."""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import asdict

from .. import inspection, process
from ..errors import Problem
from ..inspection import Heap
from ..statsfile import by_name
from ..text import Printer, count, duration, plural, size
from .common import served
from .stat import seconds

EPILOG = """\
live are blocks that the program holds, touched or not, retained is what the
allocator keeps beside them, and resident is what both occupy of memory. "most
of it" is the largest reason, which 'hakmem causes PID' explains. Slow paths and
bytes given back are sums at first, then per second. --heaps shows heaps of
programs (docs/heaps.md) by name: live, its change since the last screen, the
bytes of their pages (held), and how much of these is resident. A process is
read from outside: it needs no setting, and is not stopped.
"""

SORTED_BY = ("live", "retained", "resident")
_SLOW = ("bins.refills", "bins.checks", "bins.slabs_acquired")
_BACK = ("madvise", "process_madvise", "munmap")
_ADVICE = ("huge_page", "superslab_map", "prefault")  # whose madvise returns nothing


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-i", "--interval", type=seconds, default=2.0, metavar="SECONDS", help="default 2"
    )
    parser.add_argument("--once", action="store_true", help="show it once and exit")
    parser.add_argument("--json", action="store_true", help="a JSON array of all processes, once")
    parser.add_argument("--heaps", action="store_true", help="a row for each heap of a program")
    parser.add_argument("--sort", choices=SORTED_BY, default="resident", help="default resident")


def main(args: argparse.Namespace) -> int:
    printer = Printer()
    rows = _heap_rows if args.heaps else _process_rows
    heaps, refused, at = *_look(args.sort), time.monotonic()
    if args.json:
        print(json.dumps([_as_json(heap) for heap in heaps], indent=2))
        return 0

    def picture(before: dict[int, Heap], passed: float) -> None:
        printer.table(rows(heaps, before, passed, args.sort), "", "r rrrrrr" if args.heaps else "rrrr rrr")
        foot = f"{plural(len(heaps), 'process', 'processes')}, read {time.strftime('%H:%M:%S')}"
        if refused:
            foot += f"; {plural(refused, 'other')} can't be read: hakmem may serve some"
        printer.line(foot, "dim")

    if args.once or not printer.terminal:
        picture({}, 0)
        return 0
    printer.refresh(lambda: picture({}, 0))
    while True:
        try:
            time.sleep(args.interval)
        except KeyboardInterrupt:
            return 0
        before, since = {heap.pid: heap for heap in heaps}, at
        heaps, refused, at = *_look(args.sort), time.monotonic()
        printer.refresh(lambda: picture(before, at - since))  # noqa: B023


def _look(by: str) -> tuple[list[Heap], int]:
    """All readable processes, the largest first, and the number of unreadable ones."""
    heaps = []
    pids, refused = served()
    for pid in pids:
        try:
            heaps.append(inspection.look(pid))
        except (Problem, OSError):
            pass  # the process ended, or another library has our name
    keys = {"live": lambda h: h.live, "retained": _retained, "resident": lambda h: h.resident}
    return sorted(heaps, key=keys[by], reverse=True), refused


def _as_json(heap: Heap) -> dict[str, object]:
    return {
        "pid": heap.pid,
        "program": process.program(heap.pid),
        "live_bytes": heap.live,
        "live_resident_bytes": heap.live_resident,
        "retained_bytes": heap.kept,
        "resident_bytes": heap.resident,
        "slow_paths": _slow(heap),
        "given_back_bytes": _given_back(heap),
        "heaps": [asdict(row) for row in heap.program_heaps],
        "age_seconds": round(heap.age_seconds, 2),
    }


def _process_rows(heaps: list[Heap], before: dict[int, Heap], passed: float, _: str) -> list[tuple[str, ...]]:
    head = ("PID", "live", "retained", "resident", "most of it", "slow paths", "given back", "age", "program")
    rows: list[tuple[str, ...]] = [head]
    for heap in heaps:
        old = before.get(heap.pid)
        rows.append(
            (
                str(heap.pid),
                size(heap.live),
                size(_retained(heap)),
                size(heap.resident),
                max(heap.kept, key=lambda reason: heap.kept[reason], default=""),
                _rate(_slow(heap), _slow(old) if old else None, passed, count),
                _rate(_given_back(heap), _given_back(old) if old else None, passed, size),
                duration(heap.age_seconds),
                process.program(heap.pid)[:40],
            )
        )
    return rows


def _heap_rows(heaps: list[Heap], before: dict[int, Heap], _: float, by: str) -> list[tuple[str, ...]]:
    """Of each process and name one; what has come since counts as change."""
    found = [(heap.pid, row) for heap in heaps for row in by_name(heap.program_heaps).values()]
    old = {(pid, row.name): row for pid, heap in before.items() for row in by_name(heap.program_heaps).values()}
    keys = {"live": lambda r: r.live_bytes, "retained": lambda r: r.held_bytes - r.live_bytes,
            "resident": lambda r: r.resident_bytes or 0}
    rows: list[tuple[str, ...]] = [("PID", "heap", "live", "change", "held", "resident", "blocks", "limit", "program")]
    for pid, row in sorted(found, key=lambda one: keys[by](one[1]), reverse=True):
        last = old.get((pid, row.name))
        rows.append(
            (
                str(pid),
                row.name or "(no name)",
                size(row.live_bytes),
                _change(row.live_bytes - (last.live_bytes if last else 0)) if pid in before else "",
                size(row.held_bytes),
                size(row.resident_bytes or 0),
                count(row.blocks),
                size(row.limit_bytes) if row.limit_bytes else "",
                process.program(pid)[:40],
            )
        )
    return rows


def _change(bytes_more: int) -> str:
    return f"{'+' if bytes_more > 0 else '−'}{size(abs(bytes_more))}" if bytes_more else "·"


def _retained(heap: Heap) -> int:
    return sum(heap.kept.values())


def _slow(heap: Heap) -> int:
    return sum(heap.counters.get(name, 0) for name in _SLOW)


def _given_back(heap: Heap) -> int:
    return sum(call.bytes for call in heap.os_calls if call.call in _BACK and call.cause not in _ADVICE)


def _rate(now: int, before: int | None, passed: float, words: object) -> str:
    """Totals at first, then per second."""
    assert callable(words)
    if before is None or passed <= 0:
        return str(words(now))
    return f"{words(round((now - before) / passed))}/s"
