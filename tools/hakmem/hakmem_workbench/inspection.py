# SPDX-License-Identifier: MIT
"""Reads the heap of a running process from outside: it needs no setting, and does not stop the process.

The library says where its variables are and how its structures are laid out, in a section that is not loaded
(src/core/base/layout.h). /proc/PID/mem has their content, and /proc/PID/pagemap tells which pages are resident. Each
resident page of the library's mappings is counted for one reason or for the program's blocks, so their sum is the Rss
that the kernel counts for these mappings. A running process changes while it is read: only the figures of a waiting
process belong to one moment.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import re
import stat
import struct
import time
from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path

from . import elf, process
from .errors import Problem, reading
from .statsfile import OsCall, ProgramHeap, Retained, Stats
from .text import count, duration, of_it, plural, size, word

SECTION = ".hakmem.layout"
RIGHTS = (
    "as its user; other users' processes, and all where kernel.yama.ptrace_scope is not 0, need CAP_SYS_PTRACE, which "
    "root may lack in a container"
)
PAGE = 1 << 16  # of the library
SYSTEM_PAGE = mmap.PAGESIZE
_WORD = struct.Struct("=QQ")
_MOST = 1 << 20  # most nodes of one list, in case it changes while it is read
_MOST_BINNED = 4096  # blocks of one bin; for the same reason
_MOST_READS = 1 << 22  # of one process, which may show anything
_MOST_BYTES = 1 << 28  # of one read
_MOST_PAGES = 1 << 12  # system pages of a slab
_CROWDED = 4  # live blocks for each system page, above which hardly one is without


@dataclass(frozen=True)
class Layout:
    """The library's records: address and size, offset and size, value."""

    variables: dict[str, tuple[int, int]]
    fields: dict[str, tuple[int, int]]
    numbers: dict[str, int]
    sentences: dict[str, str] = field(default_factory=dict)  # of each setting


def layout(path: str) -> Layout | None:
    """The records in a library or program; None if it has none."""
    data = elf.section(path, SECTION)
    if not data:
        return None
    tables: dict[str, dict[str, tuple[int, int]]] = {"variable": {}, "field": {}, "number": {}}
    at = 0
    while (end := data.find(b"\0", at)) >= 0 and end + 1 + _WORD.size <= len(data):
        kind, _, name = word(data[at:end].decode("ascii", "replace")).partition(" ")
        tables.setdefault(kind, {})[name] = _WORD.unpack_from(data, end + 1)
        at = end + 1 + _WORD.size
    numbers = {name: value for name, (value, _) in tables["number"].items()}
    sentences = {name: text for name, _, text in (row.partition(" ") for row in tables.get("sentence", {}))}
    return Layout(tables["variable"], tables["field"], numbers, sentences)


@dataclass(frozen=True)
class Mapping:
    """A line of /proc/PID/smaps."""

    start: int
    end: int
    offset: int
    inode: int
    path: str
    resident: int


def mappings(pid: int) -> list[Mapping]:
    found: list[list[int | str]] = []
    for line in Path(f"/proc/{pid}/smaps").read_text(errors="replace").splitlines():
        if head := re.match(r"([0-9a-f]+)-([0-9a-f]+) \S+ ([0-9a-f]+) \S+ (\d+) *(.*)", line):
            start, end, offset, inode, path = head.groups()
            found.append([int(start, 16), int(end, 16), int(offset, 16), int(inode), path, 0])
        elif line.startswith("Rss:"):
            found[-1][5] = int(line.split()[1]) << 10
    return [Mapping(*line) for line in found]  # type: ignore[arg-type]


class NotServed(Problem):
    """No file that it maps has the records."""


class Process:
    """Memory of one process, by the names of the library that has the variable `having`."""

    reads = 0

    def __init__(self, pid: int, having: str = "hak_sealed", writes: bool = False) -> None:
        self.pid, self.having = pid, having
        try:
            if not process.alive(pid):
                raise FileNotFoundError
            self.mappings = mappings(pid)
            self.library, self.layout, self.bias = self._find()
            self.memory = os.open(f"/proc/{pid}/mem", os.O_RDWR if writes else os.O_RDONLY)
            self.pages = os.open(f"/proc/{pid}/pagemap", os.O_RDONLY)
            self._stays()
        except FileNotFoundError as error:
            raise Problem(f"there is no process {pid}", "It may have ended.", 1) from error
        except PermissionError as error:
            raise Problem(
                f"process {pid} can't be read: {error.strerror}",
                f"Look {RIGHTS}.",
                code=1,
            ) from error

    def close(self) -> None:
        os.close(self.memory)
        os.close(self.pages)

    def _stays(self) -> None:
        """The opened files belong to the program whose mappings were read: it may have executed another one since."""
        one = next(one for one in self.mappings if word(one.path) == self.library and not one.offset)
        text = Path(f"/proc/{self.pid}/maps").read_text(errors="replace")
        if not re.search(rf"(?m)^0*{one.start:x}-\S+ \S+ 0+ \S+ {one.inode} ", text):
            self.close()
            raise Problem(f"process {self.pid} executed another program while it was read", "Look again.", code=1)

    def _find(self) -> tuple[str, Layout, int]:
        """The file with the records, and the offset at which it was loaded."""
        replaced = ""
        for one in self.mappings:
            if one.offset or not one.inode or not one.path.startswith("/"):
                continue
            try:
                file = self._open(one)
            except OSError:
                replaced = one.path if "hakmem" in one.path else replaced
                continue
            try:
                records = layout(f"/proc/self/fd/{file}")
                if records and self.having in records.variables:
                    return word(one.path), records, one.start - elf.first_address(f"/proc/self/fd/{file}")
            except (OSError, elf.NotElf):
                continue
            finally:
                os.close(file)
        if replaced:
            raise Problem(
                f"the library of process {self.pid} was replaced while it ran ({replaced})",
                "Only a newly started process can be read.",
                code=1,
            )
        raise NotServed(
            f"process {self.pid} is not served by a hakmem that can be read from outside",
            "'hakmem verify -- CMD' shows whether hakmem is in effect.",
            code=1,
        )

    def _open(self, one: Mapping) -> int:
        """The mapped file itself, for root; else by its name, in which nothing on the way may be a link: the process
        chose it.
        """
        try:
            found = os.open(f"/proc/{self.pid}/map_files/{one.start:x}-{one.end:x}", os.O_PATH)
        except OSError:
            found = os.open(f"/proc/{self.pid}/root", os.O_PATH)
            for name in one.path.split("/")[1:]:
                folder = found
                try:
                    found = os.open(name, os.O_PATH | os.O_NOFOLLOW, dir_fd=folder)
                finally:
                    os.close(folder)
        about = os.fstat(found)
        if stat.S_ISREG(about.st_mode) and about.st_ino == one.inode:
            return found
        os.close(found)
        raise FileNotFoundError

    def write(self, address: int, data: bytes) -> None:
        """Through the descriptor by which it was read: only ever to the memory of that program."""
        try:
            os.pwrite(self.memory, data, address)
        except OSError as error:
            raise Problem(
                f"process {self.pid} can't be written to: {error.strerror}", f"Do it {RIGHTS}.", code=1
            ) from error

    def read(self, address: int, size: int) -> bytes:
        """Zeros where nothing can be read, as after the process has ended."""
        self.reads += 1
        if self.reads > _MOST_READS or size > _MOST_BYTES:
            raise ValueError("its structures have no end")
        try:
            data = os.pread(self.memory, size, address)
        except (OSError, OverflowError, ValueError):
            return bytes(size)
        return data + bytes(size - len(data))

    def word(self, address: int) -> int:
        return int.from_bytes(self.read(address, 8), "little")

    def has(self, variable: str) -> bool:
        return variable in self.layout.variables

    def address(self, variable: str) -> int:
        return self.layout.variables[variable][0] + self.bias

    def text(self, address: int) -> str:
        return word(self.read(address, 64).partition(b"\0")[0].decode(errors="replace")) if address else ""

    def variable(self, name: str) -> bytes:
        return self.read(self.address(name), self.layout.variables[name][1])

    def number(self, variable: str) -> int:
        return int.from_bytes(self.variable(variable), "little")

    def get(self, data: bytes, name: str, at: int = 0) -> int:
        """A field of the structure at this address."""
        offset, size = self.layout.fields[name]
        return int.from_bytes(data[at + offset : at + offset + size], "little")

    def size_of(self, structure: str) -> int:
        return self.layout.numbers[f"sizeof.{structure}"]

    def list(self, first: int, link: str, size: int) -> Iterator[tuple[int, bytes]]:
        """Address and content of each structure of a linked list."""
        for _ in range(_MOST):
            if not first:
                return
            data = self.read(first, size)
            yield first, data
            first = self.get(data, link)

    def pagemap(self, start: int, end: int) -> array[int]:
        """One word for each system page."""
        first, count = start // SYSTEM_PAGE, (end - start) // SYSTEM_PAGE
        if count * 8 > _MOST_BYTES:
            raise ValueError("its mappings have no end")
        words = array("Q")
        data = os.pread(self.pages, count * 8, first * 8)
        words.frombytes(data + bytes(count * 8 - len(data)))
        return words


_PRESENT, _SWAPPED, _EXCLUSIVE = 1 << 63, 1 << 62, 1 << 56


class Residence:
    """Which system pages of the library's mappings are resident, one byte each."""

    def __init__(self, process: Process, ranges: list[tuple[int, int]]) -> None:
        self.parts: list[tuple[int, int, bytes]] = []
        self.total = 0
        merged = sorted(ranges)
        for one in process.mappings:
            wanted = [
                (max(start, one.start), min(end, one.end))
                for start, end in merged
                if start < one.end and end > one.start
            ]
            if not wanted or not one.resident:
                continue
            words = process.pagemap(one.start, one.end)
            flags = bytearray(word >> 63 for word in words)
            # The zero page, which reads of new memory map, counts as present, but not in Rss.
            surplus = flags.count(1) - one.resident // SYSTEM_PAGE
            for i, word in enumerate(words if surplus > 0 else ()):
                if surplus > 0 and word & _PRESENT and not word & _EXCLUSIVE:
                    flags[i] = 0
                    surplus -= 1
            for start, end in wanted:
                first, last = (start - one.start) // SYSTEM_PAGE, (end - one.start) // SYSTEM_PAGE
                self.parts.append((start, end, bytes(flags[first:last])))
        self.total = sum(flags.count(1) for _, _, flags in self.parts) * SYSTEM_PAGE

    def bytes(self, start: int, end: int) -> int:
        """How many bytes of the range are resident."""
        return SYSTEM_PAGE * sum(
            flags.count(1, max(start - first, 0) // SYSTEM_PAGE, (min(end, last) - first) // SYSTEM_PAGE)
            for first, last, flags in self.parts
            if start < last and end > first
        )

    def only(self, start: int, end: int) -> Residence:
        """The same, cached, for a range that is read in parts."""
        part = Residence.__new__(Residence)
        part.parts = [p for p in self.parts if start < p[1] and end > p[0]]
        part.total = 0
        return part


@dataclass
class Heap:
    """One moment of a process: its live bytes, touched or not, and its resident bytes: live ones, the others by reason.
    """

    pid: int
    library: str
    live: int = 0
    live_resident: int = 0
    resident: int = 0
    kept: dict[str, int] = field(default_factory=dict)
    since: dict[str, int] = field(default_factory=dict)  # ms of the monotonic clock
    occupancy: list[int] = field(default_factory=lambda: [0] * 10)  # slabs by tenths in use
    threads: int = 0
    heaps: int = 0  # of threads, or of CPUs
    age_seconds: float = 0.0
    os_calls: tuple[OsCall, ...] = ()
    latency: dict[str, tuple[int, int, int]] = field(default_factory=dict)  # p50, p99, worst in ns by cause
    stage_latency: dict[str, tuple[int, int, int]] = field(default_factory=dict)
    counters: dict[str, int] = field(default_factory=dict)
    ranges: list[tuple[int, int]] = field(default_factory=list)  # address ranges of the library
    note: str = ""
    returnable: int = 0  # of "sparse": system pages that hold no live block
    sparse_sizes: Counter[int] = field(default_factory=Counter)  # free bytes beside live ones, by size of block
    live_sizes: Counter[int] = field(default_factory=Counter)  # live bytes in slabs, by size of block
    program_heaps: tuple[ProgramHeap, ...] = ()

    def add(self, reason: str, amount: int, since_ms: int = 0) -> None:
        if amount:
            self.kept[reason] = self.kept.get(reason, 0) + amount
        if amount and since_ms:
            self.since[reason] = min(self.since.get(reason, since_ms), since_ms)

    def lines(self) -> list[str]:
        """The five lines of memory."""
        free = {row.reason: row.bytes for row in self.retained()}
        kept = ", ".join(f"{reason} {size(amount)}" for reason, amount in free.items())
        return [
            f"live      {size(self.live)} in blocks that the program holds{of_it(self.live, self.live_resident)}",
            f"retained  {size(sum(free.values()))}: {kept or 'nothing'}",
            f"resident  {size(self.resident)} of the heap, {size(resident_of(self.pid))} of the process",
            f"threads   {self.threads}, {plural(self.heaps, 'heap')} in use",
            *self._heap_lines(),
            f"age       the process {duration(self.age_seconds)}, these figures 0 s",
        ]

    def _heap_lines(self) -> list[str]:
        rows = sorted(self.program_heaps, key=lambda row: row.held_bytes, reverse=True)
        if not rows:
            return []
        words = ", ".join(f"{row.name or '(no name)'} {size(row.held_bytes)}" for row in rows[:4])
        more = ", …" if len(rows) > 4 else ""
        return [f"heaps     {plural(len(rows), 'heap')} of the program: {words}{more}"]

    def filling(self) -> str:
        return ", ".join(
            f"{count(number)} to {10 * tenth}-{10 * tenth + 10} %"
            for tenth, number in enumerate(self.occupancy)
            if number
        )

    def stats(self) -> Stats:
        return Stats(
            os_calls=self.os_calls,
            latency=self.latency,
            stage_latency=self.stage_latency,
            retained=self.retained(),
            live_bytes=self.live,
            live_resident_bytes=self.live_resident,
            heaps=self.program_heaps,
            running=True,
            pid=self.pid,
            age_seconds=self.age_seconds,
            budget_bytes=process.container(self.pid).get("limit", 0),
        )

    def values(self) -> dict[str, int]:
        """The same as numbers by name."""
        found = {"memory.live_bytes": self.live, "memory.live_resident_bytes": self.live_resident}
        found |= {"memory.resident_bytes": self.resident}
        found |= {f"memory.retained.{row.reason}_bytes": row.bytes for row in self.retained()}
        found |= {f"memory.live_{size}_byte_blocks_bytes": n for size, n in sorted(self.live_sizes.items()) if n}
        found |= self.counters
        for call in self.os_calls:
            stem = f"os_calls.{call.cause}.{call.call}"
            for key in ("calls", "failed", "bytes", "ns", "regret_bytes"):
                found[f"{stem}.{key}"] = getattr(call, key)
        for group, rows in (("os_latency", self.latency), ("stage_latency", self.stage_latency)):
            for name, times in rows.items():
                for key, ns in zip(("p50", "p99", "worst"), times, strict=True):
                    found[f"{group}.{name}.{key}_ns"] = ns
        return found

    def retained(self) -> tuple[Retained, ...]:
        now = time.monotonic() * 1000
        return tuple(
            Retained(
                reason,
                amount,
                max(now - self.since[reason], 0) / 1000 if reason in self.since else None,
                returnable=self.returnable if reason == "sparse" else None,
                sizes=self.sparse_sizes if reason == "sparse" else {},
            )
            for reason, amount in sorted(self.kept.items(), key=lambda row: -row[1])
        )


def look(pid: int) -> Heap:
    """All of one process."""
    with of(pid) as process:
        return _Look(process).heap


@contextlib.contextmanager
def of(pid: int, having: str = "hak_sealed", writes: bool = False) -> Iterator[Process]:
    """The process while it is read. Its memory and its library's records may contain anything."""
    with reading(f"what process {pid} shows of its heap", "Take the tool that came with its library."):
        process = Process(pid, having, writes)
        try:
            yield process
        finally:
            process.close()


class _Look:
    def __init__(self, process: Process) -> None:
        self.p = process
        self.heap = Heap(process.pid, process.library)
        self.heap.age_seconds = age_of(process.pid)
        size, first = process.size_of("hak_heap"), process.number("used")
        self.threads = list(process.list(first, "hak_heap.next", size))
        self.heap.threads = threads_of(process.pid)
        self.heap.heaps = len(self.threads)
        self._count()
        self._memory()

    # --- counters ---------------------------------------------------------------------------

    def _count(self) -> None:
        p, heap = self.p, self.heap
        first, _ = p.layout.fields["hak_counters.stages"]
        places = {f"bins.{name.partition('.')[2]}": at for name, (at, _) in p.layout.fields.items()
                  if name.startswith("hak_counters.") and at != first}
        places |= {f"stages.{name}": first + 8 * row for name, row in self._stages().items() if name != "failed"}
        base = p.layout.fields["hak_heap.counters"][0]
        orphan = p.variable("orphan")
        sums = [(p.variable("ended_counters"), 0), (p.variable("hak_counters_nobodys"), 0)]
        sums += [(orphan, base), *((data, base) for _, data in self.threads)]
        for name, place in places.items():
            words = (data[at + place : at + place + 8] for data, at in sums)
            heap.counters[name] = sum(int.from_bytes(word, "little") for word in words)
        for name in "bins.mallocs", "bins.frees":  # only counting builds count them
            if not heap.counters.get(name):
                heap.counters.pop(name, None)
        of_cpus = sum(1 for _, data in self.threads if self._arrays(data))
        heap.counters["threads.live"] = heap.heaps - of_cpus
        heap.counters["threads.cpus"] = of_cpus
        heap.counters["threads.started"] = p.number("started")
        heap.counters["threads.pinned_by_fork"] = p.number("pinned_slabs")
        heap.os_calls = tuple(self._ledger())
        heap.latency = dict(self._latencies("hak_latencies", self._names("cause.")))
        heap.stage_latency = dict(self._latencies("hak_stage_latencies", self._stages()))

    def _ledger(self) -> Iterator[OsCall]:
        p = self.p
        data, size = p.variable("hak_ledger"), p.size_of("hak_ledger_entry")
        causes, calls = self._names("cause."), self._names("call.")
        for cause, row in causes.items():
            for call, column in calls.items():
                at = (row * len(calls) + column) * size
                entry = {
                    key: p.get(data, f"hak_ledger_entry.{key}", at)
                    for key in ("calls", "bytes", "ns", "regret_bytes", "failed")
                }
                if entry["calls"]:
                    yield OsCall(cause, call, **entry)

    def _stages(self) -> dict[str, int]:
        """The stages of the backend in use; the last row of a table by stage counts requests that no stage served."""
        p = self.p
        size = p.size_of("hak_stage")
        last = p.layout.variables["hak_stage_latencies"][1] // p.size_of("hak_latency") - 1
        first = p.word(p.number("hak_parts.backend") + p.layout.fields["hak_backend.stages"][0])
        names = (p.text(p.word(first + row * size)) for row in range(last))
        return {name: row for row, name in enumerate(takewhile(bool, names))} | {"failed": last}

    def _latencies(
        self, table: str, rows: dict[str, int]
    ) -> Iterator[tuple[str, tuple[int, int, int]]]:
        p = self.p
        data, size, first = p.variable(table), p.size_of("hak_latency"), p.layout.numbers["latency_lg"]
        offset, length = p.layout.fields["hak_latency.calls"]
        for cause, row in rows.items():
            worst = p.get(data, "hak_latency.worst_ns", row * size)
            calls = struct.unpack_from(f"={length // 4}I", data, row * size + offset)
            if worst:
                p50, p99 = (_bucket_end(calls, first, share, worst) for share in (0.5, 0.99))
                yield cause, (p50, p99, worst)

    def _names(self, prefix: str) -> dict[str, int]:
        numbers = self.p.layout.numbers
        return {k.removeprefix(prefix): v for k, v in numbers.items() if k.startswith(prefix)}

    # --- memory -----------------------------------------------------------------------------

    def _memory(self) -> None:
        p, heap = self.p, self.heap
        zones = self._zones()
        plan = self._plan()
        chunks = self._chunks()
        direct = list(self._direct())
        guard, guarded = self._guard()
        ranges = [plan, *chunks, *((at, at + size) for at, size, _ in direct), *guard]
        heap.ranges = [one for one in ranges if one[1] > one[0]]
        self.resident = Residence(p, heap.ranges)
        heap.resident = self.resident.total
        tables = self.resident.bytes(*plan)
        self.strides: dict[int, int] = {}
        self.held = self.held_resident = 0  # in slabs, with those in bins
        # start, end, used blocks, free bytes, since, size of block, bytes without a live block
        self.slabs: list[tuple[int, int, int, int, int, int, int]] = []
        self.waiting: Counter[int] = Counter()  # blocks in bins, by page
        self.in_arenas: Counter[int] = Counter()  # resident bytes of heaps of the program, by address
        self.spans = self._cached_spans()
        self.owners = {at for at, _ in self.threads} | {p.address("orphan")}
        for base, mapped in zones:
            tables -= self.resident.bytes(base, base + mapped)
            self._zone(base, mapped)
        binned = self._binned()
        self._free_blocks()
        heap.program_heaps = tuple(self._program_heaps())
        heap.live += max(self.held - binned, 0)
        heap.live_resident += max(self.held_resident - binned, 0)
        heap.add("bins", min(binned, self.held_resident))
        heap.add("metadata", tables + sum(self.resident.bytes(*r) for r in chunks))
        for at, size, usable in direct:
            self._large(self.resident.bytes(at, at + size), usable)
        pages = sum(self.resident.bytes(*r) for r in guard)
        heap.live += guarded
        heap.live_resident += min(guarded, pages)
        heap.add("metadata", max(pages - guarded, 0))

    def _zones(self) -> list[tuple[int, int]]:
        p = self.p
        data, size = p.variable("hak_zones"), p.size_of("hak_zone")
        return [
            (p.get(data, "hak_zone.base", at), p.get(data, "hak_zone.mapped", at))
            for at in range(0, min(p.number("hak_zone_count") * size, len(data)), size)
        ]

    def _plan(self) -> tuple[int, int]:
        """Tables and zones; nothing else is mapped among them."""
        p = self.p
        data, size = p.variable("hak_zones"), p.size_of("hak_zone")
        table = p.get(p.variable("hak_page_map"), "hak_page_map.descriptors")
        end = max(
            p.get(data, "hak_zone.base", at)
            + (p.get(data, "hak_zone.superslabs", at) << p.layout.numbers["superslab_lg"])
            for at in range(0, min(max(p.number("hak_zone_count"), 1) * size, len(data)), size)
        )
        return table, end

    def _chunks(self) -> list[tuple[int, int]]:
        """Mappings for metadata besides the tables."""
        p = self.p
        data = p.variable("noted")
        count = min(p.number("noted_count"), len(data) // 16)
        if 16 * count == len(data):
            self.heap.note = "there may be more metadata than is shown"
        pairs = [_WORD.unpack_from(data, 16 * i) for i in range(count)]
        return [(base, base + size) for base, size in pairs]

    def _direct(self) -> Iterator[tuple[int, int, int]]:
        p = self.p
        if not p.has("buckets"):
            return
        size = p.size_of("mapping")
        for first in struct.unpack(f"={p.layout.variables['buckets'][1] // 8}Q", p.variable("buckets")):
            for _, data in p.list(first, "mapping.next", size):
                yield (
                    p.get(data, "mapping.base"),
                    -(-p.get(data, "mapping.size") // SYSTEM_PAGE) * SYSTEM_PAGE,
                    p.get(data, "mapping.usable"),
                )

    def _guard(self) -> tuple[list[tuple[int, int]], int]:
        """Where guarded blocks lie, and the bytes of those that live."""
        p = self.p
        if not p.has("first") or not (first := p.number("first")):
            return [], 0
        data, size, live = p.variable("places"), p.size_of("place"), p.layout.numbers["guard_live"]
        places = range(0, len(data), size)
        blocks = sum(p.get(data, "place.size", at) for at in places if p.get(data, "place.state", at) == live)
        return [(first, first + len(places) * p.number("stride") + SYSTEM_PAGE)], blocks

    def _cached_spans(self) -> set[int]:
        """The addresses of spans in the run cache, and of EMPTY slabs."""
        p = self.p
        if not p.has("hak_run_cache"):
            return set()
        data, size = p.variable("hak_run_cache"), p.size_of("hak_slab")

        def addresses(field: str, bits: int) -> list[int]:
            words = (p.get(data, f"hak_run_cache.{field}", row * 8) for row in range(p.layout.numbers["run_rows"]))
            return [word & ((1 << bits) - 1) for word in words]

        runs = [p.read(run, size) for run in addresses("last", p.layout.numbers["run_pages_shift"]) if run]
        for run in addresses("older", p.layout.numbers["stack_version_shift"]):
            runs += [data for _, data in p.list(run * size, "hak_slab.below", size)]
        return {p.get(run, "hak_slab.base") for run in runs}

    def _zone(self, base: int, mapped: int) -> None:
        """Walks the superslabs that have resident pages, or pages in use."""
        p = self.p
        if not 16 <= p.layout.numbers["superslab_lg"] < 40:
            raise ValueError("its superslabs have no size")
        superslab = 1 << p.layout.numbers["superslab_lg"]
        size = p.size_of("hak_slab")
        pages = superslab // PAGE
        table = p.variable("hak_page_map")
        descriptors = p.get(table, "hak_page_map.descriptors")
        rotation, mask = (p.get(table, f"hak_page_map.{name}") for name in ("rotation", "mask"))
        here = self.resident.only(base, base + mapped)
        behind = base  # of a run that extends into further superslabs
        starts: set[int] = set()
        for one in p.mappings:
            first = base + max(one.start - base, 0) // superslab * superslab
            more = range(first, min(one.end, base + mapped), superslab)
            if len(starts) + len(more) > _MOST:
                raise ValueError("its mappings have no end")
            starts.update(more)
        for start in sorted(starts):
            index = ((start >> 16) + rotation) & mask
            data = p.read(descriptors + index * size, pages * size)
            if any(data) or here.bytes(start, start + superslab):
                behind = self._superslab(here, start, data, max(behind, start))

    def _superslab(self, here: Residence, start: int, data: bytes, at: int) -> int:
        p, n, size = self.p, self.p.layout.numbers, self.p.size_of("hak_slab")
        region = p.get(data, "hak_slab.region")
        whole = p.read(region, p.size_of("hak_superslab")) if region else bytes(p.size_of("hak_superslab"))
        free = p.get(whole, "hak_superslab.free") if region else 0
        end = start + (1 << n["superslab_lg"])
        if free == (1 << (end - start) // PAGE) - 1 and not here.bytes(start, end):
            return at
        use: dict[int, Callable[[Residence, bytes, int, int, int], None]] = {
            n["state.active"]: self._slab,
            n["state.full"]: self._slab,
            n["state.partial"]: self._slab,
            n["state.empty"]: self._empty,
            n["state.span"]: self._span,
        }
        if "state.arena" in n:
            use[n["state.arena"]] = self._of_arena
        while at < end:
            i = (at - start) // PAGE
            d = i * size
            state = p.get(data, "hak_slab.word", d) & n["state_mask"]
            if free >> i & 1:
                self._free(here.bytes(at, at + PAGE), whole, i)
            elif p.get(data, "hak_slab.base", d) == at and (state in use or at in self.spans):
                run = at + max(p.get(data, "hak_slab.pages", d), 1) * PAGE
                use.get(state, self._empty)(here, data, d, at, run)
                at = run
                continue
            else:
                self.heap.add("reserve", here.bytes(at, at + PAGE))
            at += PAGE
        return at

    def _slab(self, here: Residence, data: bytes, d: int, at: int, end: int) -> None:
        """Allocated blocks, and free ones: on lists, on the remote list, or not yet carved."""
        p, n = self.p, self.p.layout.numbers
        amount = here.bytes(at, end)
        word, used = p.get(data, "hak_slab.word", d), p.get(data, "hak_slab.used", d)
        stride = self.strides[p.get(data, "hak_slab.cls", d)] = p.get(data, "hak_slab.stride", d)
        remote = min(word >> n["remote_shift"] & n["remote_mask"], used)
        live = (used - remote) * stride
        held = min(live, amount)
        since = p.get(data, "hak_slab.since_ms", d)
        owner = p.get(data, "hak_slab.owner", d)
        lost = word & n["state_mask"] == n["state.active"] and owner not in self.owners
        self.held += live
        self.held_resident += held
        self.heap.live_sizes[stride] += live
        if lost:
            self.heap.add("pinned", amount - held, since)
        else:
            whole = self._returnable(here, data, d, at, end) if amount > held else 0
            self.slabs.append((at, end, used - remote, amount - held, since, stride, whole))
        capacity = max(p.get(data, "hak_slab.capacity", d), 1)
        self.heap.occupancy[min(10 * (used - remote) // capacity, 9)] += 1

    def _of_arena(self, here: Residence, data: bytes, d: int, at: int, end: int) -> None:
        """Of a heap of the program."""
        self.in_arenas[self.p.get(data, "hak_slab.owner", d)] += here.bytes(at, end)
        is_span = self.p.get(data, "hak_slab.cls", d) == self.p.layout.numbers["class_span"]
        (self._span if is_span else self._slab)(here, data, d, at, end)

    def _program_heaps(self) -> Iterator[ProgramHeap]:
        p = self.p
        if not p.has("arenas"):
            return
        offset, length = p.layout.fields["hak_arena.name"]
        for at, data in p.list(p.number("arenas"), "hak_arena.next", p.size_of("hak_arena")):
            name = data[offset : offset + length].partition(b"\0")[0].decode(errors="replace")
            figures = (p.get(data, f"hak_arena.{field}") for field in ("live", "blocks", "held", "peak", "limit"))
            yield ProgramHeap(word(name) if name else "", *figures, resident_bytes=self.in_arenas[at])

    def _free_blocks(self) -> None:
        """What keeps them: live blocks in their slab, or only blocks that wait in bins, or nothing."""
        for at, end, used, free, since, stride, whole in self.slabs:
            binned = sum(self.waiting[page] for page in range(at // PAGE, end // PAGE)) if used else 0
            self.heap.add("sparse" if used > binned else "bins" if used else "empty", free, since)
            if used > binned:
                self.heap.sparse_sizes[stride] += free
                self.heap.returnable += whole

    def _returnable(self, here: Residence, data: bytes, d: int, at: int, end: int) -> int:
        """Resident bytes of the slab's system pages that hold free blocks only, by its bitmap of them."""
        p = self.p
        bitmap, used, carved, stride = (p.get(data, f"hak_slab.{name}", d)
                                        for name in ("bitmap", "used", "carved", "stride"))
        pages = carved * stride // SYSTEM_PAGE
        if not bitmap or stride < 16 or carved * stride > end - at or pages > _MOST_PAGES or used > _CROWDED * pages:
            return 0
        words = struct.unpack(f"={(carved + 63) // 64}Q", p.read(bitmap, (carved + 63) // 64 * 8))
        listed = carved - sum(map(int.bit_count, words))
        if not used <= listed <= _CROWDED * pages:
            return 0  # or it is the bitmap of an earlier use of the slab
        held = bytearray(pages + 1)
        for number, word in enumerate(words):
            live = ~word & (1 << min(carved - 64 * number, 64)) - 1
            while live:
                first = (64 * number + (live & -live).bit_length() - 1) * stride
                live &= live - 1
                for page in range(first // SYSTEM_PAGE, min((first + stride - 1) // SYSTEM_PAGE, pages) + 1):
                    held[page] = 1
        runs = re.finditer(rb"\0+", held[:pages])
        return sum(here.bytes(at + run.start() * SYSTEM_PAGE, at + run.end() * SYSTEM_PAGE) for run in runs)

    def _empty(self, here: Residence, data: bytes, d: int, at: int, end: int) -> None:
        self.heap.add("empty", here.bytes(at, end))

    def _span(self, here: Residence, data: bytes, d: int, at: int, end: int) -> None:
        self._large(here.bytes(at, end), self.p.get(data, "hak_slab.requested", d))

    def _large(self, amount: int, usable: int) -> None:
        """A live block by itself: its resident bytes, and its usable ones."""
        self.heap.live += usable
        self.heap.live_resident += min(amount, usable)
        self.heap.add("spans", max(amount - usable, 0))

    def _free(self, amount: int, whole: bytes, i: int) -> None:
        p = self.p
        since = p.get(whole, "hak_superslab.pages.checked_ms")
        if p.get(whole, "hak_superslab.pages.refused") >> i & 1:
            self.heap.add("refused", amount, since)
        elif not p.get(whole, "hak_superslab.pages.old") >> i & 1:
            self.heap.add("lazy", amount)
        elif p.get(whole, "hak_superslab.state") == p.layout.numbers["hak_superslab.cached"]:
            self.heap.add("cached", amount, p.get(whole, "hak_superslab.cached_ms"))
        else:
            self.heap.add("dirty", amount, since)

    def _binned(self) -> int:
        """Bytes of blocks in the bins and remote caches of threads."""
        p = self.p
        total = 0
        orphan = p.variable("orphan")
        for data in [orphan, *(data for _, data in self.threads)]:
            total += self._bins(data)
            if "hak_heap.quarantine[0].bytes" in p.layout.fields:
                total += p.get(data, "hak_heap.quarantine[0].bytes")
        return total

    def _bins(self, thread: bytes) -> int:
        p = self.p
        bins, _ = p.layout.fields["hak_heap.bins"]
        size = p.size_of("hak_bin")
        blocks, total = self._blocks(thread), 0
        for cls, stride in self.strides.items():
            here = blocks(cls)
            self.waiting.update(block // PAGE for block in here)
            amount = stride * (len(here) + p.get(thread, "hak_bin.remote_count", bins + cls * size))
            self.heap.live_sizes[stride] = max(self.heap.live_sizes[stride] - amount, 0)
            total += amount
        return total

    def _blocks(self, thread: bytes) -> Callable[[int], Sequence[int]]:
        """The blocks in the bin of a class, for each kind of cache."""
        p = self.p
        fields = p.layout.fields
        if arrays := self._arrays(thread):
            return self._blocks_of_arrays(arrays)
        cache = p.get(thread, "hak_heap.cache")
        offset, size = fields["hak_cache.bin"]
        bins, step = fields["hak_heap.bins"][0], p.size_of("hak_bin")
        heads = struct.unpack(f"={size // 8}Q", p.read(cache + offset, size)) if cache else ()
        if "hak_bin.own.slots" in fields:

            def blocks(cls: int) -> Sequence[int]:
                at = bins + cls * step
                slots = p.get(thread, "hak_bin.own.slots", at)
                return self._slots(slots, heads[cls] if heads and p.get(thread, "hak_bin.own.slots_lg", at) else 0)

            return blocks
        if "hak_heap.quarantine[0].bytes" in fields:
            self.heap.note = "the blocks in bins of a hardened build with lists count as the program's"
            return lambda cls: ()
        return lambda cls: self._list_of_blocks(heads[cls]) if heads else ()

    def _arrays(self, heap: bytes) -> int:
        """The arrays of a CPU's heap; 0 if the heap is a thread's."""
        return self.p.get(heap, "hak_heap.arrays") if "hak_heap.arrays" in self.p.layout.fields else 0

    def _blocks_of_arrays(self, arrays: int) -> Callable[[int], Sequence[int]]:
        p = self.p
        top, end = (p.layout.fields[f"hak_arrays.{name}"][0] for name in ("top", "end"))
        slots = p.size_of("hak_arrays")  # they follow on it
        data = p.read(arrays, slots) if arrays else b""

        def blocks(cls: int) -> Sequence[int]:
            if not data:
                return ()
            first = int.from_bytes(data[end + 8 * cls - 8 : end + 8 * cls], "little") + 8
            last = int.from_bytes(data[top + 8 * cls : top + 8 * cls + 8], "little")
            return self._slots(first if cls else arrays + slots, last)

        return blocks

    def _slots(self, first: int, last: int) -> Sequence[int]:
        """The pointers behind the first slot, which is NULL, up to the last one."""
        number = min(max(last - first, 0) // 8, _MOST_BINNED)
        return struct.unpack(f"={number}Q", self.p.read(first + 8, 8 * number))

    def _list_of_blocks(self, block: int) -> list[int]:
        found: list[int] = []
        seen: dict[int, bytes] = {}
        while block and len(found) < _MOST_BINNED:
            found.append(block)
            page = block & -SYSTEM_PAGE
            if page not in seen:
                seen[page] = self.p.read(page, SYSTEM_PAGE)
            block = int.from_bytes(seen[page][block - page : block - page + 8], "little")
        return found


def _bucket_end(calls: tuple[int, ...], first: int, share: float, worst: int) -> int:
    """The time within which that share of the calls returned, to the resolution of the buckets."""
    below = 0
    for i, number in enumerate(calls):
        below += number
        if below >= share * sum(calls):
            return min(2 << (first + i), worst)
    return worst


def age_of(pid: int) -> float:
    """Seconds since the process started."""
    try:
        words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return max(time.clock_gettime(time.CLOCK_BOOTTIME) - int(words[19]) / os.sysconf("SC_CLK_TCK"), 0)
    except (OSError, IndexError):
        return 0.0


def threads_of(pid: int) -> int:
    try:
        return len(os.listdir(f"/proc/{pid}/task"))
    except OSError:
        return 0


def resident_of(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * SYSTEM_PAGE
    except (OSError, IndexError):
        return 0
