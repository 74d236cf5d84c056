#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The index of docs/decisions: one line for each decision, in the order of their numbers.

  decisions.py --check     exit 1 if the index, a number, a date, a status or what superseded a decision is wrong
  decisions.py --write     write the index

A decision is NNNN-name.md: its title, "Date: YYYY-MM-DD", and "Status: accepted" or "Status: superseded by
[NNNN](FILE)".
"""
import re
import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parent / "decisions"
INDEX = FOLDER / "README.md"
HEAD = re.compile(r"# (?P<title>.+)\n\nDate: (?P<date>\d{4}-\d\d-\d\d)\n"
                  r"Status: (?P<status>accepted|superseded by \[\d{4}\]\((?P<by>[\w-]+\.md)\))\n\n")
ROWS = re.compile(r"\| number \|.*", re.DOTALL)


def read():
    """([row of the index], [problem])"""
    rows, problems = ["| number | decision | date | status |", "|---|---|---|---|"], []
    for expected, path in enumerate(sorted(FOLDER.glob("[0-9]*.md")), 1):
        head = HEAD.match(path.read_text())
        if path.name[:5] != f"{expected:04}-":
            problems.append(f"{path.name}: the next number is {expected:04}")
        if not head:
            problems.append(f"{path.name}: does not begin with a title, Date: and Status:")
        elif head["by"] and not (head["by"] > path.name and (FOLDER / head["by"]).exists()):
            problems.append(f"{path.name}: superseded by {head['by']}, which is no later decision")
        else:
            rows.append(f"| {path.name[:4]} | [{head['title']}]({path.name}) | {head['date']} | {head['status']} |")
    return rows, problems


def main():
    rows, problems = read()
    text = INDEX.read_text()
    right = ROWS.sub("", text).rstrip() + "\n\n" + "\n".join(rows) + "\n"
    if "--write" in sys.argv:
        INDEX.write_text(right)
    elif text != right:
        problems.append("docs/decisions/README.md: another index; meson compile -C build docs writes it")
    if problems:
        sys.exit("\n".join(problems))


if __name__ == "__main__":
    main()
