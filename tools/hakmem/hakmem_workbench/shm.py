# SPDX-License-Identifier: MIT
"""Reads the live counters of a running process, without stopping it.

With HAKMEM_STATS_SHM=1 the library keeps a file in memory (mode 0600), which is only reachable through a descriptor of
the process, /proc/PID/fd/N -> /memfd:hakmem.live: a header of 64 bytes, then `entries` records (src/core/process/live.h
has the same):

    header  char magic[8] "HAKSTAT1", u32 header_size, u32 entries, u64 pid,
            u64 updates, u64 started_ns, u32 record_size, u8 reserved[20]
    record  char name[56] (NUL-padded), u64 value

Names are GROUP.REST. A few values are not counters but settings, and kept apart here. We map the file read-only; only
the library writes, one aligned word at a time, and increments `updates` after each refresh.
"""

from __future__ import annotations

import errno
import mmap
import os
import re
import struct
from dataclasses import dataclass
from pathlib import Path

from .errors import Problem

MAGIC = b"HAKSTAT1"
HEADER = struct.Struct("=8sIIQQQI20x")
RECORD = struct.Struct("=56sQ")
TRIES = 5
_SET = re.compile(
    r"budget\.budget_bytes|large\.cache_budget|space\.zones"
    r"|pool\.adaptive_prewarm\..*"
)
LINK = "/memfd:hakmem.live"


@dataclass(frozen=True)
class Snapshot:
    """All counters at one moment."""

    pid: int
    updates: int
    started_ns: int
    values: dict[str, int]

    def counters(self) -> dict[str, int]:
        return {name: value for name, value in self.values.items() if not _SET.fullmatch(name)}

    def configuration(self) -> dict[str, int]:
        return {name: value for name, value in self.values.items() if _SET.fullmatch(name)}

    def groups(self) -> dict[str, dict[str, int]]:
        """Counters under the word before their first dot, in the library's order."""
        found: dict[str, dict[str, int]] = {}
        for name, value in self.counters().items():
            group, dot, rest = name.partition(".")
            found.setdefault(group if dot else "other", {})[rest or name] = value
        return found


class Live:
    """One process's counters, mapped until closed."""

    def __init__(self, path: Path, pid: int) -> None:
        self.path, self.pid = path, pid
        self.data, self.inode = self._map()
        self.read()

    def _map(self) -> tuple[mmap.mmap, int]:
        path = self.path
        try:
            with path.open("rb") as stream:
                found = os.fstat(stream.fileno()).st_ino
                return mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ), found
        except PermissionError as error:
            raise Problem(
                f"{path} belongs to another user", "Use sudo, or run this as that user."
            ) from error
        except (OSError, ValueError) as error:
            raise Problem(
                f"{path} can't be read: {error}", "Has the process ended? Try again."
            ) from error

    def follow(self) -> None:
        """After exec the process is another program, with a file of its own."""
        try:
            path = _file_of(self.pid)
            if path and os.stat(path).st_ino != self.inode:
                self.data.close()
                self.path = path
                self.data, self.inode = self._map()
        except OSError:
            pass  # the process ends; the mapping stays readable

    def read(self) -> Snapshot:
        """The counters now, all from one refresh, unless the library refreshes constantly."""
        for _ in range(TRIES):
            seen = self._read()
            if HEADER.unpack_from(self.data)[4] == seen.updates:
                break
        return seen

    def _read(self) -> Snapshot:
        if len(self.data) < HEADER.size:
            raise Problem(
                f"{self.path} is too short for live counters",
                "Try again; if this repeats, remove the file: no hakmem process wrote it.",
            )
        magic, header, entries, pid, updates, started, size = HEADER.unpack_from(self.data)
        if magic != MAGIC or header < HEADER.size or size < RECORD.size:
            raise Problem(
                f"{self.path} holds no counters that this tool knows (it starts with {magic!r})",
                "Library and tool differ in age: use the tool that came with the library.",
            )
        entries = min(entries, (len(self.data) - header) // size)
        values = {}
        for number in range(entries):
            raw, value = RECORD.unpack_from(self.data, header + number * size)
            name = raw.partition(b"\0")[0].decode("utf-8", "replace")
            if name:
                values[name] = value
        return Snapshot(pid, updates, started, values)

    def close(self) -> None:
        self.data.close()


def open_live(pid: int) -> Live:
    """The counters of a process; a Problem says why there are none."""
    if not alive(pid):
        raise Problem(
            f"there is no process {pid}", "Without PID the one that shows counters is taken.", 1
        )
    try:
        path = _file_of(pid)
    except OSError as error:
        raise Problem(
            f"process {pid} belongs to another user", "Use sudo, or run this as that user."
        ) from error
    if path is None:
        raise Problem(
            f"process {pid} shows no live counters",
            "It must be started with HAKMEM_STATS_SHM=1 (hakmem run --live -- CMD).",
            code=1,
        )
    return Live(path, pid)


def shows(pid: int) -> bool:
    """Whether it has live counters, or cannot have any."""
    try:
        return not alive(pid) or _file_of(pid) is not None
    except OSError:
        return True


def program(pid: int) -> str:
    """The command line of the process; empty once it has ended."""
    return " ".join(_strings(pid, "cmdline"))


def settings(pid: int) -> list[str]:
    """The settings of hakmem in its environment, as they were at its start."""
    return sorted(word for word in _strings(pid, "environ") if word.startswith("HAKMEM_"))


def _strings(pid: int, name: str) -> list[str]:
    try:
        words = Path(f"/proc/{pid}/{name}").read_bytes().split(b"\0")
    except OSError:
        return []
    return [os.fsdecode(word) for word in words if word]


def running() -> list[int]:
    """Processes that show live counters now, as far as this user may read them."""
    pids = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if _file_of(int(process.name)):
                pids.append(int(process.name))
        except OSError:
            pass
    return sorted(pids)


def _file_of(pid: int) -> Path | None:
    """The descriptor of the process's own counters: a forked child also has its parent's."""
    inner = number_inside(pid)
    for path in Path(f"/proc/{pid}/fd").iterdir():
        try:
            if os.readlink(path).startswith(LINK) and _owner(path) in (inner, None):
                return path
        except OSError:
            pass  # closed meanwhile
    return None


def number_inside(pid: int) -> int:
    """The process's id in its own namespace."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("NSpid:"):
            return int(line.split()[-1])
    return pid


def _owner(path: Path) -> int | None:
    """The process to which the counters belong; None if the format is unknown."""
    with path.open("rb") as stream:
        head = stream.read(HEADER.size)
    return HEADER.unpack(head)[3] if len(head) == HEADER.size and head.startswith(MAGIC) else None


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except OSError as error:
        return error.errno == errno.EPERM
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"
