#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes the man page hakmem.3 from the public header: man3.py HEADER VERSION

What the header says of a function is its description; the line of units, alignment, errno and threads comes last.
"""
import re
import sys
from pathlib import Path

FUNCTION = re.compile(r"/\*((?:[^*]|\*(?!/))*)\*/\n((?:struct \w+ \{.*?\};\n)?)"
                      r"([^/\n;{}]*\b(hakmem_\w+)\([^;]*\);)", re.DOTALL)


def roff(text):
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return re.sub(r"^([.'])", r"\\&\1", text, flags=re.MULTILINE)


def sentences(comment):
    """One on each line, without the stars of the comment."""
    words = " ".join(re.sub(r"^\s*\*", "", line).strip() for line in comment.strip().splitlines())
    return re.sub(r"(?<=[a-z0-9)\].]\.) (?=[A-Z])", "\n", words).strip()


def main():
    header, version = Path(sys.argv[1]).read_text(), sys.argv[2]
    functions = FUNCTION.findall(header)
    names = [name for _, _, _, name in functions]
    print(f'.\\" SPDX-License-Identifier: MIT\n.TH HAKMEM 3 2026-11-25 "hakmem {version}" "Library Functions Manual"')
    print(".SH NAME\n" + roff(",\n".join(names)) + "\n\\- allocate, free, inspect and control the memory of hakmem")
    print(".SH SYNOPSIS\n.nf\n.B #include <hakmem.h>")
    for _, structure, prototype, _ in functions:
        print(".P\n" + roff((structure + prototype).strip()))
    print(".fi\n.SH DESCRIPTION\nThe names of the C library without\n.B hakmem_\nin front are these functions, too, "
          "unless the library was\nbuilt with\n.BR override=false .")
    for comment, _, _, name in functions:
        print(f".TP\n.BR {name} ()\n{roff(sentences(comment))}")
    print(".SH SEE ALSO\n.BR hakmem (1),\n.BR hakmem (7),\n.BR malloc (3)")


if __name__ == "__main__":
    main()
