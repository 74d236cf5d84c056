# SPDX-License-Identifier: MIT
"""Show the settings that a running process has at this moment.

Without NAME, those that differ from their defaults.
"""

from __future__ import annotations

import argparse
import sys

from .. import running
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
    printer = Printer()
    with running.of(args.pid) as process:
        names = [name.upper() for name in args.names]
        for name in names:
            setting = process.setting(name if name.startswith(PREFIX) else PREFIX + name)
            printer.line(f"{setting.name} = {process.value(setting)}")
        changed = [] if names else process.changed()
        for setting in changed:
            printer.line(f"{setting.name} = {setting.value}  (default {setting.default or 'empty'})")
        if not names and not changed:
            print(f"hakmem: all settings of process {args.pid} have their defaults", file=sys.stderr)
    return 0
