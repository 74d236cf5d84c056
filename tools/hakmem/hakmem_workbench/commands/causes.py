# SPDX-License-Identifier: MIT
"""Explain a process or a stats file: what is kept and why, what called the kernel."""

from __future__ import annotations

import argparse
import dataclasses
import json
import signal
import sys
import tempfile
from pathlib import Path

from .. import children, inspection, library, preload, process, running, settings, statsfile
from ..errors import Problem
from ..explain import Item, Section, explain
from ..statsfile import Setting, Stats
from ..text import Printer, size
from .common import add_command, add_policy, policy
from .output import stoppable

EPILOG = """\
A running process is read from outside: it needs no setting, and is not stopped.
FILE is what a process wrote under HAKMEM_STATS=json; - is standard input.

examples:
  hakmem causes 4711
  HAKMEM_STATS=json HAKMEM_STATS_FILE=stats-%p.json hakmem run -- ./server
  hakmem causes stats-4711.json
  hakmem causes -- ./my-benchmark 1000      runs it, then explains
"""


def configure(parser: argparse.ArgumentParser) -> None:
    add_policy(parser)
    parser.add_argument(
        "file", metavar="PID|FILE", nargs="?", help="a process, a stats file, or - for standard input"
    )
    parser.add_argument("--json", action="store_true", help="for a program instead of a person")
    add_command(parser, before="PID | FILE | -- CMD …")


def main(args: argparse.Namespace) -> int:
    if bool(args.file) == bool(args.command):
        raise Problem(
            "either a PID, a stats FILE or a command behind -- is needed",
            "As in: hakmem causes 4711, or hakmem causes -- ls.",
        )
    printer = Printer()
    if args.file and args.file.isdecimal() and not Path(args.file).exists():
        heap = inspection.look(int(args.file))
        stats = dataclasses.replace(heap.stats(), settings=_settings(heap.pid))
        if args.json:
            _as_json(stats, pid=heap.pid, program=process.program(heap.pid), container=process.container(heap.pid))
        else:
            _running(printer, heap, stats)
        return 0
    if args.file == "-":
        stats = statsfile.loads(sys.stdin.read(), "standard input")
    elif args.file:
        stats = statsfile.load(Path(args.file))
    else:
        stats = _run(args)
    try:
        stats = settings.described(stats, library.find(args.library))
    except Problem:  # figures need no library
        pass
    if args.json:
        _as_json(stats)
        return 0
    _head(printer, stats)
    for section in explain(stats):
        _section(printer, section)
    return 0


def _as_json(stats: Stats, **more: object) -> None:
    memory = {"live_bytes": stats.live_bytes, "live_resident_bytes": stats.live_resident_bytes}
    memory |= {"retained_bytes": {row.reason: row.bytes for row in stats.retained}}
    print(json.dumps(more | memory | {"sections": list(map(dataclasses.asdict, explain(stats)))}, indent=2))


def _running(printer: Printer, heap: inspection.Heap, stats: Stats) -> None:
    """The same for a running process, and how full its slabs are."""
    printer.line(f"process {heap.pid}  {process.program(heap.pid)[:80]}", "bold")
    printer.line(f"  {heap.library}")
    for words in heap.lines():
        printer.paragraph(words, "  ")
    if words := _container(process.container(heap.pid)):
        printer.paragraph(words, "  ")
    if heap.note:
        printer.paragraph(f"{heap.note[0].upper()}{heap.note[1:]}.", "  ", "yellow")
    for section in explain(stats):
        _section(printer, section)
        if section.title == "Memory that is kept" and any(heap.occupancy):
            printer.paragraph(f"Slabs by how full they are: {heap.filling()}.", "  ")
            most = [(number, amount) for number, amount in heap.live_sizes.most_common(5) if amount]
            words = ", ".join(f"{number} bytes {size(amount)}" for number, amount in most)
            printer.paragraph(f"Live blocks in slabs by size: {words or 'none'}.", "  ")


def _container(group: dict[str, int]) -> str:
    if not group:
        return ""
    parts = {name: size(group[name]) for name in ("anon", "file", "kernel") if group[name]}
    words = f"container  {size(group['current'])} of {size(group['limit'])} in use: "
    words += ", ".join(f"{name} {amount}" for name, amount in parts.items())
    return words + f" (of file {size(group['inactive_file'])} can be dropped; all processes of the container count)"


def _settings(pid: int) -> tuple[Setting, ...]:
    """Its settings at this moment; figures need none."""
    try:
        with running.of(pid) as process:
            return process.settings()
    except Problem:
        return ()


def _run(args: argparse.Namespace) -> Stats:
    """Runs the command with its stdio untouched and reads what it wrote."""
    preload.resolve_command(args.command)
    chosen = library.find(args.library)
    assigned = policy(args)
    if assigned:
        settings.check(chosen, assigned)
    with stoppable(), tempfile.TemporaryDirectory(prefix="hakmem-causes-") as folder:
        wanted = {"HAKMEM_STATS": "json", "HAKMEM_STATS_FILE": f"{folder}/%p.json"}
        environment = (
            preload.original_environment() | preload.assignments(chosen, assigned) | wanted
        )
        pid, code = children.attend(args.command, env=environment)
        stats = statsfile.most_telling(Path(folder), pid)
        if stats is None and (names := [one.name for one in signal.Signals if 128 + one == code]):
            raise Problem(
                f"{names[0]} ended {args.command[0]} before it wrote statistics",
                "While it runs, 'hakmem causes PID' explains it.",
                code,
            )
        if stats is None:
            raise Problem(
                f"{args.command[0]} wrote no statistics (exit code {code})",
                "'hakmem verify -- CMD' shows whether hakmem is in effect.",
                code=1,
            )
        return stats


def _head(printer: Printer, stats: Stats) -> None:
    printer.line(stats.title, "bold")
    if stats.policy:
        printer.paragraph(stats.policy, "  ")
    for setting in stats.settings:
        if setting.changed and setting.name not in settings.ASKED_WITH:
            printer.line(f"  {setting.name}={setting.value} from {setting.source}", "yellow")


def _section(printer: Printer, section: Section) -> None:
    printer.line()
    printer.line(section.title, "bold")
    printer.paragraph(section.lead, "  ")
    for item in section.items:
        _item(printer, item)


def _item(printer: Printer, item: Item) -> None:
    meaning = f": {item.meaning}." if item.meaning else "."
    name = printer.style(item.name, "bold", "cyan")
    printer.paragraph(f"{name}  {item.fact}{meaning}", "    ", bullet="• ")
    if item.judgement:
        printer.paragraph(item.judgement, "    ")
    for setting in item.settings:
        limits = f"; {setting.range}" if setting.range else ""
        state = f"{setting.name} changes it (now {setting.value or 'unset'}{limits})"
        state += f": {setting.sentence}" if setting.sentence else "."
        printer.paragraph(state, "      ", "dim", bullet="→ ")
