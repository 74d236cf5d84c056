#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The man pages have no fault that mandoc or groff detects, and name each command and each function.

  PYTHONPATH=tests:tools/hakmem pages.py HEADER PAGE.1 PAGE...
"""
import re
import shutil
import subprocess
import sys
from pathlib import Path

from common import finish
from hakmem_workbench.cli import COMMANDS


def main():
    header, pages = sys.argv[1], sys.argv[2:]
    linters = [words for words in (["mandoc", "-T", "lint", "-W", "warning"], ["groff", "-ww", "-man", "-Tutf8"])
               if shutil.which(words[0])]
    problems = []
    for page in pages:
        for words in linters:
            run = subprocess.run([*words, page], capture_output=True, text=True)
            said = run.stderr if words[0] == "groff" else run.stdout + run.stderr
            problems += [line for line in said.splitlines() if "missing date" not in line]
    text = "".join(Path(page).read_text() for page in pages)
    problems += [f"no page has hakmem {name}" for name in COMMANDS if not re.search(rf"hakmem {name}\b", text)]
    functions = set(re.findall(r"\b(hakmem_\w+)\(", Path(header).read_text()))
    problems += [f"no page has {name}" for name in functions if name not in text]
    finish(problems, f"{len(pages)} pages, {len(linters)} linters, {len(COMMANDS)} commands, "
                     f"{len(functions)} functions")


if __name__ == "__main__":
    main()
