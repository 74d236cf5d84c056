#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The arena's settings: the batches in which it is mapped grow as they say, and a value out of range gives one line
and the default.

  PYTHONPATH=tests arena.py LIBRARY PROGRAM     (PROGRAM is tests/switches/work.c)
"""
import sys

import tracing
from common import finish

MIB = 1 << 20
# setting: a value out of its range
BAD = {"HAKMEM_POOL_TLS_ARENA_MB_INIT": ("0", "17"), "HAKMEM_POOL_TLS_ARENA_MB_MAX": ("0", "17"),
       "HAKMEM_POOL_TLS_ARENA_GROWTH_LEVELS": ("9", "-1"), "HAKMEM_POOL_TLS_PREWARM": ("most",)}
# [settings, MiB of the batches in the order in which they are taken; the last one repeats]
GROWTH = [
    ({}, [1, 2, 4, 8]),
    ({"HAKMEM_POOL_TLS_ARENA_MB_INIT": 2}, [2, 4, 8]),
    ({"HAKMEM_POOL_TLS_ARENA_MB_MAX": 2}, [1, 2]),
    ({"HAKMEM_POOL_TLS_ARENA_MB_INIT": 4, "HAKMEM_POOL_TLS_ARENA_MB_MAX": 16}, [4, 8, 16]),
    ({"HAKMEM_POOL_TLS_ARENA_GROWTH_LEVELS": 1}, [1, 2]),
    ({"HAKMEM_POOL_TLS_ARENA_MB_INIT": 8, "HAKMEM_POOL_TLS_ARENA_MB_MAX": 1}, [1]),
]


def total_of(sizes, count):
    return sum(sizes[min(i, len(sizes) - 1)] for i in range(count)) * MIB


def main():
    library, program = sys.argv[1:3]
    problems = []

    def pool_of(**settings):
        stats, said = tracing.run_with_stats(library, [program, "pool"], settings)
        return stats, said.splitlines()

    default = pool_of()[0]["pool"]
    for name, values in BAD.items():
        for value in values:
            stats, said = pool_of(**{name: value})
            if len(said) != 1 or name not in said[0] or value not in said[0]:
                problems.append(f"{name}={value}: not one line that names it, but {said}")
            if any(stats["pool"][key] != default[key] for key in ("chunks_mapped", "chunk_bytes")):
                problems.append(f"{name}={value}: not as by default: {stats['pool']}")
    for settings, sizes in GROWTH:
        stats, said = pool_of(**settings)
        pool = stats["pool"]
        if said:
            problems.append(f"{settings}: {said}")
        mapped = pool["chunks_mapped"]
        if mapped < len(sizes) or pool["chunk_bytes"] != total_of(sizes, mapped):
            problems.append(f"{settings}: {mapped} batches of {pool['chunk_bytes']} bytes, not {sizes} MiB each")
    finish(problems, f"{len(GROWTH)} ways to grow; one line for each value out of range")


if __name__ == "__main__":
    main()
