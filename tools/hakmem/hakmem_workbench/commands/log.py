# SPDX-License-Identifier: MIT
"""Show the last lines that the library logged in a running process.

A ring buffer in its memory (16 KiB) keeps them, wherever else they were
written. The debug channels write them: HAKMEM_SS_ACQUIRE_DEBUG and others.
"""

from __future__ import annotations

import argparse
import sys

from .. import inspection, settings
from ..errors import Problem
from ..text import Printer
from .common import process_id

EPILOG = """\
examples:
  hakmem set 4711 SS_ACQUIRE_DEBUG=1
  hakmem log 4711
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("pid", type=process_id, metavar="PID", help="the process")


def main(args: argparse.Namespace) -> int:
    printer = Printer()
    with inspection.of(args.pid) as process:
        if not process.has("hak_log_ring"):
            raise Problem(f"{process.library} keeps no log", settings.TOO_OLD)
        ring, written = process.variable("hak_log_ring"), process.number("hak_log_written")
    if not written:
        hint = "'hakmem options debug' lists the settings that make it log"
        print(f"hakmem: process {args.pid} has logged nothing; {hint}", file=sys.stderr)
    at = written % len(ring)
    text = (ring[at:] + ring[:at]).lstrip(b"\0").decode("utf-8", "replace")
    lines = text.splitlines()
    for line in lines[written > len(ring) :]:  # the first line was partly overwritten
        printer.line(line)
    return 0
