#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Each writable variable of the library has a row that says what a forked child has of it.

  variables.py LIBRARY SRC ROWS

A new variable fails until somebody has thought about children; so does a row whose variable is gone.
"""
import re
import sys
from pathlib import Path

from common import code_of, finish, output_of

SECTION = re.compile(r"\[ *(\d+)\] \.(?:data|bss|tdata|tbss) ")
COMPILERS = {"__dso_handle", "completed", "__TMC_END__"}


def variables(library):
    """(file, name) of each variable; a function's own is named without the function, a global one has the file "-"."""
    sections, file = set(SECTION.findall(output_of(["readelf", "-SW", library]))), "-"
    for line in output_of(["readelf", "-sW", library]).partition("'.symtab'")[2].splitlines():
        words = line.split()
        if len(words) < 8:
            continue
        if words[3] == "FILE":
            file = words[7]
        if words[3] in ("OBJECT", "TLS") and words[6] in sections:
            name = [part for part in words[7].split(".") if not part.isdigit()][-1]
            if name not in COMPILERS and not name.startswith("hakmem_inline_"):  # hak_self, for inline.h
                yield "-" if name.startswith("hak_") else file, name


def main():
    library, src, rows = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    fates = {}
    for line in rows.read_text().splitlines():
        if not line.startswith("#"):
            file, fate, *names = line.split()
            fates |= {(file, name): fate for name in names}
    code = {"-": "\n".join(map(code_of, src.rglob("*.[ch]")))}
    for path in src.rglob("*.c"):  # some have one name
        code[path.name] = code.get(path.name, "") + code_of(path)
    found = {(file, name) for file, name in variables(library) if file in code}
    problems = [f"{file}: {name} has no row in {rows.name}: what has a forked child of it?"
                for file, name in sorted(found - fates.keys())]
    problems += [f"{rows.name}: {file} has no {name}" for file, name in fates
                 if not re.search(rf"\b{name}\b", code.get(file, ""))]
    problems += [f"{rows.name}: {fate}?" for fate in set(fates.values()) - {"kept", "reset", "taken-over"}]
    finish(problems, f"{len(found)} variables, {len(fates)} rows")


if __name__ == "__main__":
    main()
