# SPDX-License-Identifier: MIT
"""List every setting: type, default, range, current value and its source.

The table is the library's own: it is asked, in a program of no importance,
under the present environment and what --set adds to it.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os

from .. import library, settings
from ..errors import Problem
from ..statsfile import Setting, Stats
from ..text import Printer, did_you_mean
from .common import add_policy, policy

EPILOG = """\
examples:
  hakmem options                     all of them
  hakmem options partial lru         those that have one of the words
  hakmem options --changed           those that the environment changes
"""


def configure(parser: argparse.ArgumentParser) -> None:
    add_policy(parser)
    parser.add_argument("--changed", action="store_true", help="only what differs from the default")
    parser.add_argument("--json", action="store_true", help="for a program instead of a person")
    parser.add_argument("words", metavar="WORD", nargs="*", help="show only what matches a word")


def main(args: argparse.Namespace) -> int:
    chosen = library.find(args.library)
    assigned = policy(args)
    if assigned:
        settings.check(chosen, assigned)
    stats, _ = settings.ask(chosen, assigned)
    if not stats.settings:
        raise Problem(f"{chosen.path} tells no settings; it is older than this tool")
    table = [_ours_aside(setting, assigned) for setting in stats.settings]
    rows = [row for row in table if _wanted(row, args.words) and (row.changed or not args.changed)]
    if args.json:
        print(json.dumps([dataclasses.asdict(row) for row in rows], indent=2, ensure_ascii=False))
    else:
        _print(Printer(), chosen, stats, rows)
    return _judge_environment(table, args.words, rows)


def _ours_aside(setting: Setting, assigned: dict[str, str]) -> Setting:
    """Asking needs four settings of its own; they are shown as the user has them."""
    if setting.name not in settings.ASKED_WITH:
        return setting
    value = assigned.get(setting.name, os.environ.get(setting.name))
    if value is None:
        return dataclasses.replace(setting, value=setting.default, source="default")
    return dataclasses.replace(setting, value=value, source="environment")


def _wanted(setting: Setting, words: list[str]) -> bool:
    text = f"{setting.name} {setting.sentence} {setting.moves} {setting.maps_to}".lower()
    return not words or any(word.lower() in text for word in words)


def _print(printer: Printer, chosen: library.Library, stats: Stats, rows: list[Setting]) -> None:
    printer.line(f"{printer.style(stats.title, 'bold')}  {chosen.path} ({chosen.origin})")
    if stats.policy:
        printer.line(f"{stats.policy}")
    for row in rows:
        printer.line()
        value = printer.style(row.value or "(empty)", "bold", *(("yellow",) if row.changed else ()))
        came = printer.style(f"from {row.source}", "yellow" if row.changed else "dim")
        printer.line(f"{printer.style(row.name, 'bold', 'cyan')} = {value}  {came}")
        limits = f", {row.range}" if row.range else ""
        printer.line(f"    {row.type}{limits}, default {row.default or '(empty)'}", "dim")
        if row.sentence:
            printer.paragraph(row.sentence, "    ")
        if row.maps_to:
            printer.paragraph(f"acts through: {row.maps_to}", "    ")
        if row.moves:
            printer.paragraph(f"watch: {row.moves}", "    ")


def _judge_environment(table: list[Setting], words: list[str], rows: list[Setting]) -> int:
    """A misspelt setting in the environment is said here too, with a non-zero exit."""
    lost = settings.unknown(settings.own_settings(os.environ), table)
    printer = Printer(os.fdopen(os.dup(2), "w"))
    for name, hint in lost:
        printer.line(f"hakmem: {name} in the environment is not a setting; {hint}".rstrip("; "))
    if words and not rows:
        names = [setting.name for setting in table]
        hint = did_you_mean(settings.PREFIX + words[0].removeprefix(settings.PREFIX), names)
        raise Problem(f"no setting has to do with {' or '.join(words)}", hint, code=1)
    return 1 if lost else 0
