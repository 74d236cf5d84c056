# SPDX-License-Identifier: MIT
"""Names of addresses: by binutils' addr2line where it knows the line, also of inlined calls; else by the symbols of the
file and of its debug file, within the symbol's size; else by the map that a JIT compiler writes for perf. An address
without a name is shown as its file and offset.
"""

from __future__ import annotations

import bisect
import os
import re
import shutil
import stat
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from . import elf, process
from .heapprofile import Mapping


PATIENCE = 120  # seconds for the lines of one file
NESTED = 16  # symbols before an address of which one may hold it
JIT_ROOM = 1 << 24  # bytes read of a JIT's map


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

    def __init__(
        self, mappings: Sequence[Mapping], addresses: Iterable[int], jit: Sequence[tuple[int, int, str]] = (),
        since_ns: int = 0,
    ) -> None:
        """`since_ns`: when the process started: a file that came to its place later is not what it runs."""
        self.since_ns = since_ns
        self.mappings = mappings
        self.starts = [mapping.start for mapping in mappings]
        self.frames: dict[int, list[Frame]] = {}
        wanted: dict[str, dict[int, int]] = {}
        for address in set(addresses):
            mapping = self.mapping(address)
            if made := _holder(jit, address - 1):
                self.frames[address] = [Frame(made)]
            elif mapping is None or not mapping.path.startswith("/"):
                self.frames[address] = [Frame((mapping and mapping.path) or "(code of no known file)")]
            else:
                wanted.setdefault(mapping.path, {})[address] = address - 1 - mapping.start + mapping.offset
        for path, offsets in wanted.items():
            self._name(path, offsets)

    def mapping(self, address: int) -> Mapping | None:
        at = bisect.bisect_right(self.starts, address) - 1
        found = self.mappings[at] if at >= 0 else None
        return found if found and address <= found.end else None

    def _name(self, path: str, offsets: dict[int, int]) -> None:
        segments, named = [], []
        try:
            if self.since_ns and os.stat(path).st_ctime_ns > self.since_ns:
                raise elf.NotElf(path)
            segments, named = elf.segments(path), elf.functions(path)
            if debug := elf.debug_file(path):
                named = sorted(named + elf.functions(debug))
        except (OSError, elf.NotElf):
            pass
        exact = {address: _linked(segments, offset) for address, offset in offsets.items()}
        lines = _addr2line(path, [exact[address] for address in offsets]) if segments else None
        titles = {address: _holder(named, at) for address, at in exact.items()}
        plain = _demangled(titles.values())
        for address, frames in zip(offsets, lines or [[] for _ in offsets], strict=True):
            if not frames or not frames[-1].line:  # addr2line names the nearest symbol, however far it is
                frames = [Frame(plain[titles[address]] or f"{os.path.basename(path)}+{offsets[address]:#x}")]
            self.frames[address] = frames


def _holder(named: Sequence[tuple[int, int, str]], address: int) -> str:
    """The function in which the address lies; one may lie in another."""
    at = bisect.bisect_right(named, (address, 1 << 64, ""))
    return next((name for _, end, name in reversed(named[max(at - NESTED, 0) : at]) if address < end), "")


def _demangled(names: Iterable[str]) -> dict[str, str]:
    """By binutils' c++filt, if it is there."""
    plain = {name: name for name in names}
    mangled = [name for name in plain if name.startswith(("_Z", "_R")) and "\n" not in name]
    program = shutil.which("c++filt")
    if mangled and program:
        done = subprocess.run(
            [program], input="\n".join(mangled), capture_output=True, text=True, errors="replace", check=False
        )
        if len(said := done.stdout.splitlines()) == len(mangled):
            plain |= dict(zip(mangled, said, strict=True))
    return plain


def jit_functions(pid: int, started_ns: int) -> list[tuple[int, int, str]]:
    """What a JIT compiler wrote to /tmp/perf-PID.map for `perf`: lines of start, size and name. Anybody can make such
    a file, so it must belong to the process's user, or to ours if the process has ended.
    """
    try:
        place, owner, inner = "", os.getuid(), str(pid)
        if process.alive(pid):
            place, owner = f"/proc/{pid}/root", os.stat(f"/proc/{pid}").st_uid
            inner = re.findall(r"(?m)^NSpid:.*\t(\d+)$", Path(f"/proc/{pid}/status").read_text())[0]
        file = os.open(f"{place}/tmp/perf-{inner}.map", os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
    except (OSError, IndexError):
        return []
    with open(file, "rb") as stream:
        about = os.fstat(file)
        if not stat.S_ISREG(about.st_mode) or about.st_uid != owner or about.st_mtime_ns < started_ns:
            return []
        text = stream.read(JIT_ROOM).decode("utf-8", "replace")
    rows = re.finditer(r"(?m)^(?:0x)?([0-9a-f]{1,16}) (?:0x)?([0-9a-f]{1,16}) (.*)$", text)
    return sorted((int(row[1], 16), int(row[1], 16) + int(row[2], 16), row[3]) for row in rows)


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
