# SPDX-License-Identifier: MIT
"""Names of addresses: by binutils' addr2line, which knows inlined calls, else by the symbols that a file exports."""

from __future__ import annotations

import bisect
import os
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from . import elf
from .heapprofile import Mapping


PATIENCE = 120  # seconds for the lines of one file


@dataclass(frozen=True)
class Frame:
    """One call; several at one address if the compiler inlined functions."""

    function: str
    file: str = ""
    line: int = 0

    @property
    def place(self) -> str:
        return f"{os.path.basename(self.file)}:{self.line}" if self.line else ""


class Symbols:
    """The frames of return addresses, the innermost first."""

    def __init__(self, mappings: Sequence[Mapping], addresses: Iterable[int]) -> None:
        self.mappings = mappings
        self.starts = [mapping.start for mapping in mappings]
        self.frames: dict[int, list[Frame]] = {}
        wanted: dict[str, dict[int, int]] = {}
        for address in set(addresses):
            mapping = self.mapping(address)
            if mapping is None or not mapping.path.startswith("/"):
                self.frames[address] = [Frame(mapping.path if mapping else "(code of no file)")]
            else:
                wanted.setdefault(mapping.path, {})[address] = address - 1 - mapping.start + mapping.offset
        for path, offsets in wanted.items():
            self._name(path, offsets)

    def mapping(self, address: int) -> Mapping | None:
        at = bisect.bisect_right(self.starts, address) - 1
        found = self.mappings[at] if at >= 0 else None
        return found if found and address <= found.end else None

    def _name(self, path: str, offsets: dict[int, int]) -> None:
        name = os.path.basename(path)
        try:
            segments, exported = elf.segments(path), elf.functions(path)
        except (OSError, elf.NotElf):
            segments, exported = [], []
        exact = {address: _linked(segments, offset) for address, offset in offsets.items()}
        lines = _addr2line(path, [exact[address] for address in offsets]) if segments else None
        for address, frames in zip(offsets, lines or [[] for _ in offsets], strict=True):
            if not frames or frames[-1].function == "??":
                at = bisect.bisect_right(exported, (exact[address], "\xff")) - 1
                title = exported[at][1] if at >= 0 else f"{name}+{offsets[address]:#x}"
                frames = [Frame(title)]
            self.frames[address] = frames


def _linked(segments: list[tuple[int, int, int]], offset: int) -> int:
    """The linked address of an offset in the file."""
    for at, address, length in segments:
        if at <= offset < at + length:
            return offset - at + address
    return offset


def _addr2line(path: str, addresses: list[int]) -> list[list[Frame]] | None:
    """The frames of each address; None without the program or the file."""
    program = shutil.which("addr2line")
    if not program:
        return None
    try:
        done = subprocess.run(
            [program, "-afiC", "-e", path],
            input="\n".join(f"{address:#x}" for address in addresses),
            capture_output=True,
            text=True,
            errors="replace",
            timeout=PATIENCE,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return None
    groups: list[list[Frame]] = []
    lines = iter(done.stdout.splitlines())
    for line in lines:
        if line.startswith("0x"):
            groups.append([])
            continue
        file, _, number = next(lines, "??:0").partition(" (")[0].rpartition(":")
        groups[-1].append(Frame(line, file, int(number) if number.isdecimal() else 0))
    return groups if len(groups) == len(addresses) else None
