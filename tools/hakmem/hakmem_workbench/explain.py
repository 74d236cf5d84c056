# SPDX-License-Identifier: MIT
"""Turns statistics into sentences: what made the system calls, what is kept, and why. This module has the meaning of
causes and reasons. Which setting changes them comes from the statistics, in which each setting names the counter that
it moves. An unknown cause is reported under its own name.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from .statsfile import OsCall, Retained, Setting, Stats
from .text import count, duration, listing, of_it, percent, plural, size

CAUSES = {
    "superslab_map": "a slab was asked for, and no EMPTY, PARTIAL, unused or cached one was left",
    "large_map": "blocks too large for any span were mapped on their own",
    "large_unmap": "such blocks were freed, and their mappings went with them",
    "realloc_remap": "a large block was resized in place or moved by the kernel without copying",
    "prefault": "new memory was populated at once, so that its first use takes no page fault",
    "partial_release": "free pages were given back while their superslab, or their slab, stayed in use",
    "batch_release": "freed ranges had queued up and went back to the kernel together",
    "direct_release": "freed ranges went back to the kernel one by one",
    "lru_evict": "the cache of unused superslabs was over one of its limits",
    "purge": "dirty pages had been idle for the purge delay",
    "trim": "malloc_trim or hakmem_trim was called, or a request would have exceeded the limit",
    "discard": "realloc had moved a block, or calloc returned one on old pages",
    "huge_page": "the kernel was advised on transparent huge pages",
    "metadata": "descriptors and tables of the allocator itself",
    "guard": "guarded blocks (HAKMEM_GUARD_RATE): their pages were opened, or closed again",
    "seal": "tables were made read-only after start",
    "name": "mappings were named for /proc/PID/maps",
}

@dataclass(frozen=True)
class Reason:
    """Why memory is kept; the settings that release it, the best one first, each with what it does and costs; and what
    else would.
    """

    meaning: str
    settings: Mapping[str, str] = field(default_factory=dict)  # by NAME=VALUE
    release: str = ""


BACKGROUND = {
    "HAKMEM_BACKGROUND=1": "it is returned after the purge delay, even if the program is idle, once the heap has held "
    "4 MiB; costs a thread"
}
REASONS = {
    "dirty": Reason("pages without any block, not given back yet", BACKGROUND),
    "cached": Reason(
        "whole superslabs kept for the next need",
        BACKGROUND
        | {"HAKMEM_SUPERSLAB_MAX_CACHED=0": "none is kept; costs a page fault for each page at the next need"},
    ),
    "empty": Reason(
        "slabs and large blocks that were freed, kept whole for the next one of their size",
        BACKGROUND
        | {"HAKMEM_SS_HOT_SLABS=1": "fewer are kept; costs a lock, and perhaps page faults, at the next one"},
    ),
    "bins": Reason(
        "free blocks in the bins of threads, ready for their next malloc, and the slabs that hold no other block",
        {
            "HAKMEM_BACKGROUND=1": "each thread empties its bins when it next calls malloc or free after a sleep, once "
            "the heap has held 4 MiB; costs a thread"
        },
        "hakmem_trim(0), called in the program: each thread empties its bins when it next comes "
        "to a slow path; costs a refill of each bin",
    ),
    "sparse": Reason(
        "free blocks in slabs that still hold live ones; they serve the next malloc of their size",
        {
            "HAKMEM_BACKGROUND=1": "system pages without a live block are returned half a second, and the purge delay, "
            "after the last malloc from their slab, once the heap has held 4 MiB; costs a thread"
        },
        "hakmem_trim(0) or malloc_trim(0), called in the program, at once; where a live block lies in each system "
        "page, only the program, by freeing it",
    ),
    "spans": Reason("the ends of large blocks, beyond what the program asked for"),
    "reserve": Reason("pages on their way between the page heap and a slab"),
    "pinned": Reason(
        "free blocks of threads that this process does not have: it was forked while they ran",
        release="no setting; fork before threads start, or exec in the child",
    ),
    "refused": Reason(
        "pages that the kernel did not take back, such as locked ones",
        release="no setting; munlock, or mlockall without MCL_FUTURE",
    ),
    "lazy": Reason(
        "free pages that are still resident: the kernel takes them on need, or they are part of a huge page",
        {"HAKMEM_MADV=dontneed": "the kernel takes them at once; costs a page fault for each that is needed again"},
    ),
    "metadata": Reason("descriptors and tables of the allocator itself"),
    "thread_caches": Reason("free blocks in the bins of threads, ready for their next malloc"),
    "partial": Reason("free blocks in slabs that still hold live ones; they serve the next malloc"),
    "lru": Reason("whole superslabs kept for the next need; only their dirty pages cost memory"),
    "unused": Reason("parts of superslabs from which no slab was taken yet"),
    "arena": Reason("the rest of thread arenas that nothing was carved from yet"),
    "large": Reason("freed large spans kept for reuse"),
}

# Counters of settings that also change a cause or a reason with another name.
_LEADS_TO = {
    "dirty": ("purge", "partial_release"),
    "lru": ("lru_evict",),
}

# Limits that hardly a program reaches, and another way of giving back, which gives back more.
_SELDOM = ("HAKMEM_BATCH_MAX_MB", "HAKMEM_BATCH_MAX_RANGES", "HAKMEM_RELEASE")

_GIVES_BACK = (
    "partial_release",
    "batch_release",
    "direct_release",
    "lru_evict",
    "purge",
    "trim",
    "large_unmap",
)
_RELEASING = ("madvise", "process_madvise", "munmap")
_REGRET_IS_MUCH = 0.5
_MUCH_BYTES = 1 << 20
_LITTLE_BYTES = 256 << 10
_DEAR_SECONDS = 0.001  # system calls that take less do not matter
_DEAR_SHARE = 0.001  # nor this share of a process's age
_MUCH_KEPT = 16 << 20  # or a quarter of this, if it is half of the heap


@dataclass
class Item:
    """A fact, its meaning, and the settings that would change it."""

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
    """The whole explanation, in the order of a reader's questions."""
    memory, calls = _retained(stats), _system_calls(stats)
    sections = [
        _in_short(stats),
        *((memory, calls) if stats.running else (calls, memory)),
        _heaps(stats),
        _supply(stats),
        _books(stats),
    ]
    return [section for section in sections if section is not None]


_MOST_HEAPS = 20


def _heaps(stats: Stats) -> Section | None:
    """The heaps that the program made, the largest first."""
    if not stats.heaps:
        return None
    rows = sorted(stats.heaps, key=lambda row: row.held_bytes, reverse=True)
    total = sum(row.held_bytes for row in rows)
    lead = f"{plural(len(rows), 'heap')} hold{'s' * (len(rows) == 1)} {size(total)} of pages."
    section = Section("Heaps of the program", lead)
    for row in rows[:_MOST_HEAPS]:
        fact = f"{size(row.held_bytes)} held, {size(row.live_bytes)} live in {plural(row.blocks, 'block')}"
        limit = f", limit {size(row.limit_bytes)}" if row.limit_bytes else ""
        full = "at its limit" if row.limit_bytes and row.limit_bytes - row.held_bytes < 1 << 16 else ""
        section.items.append(Item(row.name or "(no name)", fact + f", at most {size(row.peak_bytes)}{limit}", full))
    if len(rows) > _MOST_HEAPS:
        section.lead += f" Here are the {_MOST_HEAPS} largest."
    return section


def _in_short(stats: Stats) -> Section | None:
    """The most important finding, and what to try."""
    groups = by_cause(stats.os_calls)
    if not groups:
        return None
    costs = {cause: sum(row.ns for row in rows) / 1e9 for cause, rows in groups.items()}
    total = sum(costs.values())
    first = next(iter(groups))
    words = f"The kernel worked {duration(total)} for the allocator"
    words += f", {percent(costs[first] / total)} of it for {first}." if total else "."
    kept = [row for row in stats.retained if row.bytes and row.free]
    most = max(kept, key=lambda row: row.bytes, default=None)
    if stats.retained:
        amount = size(sum(row.bytes for row in kept)) + " of" if kept else "No"
        words += f" {amount} free memory {'is' if stats.running else 'was'} kept"
        words += "." if stats.running else " at the end."
    if most and most.bytes >= _MUCH_KEPT and not _gains(stats, most) and _release(stats, most):
        words += f" Most of it is {most.reason}. {_release(stats, most)}"
    section = Section("In short", words)
    dearth = max(_DEAR_SECONDS, stats.age_seconds * _DEAR_SHARE)
    spent = sum(costs[cause] for cause in groups if cause in _GIVES_BACK)
    vain, longer = _in_vain(stats) if spent >= dearth else 0, _longer_delay(stats)
    dear = costs[first] >= dearth and not stats.running
    tries = [longer] if vain and longer else _tries(stats, first) if dear else []
    if vain and longer:
        section.lead += f" {percent(vain)} of what was given back was in vain."
    best, amount = _best_setting(stats, kept)
    live = stats.live_bytes if stats.live_resident_bytes is None else stats.live_resident_bytes
    heap = live + sum(row.bytes for row in kept)
    verb = "change"
    if amount >= _MUCH_KEPT or amount >= max(_MUCH_KEPT // 4, heap / 2):
        section.lead += f" {best} {_would(stats)} up to {size(amount)}."
        verb = "try"
        tries.insert(0, f"set:{best.removeprefix('HAKMEM_')}")
    if tries and stats.running:
        section.lead += f" To {verb} that: {_in_a_process(stats, tries[0])}."
    elif tries:
        words = f"hakmem ab hakmem {' '.join(tries)} -- CMD"
        section.lead += f" To see whether that matters to the program: {words}"
    elif dear:
        section.lead += " No setting makes the kernel's part smaller."
    elif not (most and most.bytes >= _MUCH_KEPT):
        section.lead += " Nothing in it calls for a change."
    return section


def _given_back(stats: Stats) -> tuple[int, int]:
    """Bytes that went back, and of these what was handed out again within a second. What one cause returned may be
    taken for what another did, so that only their sum counts.
    """
    rows = [row for row in stats.os_calls if row.call in _RELEASING and row.cause in _GIVES_BACK]
    back = sum(row.bytes for row in rows)
    return back, min(back, sum(row.regret_bytes for row in rows))


def _in_vain(stats: Stats) -> float:
    """The share that was needed again, if it is much. Near a limit, memory is returned whatever the delay."""
    back, regret = _given_back(stats)
    limit = stats.setting("HAKMEM_LIMIT_MB")
    if stats.budget_bytes or limit and limit.value not in ("", "0"):
        return 0
    return regret / back if regret > max(back * _REGRET_IS_MUCH, _MUCH_BYTES) else 0


def _longer_delay(stats: Stats) -> str:
    setting = stats.setting("HAKMEM_PURGE_DELAY_MS")
    longer = _other_value(setting) if setting else None
    return f"set:PURGE_DELAY_MS={longer}" if longer else ""


def _would(stats: Stats) -> str:
    """At its end a program is not idle any more."""
    return "gives back" if stats.running else "would give back, while the program sleeps,"


def _tries(stats: Stats, cause: str) -> list[str]:
    """Another value of each setting that changes the cause, as a variant of `hakmem ab`."""
    moving = ((setting, _other_value(setting)) for setting in settings_that_move(stats, cause))
    return [f"set:{setting.name.removeprefix('HAKMEM_')}={other}" for setting, other in moving if other is not None]


def _offers(stats: Stats, row: Retained) -> dict[str, str]:
    """What would release it and is not set yet. A little of it may be what the setting leaves."""
    offered = REASONS[row.reason].settings if row.reason in REASONS and row.bytes >= _LITTLE_BYTES else {}
    present = {f"{setting.name}={setting.value}" for setting in stats.settings}
    return {assignment: words for assignment, words in offered.items() if assignment not in present}


def _in_a_process(stats: Stats, variant: str) -> str:
    """How a process that runs gets the setting of a variant for `hakmem ab`."""
    assignment = "HAKMEM_" + variant.removeprefix("set:").replace("release=", "RELEASE=")
    setting = stats.setting(assignment.partition("=")[0])
    if setting and setting.changeable and setting.name != "HAKMEM_BACKGROUND":  # no thread starts from outside
        return f"hakmem set {stats.pid} {assignment}"
    return f"start it anew with {assignment}"


def _gains(stats: Stats, row: Retained) -> int:
    """Most bytes that a setting would release; a small part of them counts for nothing."""
    most = row.bytes if row.reason != "sparse" else row.returnable or 0
    return most if _offers(stats, row) and most >= row.bytes / 8 else 0


def _best_setting(stats: Stats, kept: list[Retained]) -> tuple[str, int]:
    """The one that releases most of all reasons together, and how much."""
    gains: dict[str, int] = {}
    for row in kept:
        for assignment in _offers(stats, row):
            gains[assignment] = gains.get(assignment, 0) + _gains(stats, row)
    return max(gains.items(), key=lambda gain: gain[1], default=("", 0))


def _other_value(setting: Setting) -> str | None:
    if setting.type == "bool":
        return "1" if setting.value == "0" else "0"
    if setting.type == "int" and setting.value.isdigit() and setting.high.isdigit():
        more = min(max(int(setting.value) * 10, 1), int(setting.high))
        return str(more) if more != int(setting.value) else None
    return None


def settings_that_move(stats: Stats, name: str) -> tuple[Setting, ...]:
    """Settings whose counter is named after this cause or reason, or after what leads to it. Inherited names stand for
    one of these, and are left out; so are settings that only report.
    """
    names = {name, *_LEADS_TO.get(name, ())}
    return tuple(
        setting
        for setting in stats.settings
        if not setting.maps_to
        and setting.name not in _SELDOM
        and names & {*re.findall(r"[a-z0-9_.]+", setting.moves), *re.findall(r"\w+", setting.moves)}
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
    back, regret = _given_back(stats)
    if back:
        lead += f". Of {size(back)} that went back, {percent(regret / back) if regret else 'nothing'} was handed out "
        lead += "again within a second"
    section = Section("System calls", lead + ".")
    for cause, group in groups.items():
        section.items.append(_cause(stats, cause, group))
    return section


def _times(latency: tuple[int, int, int] | None, of_what: str) -> str:
    if not latency:
        return ""
    half, most, worst = (duration(ns / 1e9) for ns in latency)
    return f" ({of_what}: half within {half}, 99 % within {most}, the worst {worst})"


def _cause(stats: Stats, cause: str, rows: list[OsCall]) -> Item:
    made = listing([_made(row) for row in rows])
    total = sum(row.bytes for row in rows)
    ns = sum(row.ns for row in rows)
    fact = ", ".join(
        [made, *([size(total)] if total else []), *([duration(ns / 1e9)] if ns else [])]
    )
    if sum(row.calls for row in rows) > 1:
        fact += _times(stats.latency.get(cause), "a call")
    return Item(cause, fact, CAUSES.get(cause, ""), "", settings_that_move(stats, cause))


def _made(row: OsCall) -> str:
    return f"{count(row.calls)} × {row.call}" + (
        f" ({count(row.failed)} failed)" if row.failed else ""
    )


def _retained(stats: Stats) -> Section | None:
    rows = sorted((row for row in stats.retained if row.bytes), key=lambda row: -row.bytes)
    kept = [row for row in rows if row.free]
    if not stats.retained:
        return None
    section = Section("Memory that is kept", _kept(kept))
    if stats.live_bytes:
        section.lead += f" {size(stats.live_bytes)} are in blocks that the program holds"
        if not any(row.reason == "bins" for row in rows):
            section.lead += ", or that wait in the bins of its threads"
        if stats.live_resident_bytes is not None:
            section.lead += of_it(stats.live_bytes, stats.live_resident_bytes)
        section.lead += "."
    for row in rows:
        fact = size(row.bytes)
        if most := [(number, amount) for number, amount in Counter(row.sizes).most_common(3) if amount]:
            fact += " beside " + listing([f"{number}-byte blocks ({size(amount)})" for number, amount in most])
        if row.age_seconds:
            fact += f", the oldest for {duration(row.age_seconds)}"
        section.items.append(
            Item(
                row.reason,
                fact,
                REASONS[row.reason].meaning if row.reason in REASONS else "",
                _release(stats, row),
                () if _release(stats, row) else settings_that_move(stats, row.reason),
            )
        )
    return section


def _release(stats: Stats, row: Retained) -> str:
    """What would return it, how much, and at which cost."""
    reason = REASONS.get(row.reason)
    for assignment, words in _offers(stats, row).items():
        if gain := _gains(stats, row):
            return f"{assignment} {_would(stats)} up to {size(gain)}: {words}."
    if row.returnable is not None and row.returnable < row.bytes / 8:
        return "What would release it: no setting; only the program, by freeing the live blocks beside them."
    return f"What would release it: {reason.release}." if reason and reason.release else ""


def _kept(kept: list[Retained]) -> str:
    if not kept:
        return "Nothing is kept: all free memory was returned to the kernel."
    total = sum(row.bytes for row in kept)
    words = f"{size(total)} of free memory {'is' if len(kept) == 1 else 'are'} kept"
    if len(kept) == 1:
        return f"{words}, all of it as {kept[0].reason}."
    return f"{words}, most of it ({percent(kept[0].bytes / total)}) as {kept[0].reason}."


def _supply(stats: Stats) -> Section | None:
    stages = {stage: number for stage, number in stats.stages.items() if stage != "failed"}
    total = sum(stages.values())
    if not total:
        return None
    section = Section("Where slabs came from", f"Slabs were asked for {plural(total, 'time')}.")
    for stage, number in stages.items():
        if number:
            meaning = stats.stage_finds.get(stage, "")
            times = _times(stats.stage_latency.get(stage), "one")
            section.items.append(
                Item(stage, f"{count(number)} ({percent(number / total)}){times}", meaning)
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
