# SPDX-License-Identifier: MIT
"""Show the settings that a running process has at this moment.

Without NAME, those that differ from their defaults.
"""

from __future__ import annotations

import argparse

from ..running import Running
from ..settings import PREFIX
from ..text import Printer
from .common import process_id

EPILOG = """\
examples:
  hakmem get 4711
  hakmem get 4711 PURGE_DELAY_MS LIMIT_MB
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("pid", type=process_id, metavar="PID", help="the process")
    parser.add_argument("names", metavar="NAME", nargs="*", help="HAKMEM_ may be left out")


def main(args: argparse.Namespace) -> int:
    running = Running(args.pid)
    printer = Printer()
    try:
        names = [name.upper() for name in args.names]
        for name in names:
            setting = running.setting(name if name.startswith(PREFIX) else PREFIX + name)
            printer.line(f"{setting.name} = {running.value(setting)}")
        for setting in [] if names else running.table:
            if (value := running.value(setting)) != setting.default:
                printer.line(f"{setting.name} = {value}  (default {setting.default or 'empty'})")
    finally:
        running.close()
    return 0
