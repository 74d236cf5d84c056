#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""docs/reference.md's table of memory orders against the code. orders.py SRC PAGE
The first column of a row names functions that release, the second those that acquire; a function whose operation does
both is in either. Each function of the code is there, in a row that names its file, and each other name of a row is a
word of its files.
"""
import re
import sys
from pathlib import Path

from common import code_of, finish

ORDER = re.compile(r"\b(?:HAK_\w+_|__ATOMIC_)(ACQUIRE|RELEASE|ACQ_REL)\b(?!_)")
FUNCTION = re.compile(r"\b(?!(?:if|for|while|switch)\b)(\w+)\((?:[^(){};]|\([^()]*\))*\)\s*\{")
HEAD = "| written with release by | read with acquire by |"
COLUMNS = ["RELEASE", "ACQUIRE"]
MACROS = "core/base/words.h"  # defines the operations


def orders_of(path):
    """(function, order) of each ordered operation."""
    code = re.sub(r"^#.*$", "", code_of(path), flags=re.M)
    functions = [(match.start(), match[1]) for match in FUNCTION.finditer(code)]
    for match in ORDER.finditer(code):
        names = [name for start, name in functions if start < match.start()]
        yield names[-1], match[1]


def rows_of(page):
    """(names of files, names of code of each column) of each row."""
    lines = page.read_text().splitlines()
    for line in lines[lines.index(HEAD + " carries |") + 2:]:
        if not line.startswith("|"):
            return
        cells = [re.findall(r"`([^`]+)`", cell) for cell in line.strip("|").split("|")]
        files = [name for cell in cells for name in cell if "." in name]
        yield files, [[name for name in cell if name not in files] for cell in cells]


def main():
    src, page = Path(sys.argv[1]), Path(sys.argv[2])
    files = [path for path in sorted([*src.rglob("*.c"), *src.rglob("*.h")]) if not str(path).endswith(MACROS)]
    rows, listed, problems = list(rows_of(page)), set(), []
    for names, cells in rows:
        paths = [path for path in files if any(f"/{path}".endswith(f"/{name}") for name in names)]
        words = set(re.findall(r"\w+", "\n".join(map(code_of, paths))))
        if len(paths) != len(names) or not names:
            problems.append(f"{page.name}: the row of {cells[0]} names files that are not in src: {names}")
        problems += [f"{page.name}: {name} is not in {' or '.join(names)}"
                     for cell in cells for name in cell if name not in words]
        listed |= {(path, name, order) for path in paths for cell, order in zip(cells, COLUMNS) for name in cell}
    used = {(path, *found) for path in files for found in orders_of(path)}
    problems += [f"{path.relative_to(src)}: {name} has an order, {order}, that no row of {page.name} names"
                 for path, name, order in sorted(used)
                 if not any((path, name, one) in listed for one in (COLUMNS if order == "ACQ_REL" else [order]))]
    finish(problems, f"{len(used)} orders in {len(rows)} rows")


if __name__ == "__main__":
    main()
