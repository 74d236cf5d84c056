#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A program that was linked with the archive uses its malloc, calloc and free.

  served.py PROGRAM        (PROGRAM: probe.c linked with libhakmem.a)
"""
import json
import os
import sys
import tempfile
from pathlib import Path

from common import finish, output_of

FAMILY = ["malloc", "free", "calloc", "realloc", "posix_memalign", "aligned_alloc", "memalign",
          "malloc_usable_size", "reallocarray", "valloc", "pvalloc"]


def main():
    program = sys.argv[1]
    problems = []
    with tempfile.TemporaryDirectory() as folder:
        env = dict(os.environ, HAKMEM_STATS="json", HAKMEM_STATS_FILE=f"{folder}/stats")
        said = output_of([program], env=env)
        stats = json.loads((Path(folder) / "stats").read_text())
    if stats["allocator"]["name"] != "hakmem" or "serves" not in said:
        problems.append(f"not served by hakmem: {said}")
    if not sum(row["bytes"] for row in stats["os_calls"]):
        problems.append("hakmem took no memory from the system")

    # Each name of the family is defined here, and is the same code as its twin.
    where = {}
    for line in output_of(["nm", "--defined-only", program]).splitlines():
        address, _, name = line.split()[-3:]
        where[name] = address
    for name in FAMILY:
        if name not in where:
            problems.append(f"{name} is not in the program")
        elif where[name] != where.get("hakmem_" + name):
            problems.append(f"{name} is at {where[name]}, hakmem_{name} at {where.get('hakmem_' + name)}")
    undefined = {line.split()[-1].split("@")[0]
                 for line in output_of(["nm", "--undefined-only", program]).splitlines()}
    problems += [f"{name} comes from somewhere else" for name in FAMILY if name in undefined]
    finish(problems, said.strip())


if __name__ == "__main__":
    main()
