#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Compares the instructions of the fast paths of malloc and free with those of the table.

  golden.py LIBRARY FLAVOUR TABLE           compares with the row FLAVOUR of the table; skipped without one
  golden.py --update LIBRARY FLAVOUR TABLE  writes that row

A flavour is a compiler with its major version, an architecture and a build's options. A change of these numbers changes
the speed for every user: the table changes in the same commit, with the reason.
"""
import re
import sys
from pathlib import Path

from common import finish, skip
from fast_path import ALWAYS, JUMP, Code, forbidden, straight_path

COLUMNS = ["instructions", "branches", "loads", "stores", "calls", "locked"]
HEADER = """\
# What malloc and free execute when no slow path is needed, for each flavour of the build; see golden.py.
# flavour | function | """ + " | ".join(COLUMNS)


def memory(instruction):
    """(loads, stores) of one instruction: x86-64 in AT&T order, aarch64."""
    name, _, operands = instruction.partition(" ")
    if re.match(r"(ld|ldp|ldr|ldur)", name) or re.match(r"st(r|p|ur)", name):
        return (1, 0) if name.startswith("ld") else (0, 1)
    if name.startswith(("lea", "nop")) or not re.search(r"\(|%fs:", operands):
        return (name.startswith("pop"), name.startswith("push"))
    into = re.search(r"(\)|%fs:[^,()]*)$", operands.strip()) is not None
    if not into or name.startswith(("cmp", "test")):
        return (1, 0)
    return (0, 1) if name.startswith("mov") else (1, 1)


def counts(code, name):
    path = [line.split(": ", 1)[1] for line in straight_path(code, name) or []]
    jumps = [match for match in map(JUMP.match, path) if match and match[1] not in ALWAYS]
    loads, stores = (sum(column) for column in zip(*map(memory, path)))
    return dict(zip(COLUMNS, [len(path), len(jumps), loads, stores,
                              sum(forbidden(i) == "a call" for i in path),
                              sum(forbidden(i) == "forbidden" for i in path)]))


def read_table(path):
    rows = {}
    for line in path.read_text().splitlines() if path.exists() else []:
        if not line.startswith("#"):
            flavour, function, *numbers = [cell.strip() for cell in line.split("|")]
            rows[flavour, function] = dict(zip(COLUMNS, map(int, numbers)))
    return rows


def write_table(path, rows):
    lines = [f"{flavour} | {function} | " + " | ".join(str(row[c]) for c in COLUMNS)
             for (flavour, function), row in sorted(rows.items())]
    path.write_text("\n".join([HEADER, *lines]) + "\n")


def compare(function, was, now):
    return [f"{function}: {now[c]} {c}, were {was[c]} ({now[c] - was[c]:+d})" for c in COLUMNS if now[c] != was[c]]


def main():
    update = sys.argv[1] == "--update"
    library, flavour, table = sys.argv[1 + update:]
    rows, code, problems = read_table(Path(table)), Code(library), []
    for function in "malloc", "free":
        now = counts(code, function)
        print(f"{function}: " + ", ".join(f"{now[c]} {c}" for c in COLUMNS))
        if update:
            rows[flavour, function] = now
        elif (flavour, function) not in rows:
            skip(f"{table} has no row for {flavour}; golden.py --update writes one")
        else:
            problems += compare(function, rows[flavour, function], now)
    if update:
        write_table(Path(table), rows)
    elif problems:
        problems.append(f"If that is meant: golden.py --update {library} '{flavour}' {table}, "
                        "and say why in the commit")
    finish(problems, f"as recorded for {flavour}")


if __name__ == "__main__":
    main()
