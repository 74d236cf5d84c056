# SPDX-License-Identifier: MIT
"""Is it in effect? Run a command once and report which library serves malloc in
each object.

A program is what one exec started: a process that executes another is two,
and a fork that executes nothing belongs to the program that forked.

Exit code 1: the allocator does not serve everything, and every reason is
named. Otherwise the command's own: 0 if it succeeded, or if --for ended it.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import tempfile
from pathlib import Path

from .. import checks, ldtrace, library, preload, resolve, settings, statsfile
from ..checks import Expected, Finding, Judged
from ..errors import Problem
from ..observe import Image, Observation, Request, observe
from ..statsfile import Stats
from ..text import Printer, plural
from .common import add_command, add_policy, policy
from .output import stoppable
from .stat import seconds

EPILOG = (
    """\
findings (accept one with --allow NAME):
"""
    + "\n".join(f"  {kind:<18} {sentence}" for kind, sentence in checks.KINDS.items())
    + """

examples:
  hakmem verify -- python3 -c 'import sqlite3'
  hakmem verify --for 5 -- redis-server --port 7777   a server, ended after 5 s
  hakmem verify --as-is -- ./linked-with-hakmem    no preload: as it is
"""
)


def configure(parser: argparse.ArgumentParser) -> None:
    add_policy(parser)
    parser.add_argument(
        "--as-is",
        action="store_true",
        help="preload nothing: is hakmem in effect as it stands?",
    )
    parser.add_argument(
        "--for",
        dest="limit",
        type=seconds,
        metavar="SECONDS",
        help="end the command after this time",
    )
    parser.add_argument(
        "--allow",
        action="append",
        default=[],
        metavar="NAME",
        help="a finding that is no failure",
    )
    parser.add_argument("--all", action="store_true", help="show every program and every object")
    parser.add_argument(
        "--show-output", action="store_true", help="let the command's output through"
    )
    parser.add_argument("--json", action="store_true", help="for a program instead of a person")
    add_command(parser)


@dataclasses.dataclass
class _Verdict:
    """Everything that is reported."""

    expected: Expected
    seen: Observation
    programs: list[Judged]
    stats: dict[int, Stats]
    general: list[Finding]
    allowed: set[str]

    @property
    def failures(self) -> list[Finding]:
        found = [*self.general, *(f for program in self.programs for f in program.findings)]
        return [finding for finding in dict.fromkeys(found) if finding.kind not in self.allowed]


def main(args: argparse.Namespace) -> int:
    path = preload.resolve_command(args.command)
    for kind in args.allow:
        if kind not in checks.KINDS:
            raise Problem(f"there is no finding '{kind}'", f"There are: {', '.join(checks.KINDS)}.")
    verdict = _examine(args, path)
    if args.json:
        print(json.dumps(_as_json(verdict), indent=2))
    else:
        _Report(Printer(), args.all).write(verdict)
    return 1 if verdict.failures else verdict.seen.failure


def _examine(args: argparse.Namespace, path: str) -> _Verdict:
    chosen = None if args.as_is else library.find(args.library)
    expected = Expected("hakmem", chosen, any_hakmem=chosen is None)
    assigned = policy(args)
    general = _check_settings(chosen, assigned)
    with stoppable(), tempfile.TemporaryDirectory(prefix="hakmem-verify-") as name:
        folder = Path(name)
        folder.chmod(0o777)  # a program that changes its user also writes here
        environment = preload.original_environment() | assigned
        extra = preload.assignments(chosen, assigned) | ldtrace.environment(folder)
        extra |= {"HAKMEM_STATS": "json", "HAKMEM_STATS_FILE": str(folder / "stats-%p.json")}
        seen = observe(
            Request(
                args.command,
                extra,
                environment,
                trace=checks.may_trace(path),
                orphan=False,
                show_output=args.show_output,
                stdin=None,
                limit=args.limit,
            )
        )
        if not seen.images and checks.privileges(path):
            seen.images.append(Image(0, 0, os.path.realpath(path), list(args.command)))
        stats = _read_stats(folder)
        programs = checks.judge(seen, expected, ldtrace.linkages(folder))
    if not programs:
        raise Problem(
            f"{args.command[0]} ended before it could be observed",
            "Tracing is refused here, and it was too short to be sampled: give it more work.",
        )
    for one in stats.values():
        if one.violations:
            general.append(
                Finding("conservation", f"{plural(one.violations, 'conservation law')} broken")
            )
    return _Verdict(expected, seen, programs, stats, general, set(args.allow))


def _check_settings(chosen: library.Library | None, assigned: dict[str, str]) -> list[Finding]:
    """A wrong --set is an error; a wrong setting in the environment is a finding."""
    if chosen is None:
        return []
    if assigned:
        settings.check(chosen, assigned)
    stats, said = settings.ask(chosen, assigned)
    own = settings.own_settings(os.environ)
    lost = settings.unknown(own, stats.settings)
    findings = [
        Finding("unknown-setting", f"{name} is set, but hakmem has no such setting", hint)
        for name, hint in lost
    ]
    for name, value in own.items():
        setting = stats.setting(name)
        if setting is None or name in settings.ASKED_WITH:
            continue
        if settings.refused(setting, value, said):
            findings.append(
                Finding(
                    "refused-setting",
                    f"{name}={value} was refused; the default is in effect",
                    f"{setting.type}, allowed: {setting.range}" if setting.range else setting.type,
                )
            )
    return findings


def _read_stats(folder: Path) -> dict[int, Stats]:
    found = {}
    for path in folder.glob("stats-*.json"):
        try:
            found[int(path.stem.removeprefix("stats-"))] = statsfile.load(path)
        except (Problem, ValueError):
            continue
    return found


class _Report:
    """The verdict as text."""

    def __init__(self, printer: Printer, everything: bool) -> None:
        self.printer = printer
        self.everything = everything
        self.guessed = False

    def write(self, verdict: _Verdict) -> None:
        main = verdict.seen.images[0].pid
        stats = verdict.stats.get(main) or next(iter(verdict.stats.values()), None)
        self._library(verdict, stats)
        hidden = 0
        shown: set[tuple[str, ...]] = set()
        for program in verdict.programs:
            key = (program.image.exe, *(finding.kind for finding in program.findings))
            if not self.everything and key in shown:
                hidden += 1
                continue
            shown.add(key)
            self._program(program, verdict)
        if hidden:
            self.printer.line(
                f"… and {plural(hidden, 'more program')} like these (--all)", "dim"
            )
            self.printer.line()
        self._settings(stats)
        self._end(verdict, main)

    def _library(self, verdict: _Verdict, stats: Stats | None) -> None:
        if stats:
            self.printer.line(stats.title, "bold")
        if verdict.expected.library:
            chosen = verdict.expected.library
            self.printer.line(f"  library  {chosen.path} ({chosen.origin}), preloaded; not with --as-is")
        if stats and stats.policy:
            self.printer.line(f"  policy   {stats.policy}")
        self.printer.line()

    def _program(self, program: Judged, verdict: _Verdict) -> None:
        image = program.image
        mark = (
            self.printer.style("✓", "green") if program.served else self.printer.style("✗", "red")
        )
        title = self.printer.style(image.exe or " ".join(image.argv), "bold")
        self.printer.line(f"{mark} {title}" + (f"  process {image.pid}" if image.pid else ""))
        rows = [["object", "malloc", "free", "operator new"]]
        ours = [r for r in program.resolution.rows if verdict.expected.matches(r.path)]
        others = [row for row in program.resolution.rows if row not in ours]
        for row in program.resolution.rows if self.everything else others:
            if not self.everything and self._boring(row, program):
                continue
            rows.append(
                [
                    os.path.basename(row.path),
                    self._cell(row.malloc),
                    self._cell(row.free),
                    self._new(row),
                ]
            )
        if len(rows) > 1:
            self.printer.table(rows, "    ")
            more = len(others) - len(rows) + 1
            if more > 0:
                self.printer.line(f"    … and {plural(more, 'object')} served alike (--all)", "dim")
        for finding in program.findings:
            self._finding(finding, verdict.allowed)
        for note in program.notes:
            self.printer.paragraph(note, "      ", bullet="· ")
        self.printer.line()

    def _boring(self, row: resolve.Row, program: Judged) -> bool:
        """Whether an object is served like the program: a long list leaves it out."""
        main = program.resolution.program
        if len(program.resolution.rows) <= 12 or main is None or row is main:
            return False
        return row.malloc.target == main.malloc.target and row.free.target in (
            None,
            main.free.target,
        )

    def _cell(self, answer: resolve.Answer) -> str:
        words = resolve.label(answer.target)
        if answer.seen or answer.target is None:
            return words
        self.guessed = True
        return f"{words}*"

    def _new(self, row: resolve.Row) -> str:
        words = self._cell(row.new)
        behind = row.new_behind.target
        return f"{words} → {resolve.label(behind)}" if behind else words

    def _finding(self, finding: Finding, allowed: set[str]) -> None:
        accepted = finding.kind in allowed
        colour = "yellow" if accepted else "red"
        name = self.printer.style(finding.kind, "bold", colour)
        self.printer.paragraph(
            f"{name}{' (allowed)' if accepted else ''}: {finding.sentence}", "      ", bullet="→ "
        )
        if finding.hint and not accepted:
            self.printer.paragraph(finding.hint, "      ", "dim")

    def _settings(self, stats: Stats | None) -> None:
        if stats is None or not stats.settings:
            return
        asked = settings.ASKED_WITH
        changed = [s for s in stats.settings if s.changed and s.name not in asked]
        if not changed:
            self.printer.line(f"Settings: all {len(stats.settings)} at their defaults.")
            self.printer.line()
            return
        self.printer.line("Settings in effect that are not the default", "bold")
        self.printer.table(
            [
                ["setting", "value", "default", "source"],
                *(
                    [setting.name, setting.value, setting.default, setting.source]
                    for setting in changed
                ),
            ]
        )
        self.printer.line()

    def _end(self, verdict: _Verdict, main: int) -> None:
        for finding in verdict.general:
            self._finding(finding, verdict.allowed)
        if self.guessed:
            self.printer.line(
                "* not called or not bound yet: worked out from the order of lookup", "dim"
            )
        if verdict.seen.failure:
            self.printer.line(
                f"The command itself failed with exit code {verdict.seen.failure}.", "yellow"
            )
            for line in verdict.seen.stderr.strip().splitlines()[-3:]:
                self.printer.line(f"  {line}", "dim")
        failures = verdict.failures
        if failures:
            kinds = ", ".join(dict.fromkeys(finding.kind for finding in failures))
            self.printer.line(f"NOT IN EFFECT everywhere: {kinds}", "bold", "red")
            return
        proof = (
            ""
            if main in verdict.stats
            else (" (it wrote no statistics: it never allocated, was killed, or left by _exit)")
        )
        count = len(verdict.programs)
        where = "this program" if count == 1 else f"all {count} programs"
        self.printer.line(f"In effect: hakmem serves {where}{proof}.", "bold", "green")


def _as_json(verdict: _Verdict) -> dict[str, object]:
    chosen = verdict.expected.library
    return {
        "in_effect": not verdict.failures,
        "library": chosen.path if chosen else None,
        "build_id": chosen.build_id if chosen else None,
        "exit_code": verdict.seen.exit_code,
        "failed": verdict.seen.failure != 0,
        "findings": [dataclasses.asdict(finding) for finding in verdict.failures],
        "programs": [
            {
                "pid": program.image.pid,
                "exe": program.image.exe,
                "argv": program.image.argv,
                "findings": [dataclasses.asdict(finding) for finding in program.findings],
                "notes": program.notes,
                "objects": [
                    {
                        "path": row.path,
                        "malloc": row.malloc.target,
                        "free": row.free.target,
                        "operator_new": row.new.target,
                        "seen": row.malloc.seen or row.free.seen,
                    }
                    for row in program.resolution.rows
                ],
            }
            for program in verdict.programs
        ],
        "settings": [
            dataclasses.asdict(setting)
            for stats in list(verdict.stats.values())[:1]
            for setting in stats.settings
        ],
    }
