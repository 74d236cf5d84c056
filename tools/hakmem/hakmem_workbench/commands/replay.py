# SPDX-License-Identifier: MIT
"""Replay a trace under one allocator, or compare several on it.

Each recorded thread becomes a thread; each block is freed by the same thread,
in the same order, and memory is touched. The program's work between calls is
left out, so differences in time are larger than in the program.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from .. import trace, variants
from ..library import beside, find
from ..text import Printer, count, duration, plural, size
from . import ab
from .common import add_library
from .output import add_output

EPILOG = """\
FILE is what 'hakmem record' wrote. With no VARIANT it is replayed once, under
hakmem, and what was live and resident after each tenth of the calls is shown.
With VARIANTs they are compared as by 'hakmem ab', with the same options.

examples:
  hakmem replay redis.trace.gz
  hakmem replay redis.trace.gz jemalloc                  jemalloc against hakmem
  hakmem replay redis.trace.gz system mimalloc hakmem set:BACKGROUND=1
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.usage = f"{parser.prog} [OPTION]… FILE [VARIANT]…"
    parser.add_argument("file", metavar="FILE", help="a trace")
    parser.add_argument("variants", metavar="VARIANT", nargs="*", help="what to compare")
    parser.add_argument("--baseline", metavar="VARIANT", help="what to compare with")
    add_library(parser)
    ab.add_measuring(parser)
    add_output(parser, "hakmem-replay")
    parser.set_defaults(command=[])


def main(args: argparse.Namespace) -> int:
    with tempfile.TemporaryDirectory(prefix="hakmem-replay-") as name:
        folder = Path(name)
        plan = folder / "plan"
        with trace.expanded(Path(args.file), folder) as path:
            replayer = beside(find(args.library), trace.REPLAYER)
            facts = trace.facts_of(replayer, path, plan)
        if not args.variants and not args.baseline:
            return _once(args, replayer, plan, facts)
        args.command = [replayer, str(plan)]
        return ab.main(args, "hakmem-replay")


def _once(args: argparse.Namespace, replayer: str, plan: Path, facts: trace.Facts) -> int:
    variant = variants.parse("hakmem", args.library)
    outcome = trace.carry_out(replayer, plan, variant.assignments())
    printer = Printer()
    lost = f", {count(facts.lost)} lost" if facts.lost else ""
    printer.line(
        f"{facts.program} ({facts.pid}): {plural(facts.steps, 'call')} of "
        f"{plural(facts.threads, 'thread')}{lost}, at most {size(facts.peak)} live",
        "bold",
    )
    if facts.unknown + facts.implied:
        printer.line(
            f"  {count(facts.unknown)} frees of blocks from before the trace are left out; "
            f"{count(facts.implied)} blocks have no recorded free"
        )
    printer.line(
        f"  recorded in {duration(facts.seconds)}, replayed in {duration(outcome.seconds)} "
        f"under {variant.label}, peak {size(outcome.max_rss)}"
    )
    rows = [["calls", "live, recorded", "live", "resident"]]
    for tenth, cells in enumerate(zip(facts.live, outcome.live, outcome.resident, strict=True)):
        rows.append([f"{tenth + 1}0 %", *map(size, cells)])
    printer.table(rows, right="rrrr")
    return 0
