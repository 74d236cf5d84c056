# SPDX-License-Identifier: MIT
"""Run a command under hakmem; everything passes through.

The tool replaces itself with the command: same process, same stdio, same
signals, same exit code. It first checks the settings and the program's file,
so that nothing silently has no effect.
"""

from __future__ import annotations

import argparse
import errno
import os
import signal

from .. import checks, library, preload, resolve, settings
from ..errors import NOT_EXECUTABLE, Problem
from .common import add_command, add_heap_by, add_policy, heap_by, policy

EPILOG = """\
exit codes: the command's own; 2 for a wrong option, setting or library,
126 when the command is not executable, 127 when there is none.
Where hakmem has no effect on the program a line on stderr says why, unless
HAKMEM_QUIET=1.

examples:
  hakmem run -- python3 app.py
  hakmem run --backend legacy --set TINY_SS_PARTIAL=0 -- ./server
  hakmem run --heap-by=library -- ./server   which library holds the memory
  hakmem run --stats text -- ./server        statistics on stderr at exit
"""


def configure(parser: argparse.ArgumentParser) -> None:
    add_policy(parser)
    parser.add_argument(
        "--stats",
        choices=("text", "json"),
        help="write statistics at exit (HAKMEM_STATS)",
    )
    parser.add_argument(
        "--stats-file",
        metavar="FILE",
        help="where they go instead of stderr; %%p is the process id",
    )
    add_heap_by(parser)
    parser.add_argument("-v", "--verbose", action="store_true", help="print which library is used")
    add_command(parser)


def main(args: argparse.Namespace) -> int:
    path = preload.resolve_command(args.command)
    chosen = library.find(args.library)
    assigned = policy(args)
    if args.stats or args.stats_file:
        assigned["HAKMEM_STATS"] = "json" if args.stats == "json" else "1"
    if args.stats_file:
        assigned["HAKMEM_STATS_FILE"] = args.stats_file
    if assigned:
        settings.check(chosen, assigned)
    if args.verbose:
        words = " ".join(f"{key}={value}" for key, value in assigned.items())
        os.write(2, f"hakmem: {chosen.path} ({chosen.origin}) {words}\n".encode())
        if any(map(resolve.serves_jemalloc, os.environ.get("LD_PRELOAD", "").replace(":", " ").split())):
            os.write(2, f"hakmem: {library.JEMALLOC} serves jemalloc's interface\n".encode())
    if {**os.environ, **assigned}.get("HAKMEM_QUIET", "0") == "0":
        _warn(path, args.command, chosen)
    environment = preload.original_environment() | preload.assignments(chosen, assigned)
    environment["LD_PRELOAD"] = heap_by(args, chosen, environment["LD_PRELOAD"])
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)  # Python ignores these signals; its children must not
    try:
        os.execve(path, args.command, environment)
    except OSError as error:
        if error.errno == errno.ENOEXEC:  # a script without #!, which only a shell would run
            os.execve("/bin/sh", ["sh", path, *args.command[1:]], environment)
        raise Problem(
            f"{path} can't be executed: {error.strerror}",
            "'file' shows whether it was built for this machine.",
            NOT_EXECUTABLE,
        ) from error


def _warn(path: str, command: list[str], chosen: library.Library) -> None:
    """The command still runs: it may start others, which hakmem serves."""
    for finding in checks.foresee(path, command, chosen):
        words = f"{finding.kind}: {finding.sentence}. {finding.hint}".rstrip()
        os.write(2, f"hakmem: no effect on {command[0]}, {words}\n".encode())
