# SPDX-License-Identifier: MIT
"""Record every call of malloc and free that a command makes, to replay them later.

The command only runs more slowly: its stdio and exit code are untouched.
Each of its processes is recorded; the one with the most calls is kept, or all.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from datetime import datetime
from pathlib import Path
from typing import IO

from .. import children, preload, trace, variants
from ..errors import Problem
from ..library import beside, find
from ..text import Printer, count, duration, plural, size
from .common import add_command, add_library

EPILOG = """\
The command may run under any allocator: --under takes a VARIANT of 'hakmem ab'.
Exit code: the command's own.

examples:
  hakmem record -- python3 job.py
  hakmem record -o redis.trace.gz -- redis-server --port 7000
  hakmem record --under system --all -- make
  hakmem replay redis.trace.gz hakmem jemalloc
"""


def configure(parser: argparse.ArgumentParser) -> None:
    add_library(parser)
    parser.add_argument(
        "--under",
        metavar="VARIANT",
        default="hakmem",
        help="the allocator that serves it meanwhile, as for 'hakmem ab' (hakmem)",
    )
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        help="where the trace goes (NAME-DATE-TIME.trace.gz); without .gz it is not compressed",
    )
    parser.add_argument(
        "--all",
        action="store_true",
        help="keep each process's trace: FILE the largest, the others with their process id before .trace",
    )
    parser.add_argument("-q", "--quiet", action="store_true", help="print nothing about the traces")
    add_command(parser)


UNRECORDED = (
    "It called no malloc, its trace had no room, or the library had no effect: 'hakmem verify -- CMD' shows that."
)


def main(args: argparse.Namespace) -> int:
    preload.resolve_command(args.command)
    chosen = find(args.library)
    recorder = beside(chosen, trace.RECORDER)
    replayer = beside(chosen, trace.REPLAYER)
    variant = variants.parse(args.under, args.library)
    target = Path(args.output or _default(args.command[0])).absolute()
    if not os.access(target.parent, os.W_OK):
        raise Problem(f"there is no folder {target.parent} that can be written to", "Name another place with -o.")
    with tempfile.TemporaryDirectory(prefix=".hakmem-record-", dir=target.parent) as name:
        folder = Path(name)
        folder.chmod(0o777)  # a server may change its user
        code = run(args.command, trace.recording(recorder, variant, f"{folder}/%p"))
        found = read_all(replayer, folder)
        if not found:
            raise Problem(
                f"{args.command[0]} was not recorded (exit code {code})",
                UNRECORDED,
                1,
            )
        kept = _keep(found, target, args.all)
    if not args.quiet:
        _tell(found, kept)
    return code


def _default(program: str) -> str:
    return f"{os.path.basename(program)}-{datetime.now():%Y%m%d-%H%M%S}.trace.gz"


def run(command: list[str], assigned: dict[str, str], **streams: IO[bytes]) -> int:
    """Runs the command with our stdio, or with these streams; passes signals on to it."""
    return children.attend(command, env=preload.neutral_environment() | assigned, **streams)[1]


def read_all(replayer: str, folder: Path) -> list[tuple[Path, trace.Facts]]:
    """Each trace with its facts, the one with the most calls first."""
    found = []
    for path in trace.written(folder):
        try:
            found.append((path, trace.facts_of(replayer, path)))
        except Problem:
            continue  # of a process that made no call
    return sorted(found, key=lambda pair: -pair[1].steps)


def _keep(
    found: list[tuple[Path, trace.Facts]], target: Path, everything: bool
) -> list[tuple[Path, trace.Facts]]:
    kept = []
    for number, (path, facts) in enumerate(found if everything else found[:1]):
        goal = target
        if number:
            stem, dot, rest = target.name.partition(".")
            goal = target.with_name(f"{stem}-{path.name}{dot}{rest}")
        if goal.suffix == ".gz":
            trace.compress(path, goal)
        elif goal.exists() and not goal.is_file():  # a device or a pipe stays
            goal.write_bytes(path.read_bytes())
        else:
            path.replace(goal)
        kept.append((goal, facts))
    return kept


def _tell(
    found: list[tuple[Path, trace.Facts]], kept: list[tuple[Path, trace.Facts]]
) -> None:
    printer = Printer(sys.stderr)
    for path, facts in kept:
        lost = f", {count(facts.lost)} lost" if facts.lost else ""
        printer.line(
            f"hakmem: {facts.program} ({facts.pid}): {plural(facts.steps, 'call')} of "
            f"{plural(facts.threads, 'thread')} in {duration(facts.seconds)}{lost}, at most "
            f"{size(facts.peak)} live; in {os.path.relpath(path)} ({size(path.stat().st_size)})"
        )
    if left := found[len(kept) :]:
        printer.line(
            f"hakmem: {plural(len(left), 'more process', 'more processes')} with "
            f"{plural(sum(facts.steps for _, facts in left), 'call')} in all; --all keeps them too"
        )
