#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""usage: names.py SRC CONDITIONALS

Names and conditionals of the sources. A static function or variable has a name of its own, so that a backtrace and grep
tell one from another. Preprocessor conditionals number at most CONDITIONALS, without include guards and __cplusplus.
"""
import pathlib
import re
import sys
from collections import defaultdict

COMMENT = re.compile(r"/\*.*?\*/[ \t]*", re.S)
STATIC = re.compile(
    r"^(?:static|HAK_INLINE)\b(?:[^;={}()]|_Atomic\([^)]*\)|HAK_LOCK\()*?\b(\w+)\s*(?:\(|,|=|;|\[)", re.M)
WORDS = {"_Atomic", "HAK_LOCK", "__attribute__"}
CONDITIONAL = re.compile(r"^ *# *(?:if|ifdef|ifndef)\b.*", re.M)
GUARD = re.compile(r"^ *#ifndef \w+_H$|__cplusplus")


def statics(text: str):
    """Names that begin with hak_ are in headers; if a build chooses between headers, they are deliberately equal."""
    for match in STATIC.finditer(text):
        if match[1] not in WORDS and not match[1].startswith("hak_"):
            yield match[1]


def main() -> int:
    src, most = pathlib.Path(sys.argv[1]), int(sys.argv[2])
    files, conditionals = defaultdict(set), 0
    for path in sorted([*src.rglob("*.c"), *src.rglob("*.h")]):
        text = path.read_text()
        conditionals += sum(not GUARD.search(line) for line in CONDITIONAL.findall(text))
        for name in statics(COMMENT.sub("", text)):
            files[name].add(str(path.relative_to(src)))
    bad = [f"static {name} is defined in {', '.join(sorted(where))}: give each a name of its own"
           for name, where in sorted(files.items()) if len(where) > 1]
    if conditionals > most:
        bad.append(f"{conditionals} preprocessor conditionals in src, at most {most}: choose between files instead")
    print(f"{len(files)} static names, {conditionals} conditionals")
    print("\n".join(bad))
    return bool(bad) or not files


if __name__ == "__main__":
    sys.exit(main())
