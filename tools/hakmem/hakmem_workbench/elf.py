# SPDX-License-Identifier: MIT
"""Reads what the dynamic linker reads: one ELF file's header, needs and symbols.

Pure Python, 32 and 64 bit, either byte order; section headers are used if they exist, else the dynamic segment, so that
stripped objects work. Results are cached by path, size and time.
"""

from __future__ import annotations

import lzma
import mmap
import os
import stat
import struct
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import BinaryIO, TypeVar

_PT_DYNAMIC, _PT_INTERP, _PT_NOTE, _PT_LOAD = 2, 3, 4, 1
_DT_NEEDED, _DT_HASH, _DT_STRTAB, _DT_SYMTAB, _DT_SONAME = 1, 4, 5, 6, 14
_DT_GNU_HASH = 0x6FFFFEF5
_SHT_SYMTAB, _SHT_DYNSYM = 2, 11
_NT_GNU_BUILD_ID = 3
_STT_OBJECT, _STT_FUNC = 1, 2
DEBUG_ROOTS = ["/usr/lib/debug"]
_MACHINES = {
    3: "i386",
    8: "MIPS",
    20: "PowerPC",
    21: "ppc64",
    22: "s390x",
    40: "ARM",
    62: "x86-64",
    183: "aarch64",
    243: "RISC-V",
    258: "LoongArch",
}


class NotElf(Exception):
    """The file is something else: a script, data, or unreadable."""


@dataclass(frozen=True)
class Elf:
    """The facts of one object; symbol names without versions."""

    path: str
    bits: int
    machine: str
    interpreter: str | None
    dynamic: bool
    needed: tuple[str, ...]
    soname: str | None
    build_id: str | None
    defined: frozenset[str]
    wanted: frozenset[str]
    private: frozenset[str] = field(default=frozenset())

    @property
    def static(self) -> bool:
        """Whether the program starts without the dynamic linker."""
        return self.interpreter is None

    @property
    def name(self) -> str:
        return self.soname or os.path.basename(self.path)


def read(path: str) -> Elf:
    """The facts of the file at `path`; raises NotElf when it is not an ELF file."""
    try:
        real = os.path.realpath(path)
        state = os.stat(real)
    except OSError as error:
        raise NotElf(f"{path}: {error.strerror}") from error
    return _read(real, state.st_size, state.st_mtime_ns)


def objects(path: str, prefix: str) -> list[str]:
    """The names, without `prefix`, of all variables that begin with it, in order of address. Needs the full symbol
    table, which a stripped file lacks.
    """
    return _with_reader(path, lambda reader: reader.variables(prefix))


def section(path: str, name: str) -> bytes:
    """The content of a section; empty if there is none. May raise NotElf."""
    return _with_reader(path, lambda reader: reader.content(name))


def first_address(path: str) -> int:
    """The address at which the start of the file is linked."""
    return _with_reader(path, lambda reader: reader.first_address())


def segments(path: str) -> list[tuple[int, int, int]]:
    """(offset, address, length) of each loaded segment; may raise NotElf."""
    return _with_reader(path, lambda reader: [row[1:] for row in reader.programs if row[0] == _PT_LOAD])


def functions(path: str) -> list[tuple[int, int, str]]:
    """(address, end, name) of all functions that the file's symbols name, also those that it has compressed
    (.gnu_debugdata), in order of address. May raise NotElf.
    """
    return _with_reader(path, lambda reader: reader.functions())


def debug_file(path: str) -> str | None:
    """The file that was split off from it, by build id, else by the name and checksum in it (.gnu_debuglink)."""
    path = os.path.realpath(path)
    build_id = read(path).build_id or ""
    name, _, rest = section(path, ".gnu_debuglink").partition(b"\0")
    folder, link = os.path.dirname(path), os.fsdecode(name)
    if build_id:
        for root in DEBUG_ROOTS:
            found = f"{root}/.build-id/{build_id[:2]}/{build_id[2:]}.debug"
            if _build_id_of(found) == build_id:
                return found
    if not link or "/" in link:
        return None
    for found in (f"{folder}/{link}", f"{folder}/.debug/{link}", *(f"{root}{folder}/{link}" for root in DEBUG_ROOTS)):
        theirs = _build_id_of(found)
        if theirs and theirs == build_id or theirs == "" and rest[-4:] == _checksum(found):
            return found
    return None


def _build_id_of(path: str) -> str | None:
    """Empty if it has none; None if there is no such file."""
    try:
        return read(path).build_id or ""
    except NotElf:
        return None


def _checksum(path: str) -> bytes:
    with _open(path) as stream:
        value = 0
        while block := stream.read(1 << 20):
            value = zlib.crc32(block, value)
    return value.to_bytes(4, "little")


def _open(path: str) -> BinaryIO:
    """The file; nothing that is no file, such as a pipe, which may let us wait."""
    stream = open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY), "rb")  # noqa: SIM115
    if stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
        return stream
    stream.close()
    raise NotElf(f"{path}: not a file")


_Result = TypeVar("_Result")


def _with_reader(path: str, work: Callable[[_Reader], _Result]) -> _Result:
    try:
        with _open(path) as stream:
            if stream.read(4) != b"\x7fELF":
                raise NotElf(f"{path}: not an ELF file")
            with mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
                return work(_Reader(path, data))
    except (struct.error, LookupError, ValueError, OverflowError, MemoryError) as error:
        raise NotElf(f"{path}: {error}") from error


@lru_cache(maxsize=4096)
def _read(path: str, length: int, _mtime: int) -> Elf:
    try:
        with _open(path) as stream:
            if length < 64 or stream.read(4) != b"\x7fELF":
                raise NotElf(f"{path}: not an ELF file")
            with mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
                return _Reader(path, data).facts()
    except (OSError, struct.error, LookupError, ValueError, OverflowError, MemoryError) as error:
        raise NotElf(f"{path}: {error}") from error


class _Reader:
    """One pass over the mapped file."""

    def __init__(self, path: str, data: mmap.mmap | bytes) -> None:
        self.path, self.data = path, data
        self.wide = data[4] == 2
        self.order = "<" if data[5] == 1 else ">"
        word = "Q" if self.wide else "I"
        (_, machine, _, _, phoff, shoff, _, _, phentsize, phnum, shentsize, shnum, _) = (
            self._unpack(f"HHI{word}{word}{word}IHHHHHH", 16)
        )
        self.machine = _MACHINES.get(machine, f"machine {machine}")
        self.programs = [self._program(phoff + i * phentsize) for i in range(phnum)]
        self.sections = (
            [self._section(shoff + i * shentsize) for i in range(shnum)] if shoff else []
        )
        self.names = 4 * len(data)  # most bytes of names: a hostile file can name one long string often
        if sum(row[0] in (_SHT_SYMTAB, _SHT_DYNSYM) for row in self.sections) > 4:
            raise ValueError("too many symbol tables")

    def facts(self) -> Elf:
        interpreter = None
        build_id = None
        tags: dict[int, list[int]] = {}
        for kind, offset, _, filesz in self.programs:
            if kind == _PT_INTERP:
                interpreter = self.data[offset : offset + filesz].rstrip(b"\0").decode()
            elif kind == _PT_NOTE:
                build_id = build_id or self._build_id(offset, filesz)
            elif kind == _PT_DYNAMIC:
                tags = self._dynamic(offset, filesz)
        strings = self._file_offset(tags[_DT_STRTAB][0]) if _DT_STRTAB in tags else None
        needed: tuple[str, ...] = ()
        soname = None
        if strings is not None:
            needed = tuple(self._string(strings + at) for at in tags.get(_DT_NEEDED, []))
            soname = self._string(strings + tags[_DT_SONAME][0]) if _DT_SONAME in tags else None
        defined, wanted = self._split(self._dynamic_symbols(tags, strings))
        return Elf(
            self.path,
            64 if self.wide else 32,
            self.machine,
            interpreter,
            bool(tags),
            needed,
            soname,
            build_id,
            defined,
            wanted,
            self._private_marks(),
        )

    def _unpack(self, form: str, offset: int) -> tuple[int, ...]:
        return struct.unpack_from(self.order + form, self.data, offset)

    def _program(self, at: int) -> tuple[int, int, int, int]:
        """(type, offset, address, size in the file) of one segment."""
        if self.wide:
            kind, _, offset, vaddr, _, filesz = self._unpack("IIQQQQ", at)
        else:
            kind, offset, vaddr, _, filesz = self._unpack("IIIII", at)
        return kind, offset, vaddr, filesz

    def _section(self, at: int) -> tuple[int, int, int, int]:
        """(type, offset, size, link) of one section."""
        if self.wide:
            _, kind, _, _, offset, length, link = self._unpack("IIQQQQI", at)
        else:
            _, kind, _, _, offset, length, link = self._unpack("IIIIIII", at)
        return kind, offset, length, link

    def content(self, name: str) -> bytes:
        start = 0x3A if self.wide else 0x2E
        (at,) = self._unpack("Q" if self.wide else "I", 0x28 if self.wide else 0x20)
        size, _, names = self._unpack("HHH", start)
        strings = self.sections[names][1] if self.sections else 0
        for i, (_, offset, length, _) in enumerate(self.sections):
            (index,) = self._unpack("I", at + i * size)
            if self._string(strings + index) == name:
                return self.data[offset : offset + length]
        return b""

    def first_address(self) -> int:
        loads = [row for row in self.programs if row[0] == _PT_LOAD]
        _, offset, address, _ = min(loads, key=lambda row: row[1])
        return address - offset

    def _string(self, at: int) -> str:
        end = self.data.find(b"\0", at)
        self.names -= end - at
        if end < 0 or self.names < 0:
            raise ValueError("names without an end")
        return self.data[at:end].decode("utf-8", "replace")

    def _file_offset(self, address: int) -> int:
        for kind, offset, vaddr, filesz in self.programs:
            if kind == _PT_LOAD and vaddr <= address < vaddr + filesz:
                return address - vaddr + offset
        raise ValueError("an address outside of the file")

    def _dynamic(self, offset: int, length: int) -> dict[int, list[int]]:
        tags: dict[int, list[int]] = {}
        pair = struct.Struct(self.order + ("qQ" if self.wide else "iI"))
        for at in range(offset, offset + length - pair.size + 1, pair.size):
            tag, value = pair.unpack_from(self.data, at)
            if tag == 0:
                break
            tags.setdefault(tag & 0xFFFFFFFF, []).append(value)
        return tags

    def _build_id(self, offset: int, length: int) -> str | None:
        end = offset + length
        while offset + 12 <= end:
            namesz, descsz, kind = self._unpack("III", offset)
            name_at = offset + 12
            desc_at = name_at + (namesz + 3 & ~3)
            if kind == _NT_GNU_BUILD_ID and self.data[name_at : name_at + 4] == b"GNU\0":
                return self.data[desc_at : desc_at + descsz].hex()
            offset = desc_at + (descsz + 3 & ~3)
        return None

    def _dynamic_symbols(
        self, tags: dict[int, list[int]], strings: int | None
    ) -> Iterator[tuple[str, int, int, int]]:
        for kind, offset, length, link in self.sections:
            if kind == _SHT_DYNSYM:
                return self._symbols(offset, length, self.sections[link][1])
        if _DT_SYMTAB in tags and strings is not None:
            offset = self._file_offset(tags[_DT_SYMTAB][0])
            return self._symbols(offset, self._symbol_count(tags) * self._symbol_size, strings)
        return iter(())

    @property
    def _symbol_size(self) -> int:
        return 24 if self.wide else 16

    def _symbol_count(self, tags: dict[int, list[int]]) -> int:
        if _DT_HASH in tags:
            return self._unpack("II", self._file_offset(tags[_DT_HASH][0]))[1]
        if _DT_GNU_HASH not in tags:
            return 0
        at = self._file_offset(tags[_DT_GNU_HASH][0])
        buckets, first, bloom, _ = self._unpack("IIII", at)
        at += 16 + bloom * (8 if self.wide else 4)
        last = max(self._unpack(f"{buckets}I", at), default=0)
        if last < first:
            return first
        chain = at + 4 * buckets
        while not self._unpack("I", chain + 4 * (last - first))[0] & 1:
            last += 1
        return last + 1

    def _symbols(
        self, offset: int, length: int, strings: int
    ) -> Iterator[tuple[str, int, int, int]]:
        """(name, binding, visibility, section) of each symbol."""
        for name, info, other, section, _, _ in self._entries(offset, length, strings):
            yield name, info >> 4, other & 3, section

    def _entries(
        self, offset: int, length: int, strings: int
    ) -> Iterator[tuple[str, int, int, int, int, int]]:
        """(name, info, other, section, address, size) as the file has them."""
        form = struct.Struct(self.order + ("IBBHQQ" if self.wide else "IIIBBH"))
        for fields in form.iter_unpack(
            self.data[offset : offset + length // form.size * form.size]
        ):
            if self.wide:
                name, info, other, section, address, length = fields
            else:
                name, address, length, info, other, section = fields
            if name:
                yield self._string(strings + name), info, other, section, address, length

    def variables(self, prefix: str) -> list[str]:
        found = []
        for kind, offset, length, link in self.sections:
            if kind == _SHT_SYMTAB:
                for name, info, _, _, address, _ in self._entries(
                    offset, length, self.sections[link][1]
                ):
                    if info & 15 == _STT_OBJECT and name.startswith(prefix):
                        found.append((address, name.removeprefix(prefix)))
        return [name for _, name in sorted(found)]

    def functions(self) -> list[tuple[int, int, str]]:
        found = set()
        for kind, offset, length, link in self.sections:
            if kind in (_SHT_SYMTAB, _SHT_DYNSYM):
                for name, info, _, section, address, size in self._entries(
                    offset, length, self.sections[link][1]
                ):
                    if info & 15 == _STT_FUNC and section:
                        found.add((address, address + size, name))
        if packed := self.content(".gnu_debugdata"):
            room = 4 * len(self.data)  # a hostile file can hold zeros without an end
            try:
                data = lzma.LZMADecompressor(memlimit=1 << 26).decompress(packed, room)
            except lzma.LZMAError as error:
                raise ValueError(error) from error
            found.update(_Reader(self.path, data).functions())
        return sorted(found)

    @staticmethod
    def _split(
        symbols: Iterator[tuple[str, int, int, int]],
    ) -> tuple[frozenset[str], frozenset[str]]:
        """Exported names, and names that are looked up elsewhere."""
        defined, wanted = set(), set()
        for name, binding, visibility, section in symbols:
            if section == 0:
                wanted.add(name)
            elif binding and visibility in (0, 3):
                defined.add(name)
        return frozenset(defined), frozenset(wanted)

    def _private_marks(self) -> frozenset[str]:
        """Allocators compiled in under their own names, recognised by symbols that it defines."""
        found = {"hakmem"} if self.content(".hakmem.layout") else set()
        for kind, offset, length, link in self.sections:
            if kind not in (_SHT_SYMTAB, _SHT_DYNSYM):
                continue
            _, at, room, _ = self.sections[link]
            names = self.data[at : at + room]
            marks = {mark.decode(): title for title, mark in _PRIVATE_MARKS if b"\0" + mark + b"\0" in names}
            if marks:
                symbols = self._entries(offset, length, at)
                found |= {marks[name] for name, _, _, section, _, _ in symbols if section and name in marks}
        return frozenset(found)


_PRIVATE_MARKS = (
    ("hakmem", b"hakmem_malloc"),
    ("jemalloc", b"je_malloc"),
    ("jemalloc", b"je_mallctl"),
    ("jemalloc", b"_rjem_malloc"),
    ("jemalloc", b"mallctl"),
    ("mimalloc", b"mi_malloc"),
    ("mimalloc", b"_mi_heap_main"),
    ("tcmalloc", b"tc_malloc"),
    ("tcmalloc", b"TCMallocInternalMalloc"),
    ("rpmalloc", b"rpmalloc"),
    ("snmalloc", b"sn_malloc"),
    ("dlmalloc", b"dlmalloc"),
)
