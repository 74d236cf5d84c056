#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes the list of HAKMEM_* settings from their tables: src/core/options.def, and settings.def beside a part.

  settings.py                        the Markdown page, docs/settings.md
  settings.py --write FILE           writes it there
  settings.py --check FILE           exit 1 if FILE is not that page
  settings.py --man                  the section of the man page
  settings.py --man TEMPLATE --version VERSION
                                     the whole man page: @SETTINGS@ and @VERSION@ replaced
"""
import argparse
import re
import sys
from dataclasses import dataclass, field
from pathlib import Path

SRC = Path(__file__).resolve().parent.parent / "src"
TABLES = [SRC / "core" / "options.def", *sorted(SRC.glob("*/*/settings.def"))]
ARGUMENTS = {  # the arguments of each macro that follow the field's name
    "BOOL": ["name", "default", "moves", "sentence"],
    "NUM": ["name", "default", "min", "max", "moves", "sentence"],
    "ENUM": ["name", "default", "choices", "moves", "sentence"],
    "TEXT": ["name", "moves", "sentence"],
    "PICK": ["name", "default", "target", "picks", "moves", "sentence"],
}
ROW = re.compile(r"HAK_(%s)\s*\(\s*(\w+)\s*,(.*)\)\s*$" % "|".join(ARGUMENTS))
GROUP = re.compile(r"/\*\s*(.*?)\s*\*/\s*$")
ARGUMENT = re.compile(r'\s*(?:"((?:[^"\\]|\\.)*)"|([^",]+?))\s*(?:,|$)')

HEADER = """\
# Settings

<!-- Generated from src/core/options.def and src/*/*/settings.def. To write it anew: meson compile -C build docs -->

hakmem reads these variables of the environment once, when the process allocates for the first time.
A program can contain settings of its own, below the environment (`hakmem_conf`, hakmem.h).
Those that `hakmem options` marks with `*` can change later: from outside by `hakmem set PID NAME=VALUE`, \
from the program by `hakmem_set`.
A wrong name or value gives one line on stderr, and the default is used: `HAKMEM_STRICT=1` makes it fatal, \
`HAKMEM_QUIET=1` leaves the line out.
A program that has more rights than its user (set-user-id) ignores them all.
`HAKMEM_STATS=json` prints the settings in effect under the key `settings`, each with its source.

*Moves* names the counter of the statistics that shows the setting at work; without one, the setting only changes \
output or the start.
"""
NOTE_INHERITED = """\
A text that begins with → belongs to an inherited name: what follows says which mechanism it controls here.
"""


class TableError(Exception):
    """A table is not as the head of options.def says."""


@dataclass
class Setting:
    kind: str
    name: str
    default: str = ""
    min: str = ""
    max: str = ""
    choices: str = ""
    target: str = ""
    picks: str = ""
    moves: str = ""
    sentence: str = ""

    def default_text(self):
        """As the user writes it; a macro stands for the build option of its name."""
        if self.kind == "TEXT":
            return ""
        if not self.default.isdigit():
            return "as built (%s)" % self.default.removeprefix("HAK_").lower()
        if self.kind == "ENUM":
            return self.choices.split("|")[int(self.default)]
        return self.default

    def values(self):
        return {"BOOL": "0, 1", "PICK": "0, 1", "NUM": f"{self.min}–{self.max}",
                "ENUM": self.choices.replace("|", ", "), "TEXT": "text"}[self.kind]


@dataclass
class Group:
    title: str
    settings: list = field(default_factory=list)


def parse_row(match, where):
    kind, rest = match[1], match[3]
    values = [re.sub(r"\\(.)", r"\1", text) if text else bare for text, bare in ARGUMENT.findall(rest)]
    wanted = ARGUMENTS[kind]
    if len(values) != len(wanted):
        raise TableError(f"{where}: {len(values)} arguments after the field, HAK_{kind} has {len(wanted)}")
    return Setting(kind, **dict(zip(wanted, values)))


def read_groups(path):
    """A comment of one line names a group; one that says SPDX or has more lines describes the table."""
    text = re.sub(r"/\*.*?\*/", lambda m: "\n" * m[0].count("\n") if "\n" in m[0] or "SPDX" in m[0] else m[0],
                  path.read_text(), flags=re.DOTALL)
    groups = []
    for number, line in enumerate(text.splitlines(), 1):
        row, title = ROW.match(line), GROUP.match(line)
        if title:
            groups.append(Group(title[1]))
        elif row and groups:
            groups[-1].settings.append(parse_row(row, f"{path}:{number}"))
        elif line.strip():
            wrong = ("no title of a group, /* TITLE */, stands above" if row
                     else "neither a setting in one line, nor the title of a group")
            raise TableError(f"{path}:{number}: {wrong}: {line.strip()}")
    return groups


def all_groups(tables=TABLES):
    return [group for table in tables for group in read_groups(table)]


def capital(text):
    return text[:1].upper() + text[1:]


def markdown(groups):
    def cell(text):
        return text.replace("->", "→").replace("|", "\\|")

    moves = lambda setting: "" if setting.moves.startswith("none") else cell(setting.moves)
    lines = [HEADER + NOTE_INHERITED]
    for group in groups:
        lines += [f"## {capital(group.title)}", "",
                  "|setting|default|values|meaning|moves|", "|---|---|---|---|---|"]
        lines += [f"|`{s.name}`|{cell(s.default_text())}|{cell(s.values())}|{cell(s.sentence)}|{moves(s)}|"
                  for s in group.settings]
        lines.append("")
    return "\n".join(lines)


def roff(text):
    text = text.replace("\\", "\\e").replace("->", "\u2192").replace("-", "\\-")
    text = text.replace("\u2192", "\\(->").replace("–", "\\-")
    return "\\&" + text if text.startswith((".", "'")) else text


def man_section(groups):
    lines = []
    for group in groups:
        lines.append(f".SS {roff(capital(group.title))}")
        for s in group.settings:
            facts = [s.values(), f"default {s.default_text()}" if s.default_text() else "",
                     "" if s.moves.startswith("none") else f"moves {s.moves}"]
            lines += [".TP", f".B {roff(s.name)}", f"{roff(capital(s.sentence))}.", ".br",
                      roff("(" + "; ".join(f for f in facts if f) + ")")]
    return "\n".join(lines) + "\n"


def check(path, wanted):
    if path.is_file() and path.read_text() == wanted:
        return 0
    print(f"{path} does not match the tables of settings; write it anew: meson compile -C build docs", file=sys.stderr)
    return 1


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", metavar="FILE", type=Path)
    parser.add_argument("--write", metavar="FILE", type=Path)
    parser.add_argument("--man", metavar="TEMPLATE", nargs="?", const="")
    parser.add_argument("--version", default="")
    parser.add_argument("--table", type=Path, action="append", help="in place of them: the tables of a build")
    args = parser.parse_args()
    try:
        groups = all_groups(args.table or TABLES)
    except (TableError, OSError) as error:
        sys.exit(f"settings.py: {error}")
    if args.check:
        return check(args.check, markdown(groups))
    if args.write:
        args.write.write_text(markdown(groups))
    elif args.man is None:
        sys.stdout.write(markdown(groups))
    elif not args.man:
        sys.stdout.write(man_section(groups))
    else:
        page = Path(args.man).read_text()
        sys.stdout.write(page.replace("@VERSION@", args.version).replace("@SETTINGS@\n", man_section(groups)))
    return 0


if __name__ == "__main__":
    sys.stdout.reconfigure(encoding="utf-8")
    sys.exit(main())
