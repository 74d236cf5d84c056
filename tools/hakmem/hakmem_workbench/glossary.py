# SPDX-License-Identifier: MIT
"""The meaning of each word of a table, in one sentence, for the text below the table. Every name of a column or
row is here; the tests check the tables.
"""

from __future__ import annotations

from collections.abc import Iterable

_RATIO = (
    "median over the blocks of its figure divided by the baseline's in the same block; "
    "below 1 is less"
)
_PEAK = "most that was resident at one moment, in the largest of its processes"

TABLES: dict[str, dict[str, str]] = {
    "times": {
        "variant": "what was preloaded, with which settings",
        "time": "median of the time that one run took, by the clock on the wall",
        "CPU time": "median of the time that a run kept CPUs busy, in the program and the kernel",
        "least … most": "the fastest and the slowest run",
        "ratio": _RATIO,
        "interval": "where that ratio is expected, at 99 % shared between all comparisons",
        "baseline": "the first variant, by which all others are divided; it runs twice in a block",
        "again": "the baseline's other run in each block",
        "the noise": "how much the baseline differs from itself; nothing smaller is claimed",
        "verdict": "more or less only where interval, noise and chance all say so",
    },
    "beside": {
        "peak memory": _PEAK,
        "final memory": "what was resident when the command ended",
        "page faults, minor": "pages touched for the first time, given without a disk",
        "page faults, major": "pages that had to come from a disk",
        "context switches, voluntary": "a thread waited, and let another one run",
        "context switches, involuntary": "the kernel took the CPU from a thread that worked",
        "system calls": "all calls into the kernel, counted by strace; below, those for memory",
        "(1.20)": "the ratio to the baseline; ≈ where both ranges touch, ~ after less than 3 runs",
    },
    "ledger": {
        "variant": "which build and settings of hakmem",
        "cause": "why the allocator itself went to the kernel",
        "calls": "how often, and by which system call",
        "bytes": "the memory or address space that the calls were about",
        "time": "what the kernel took for them",
        "regret": "of the bytes given back, those handed out again within a second",
    },
    "cells": {
        "time": "median of the time that one run took, by the clock on the wall",
        "CPU time": "median of the time that a run kept CPUs busy, in the program and the kernel",
        "ratio": f"against the first combination: {_RATIO}",
        "peak memory": _PEAK,
    },
    "effects": {
        "main effect": "what one value does instead of the first one, averaged over all others",
        "interaction": "what two values do together beyond what each of them does alone",
        "effect": "median over the blocks; + is more time, − is less",
        "interval": "where the effect is expected, at 99 % shared between all of its table",
        "verdict": "more or less only where interval, noise and chance all say so",
    },
    "variants": {
        "variant": "its name in all tables",
        "allocator": "what served malloc, as it named itself",
        "policy": "the parts that hakmem had chosen",
        "settings": "what the variant set",
        "build id": "what the linker stamped on that very file",
    },
    "live": {
        "value": "now: events since the start, or what there is at this moment",
        "per second": "how it changed since the last refresh",
        "bytes": "the memory or address space that the calls were about",
        "time": "what the kernel took for them",
        "regret": "of the bytes given back, those handed out again within a second",
    },
}


def explained(table: str, shown: Iterable[str] = ()) -> list[tuple[str, str]]:
    """(word, meaning) of a table: of all words, or of those shown."""
    words = TABLES[table]
    return [(word, words[word]) for word in (shown or words)]
