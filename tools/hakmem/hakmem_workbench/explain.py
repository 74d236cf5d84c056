# SPDX-License-Identifier: MIT
"""Turns statistics into sentences: who made the system calls, what is kept, and why.

What a cause or a reason means is said here; which setting changes it is not:
that comes from the statistics themselves, where each setting names the counter
that it moves. An unknown cause is reported under its own name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from .statsfile import OsCall, Setting, Stats
from .text import count, duration, listing, percent, plural, size

_CAUSES = {
    "reserve": "address space set aside once at start; it costs no memory until it is used",
    "superslab_map": "a slab was asked for, and no EMPTY, PARTIAL, unused or cached one was left",
    "arena_grow": "a thread's pool arena was used up and grew by its next step",
    "large_map": "blocks too large for any span were mapped on their own",
    "large_unmap": "such blocks were freed, and their mappings went with them",
    "realloc_remap": "a large block was resized in place or moved by the kernel without copying",
    "prefault": "new memory was populated at once, so that its first use takes no page fault",
    "partial_release": "the pages of EMPTY slabs were given back while their superslab stayed",
    "batch_release": "freed ranges had queued up and went back to the kernel together",
    "direct_release": "freed ranges went back to the kernel one by one",
    "lru_evict": "the cache of unused superslabs was over one of its limits",
    "purge": "dirty pages had been idle for the purge delay",
    "trim": "malloc_trim or hakmem_trim was called",
    "limit": "the memory limit was reached, and free pages went back first",
    "huge_page": "the kernel was advised on transparent huge pages",
    "metadata": "descriptors and tables of the allocator itself",
    "seal": "tables were made read-only after start",
    "name": "mappings were named for /proc/PID/maps",
}

_REASONS = {
    "thread_caches": "free blocks in the bins of threads, ready for their next malloc",
    "partial": "free blocks in slabs that still hold live ones",
    "empty": "slabs without any live block, kept for any class",
    "lru": "whole superslabs kept for the next need",
    "dirty": "pages free already, whose purge delay has not passed yet",
    "pinned": "slabs that can't be returned, as after a fork from a process with threads",
    "unused": "parts of superslabs that no slab was cut from yet",
    "arena": "the rest of thread arenas that nothing was carved from yet",
    "large": "freed large spans kept for reuse",
}

_STAGES = {
    "hot": "the class's hot slot",
    "empty": "EMPTY slabs",
    "partial": "adopted PARTIAL slabs",
    "unused": "unused slabs of mapped superslabs",
    "drain": "drained remote frees",
    "lru": "cached superslabs",
    "map": "new mappings from the kernel",
}

_RELEASING = ("madvise", "process_madvise", "munmap")
_REGRET_IS_MUCH = 0.5


@dataclass
class Item:
    """A fact, what it means, and which settings would change it."""

    name: str
    fact: str
    meaning: str = ""
    judgement: str = ""
    settings: tuple[Setting, ...] = ()


@dataclass
class Section:
    title: str
    lead: str
    items: list[Item] = field(default_factory=list)


def explain(stats: Stats) -> list[Section]:
    """The whole story, in the order in which a person asks."""
    sections = [_system_calls(stats), _retained(stats), _supply(stats), _books(stats)]
    return [section for section in sections if section is not None]


def settings_that_move(stats: Stats, name: str) -> tuple[Setting, ...]:
    """Settings whose counter has this cause or reason in its name."""
    return tuple(
        setting
        for setting in stats.settings
        if name in re.findall(r"[a-z][a-z0-9_]*", setting.moves)
    )


def by_cause(calls: Iterable[OsCall]) -> dict[str, list[OsCall]]:
    """Rows that made calls, grouped by cause, the most expensive cause first."""
    groups: dict[str, list[OsCall]] = {}
    for row in calls:
        if row.calls:
            groups.setdefault(row.cause, []).append(row)
    order = sorted(
        groups,
        key=lambda cause: (
            -sum(row.ns for row in groups[cause]),
            -sum(row.calls for row in groups[cause]),
        ),
    )
    return {cause: groups[cause] for cause in order}


def _system_calls(stats: Stats) -> Section:
    groups = by_cause(stats.os_calls)
    if not groups:
        return Section("System calls", "The allocator made no system call, or did not record any.")
    rows = [row for group in groups.values() for row in group]
    calls, ns = sum(row.calls for row in rows), sum(row.ns for row in rows)
    first = next(iter(groups))
    lead = f"The allocator made {plural(calls, 'system call')}"
    if ns:
        share = sum(row.ns for row in groups[first]) / ns
        lead += f", {duration(ns / 1e9)} in all; {percent(share)} of that time is {first}"
    section = Section("System calls", lead + ".")
    for cause, group in groups.items():
        section.items.append(_cause(stats, cause, group))
    return section


def _cause(stats: Stats, cause: str, rows: list[OsCall]) -> Item:
    made = listing([_made(row) for row in rows])
    total = sum(row.bytes for row in rows)
    ns = sum(row.ns for row in rows)
    fact = ", ".join(
        [made, *([size(total)] if total else []), *([duration(ns / 1e9)] if ns else [])]
    )
    releases = [row for row in rows if row.call in _RELEASING and row.bytes]
    regret = sum(row.regret_bytes for row in releases)
    judgement = ""
    if releases:
        back = sum(row.bytes for row in releases)
        if regret > back * _REGRET_IS_MUCH:
            judgement = (
                f"{size(regret)} of the {size(back)} given back ({percent(regret / back)}) was "
                "handed "
                "out again within a second: giving it back bought little."
            )
        elif regret:
            judgement = (
                f"{percent(regret / back)} of what was given back was needed again within a second."
            )
        else:
            judgement = "None of it was needed again within a second: it was right to give it back."
    return Item(cause, fact, _CAUSES.get(cause, ""), judgement, settings_that_move(stats, cause))


def _made(row: OsCall) -> str:
    return f"{count(row.calls)} × {row.call}" + (
        f" ({count(row.failed)} failed)" if row.failed else ""
    )


def _retained(stats: Stats) -> Section | None:
    kept = sorted((row for row in stats.retained if row.bytes), key=lambda row: -row.bytes)
    if not stats.retained:
        return None
    if not kept:
        return Section("Memory that is kept", "Nothing is kept: all free memory went back.")
    total = sum(row.bytes for row in kept)
    section = Section(
        "Memory that is kept",
        f"{size(total)} of free memory {'is' if len(kept) == 1 else 'are'} kept, "
        f"most of it ({percent(kept[0].bytes / total)}) as {kept[0].reason}.",
    )
    for row in kept:
        fact = size(row.bytes)
        if row.age_seconds:
            fact += f", the oldest for {duration(row.age_seconds)}"
        section.items.append(
            Item(
                row.reason,
                fact,
                _REASONS.get(row.reason, ""),
                "",
                settings_that_move(stats, row.reason),
            )
        )
    return section


def _supply(stats: Stats) -> Section | None:
    stages = {stage: number for stage, number in stats.stages.items() if stage != "failed"}
    total = sum(stages.values())
    if not total:
        return None
    section = Section("Where slabs came from", f"Slabs were asked for {plural(total, 'time')}.")
    for stage, number in stages.items():
        if number:
            meaning = f"by {_STAGES[stage]}" if stage in _STAGES else ""
            section.items.append(
                Item(stage, f"{count(number)} ({percent(number / total)})", meaning)
            )
    mapped = stages.get("map", 0)
    if failed := stats.stages.get("failed"):
        section.lead += f" {plural(failed, 'further request')} failed."
    section.lead += f" {percent(1 - mapped / total)} of them were served without the kernel."
    return section


def _books(stats: Stats) -> Section | None:
    if stats.violations is None:
        return None
    if stats.violations == 0:
        return Section("Books", "They balance: every block and byte is accounted for.")
    return Section(
        "Books",
        f"{plural(stats.violations, 'conservation law')} broken: this is a bug in the "
        "allocator, and the figures above may be wrong.",
    )
