# SPDX-License-Identifier: MIT
"""Compare policies, builds and allocators on your own command, honestly."""

from __future__ import annotations

import argparse
import random
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from .. import preload, variants
from ..errors import Problem
from .common import add_command, add_library, need
from .output import Output, add_output, stoppable, warn_of_few

if TYPE_CHECKING:
    from ..plots import Plot
    from ..results import Results

EPILOG = """\
Exit code 0: measured to its end. Stopped by a signal or a failure, it shows
and writes what it has; the exit code is 128 + the signal's number, or the
failure's own.

variants:
  system                        the C library's malloc
  mimalloc jemalloc tcmalloc    another allocator that is installed
  lib:PATH                      any other allocator, by its file
  hakmem                        hakmem as it is
  build:DIR                     hakmem from another Meson build directory
  backend=NAME  release=NAME    hakmem with another policy
  set:KEY=VALUE                 hakmem with a setting: see 'hakmem options'
  env:NAME=VALUE                with a variable of the environment
  A,B                           several at once: build:../b2,backend=legacy
  …,as:NAME                     with a name of its own

The first variant is the baseline. With one alone, hakmem is (for hakmem:
system). With none, hakmem is compared with the system's malloc.

examples:
  hakmem ab -- ./my-benchmark 1000
  hakmem ab system mimalloc hakmem -- python3 job.py
  hakmem ab backend=legacy set:HAKMEM_TINY_SS_PARTIAL=0 -- ./my-benchmark 1000
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("variants", metavar="VARIANT", nargs="*", help="what to compare; see below")
    parser.add_argument("--baseline", metavar="VARIANT", help="what to compare with")
    add_library(parser)
    add_measuring(parser)
    add_output(parser, "hakmem-ab")
    add_command(parser, before="[VARIANT]… -- CMD …")


def add_measuring(parser: argparse.ArgumentParser) -> None:
    """Options of the measurement, which `matrix` shares."""
    group = parser.add_argument_group("measuring")
    group.add_argument(
        "-r",
        "--runs",
        type=_positive,
        metavar="N",
        help="timed runs of each variant (default: about a minute in all, 15 to 60; "
        "a verdict needs 8)",
    )
    group.add_argument(
        "--metric",
        choices=("time", "cpu"),
        default="time",
        help="judge elapsed time, or CPU time, which suffers less from busy neighbours",
    )
    group.add_argument(
        "-w", "--warmup", type=int, default=1, metavar="N", help="warm-up runs, dropped (1)"
    )
    group.add_argument(
        "--memory-runs", type=_positive, metavar="N", help="untimed runs for memory (1 to 5)"
    )
    group.add_argument(
        "--no-syscalls", action="store_true", help="don't count system calls with strace"
    )
    group.add_argument(
        "--seed", type=int, help="order of runs and resampling (default: random, recorded)"
    )
    group.add_argument(
        "-p", "--prepare", metavar="SHELL", help="shell command before each run, not timed"
    )
    group.add_argument(
        "--input", metavar="FILE", help="standard input of the command (default: empty)"
    )
    group.add_argument(
        "-i", "--ignore-failure", action="store_true", help="accept non-zero exit codes"
    )
    group.add_argument(
        "--show-output", action="store_true", help="let the command's output through"
    )
    group.add_argument(
        "--unproven",
        action="store_true",
        help="measure even where a variant is not in effect",
    )
    group.add_argument("-q", "--quiet", action="store_true", help="no progress")


def main(args: argparse.Namespace, stem: str = "hakmem-ab") -> int:
    need("numpy", "matplotlib", "rich")
    from ..experiment import Experiment
    from ..live import Display
    from ..report import show
    from ..screen import console

    if not args.command:
        raise Problem(
            "there is no command to run",
            "Put it behind --, as in: hakmem ab system -- ./bench 1000",
        )
    contestants = variants.lineup(args.variants, args.baseline, args.library)
    asked = plan(args, contestants)
    warn_of_few(args.runs)
    with stoppable(), Output(args, stem, "ab.csv") as output:
        with Display(args.quiet) as display:
            results = Experiment(asked, display, output.record).carry_out()
        return output.conclude(
            results,
            lambda: show(results, console()),
            lambda folder: write(results, folder, args.pictures),
        )


def plan(args: argparse.Namespace, contestants: list[variants.Variant]):  # type: ignore[no-untyped-def]
    """The experiment that the options describe."""
    from ..experiment import Plan

    preload.resolve_command(args.command)
    if args.input and not Path(args.input).is_file():
        raise Problem(f"--input {args.input}: there is no such file", "Name an existing file.")
    return Plan(
        command=args.command,
        variants=contestants,
        runs=args.runs,
        warmup=args.warmup,
        seed=random.SystemRandom().randrange(2**31) if args.seed is None else args.seed,
        memory_runs=args.memory_runs,
        system_calls=not args.no_syscalls,
        ignore_failure=args.ignore_failure,
        show_output=args.show_output,
        unproven=args.unproven,
        prepare=args.prepare,
        stdin=args.input,
        metric="cpu" if args.metric == "cpu" else "seconds",
    )


def write(results: Results, folder: Path, pictures: bool = False) -> list[str]:
    """The three files and the pictures; returns their names."""
    from ..page import ab_page
    from ..plots import ab_plots
    from ..results import write_csv, write_json

    write_json(results.to_json(), folder / "ab.json")
    write_csv(results, folder / "ab.csv")
    (folder / "ab.html").write_text(ab_page(results), encoding="utf-8")
    names = write_pictures(ab_plots(results), folder) if pictures else []
    return ["ab.html", "ab.json", "ab.csv", *names]


def write_pictures(plots: Iterable[Plot], folder: Path) -> list[str]:
    names = []
    for plot in plots:
        names.append(f"{plot.name}.svg")
        (folder / names[-1]).write_text(plot.file, encoding="utf-8")
    return names


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"'{text}' is not a number of 1 or more")
    return int(text)
