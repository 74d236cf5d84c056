# SPDX-License-Identifier: MIT
"""Change settings of a running process, without a restart.

'hakmem options' marks those that can change. The process's threads follow at
their next slow path. Its environment, and programs that it starts, keep the
old values.
"""

from __future__ import annotations

import argparse

from .. import running
from ..settings import parse_assignment
from ..text import Printer
from .common import process_id

EPILOG = """\
The program itself can call hakmem_set (hakmem.h), which reaches a few more.
Another user's process needs root, and so does your own where
kernel.yama.ptrace_scope is not 0.

examples:
  hakmem set 4711 PURGE_DELAY_MS=1000
  hakmem set 4711 LIMIT_MB=512 SS_LRU_DEBUG=1
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("pid", type=process_id, metavar="PID", help="the process")
    parser.add_argument(
        "assigned", metavar="NAME=VALUE", nargs="+", help="a setting; HAKMEM_ may be left out"
    )


def main(args: argparse.Namespace) -> int:
    wanted = [parse_assignment(text) for text in args.assigned]
    printer = Printer()
    with running.of(args.pid, writes=True) as process:
        for name, value in wanted:
            process.check(process.setting(name), value)
        for name, value in wanted:
            setting = process.setting(name)
            before = process.value(setting)
            process.change(setting, value)
            printer.line(f"{name} = {process.value(setting)}  (was {before})")
        printer.line("Each thread follows at its next slow path; while the program sleeps, nothing changes.", "dim")
    return 0
