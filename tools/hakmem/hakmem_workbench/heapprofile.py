# SPDX-License-Identifier: MIT
"""Reads a heap profile (tools/profile/format.h): the file of one, or the memory of a running process.

A sample of a block of s bytes, drawn at a mean of m, stands for 1 / (1 - exp(-s / m)) blocks.
"""

from __future__ import annotations

import bisect
import contextlib
import math
import os
import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from . import inspection
from .errors import Problem, reading
from .text import word

OBSERVER = "libhakmem-profile.so"
MAGIC = b"HAKPROF1"
HEADER = struct.Struct("=8sII17Q")
ENTRY = struct.Struct("=9Q")
HEAP = struct.Struct("=Q32s")
MEAN_AT = 32
PAGE = 4096
LARGEST = 1 << 30  # what is longer is damaged
PLACES = 1 << 60  # no address of a process


@dataclass(frozen=True)
class Mapping:
    """Code of one file: its addresses, and its offset in the file."""

    start: int
    end: int
    offset: int
    path: str


@dataclass(slots=True)
class Amount:
    """Estimates from samples."""

    live_bytes: float = 0
    live_blocks: float = 0
    all_bytes: float = 0
    all_blocks: float = 0
    peak_bytes: float = 0
    peak_blocks: float = 0
    samples: int = 0

    def add(self, other: Amount, sign: int = 1) -> None:
        self.live_bytes += sign * other.live_bytes
        self.live_blocks += sign * other.live_blocks
        self.all_bytes += sign * other.all_bytes
        self.all_blocks += sign * other.all_blocks
        self.peak_bytes += sign * other.peak_bytes
        self.peak_blocks += sign * other.peak_blocks
        self.samples += sign * other.samples


class Site(NamedTuple):
    """Return addresses, the innermost first, and the name of the heap of the program; '' is none."""

    stack: tuple[int, ...]
    heap: str = ""


@dataclass
class HeapProfile:
    """What a process allocated, by site."""

    pid: int
    started_ns: int
    mean: int
    lost: int
    mappings: list[Mapping]
    sites: dict[Site, Amount] = field(default_factory=dict)
    inherited: int = 0  # bytes, roughly, that are their parent's as well
    means: set[int] = field(default_factory=set)  # of its samples: the mean may have changed

    @property
    def program(self) -> str:
        """Its file: code of no other one lies below it."""
        return next((one.path for one in self.mappings if one.path.startswith("/")), "")

    @property
    def total(self) -> Amount:
        amount = Amount()
        for one in self.sites.values():
            amount.add(one)
        return amount

    @property
    def addresses(self) -> set[int]:
        return {address for site in self.sites for address in site.stack}

    @property
    def heaps(self) -> dict[str, Amount]:
        """By name; empty without heaps of the program."""
        found: dict[str, Amount] = {}
        for site, amount in self.sites.items():
            found.setdefault(site.heap, Amount()).add(amount)
        return found if any(found) else {}


def load(path: str | Path) -> HeapProfile:
    """Of several processes the sum."""
    profiles = load_all(path)
    return merged(profiles) if len(profiles) > 1 else profiles[0]


def load_all(path: str | Path) -> list[HeapProfile]:
    """Of each process: their profiles follow each other, as `save` writes them."""
    found: list[HeapProfile] = []
    try:
        with open(path, "rb") as file:
            while (head := file.read(HEADER.size)) or not found:
                found.append(_parse(head + file.read(_rest(head)), str(path)))
    except OSError as error:
        raise Problem(
            f"{path} can't be read: {error.strerror}", "Name a profile's file, or the id of a process."
        ) from error
    return found


def save(path: str, profiles: Iterable[bytes]) -> None:
    """Pages of zeros become gaps."""
    with open(path, "wb") as file:
        for data in profiles:
            for page in (data[at : at + PAGE] for at in range(0, len(data), PAGE)):
                if page.strip(b"\0"):
                    file.write(page)
                else:
                    file.seek(len(page), os.SEEK_CUR)
        file.truncate()


def merged(profiles: Sequence[HeapProfile], base: Sequence[HeapProfile] = ()) -> HeapProfile:
    """Their sum, less the base: each file's code gets one place for all, since the kernel loads it anywhere."""
    first = profiles[0]
    result = HeapProfile(first.pid, first.started_ns, first.mean, sum(one.lost for one in profiles), [])
    result.inherited = sum(one.inherited for one in profiles)
    result.means = set().union(*(one.means for one in [*profiles, *base]))
    places: dict[tuple[str, int, int], int] = {}

    def place(mapping: Mapping) -> int:
        key = (mapping.path, mapping.offset, mapping.end - mapping.start)
        return places.setdefault(key, PLACES + (len(places) << 36))

    for mapping in first.mappings:  # in their order: the program is before libraries
        if mapping.path:
            place(mapping)
    for one, sign in [(one, 1) for one in profiles] + [(one, -1) for one in base]:
        starts = [mapping.start for mapping in one.mappings]
        moved: dict[int, int] = {}
        for address in one.addresses:
            at = bisect.bisect_right(starts, address) - 1
            moved[address] = address
            if at >= 0 and address <= one.mappings[at].end and one.mappings[at].path:
                moved[address] = address - starts[at] + place(one.mappings[at])
        for site, amount in one.sites.items():
            place_of_all = Site(tuple(moved[address] for address in site.stack), site.heap)
            result.sites.setdefault(place_of_all, Amount()).add(amount, sign)
    rows = ((start, path, offset, length) for (path, offset, length), start in places.items())
    result.mappings = [Mapping(start, start + length, offset, path) for start, path, offset, length in rows]
    return result


def _parse(data: bytes, name: str) -> HeapProfile:
    if len(data) < HEADER.size or not data.startswith(MAGIC):
        raise Problem(
            f"{name} is no heap profile",
            "'hakmem profile -- CMD' makes one; so does HAKMEM_PROFILE_FILE.",
        )
    with reading(name, "Its process may have been killed while it made the file."):
        return _whole(data)


def _rest(head: bytes) -> int:
    """How much of the profile is behind its header; 0 if it is none."""
    if len(head) < HEADER.size or not head.startswith(MAGIC):
        return 0
    (entry_size, _, _, _, entries_at, entries, frames_at, frames, _, maps_at, maps) = HEADER.unpack(head)[2:13]
    heaps_at, heaps = HEADER.unpack(head)[17:19]
    ends = (entries_at + entries * entry_size, frames_at + 8 * frames, maps_at + maps, heaps_at + heaps * HEAP.size)
    return max(*ends, len(head)) - len(head) if max(ends) < LARGEST else -1


def _whole(data: bytes) -> HeapProfile:
    (_, _, entry_size, pid, started, mean, entries_at, entries) = HEADER.unpack_from(data)[:8]
    (frames_at, _, _, maps_at, _, maps, lost, _, _, heaps_at, heaps, inherited) = HEADER.unpack_from(data)[8:]
    if heaps * HEAP.size > len(data):
        raise ValueError("its heaps are longer than it is")
    names = [_heap_name(*HEAP.unpack_from(data, heaps_at + number * HEAP.size)) for number in range(heaps)]
    profile = HeapProfile(pid, started, mean, lost, _mappings(data[maps_at : maps_at + maps]), inherited=inherited)
    if entry_size < ENTRY.size or entries * entry_size > len(data):
        raise ValueError("its entries are longer than it is")
    room = len(data) // 8  # stacks do not overlap
    for number in range(entries):
        at = entries_at + number * entry_size
        if data[at : at + 8] == bytes(8):
            continue
        _, size, drawn_at, first, depth, allocated, freed, peak, heap = ENTRY.unpack_from(data, at)
        if not depth or not allocated:
            continue
        room -= depth
        if room < 0 or not drawn_at:
            raise ValueError("its entries contradict each other")
        frames = struct.unpack_from(f"={depth}Q", data, frames_at + 8 * first)
        profile.mean = profile.mean or drawn_at  # it was switched off
        profile.means.add(drawn_at)
        site = Site(frames, "" if not heap else names[heap - 1] if heap <= heaps else "(other heaps)")
        profile.sites.setdefault(site, Amount()).add(_estimate(size, drawn_at, allocated, freed, peak))
    if profile.total.peak_bytes < profile.total.live_bytes:  # the peak is noted in steps
        for amount in profile.sites.values():
            amount.peak_bytes, amount.peak_blocks = amount.live_bytes, amount.live_blocks
    return profile


def _heap_name(_: int, name: bytes) -> str:
    return word(name.partition(b"\0")[0].decode(errors="replace")) or "(no name)"


def _estimate(size: int, mean: int, allocated: int, freed: int, peak: int) -> Amount:
    scale = 1 / -math.expm1(-max(size, 1) / mean)
    live = max(allocated - freed, 0) * scale
    at_peak = min(peak, allocated) * scale
    return Amount(
        live * size, live, allocated * scale * size, allocated * scale, at_peak * size, at_peak, allocated
    )


def _mappings(text: bytes) -> list[Mapping]:
    found = []
    for line in text.decode("utf-8", "replace").split("\n")[:-1]:
        words = line.split(" ", 5)
        start, _, end = words[0].partition("-")
        path = word(words[5].strip(" ")) if len(words) > 5 else ""
        found.append(Mapping(int(start, 16), int(end, 16), int(words[2], 16), path))
    return sorted(found, key=lambda mapping: mapping.start)


# --- a running process ---------------------------------------------------------------------------


def of_process(pid: int) -> HeapProfile:
    return parse(read(pid), pid)


def read(pid: int) -> bytes:
    """The profile of the process, as in a file; a Problem says why there is none."""
    with _inside(pid) as (process, address):
        return process.read(address, process.layout.numbers["profile_bytes"])


def parse(data: bytes, pid: int) -> HeapProfile:
    return _parse(data, f"the profile of process {pid}")


@contextlib.contextmanager
def _inside(pid: int, writes: bool = False) -> Iterator[tuple[inspection.Process, int]]:
    """The process, and where in its memory the profile is."""
    try:
        with inspection.of(pid, "profile", writes) as process:
            if address := process.number("profile"):
                yield process, address
                return
    except inspection.NotServed:
        pass
    raise Problem(
        f"process {pid} has no heap profile",
        "It needs libhakmem-profile.so from its start: hakmem profile --idle -- CMD; or libhakmem-profile.a.",
        code=1,
    )


def mean_of(pid: int) -> int:
    """The current mean of bytes between two samples; 0 if it is off, or there is no profile."""
    try:
        with _inside(pid) as (process, address):
            return process.word(address + MEAN_AT)
    except Problem:
        return 0


def set_mean(pid: int, mean: int) -> None:
    """Switches sampling on, or off with 0; threads follow within 1 MiB of allocations."""
    with _inside(pid, writes=True) as (process, address):
        process.write(address + MEAN_AT, struct.pack("=Q", mean))
