#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The interface: the comments of hakmem.h, the versions in the library, and the interface of the last release.

  interface.py LIBRARY HEADER MAP            LIBRARY: with debug information of src/api/hakmem.c
  interface.py LIBRARY HEADER MAP --write    makes this the last release (tools/release.sh does so)

Each function of HEADER has the fields of FIELDS; "Since" is a version of MAP, at which the library has it. Everything
in the last release (interface.abi, libabigail's) exists unchanged. New functions are allowed.
"""
import platform
import re
import shutil
import subprocess
import sys
from pathlib import Path

from common import finish, output_of, skip

RELEASED = Path(__file__).with_name("interface.abi")
FIELDS = ("Units", "Alignment", "errno", "Threads", "Since")
FUNCTION = re.compile(r"/\*((?:(?!\*/).)*)\*/\n(?:struct \w+ \{[^}]*\};\n)?[\w *]+?\b(hakmem_\w+)\(", re.DOTALL)
DECLARED = re.compile(r"^[\w ]+?\**(hakmem_\w+)\(", re.MULTILINE)
TELLING = re.compile(r".*".join(rf"\b{field}: ([^.]+(?:\.\d+)?)\." for field in FIELDS) + r"\s*$", re.DOTALL)
CHANGED = 4 | 8  # of abidiff's exit status


def check_header(header, versions, library):
    text = header.read_text()
    told = {name: comment for comment, name in FUNCTION.findall(text)}
    exported = dict(re.findall(r" T (hakmem_\w+)@@(\S+)", output_of(["nm", "-D", "--defined-only", library])))
    for name in DECLARED.findall(text):
        match = TELLING.search(re.sub(r"\n \*", " ", told.get(name, "")))
        if not match:
            yield f"hakmem.h: the comment of {name} does not end with {': … '.join(FIELDS)}: …"
        elif "HAKMEM_" + match[5] not in versions:
            yield f"hakmem.h: {name} is there since {match[5]}, which hakmem.map does not have"
        elif exported.get(name) != "HAKMEM_" + match[5]:
            yield f"{name} has the version {exported.get(name)} in the library, and {match[5]} in hakmem.h"


def check_abi(library):
    soname = re.search(r"SONAME.*\[(.+)\]", output_of(["readelf", "-dW", library]))[1]
    if f"soname='{soname}'" not in RELEASED.read_text():
        return  # a new interface
    foreign = RELEASED.with_name("interface.foreign")
    run = subprocess.run(["abidiff", "--no-added-syms", "--suppressions", foreign, RELEASED, library],
                         capture_output=True, text=True)
    if run.returncode & CHANGED:
        yield f"the interface is not what {RELEASED.name} has (HACKING.md, \"Versions\"):\n{run.stdout}"
    elif run.returncode:
        yield f"abidiff: {run.returncode}\n{run.stdout}{run.stderr}"


def write(library, header):
    text = output_of(["abidw", "--headers-dir", header.parent, "--drop-private-types", "--no-corpus-path",
                      "--no-comp-dir-path", "--no-show-locs", library])
    RELEASED.write_text(text)


def main():
    library, header, script = map(Path, sys.argv[1:4])
    if sys.argv[4:] == ["--write"]:
        write(library, header)
        return
    versions = re.findall(r"^(HAKMEM_[\d.]+)", script.read_text(), re.MULTILINE)
    problems = list(check_header(header, versions, library))
    if not problems and not shutil.which("abidiff"):
        skip("no abidiff (abigail-tools): hakmem.h agrees with the library, the last release was not compared")
    if not problems and platform.machine() != "x86_64":
        skip("interface.abi is that of x86-64")
    finish(problems or list(check_abi(library)),
           f"{len(DECLARED.findall(header.read_text()))} functions, as the last release has them")


if __name__ == "__main__":
    main()
