#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes the table of docs/jemalloc.md from src/compat/jemalloc/names.def.

  jemalloc.py --write    writes it
  jemalloc.py --check    exit 1 if the page does not have it
"""
import re
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
PAGE = HERE / "jemalloc.md"
NAMES = HERE.parent / "src" / "compat" / "jemalloc" / "names.def"
HEAD = "|name|type||what it answers or does|\n|---|---|---|---|\n"
ROW = re.compile(r"^(FIXED|READ|BOTH|ASK|WRITE|RUN|REFUSED)\((.*?)\)$", re.MULTILINE | re.DOTALL)
ARGUMENT = re.compile(r'"((?:[^"\\]|\\.)*)"|([^",\s][^",]*)')
TYPES = {"flag": "bool", "number": "unsigned", "size": "size_t", "ssize": "ssize_t", "u32": "uint32_t",
         "u64": "uint64_t", "i64": "int64_t", "text": "const char *", "pointer": "void *", "none": ""}
ACCESS = {"FIXED": "r", "READ": "r", "BOTH": "rw", "ASK": "rw", "WRITE": "w", "RUN": "", "REFUSED": ""}


def rows():
    """(macro, arguments) of each row."""
    text = re.sub(r"/\*.*?\*/", "", NAMES.read_text(), flags=re.DOTALL)
    for match in ROW.finditer(text):
        yield match[1], [(text if quoted else bare).replace('\\"', '"').strip()
                         for text, bare in ARGUMENT.findall(match[2]) for quoted in [not bare]]


def cells(macro, arguments):
    """(name, the rest of its row)"""
    name, meaning = arguments[0], arguments[-1]
    if macro == "REFUSED":
        return name, f"||ENOENT|{meaning}|"
    kind = TYPES[arguments[{"RUN": 1, "ASK": 3}.get(macro, 1)]] if macro != "RUN" else ""
    access = "r" if macro == "ASK" and arguments[1] == "none" else ACCESS[macro]
    if macro == "FIXED":
        value = {"JE_VERSION": "5.3.0-0-hakmem-VERSION", "JE_LARGE": "47"}.get(arguments[2], arguments[2])
        value = f"`{value}`" if value else '`""`'
        meaning = f"{value}; {meaning}" if meaning else value
    return name, f"|{kind}|{access}|{meaning}|"


def table():
    """Names that answer alike share the row of the first one."""
    found = {}
    for name, rest in (cells(*row) for row in rows()):
        found.setdefault(rest, []).append(f"`{name}`")
    return HEAD + "".join(f"|{', '.join(names)}{rest}\n" for rest, names in found.items())


def main():
    if sys.argv[1:] not in (["--write"], ["--check"]):
        sys.exit(__doc__)
    text = PAGE.read_text()
    start = text.index(HEAD.splitlines()[0])
    end = re.compile(r"^(?!\|)", re.MULTILINE).search(text, start).start()
    right = text[:start] + table() + text[end:]
    if sys.argv[1] == "--write":
        PAGE.write_text(right)
    elif text != right:
        sys.exit("docs/jemalloc.md does not have the rows of names.def: meson compile -C build docs")


if __name__ == "__main__":
    main()
