# SPDX-License-Identifier: MIT
"""Write statistics in the text format of Prometheus."""

from __future__ import annotations

import argparse
import os
import re
import tempfile
import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from .. import inspection, process, statsfile
from ..errors import Problem
from ..statsfile import OsCall, ProgramHeap, Retained, Stats, by_name
from ..text import listing, plural, word
from .common import served
from .stat import seconds

EPILOG = """\
A running process is read from outside: it needs no setting. With --output the
file is written beside and renamed, so that node_exporter's textfile collector
never reads a part of it.

examples:
  hakmem export 4711
  hakmem export stats-4711.json
  hakmem export postgres --every 15 -o /var/lib/node_exporter/hakmem.prom
"""

# name, type, help; each name has a unit, and counters end with _total
_FAMILIES = {
    "hakmem_live_bytes": ("gauge", "Bytes in blocks that the program holds, resident or not."),
    "hakmem_live_resident_bytes": ("gauge", "Of these, the resident ones."),
    "hakmem_class_live_bytes": ("gauge", "Bytes of live blocks in slabs, by size of block."),
    "hakmem_heaps": ("gauge", "Heaps of the program."),
    "hakmem_heap_live_bytes": ("gauge", "Bytes of live blocks in heaps of the program, by name."),
    "hakmem_heap_blocks": ("gauge", "Live blocks in heaps of the program, by name."),
    "hakmem_heap_resident_bytes": ("gauge", "Resident bytes of the pages of heaps of the program, by name."),
    "hakmem_heap_held_bytes": ("gauge", "Bytes of the pages of heaps of the program, by name."),
    "hakmem_heap_limit_bytes": ("gauge", "Limits of heaps of the program, by name; 0: none."),
    "hakmem_retained_bytes": ("gauge", "Bytes that the allocator keeps, by reason."),
    "hakmem_resident_bytes": ("gauge", "Bytes of the process that are resident."),
    "hakmem_threads": ("gauge", "Threads of the process; from a report, its heaps."),
    "hakmem_system_calls_total": ("counter", "System calls of the allocator, by cause."),
    "hakmem_system_call_failures_total": ("counter", "System calls that failed."),
    "hakmem_system_call_bytes_total": ("counter", "Bytes that the system calls were about."),
    "hakmem_system_call_seconds_total": ("counter", "Time that the system calls took."),
    "hakmem_regret_bytes_total": ("counter", "Bytes given back and handed out again within a second."),
    "hakmem_system_call_worst_seconds": ("gauge", "The longest system call of a cause."),
    "hakmem_events_total": ("counter", "What the allocator's slow paths counted."),
}
MOST_HEAPS = 20
Samples = dict[str, list[str]]  # of each family


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "sources",
        metavar="PID|NAME|FILE",
        nargs="+",
        help="processes, also by the name of their program, or a stats file",
    )
    parser.add_argument("-o", "--output", metavar="FILE", help="write there (default: stdout)")
    parser.add_argument(
        "--every",
        type=seconds,
        metavar="SECONDS",
        help="write again until all of these processes have ended; without end for a NAME (needs --output)",
    )
    parser.add_argument(
        "--heaps",
        type=_number,
        default=MOST_HEAPS,
        metavar="N",
        help=f"names of heaps of a process, by live bytes; the others are summed as 'other' (default {MOST_HEAPS})",
    )


def _number(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"'{text}' is not a number")
    return int(text)


def main(args: argparse.Namespace) -> int:
    files = [one for one in args.sources if os.sep in one or one.endswith(".json")]
    if args.every is None:  # else a file's name is not what is meant
        found = [one for one in args.sources if one not in files and Path(one).is_file()]
        called = set().union(*map(process.names, served()[0])) if found else set()
        files += [one for one in found if one not in called]
    if args.every is not None and (files or not args.output):
        raise Problem("--every needs a PID or NAME, and --output", "As in: hakmem export 4711 --every 15 -o F.")
    first = True
    while True:
        try:
            texts = [_of_file(Path(one), args.heaps) for one in dict.fromkeys(files)]
            texts += _of_processes([one for one in args.sources if one not in files], args.heaps)
        except Problem:
            if first or any(process.alive(int(one)) for one in args.sources if one.isdecimal()):
                raise
            if all(map(str.isdecimal, args.sources)):
                return 0
            texts = []
        text = "".join(
            f"# HELP {name} {words}\n# TYPE {name} {kind}\n" + "".join(f"{line}\n" for line in found)
            for name, (kind, words) in _FAMILIES.items()
            if (found := [line for samples in texts for line in samples[name]])
        )
        if args.output is None:
            print(text, end="")
        else:
            _replace(Path(args.output), text)
        if args.every is None:
            return 0
        try:
            time.sleep(args.every)
        except KeyboardInterrupt:
            return 0
        first = False


def _of_processes(sources: list[str], most: int) -> list[Samples]:
    """Those that are left; a Problem if none is."""
    pids, refused = [int(one) for one in sources if one.isdecimal()], 0
    if names := [one for one in sources if not one.isdecimal()]:
        seen, refused = served()
        pids += [pid for pid in seen if process.names(pid) & {*names}]
    unread = f" that can be read; {plural(refused, 'other')} can't" if refused else ""
    why = Problem(f"hakmem serves no process of {listing(names, 'or')}{unread}", "'hakmem top' lists all.", 1)
    found = []
    for pid in dict.fromkeys(pids):
        try:
            found.append(_of_process(pid, most))
        except Problem as problem:
            why = problem
    if sources and not found:
        raise why
    return found


def _of_process(pid: int, most: int) -> Samples:
    heap = inspection.look(pid)
    labels = {"pid": str(pid), "program": process.name(pid)}
    rest = {"hakmem_threads": heap.threads, "hakmem_resident_bytes": inspection.resident_of(pid)}
    return render(labels, heap.stats(), rest, heap.counters, heap.live_sizes, most)


def _of_file(path: Path, most: int = MOST_HEAPS) -> Samples:
    stats = statsfile.load(path)
    labels = {key: str(stats.allocator.get(key, "")) for key in ("pid", "program")}
    memory = statsfile.numbers(stats.raw.get("memory"))
    rest = {
        "hakmem_threads": memory.get("threads", 0),
        "hakmem_resident_bytes": memory.get("resident_bytes", 0),
    }
    counted = {f"bins.{name}": number for name, number in statsfile.numbers(stats.raw.get("bins")).items()}
    return render(labels, stats, rest, counted, most=most)


def render(
    labels: dict[str, str], stats: Stats, rest: dict[str, int], counters: dict[str, int],
    sizes: Mapping[int, int] | None = None, most: int = MOST_HEAPS,
) -> Samples:
    samples: Samples = {name: [] for name in _FAMILIES}

    def add(name: str, value: float, **more: str) -> None:
        pairs = ",".join(f'{key}="{_escaped(text)}"' for key, text in (labels | more).items())
        samples[name].append(f"{name}{{{pairs}}} {value:g}" if isinstance(value, float)
                             else f"{name}{{{pairs}}} {value}")

    add("hakmem_live_bytes", stats.live_bytes)
    if stats.live_resident_bytes is not None:
        add("hakmem_live_resident_bytes", stats.live_resident_bytes)
    add("hakmem_heaps", len(stats.heaps))
    for heap in _largest(stats.heaps, most):
        for part in ("live_bytes", "blocks", "held_bytes", "limit_bytes", "resident_bytes"):
            if (value := getattr(heap, part)) is not None:
                add(f"hakmem_heap_{part}", value, heap=heap.name)
    for row in _memory(stats.retained):
        add("hakmem_retained_bytes", row.bytes, reason=row.reason)
    for block, amount in sorted((sizes or {}).items()):
        add("hakmem_class_live_bytes", amount, size=str(block))
    for name, number in rest.items():
        add(name, number)
    for call in stats.os_calls:
        _add_call(add, call)
    for cause, (_, _, worst) in stats.latency.items():
        add("hakmem_system_call_worst_seconds", worst / 1e9, cause=cause)
    for name, number in counters.items():
        if name.startswith("bins."):
            add("hakmem_events_total", number, event=re.sub(r"\W", "_", name.removeprefix("bins.")))
    return samples


def _largest(heaps: Iterable[ProgramHeap], most: int) -> list[ProgramHeap]:
    """A name may stand once, also one that is "other"; most: bounds the number of time series."""
    rows = list(by_name(heaps).values())
    return list(by_name([*rows[:most], *(replace(row, name="other") for row in rows[most:])]).values())


def _add_call(add: object, call: OsCall) -> None:
    assert callable(add)
    labels = {"cause": call.cause, "call": call.call}
    add("hakmem_system_calls_total", call.calls, **labels)
    add("hakmem_system_call_failures_total", call.failed, **labels)
    add("hakmem_system_call_bytes_total", call.bytes, **labels)
    add("hakmem_system_call_seconds_total", call.ns / 1e9, **labels)
    add("hakmem_regret_bytes_total", call.regret_bytes, **labels)


def _memory(rows: Iterable[Retained]) -> list[Retained]:
    return [row for row in rows if row.memory]


def _escaped(text: str) -> str:
    return word(text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n"))


def _replace(path: Path, text: str) -> None:
    """A reader never sees a part of it. A device and a pipe keep their place, and so does a link of our own."""
    try:
        if not path.is_symlink() or path.lstat().st_uid in (0, os.getuid()):
            if path.exists() and not path.is_file():
                path.write_text(text)
                return
            path = path.resolve()
        number, beside = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with open(number, "w", encoding="utf-8") as stream:
                stream.write(text)
            os.chmod(beside, 0o644)
            os.replace(beside, path)
        except OSError:
            os.unlink(beside)
            raise
    except OSError as error:
        raise Problem(f"{path} can't be written: {error.strerror}", "Name a writable file.") from error
