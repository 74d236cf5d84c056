#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Instructions that a call of the malloc family executes, its return among them: what programs call on their hot paths.

  calls.py PROGRAM LIMIT all|pairs [PRELOAD]   LIMIT: of a malloc/free pair, whatever its bin holds
By callgrind: PROGRAM (calls.c) makes each kind of calls a few times and many times, and the difference counts. Ticks
are counted, too. PRELOAD: a library that comes before.
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from common import finish, skip

FEW, MANY = 2000, 22000
# The limits leave room for differences between compilers, and for the C library's memset in calloc.
LIMITS = {
    "free_null": 28,
    "usable_size": 14,
    "realloc_in_place": 46,
    "calloc_free": 76,
    "aligned_alloc_free": 76,
    "posix_memalign_free": 84,
    "heap_malloc_free": 72,
    "heap_malloc_heap_free": 48,
    "large_malloc_free": 108,
    "large_usable_size": 110,
    "large_realloc_in_place": 320,
}


def called(program, count):
    """{kind: instructions of its calls}"""
    env = {"PATH": os.environ["PATH"]}
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out"
        run = subprocess.run(["valgrind", "--tool=callgrind", "--compress-strings=no", "--compress-pos=no",
                              f"--callgrind-out-file={out}", program, str(count)],
                             env=env, capture_output=True, text=True)
        if run.returncode:
            sys.exit(f"callgrind: {run.returncode}\n{run.stderr}")
        lines = out.read_text().splitlines()
    costs, kind = {}, None
    for line, following in zip(lines, lines[1:]):
        if line.startswith("fn="):
            match = re.fullmatch(r"fn=calls_(\w+)", line)
            kind = match and match[1]
        elif kind and line.startswith("calls="):
            costs[kind] = costs.get(kind, 0) + int(following.split()[-1])
    return costs


def main():
    program, limit, which = sys.argv[1:]
    if not shutil.which("valgrind"):
        skip("no valgrind")
    few, many = called(program, FEW), called(program, MANY)
    each = {kind: (many[kind] - few[kind]) / (MANY - FEW) for kind in many}
    limits = (LIMITS if which == "all" else {}) | {kind: int(limit) for kind in each if kind.startswith("pair_")}
    finish([f"{kind}: {each[kind]:.2f} instructions, more than {most}" for kind, most in limits.items()
            if each[kind] > most], "instructions: " + ", ".join(f"{kind} {n:.2f}" for kind, n in sorted(each.items())))


if __name__ == "__main__":
    main()
