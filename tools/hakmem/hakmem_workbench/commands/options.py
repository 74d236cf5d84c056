# SPDX-License-Identifier: MIT
"""List every setting and the value that is in effect.

With a WORD or --long each is described in full: type, range, default, source,
what it does, and the counter that it moves. The table is the library's own: a
trivial program runs under it, with the present environment and the settings of
--set.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os

from .. import library, settings
from ..errors import Problem
from ..statsfile import Setting, Stats
from ..text import Printer, plural
from .common import add_policy, policy

EPILOG = """\
examples:
  hakmem options                     all of them, one line each
  hakmem options --long              all of them, in full
  hakmem options partial lru         those that have one of the words
  hakmem options --changed           those that the environment changes
"""


def configure(parser: argparse.ArgumentParser) -> None:
    add_policy(parser)
    parser.add_argument("--changed", action="store_true", help="only what differs from the default")
    parser.add_argument("-l", "--long", action="store_true", help="describe each in full")
    parser.add_argument("--json", action="store_true", help="for a program instead of a person")
    parser.add_argument(
        "words", metavar="WORD", nargs="*", help="describe in full the settings that match a word"
    )


def main(args: argparse.Namespace) -> int:
    chosen = library.find(args.library)
    assigned = policy(args)
    if assigned:
        settings.check(chosen, assigned)
    stats, said = settings.ask(chosen, assigned)
    if not stats.settings:
        raise Problem(f"{chosen.path} reports no settings", settings.TOO_OLD)
    table = [_in_effect(chosen, setting, stats, assigned) for setting in stats.settings]
    rows = [row for row in table if _wanted(row, args.words) and (row.changed or not args.changed)]
    if args.json:
        print(json.dumps([dataclasses.asdict(row) for row in rows], indent=2))
    else:
        _print(Printer(), chosen, stats, rows, bool(args.long or args.words))
    return _judge_environment(table, args.words, rows, said)


def _in_effect(
    chosen: library.Library, setting: Setting, stats: Stats, assigned: dict[str, str]
) -> Setting:
    """For a part: which one serves, and which others exist. The query needs four settings of its own; they are shown as
    the user set them.
    """
    if setting.name not in settings.ASKED_WITH:
        value = settings.effective(setting, stats)
        refused = value != setting.value and bool(setting.value)
        if setting.source == "default" and setting.value not in ("", setting.default):
            setting = dataclasses.replace(setting, source="an inherited name in the environment")
        return dataclasses.replace(
            setting,
            value=value,
            source=f"default, as {setting.value} was refused" if refused else setting.source,
            choices=settings.parts(chosen, setting, stats),
        )
    value = assigned.get(setting.name, os.environ.get(setting.name))
    if value is None:
        return dataclasses.replace(setting, value=setting.default, source="default")
    return dataclasses.replace(setting, value=value, source="environment")


def _wanted(setting: Setting, words: list[str]) -> bool:
    text = f"{setting.name} {setting.sentence} {setting.moves} {setting.maps_to}".lower()
    return not words or any(word.lower() in text for word in words)


def _print(
    printer: Printer, chosen: library.Library, stats: Stats, rows: list[Setting], full: bool
) -> None:
    printer.line(f"{printer.style(stats.title, 'bold')}  {chosen.path} ({chosen.origin})")
    if stats.policy:
        printer.line(f"{stats.policy}")
    if full:
        for row in rows:
            _print_full(printer, row)
    else:
        _print_short(printer, rows)


def _print_short(printer: Printer, rows: list[Setting]) -> None:
    """One line each; inherited names without effect are left out."""
    shown = [row for row in rows if row.changed or not row.maps_to]
    name, value = (max((len(text) for text in column), default=0) for column in _columns(shown))
    printer.line()
    for row in shown:
        marked = row.name + "*" * row.changeable
        words = f"{marked:<{name + 1}} {row.value or '(empty)':<{value}}  "
        sentence = row.sentence or f"acts through {row.maps_to}"
        words += f"from {row.source}: {sentence}" if row.changed else sentence
        printer.line(_cut(words, printer.width), *(("yellow",) if row.changed else ()))
    printer.line()
    if any(row.changeable for row in shown):
        printer.line("* can change in a running process: hakmem set PID NAME=VALUE, which says where it cannot", "dim")
    more = "'hakmem options WORD' describes the settings that match a word, --long all of them."
    if hidden := len(rows) - len(shown):
        more += f" Not shown: {plural(hidden, 'inherited name')} of these settings."
    printer.paragraph(more, "", "dim")


def _columns(rows: list[Setting]) -> tuple[list[str], list[str]]:
    return [row.name for row in rows], [row.value or "(empty)" for row in rows]


def _cut(words: str, width: int) -> str:
    return words if len(words) <= width else words[: width - 1].rstrip() + "…"


def _print_full(printer: Printer, row: Setting) -> None:
    printer.line()
    value = printer.style(row.value or "(empty)", "bold", *(("yellow",) if row.changed else ()))
    came = printer.style(f"from {row.source}", "yellow" if row.changed else "dim")
    printer.line(f"{printer.style(row.name, 'bold', 'cyan')} = {value}  {came}")
    limits = f", {row.range}" if row.range else ""
    default = row.default or ("the build's own" if row.choices else "(empty)")
    when = ", can change in a running process" if row.changeable else ""
    printer.line(f"    {row.type}{limits}, default {default}{when}", "dim")
    if row.sentence:
        printer.paragraph(row.sentence, "    ")
    if row.maps_to:
        printer.paragraph(f"acts through: {row.maps_to}", "    ")
    if row.moves:
        printer.paragraph(f"watch: {row.moves}, in the report of HAKMEM_STATS", "    ")


def _judge_environment(table: list[Setting], words: list[str], rows: list[Setting], said: str) -> int:
    """A misspelt setting in the environment is also reported here, with a non-zero exit code; and a refused value."""
    own = settings.own_settings(os.environ)
    lost = settings.unknown(own, table)
    printer = Printer(os.fdopen(os.dup(2), "w"))
    known = [(name, value) for name, value in own.items() if name not in (*dict(lost), *settings.ASKED_WITH)]
    for line in said.splitlines():
        if any(f" {name}={value}:" in line for name, value in known):
            printer.line(line)
    for name, hint in lost:
        printer.line(f"hakmem: {name} in the environment is not a setting; {hint}".rstrip("; "))
    if words and not rows:
        hint = settings.suggestion(words[0], table) or "'hakmem options' lists all."
        raise Problem(f"no setting matches {' or '.join(words)}", hint, 1)
    return 1 if lost else 0
