# SPDX-License-Identifier: MIT
"""Reads the file of a heap profile (src/observers/profile/format.h), of a process that has ended or still runs.

A sample of a block of s bytes, drawn at a mean of m, stands for 1 / (1 - exp(-s / m)) blocks.
"""

from __future__ import annotations

import math
import os
import struct
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from . import process
from .errors import Problem

OBSERVER = "libhakmem-profile.so"
MAGIC = b"HAKPROF1"
HEADER = struct.Struct("=8sIIQQQQQQQQQQQQ")
ENTRY = struct.Struct("=QQQQQQQ8x")
MEAN_AT = 32
MEMORY = "/memfd:hakmem.profile"


@dataclass(frozen=True)
class Mapping:
    """Code of one file: its addresses, and its offset in the file."""

    start: int
    end: int
    offset: int
    path: str


@dataclass
class Amount:
    """Estimates from samples."""

    live_bytes: float = 0
    live_blocks: float = 0
    all_bytes: float = 0
    all_blocks: float = 0
    samples: int = 0

    def add(self, other: Amount) -> None:
        self.live_bytes += other.live_bytes
        self.live_blocks += other.live_blocks
        self.all_bytes += other.all_bytes
        self.all_blocks += other.all_blocks
        self.samples += other.samples


@dataclass
class HeapProfile:
    """What a process allocated, by stack; return addresses, the innermost first."""

    pid: int
    started_ns: int
    mean: int
    lost: int
    mappings: list[Mapping]
    stacks: dict[tuple[int, ...], Amount] = field(default_factory=dict)

    @property
    def total(self) -> Amount:
        amount = Amount()
        for one in self.stacks.values():
            amount.add(one)
        return amount


def load(path: str | Path) -> HeapProfile:
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise Problem(
            f"{path} can't be read: {error.strerror}", "Name a profile's file, or the id of a process."
        ) from error
    return _parse(data, str(path))


def _parse(data: bytes, name: str) -> HeapProfile:
    if len(data) < HEADER.size or not data.startswith(MAGIC):
        raise Problem(
            f"{name} is no heap profile",
            "'hakmem profile -- CMD' makes one; so does HAKMEM_PROFILE_FILE.",
        )
    (_, _, entry_size, pid, started, mean, entries_at, entries) = HEADER.unpack_from(data)[:8]
    (frames_at, _, _, maps_at, _, maps, lost) = HEADER.unpack_from(data)[8:]
    profile = HeapProfile(pid, started, mean, lost, _mappings(data[maps_at : maps_at + maps]))
    for number in range(entries):
        at = entries_at + number * entry_size
        if data[at : at + 8] == bytes(8):
            continue
        _, size, drawn_at, first, depth, allocated, freed = ENTRY.unpack_from(data, at)
        if not depth or not allocated:
            continue
        frames = struct.unpack_from(f"={depth}Q", data, frames_at + 8 * first)
        profile.mean = profile.mean or drawn_at  # it was switched off
        profile.stacks.setdefault(frames, Amount()).add(_estimate(size, drawn_at, allocated, freed))
    return profile


def _estimate(size: int, mean: int, allocated: int, freed: int) -> Amount:
    scale = 1 / -math.expm1(-max(size, 1) / mean)
    live = max(allocated - freed, 0) * scale
    return Amount(live * size, live, allocated * scale * size, allocated * scale, allocated)


def _mappings(text: bytes) -> list[Mapping]:
    found = []
    for line in text.decode("utf-8", "replace").splitlines():
        words = line.split(None, 5)
        start, _, end = words[0].partition("-")
        path = words[5] if len(words) > 5 else ""
        found.append(Mapping(int(start, 16), int(end, 16), int(words[2], 16), path))
    return sorted(found, key=lambda mapping: mapping.start)


# --- a running process ---------------------------------------------------------------------------


def of_process(pid: int) -> Path:
    """The file of the process's profile; a Problem says why there is none."""
    if not process.alive(pid):
        raise Problem(f"there is no process {pid}", "A profile in a file can be read after its process has ended.", 1)
    try:
        for path in _candidates(pid):
            if _is_of(path, pid):
                return path
    except OSError as error:
        raise Problem(
            f"process {pid} belongs to another user", "Use sudo, or run this as that user."
        ) from error
    raise Problem(
        f"process {pid} has no heap profile",
        "It needs libhakmem-profile.so from its start: hakmem profile --idle -- CMD.",
        code=1,
    )


def _candidates(pid: int) -> Iterable[Path]:
    for path in Path(f"/proc/{pid}/fd").iterdir():
        try:
            if os.readlink(path).startswith(MEMORY):
                yield path
        except OSError:
            pass  # closed meanwhile
    for line in Path(f"/proc/{pid}/maps").read_text(errors="replace").splitlines():
        words = line.split(None, 5)
        if len(words) == 6 and words[1] == "rw-s" and words[5].startswith("/"):
            yield Path(f"/proc/{pid}/root{words[5]}")


def _is_of(path: Path, pid: int) -> bool:
    """A forked child also has its parent's."""
    try:
        with path.open("rb") as stream:
            head = stream.read(HEADER.size)
    except OSError:
        return False
    inner = process.number_inside(pid)
    return len(head) == HEADER.size and head.startswith(MAGIC) and HEADER.unpack(head)[3] == inner


def mean_of(path: Path) -> int:
    """The current mean of bytes between two samples; 0 if it is off."""
    with path.open("rb") as stream:
        return int(HEADER.unpack(stream.read(HEADER.size))[5])


def set_mean(path: Path, mean: int) -> None:
    """Switches sampling on, or off with 0; threads follow within 1 MiB of allocations."""
    with path.open("r+b", buffering=0) as stream:
        stream.seek(MEAN_AT)
        stream.write(struct.pack("=Q", mean))
