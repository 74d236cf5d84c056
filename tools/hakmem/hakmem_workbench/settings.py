# SPDX-License-Identifier: MIT
"""The settings as the library itself knows them; there is no second table here.

A trivial program runs under the library, whose statistics say which settings exist: names, types, ranges, and which
value took effect from which source. So a misspelt name or a refused value is detected for any build of the library.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from . import elf, inspection, statsfile
from .errors import Problem
from .library import Library
from .library import parts as parts_of
from .statsfile import Setting, Stats
from .text import closest, listing

PREFIX = "HAKMEM_"
TOO_OLD = "It is older than this tool: take a newer library, or the tool that came with it."
# Small, present everywhere, and sure to allocate: a program that does not allocate never starts the library.
_WITNESSES = (["/bin/cat", "/dev/null"], ["/bin/ls", "-d", "/"], ["/usr/bin/env"])


def parse_assignment(text: str) -> tuple[str, str]:
    """'KEY=VALUE', where KEY may lack HAKMEM_ and be in lower case."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise Problem(f"'{text}' is not KEY=VALUE", "As in: HAKMEM_BACKEND=legacy.")
    name = key.strip().upper()
    return (name if name.startswith(PREFIX) else PREFIX + name), value


def ask(library: Library, assigned: Mapping[str, str]) -> tuple[Stats, str]:
    """Runs a trivial program with our environment and these settings. Returns the library's statistics, and its
    messages on stderr.
    """
    return _ask(library, assigned, True)


def _ask(library: Library, assigned: Mapping[str, str], inherit: bool) -> tuple[Stats, str]:
    environment = {
        key: value for key, value in os.environ.items() if inherit or not key.startswith(PREFIX)
    }
    with tempfile.TemporaryDirectory(prefix="hakmem-") as folder:
        target = Path(folder) / "stats.json"
        environment |= dict(assigned)
        # A strict or a logging setting must not end the query or distort its output.
        environment |= {
            "LD_PRELOAD": library.path,
            "HAKMEM_STATS": "json",
            "HAKMEM_STATS_FILE": str(target),
            "HAKMEM_STRICT": "0",
            "HAKMEM_QUIET": "0",
        }
        done = subprocess.run(
            _witness(),
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
        if not target.exists():
            said = done.stderr.strip().splitlines()
            raise Problem(
                f"{library.path} did not answer: a program under it wrote no statistics",
                f"It said: {said[-1]}" if said else "Is it hakmem? Name another with --library.",
            )
        return described(statsfile.load(target), library), done.stderr


def described(stats: Stats, library: Library) -> Stats:
    """Adds the description of each setting, which the library's file has, but not its statistics."""
    records = inspection.layout(library.path)
    rows = stats.raw.get("settings")
    if not records or not rows or not stats.settings:
        return stats
    known = records.sentences
    told = [{"sentence": known.get(row["name"], ""), **row} for row in rows if isinstance(row, dict) and "name" in row]
    return statsfile.parse({**stats.raw, "settings": told})


def own_settings(environment: Mapping[str, str]) -> dict[str, str]:
    """The HAKMEM_* settings of an environment."""
    return {key: value for key, value in environment.items() if key.startswith(PREFIX)}


def suggestion(name: str, table: Iterable[Setting]) -> str:
    """'did you mean …', or nothing; what all names begin with makes none of them near."""
    known = {setting.name.removeprefix(PREFIX): setting.name for setting in table}
    best = closest(name.upper().removeprefix(PREFIX), known)
    return f"did you mean {known[best]}?" if best else ""


def unknown(names: Iterable[str], table: Sequence[Setting]) -> list[tuple[str, str]]:
    """(name, 'did you mean …') of each name that the library does not know."""
    lost = sorted(set(names) - {setting.name for setting in table})
    return [(name, suggestion(name, table)) for name in lost]


def check(library: Library, assigned: Mapping[str, str]) -> Stats:
    """Raises a Problem for the first assignment that did not take effect."""
    stats, said = _ask(library, assigned, False)
    if not stats.settings:
        raise Problem(f"{library.path} reports no settings", TOO_OLD)
    for name, hint in unknown(assigned, stats.settings):
        raise Problem(f"{name} is not a setting of hakmem", hint or "'hakmem options' lists all.")
    for name, value in assigned.items():
        setting = stats.setting(name)
        if name not in ASKED_WITH and setting is not None and refused(setting, value, said):
            raise Problem(
                f"{name}={value} was refused by the library{reason(name, said)}",
                allowed(library, setting, stats),
            )
    return stats


def reason(name: str, said: str) -> str:
    """The library's reason for refusing it, if it gave one: ': no such part in this build'."""
    line = next((line for line in said.splitlines() if f"{name}=" in line), "")
    words = line.partition(f"{name}=")[2].partition(": ")[2]
    return f": {words.partition(';')[0]}" if words else ""


def allowed(library: Library, setting: Setting, stats: Stats) -> str:
    """The allowed values."""
    if found := parts(library, setting, stats):
        return f"There are: {listing(found)}."
    if _kind_of_part(setting):
        return "This library was stripped and does not list its parts; its build directory does."
    return f"Allowed: {setting.type}{f', {setting.range}' if setting.range else ''}."


def parts(library: Library, setting: Setting, stats: Stats) -> tuple[str, ...]:
    """The parts among which a setting chooses, including external ones; none for a number. The setting lists them, or
    else the library's file does.
    """
    kind = _kind_of_part(setting)
    if setting.choices or not kind:
        return setting.choices
    names = parts_of(library, kind)
    return tuple(name for name in names if _accepted(library, setting.name, name))


def effective(setting: Setting, stats: Stats) -> str:
    """The effective value: if no part was chosen, the one that the library uses."""
    kind = _kind_of_part(setting)
    return str(stats.allocator.get(kind) or setting.value) if kind else setting.value


def _kind_of_part(setting: Setting) -> str:
    """'backend' for a setting by name that shows as allocator.backend, else nothing."""
    place, _, kind = setting.moves.partition(".")
    return kind if place == "allocator" and setting.type in ("string", "enum") else ""


def _accepted(library: Library, name: str, value: str) -> bool:
    return f"{name}=" not in _ask(library, {name: value}, False)[1]


def refused(setting: Setting, value: str, said: str) -> bool:
    """Whether the library reported it, or silently kept its default."""
    return f"{setting.name}=" in said or (not setting.changed and value != setting.default)


# The answer cannot judge what `ask` sets itself.
ASKED_WITH = ("HAKMEM_STATS", "HAKMEM_STATS_FILE", "HAKMEM_STRICT", "HAKMEM_QUIET")


def _witness() -> list[str]:
    """The first of them that is linked dynamically."""
    for command in _WITNESSES:
        try:
            if not elf.read(command[0]).static:
                return command
        except elf.NotElf:
            continue
    return [os.path.realpath("/proc/self/exe"), "-S", "-c", "pass"]
