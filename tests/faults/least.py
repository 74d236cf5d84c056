#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The memory that a program needs to start, beyond what it needs without the library.

  PYTHONPATH=tests least.py LIBRARY as|data

Finds by bisection the least limit under which a program runs alone; with 1 MiB more, or with any more, it must run
with the library.
"""
import os
import shutil
import sys

from common import finish
from rlimits import run, with_limit

MORES_KIB = 1024, 1536, 2048, 3072, 8192  # also with more memory than the least
FINE_KIB, MOST_KIB = 16, 1 << 20
# Python may continue without modules for which it has no memory; without site it needs each of them. If it has no
# memory for its own pools, it uses malloc for everything.
PROGRAMS = [["ls"], ["sh", "-c", ":"], ["sqlite3", ":memory:", "select 1"], ["python3", "-S", "-c", "pass"]]


def path_of(program):
    return sys.executable if program == "python3" else shutil.which(program)


def runs(words, name, kib, library=None):
    status, _, err = run(words, library, with_limit(name, kib))
    return status == 0 and "ld.so" not in err  # the loader continues without a library that it cannot load


def least_of(words, name):
    low, high = 0, MOST_KIB
    while high - low > FINE_KIB:
        middle = (low + high) // 2
        low, high = (low, middle) if runs(words, name, middle) else (middle, high)
    return high


def main(library, name):
    problems, seen = [], []
    os.environ["PYTHONMALLOC"] = "malloc"
    for program, *arguments in PROGRAMS:
        path = path_of(program)
        if not path:
            continue
        words = [path, *arguments]
        least = least_of(words, name)
        seen.append(f"{program} {least} KiB")
        problems += [f"{program} needs {least} KiB alone, and does not run with {least + more} and the library"
                     for more in MORES_KIB if not runs(words, name, least + more, library)]
    finish(problems, f"{name}: with {MORES_KIB[0]} KiB more than alone: {', '.join(seen)}")


if __name__ == "__main__":
    main(*sys.argv[1:])
