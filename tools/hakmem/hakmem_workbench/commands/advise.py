# SPDX-License-Identifier: MIT
"""Find the settings and the build that serve a command best, and prove it.

The command is recorded once. Variants are replayed, and those that gain are
measured on the command itself as by 'hakmem ab'. The answer may be that the
defaults are best.
"""

from __future__ import annotations

import argparse
import random
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from .. import advice, preload, trace, variants
from ..errors import Problem
from ..library import beside, find
from ..text import Printer, duration, listing, percent, plural, size
from . import ab, record
from .common import add_command, add_library, need
from .output import Output, add_output, stoppable, warn_of_few

if TYPE_CHECKING:
    from ..results import Results

EPILOG = """\
The command runs about 20 times for each of up to four variants; --runs says how
often. Without --build, other release builds in this source tree are tried, too.
Exit code 0: there is an answer.

examples:
  hakmem advise -- ./my-benchmark 1000
  hakmem advise --build ../build-list --runs 20 -- python3 job.py
  hakmem advise --try set:HAKMEM_LIMIT_MB=64 -- ./server --once
"""


def configure(parser: argparse.ArgumentParser) -> None:
    add_library(parser)
    parser.add_argument(
        "--build",
        metavar="DIR",
        action="append",
        default=[],
        dest="builds",
        help="another Meson build directory to try; repeatable",
    )
    parser.add_argument(
        "--try",
        metavar="VARIANT",
        action="append",
        default=[],
        dest="more",
        help="try this one instead of the usual ones; repeatable",
    )
    ab.add_measuring(parser)
    add_output(parser, "hakmem-advise")
    add_command(parser)


def main(args: argparse.Namespace) -> int:
    need("numpy", "matplotlib", "rich")
    from ..live import Display

    preload.resolve_command(args.command)
    chosen = find(args.library)
    baseline = advice.Candidate(variants.parse("hakmem", args.library))
    if args.more:
        others = [advice.Candidate(variants.parse(spec, args.library)) for spec in args.more]
    else:
        others = advice.candidates([*advice.SETTINGS, *advice.builds(baseline.variant, args.builds)], args.library)
    warn_of_few(args.runs)
    seed = random.SystemRandom().randrange(2**31) if args.seed is None else args.seed
    printer = Printer()
    with stoppable(), tempfile.TemporaryDirectory(prefix="hakmem-advise-") as name:
        replayer = beside(chosen, trace.REPLAYER)
        with Display(args.quiet) as display:
            display.phase("Recording the command", 1)
            display.step(args.command[0])
            facts = _record(args, replayer, baseline.variant, Path(name))
            display.phase("Replaying", (len(others) + 1) * (advice.ROUNDS + 1) + advice.ROUNDS)
            advice.screen(replayer, Path(name) / "plan", baseline, others, seed, display.step)
    found = advice.finalists(baseline, others, args.library)
    _screened(printer, facts, baseline, others)
    if not found:
        printer.line()
        printer.line(
            f"The defaults are best: of {plural(len(others), 'variant')} none gains "
            f"{percent(advice.GAIN)} of CPU time or memory on a replay of the command.",
            "bold",
        )
        return 0
    printer.paragraph(
        "To be proven on the command: "
        + listing([f"{one.variant.label} ({one.reason})" for one in found])
        + "."
    )
    return _prove(args, printer, baseline.variant, found)


def _record(
    args: argparse.Namespace, replayer: str, variant: variants.Variant, folder: Path
) -> trace.Facts:
    """Runs the command once and makes the plan of its process with the most calls."""
    traces = folder / "traces"
    traces.mkdir()
    traces.chmod(0o777)
    folder.chmod(0o755)
    recorder = beside(find(args.library), trace.RECORDER)
    with open(args.input or "/dev/null", "rb") as stdin, open("/dev/null", "wb") as sink:
        streams = {} if args.show_output else {"stdout": sink, "stderr": sink}
        assigned = trace.recording(recorder, variant, f"{traces}/%p")
        code = record.run(args.command, assigned, stdin=stdin, **streams)
    if code and not args.ignore_failure:
        raise Problem(
            f"the command failed with exit code {code} while it was recorded",
            "-i ignores failures; --show-output lets the output through.",
            1,
        )
    found = record.read_all(replayer, traces)
    if not found:
        raise Problem(
            f"{args.command[0]} was not recorded",
            record.UNRECORDED,
            1,
        )
    return trace.facts_of(replayer, found[0][0], folder / "plan")


def _screened(
    printer: Printer,
    facts: trace.Facts,
    baseline: advice.Candidate,
    others: list[advice.Candidate],
) -> None:
    printer.line(
        f"{facts.program}: {plural(facts.steps, 'call')} of {plural(facts.threads, 'thread')} "
        f"in {duration(facts.seconds)}, at most {size(facts.peak)} live. Replayed:"
    )
    rows = [["variant", "CPU time", "mean memory", "peak", "gain"]]
    for one in (baseline, *others):
        gained = advice.gains(one, baseline) if one is not baseline else {}
        words = [f"{percent(gain)} of {quantity}" for quantity, gain in gained.items()]
        rows.append(
            [one.variant.label, duration(one.cpu), size(one.mean), size(one.peak), ", ".join(words)]
        )
    printer.table(rows, right="lrrrl")


def _prove(
    args: argparse.Namespace,
    printer: Printer,
    baseline: variants.Variant,
    found: list[advice.Finalist],
) -> int:
    from ..experiment import Experiment
    from ..live import Display
    from ..report import show
    from ..screen import console

    contestants = [baseline, *(one.variant for one in found)]
    asked = ab.plan(args, contestants)
    with stoppable(), Output(args, "hakmem-advise", "ab.csv") as output:
        with Display(args.quiet) as display:
            results = Experiment(asked, display, output.record).carry_out()
        code = output.conclude(
            results,
            lambda: show(results, console()),
            lambda folder: ab.write(results, folder, args.pictures),
        )
    if code == 0:
        _answer(printer, results, found)
    return code


def _answer(printer: Printer, results: Results, found: list[advice.Finalist]) -> None:
    proven = []
    for index, one in enumerate(found, 1):
        gain, words = proof(results, index)
        if words:
            proven.append((gain, one, words))
    printer.line()
    if not proven:
        tried = listing([one.variant.label for one in found])
        printer.line(
            f"The defaults are best: {tried} gained on the replay, but not on the command.",
            "bold",
        )
        return
    _, best, words = max(proven, key=lambda entry: entry[0])
    printer.line(f"Better than the defaults: {best.variant.label} ({listing(words)}).", "bold")
    for line in advice.how_to(best.variant):
        printer.line(f"  {line}")


def proof(results: Results, index: int) -> tuple[float, list[str]]:
    """What a variant significantly gains on the command, if it loses nothing significantly."""
    label = results.variants[index].label
    judged = [(results.metric_title, results.judged.comparisons[label])]
    if results.cpu:
        judged.append(("CPU time", results.cpu.comparisons[label]))
    gain, words = 0.0, []
    for quantity, comparison in judged:
        if comparison.verdict == "slower":
            return 0.0, []
        if comparison.verdict == "faster":
            gain = max(gain, 1 - comparison.ratio.value)
            words.append(f"{percent(1 - comparison.ratio.value)} less {quantity}")
    ours, theirs = results.sidecar(index, "peak"), results.sidecar(0, "peak")
    if ours and theirs and theirs.median:
        share = 1 - ours.median / theirs.median
        if share < -advice.LOSS and ours.low > theirs.high:
            return 0.0, []
        if share >= advice.GAIN and ours.high < theirs.low:
            gain = max(gain, share)
            words.append(f"{percent(share)} less peak memory")
    means = [advice.mean_of(results.sidecars[which].samples) for which in (index, 0)]
    if means[0] and means[1]:
        share = 1 - means[0] / means[1]
        if share < -advice.MEAN_GAIN:
            return 0.0, []
        if share >= advice.MEAN_GAIN:
            gain = max(gain, share)
            words.append(f"{percent(share)} less memory in the mean")
    return gain, words
