# SPDX-License-Identifier: MIT
"""Show the settings that a running process has at this moment.

Without NAME, those that differ from their defaults.
"""

from __future__ import annotations

import argparse
import sys

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
        changed = [] if names else [one for one in running.settings() if one.value != one.default]
        for setting in changed:
            printer.line(f"{setting.name} = {setting.value}  (default {setting.default or 'empty'})")
        if not names and not changed:
            print(f"hakmem: all settings of process {args.pid} have their defaults", file=sys.stderr)
    finally:
        running.close()
    return 0
