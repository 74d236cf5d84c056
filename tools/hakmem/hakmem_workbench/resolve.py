# SPDX-License-Identifier: MIT
"""Which object serves malloc, free and operator new for each loaded object.

Bindings that the linker reported are the answer; those not yet made are derived as the linker would: by the object's
scopes if they are known, else by the order program, preloads, needs breadth first. The two are kept apart.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from . import elf, library
from .ldtrace import ALLOCATION, OPERATOR_NEW, Linkage
from .library import is_hakmem
from .observe import Image

_LIBC = ("libc.so", "ld-musl-", "libc.musl-")
# Names of other allocators' own interfaces: those that hand out or take blocks, and those that tell or tune.
BLOCKS = re.compile(r"[mrxd]allocx|sdallocx|(je|mi|tc|_rjem)_(\w*alloc\w*|\w*free\w*|strn?dup)")
TOLD = re.compile(
    r"[ns]allocx|(je_)?(mallctl(bymib|nametomib)?|malloc_stats_print)|mi_(stats|option|collect|process_info)\w*"
)
_CXX_RUNTIME = ("libstdc++.so.", "libc++abi.so.", "libc++.so.")


@dataclass(frozen=True)
class Answer:
    """The object that serves one name; None if nothing refers to it."""

    target: str | None = None
    seen: bool = False


@dataclass(frozen=True)
class Row:
    """One loaded object and the objects that serve it."""

    path: str
    malloc: Answer
    free: Answer
    new: Answer
    new_behind: Answer
    loader: str = ""
    deep: bool = False
    namespace: int = 0
    beside: dict[str, str] = field(default_factory=dict)  # which object serves each name of another interface


@dataclass
class Resolution:
    """Everything known about the objects in one program."""

    image: Image
    rows: list[Row] = field(default_factory=list)
    objects: list[str] = field(default_factory=list)

    @property
    def program(self) -> Row | None:
        """The row that represents the process: the program's, else its libc's."""
        for row in self.rows:
            if row.path == self.image.exe and row.malloc.target:
                return row
        return next((row for row in self.rows if is_libc(row.path) and row.malloc.target), None)


def resolve(image: Image, linkage: Linkage | None) -> Resolution:
    """Rows of every object that allocates, frees, or could."""
    return _Resolver(image, linkage).resolution()


def label(path: str | None) -> str:
    """The name of an object in a table: hakmem, or its soname."""
    if path is None:
        return "–"
    facts = _facts(path)
    if facts is None:
        return os.path.basename(path)
    return "hakmem" if is_hakmem(facts) or library.serves_jemalloc(facts) else facts.name


def is_libc(path: str) -> bool:
    return os.path.basename(path).startswith(_LIBC) or label(path).startswith(_LIBC)


def is_cxx_runtime(path: str) -> bool:
    return label(path).startswith(_CXX_RUNTIME)


def is_linker(path: str) -> bool:
    return os.path.basename(path).startswith(("ld-", "ld.so", "ld64"))


def defines_malloc(path: str) -> bool:
    facts = _facts(path)
    return facts is not None and {"malloc", "free"} <= facts.defined


def serves_jemalloc(path: str) -> bool:
    facts = _facts(path)
    return facts is not None and library.serves_jemalloc(facts)


def private_allocators(path: str) -> frozenset[str]:
    """Allocators compiled into the object under other names."""
    facts = _facts(path)
    return facts.private if facts else frozenset()


def serves_itself(path: str) -> bool:
    """Whether its malloc is that of a libhakmem.a with which it was linked."""
    if "hakmem" not in private_allocators(path):
        return False
    try:
        at = {name: address for address, _, name in elf.functions(path) if name in ("malloc", "hakmem_malloc")}
    except elf.NotElf:  # its symbols are damaged
        return False
    return "malloc" in at and at["malloc"] == at.get("hakmem_malloc")


def _facts(path: str) -> elf.Elf | None:
    try:
        return elf.read(path)
    except elf.NotElf:
        return None


class _Resolver:
    """Names become real paths here, so that reports and maps agree."""

    def __init__(self, image: Image, linkage: Linkage | None) -> None:
        self.image = image
        self.linkage = linkage or Linkage(image.pid)
        self.loaders = {self._real(k): self._real(v) for k, v in self.linkage.loaded_by.items()}
        self.names = {self._real(name): name for name in self.linkage.objects}
        self.bound = {
            (self._real(who), symbol): self._real(target)
            for (who, symbol), target in self.linkage.bindings.items()
        }
        mapped = [os.path.realpath(path) for path in image.objects]
        self.objects = [
            path
            for path in dict.fromkeys([*self.names, *mapped])
            if not is_linker(path) and _facts(path) is not None
        ]

    def _real(self, name: str) -> str:
        if self.linkage.program and name == self.linkage.program:
            return self.image.exe
        return os.path.realpath(name)

    def resolution(self) -> Resolution:
        rows = [row for row in map(self._row, self.objects) if row is not None]
        return Resolution(self.image, rows, self.objects)

    def _row(self, path: str) -> Row | None:
        malloc = self._first(path, ALLOCATION[:3] + ALLOCATION[4:])
        free = self._answer(path, "free")
        new = self._first(path, OPERATOR_NEW)
        if not (malloc.target or free.target or new.target):
            return None
        behind = Answer()
        if new.target and is_cxx_runtime(new.target):
            behind = self._answer(new.target, "malloc")
        name = self.names.get(path, path)
        return Row(
            path,
            malloc,
            free,
            new,
            behind,
            self.loaders.get(path, ""),
            self.linkage.deep(name),
            self.linkage.namespaces.get(name, 0),
            self._beside(path),
        )

    def _beside(self, path: str) -> dict[str, str]:
        facts = _facts(path)
        names = [one for one in facts.wanted if BLOCKS.fullmatch(one) or TOLD.fullmatch(one)] if facts else []
        return {name: target for name in sorted(names) if (target := self._answer(path, name).target)}

    def _first(self, path: str, symbols: Iterable[str]) -> Answer:
        for symbol in symbols:
            answer = self._answer(path, symbol)
            if answer.target:
                return answer
        return Answer()

    def _answer(self, path: str, symbol: str) -> Answer:
        target = self.bound.get((path, symbol))
        if target and self._is_pointer(target, symbol):
            # Calls of the program through that slot go to its own binding.
            path, target = target, self.bound.get((target, symbol))
        if target and not self._is_pointer(target, symbol):
            return Answer(target, True)
        facts = _facts(path)
        if facts is None or symbol not in facts.wanted | facts.defined:
            return Answer()
        for candidate in self._search_order(path):
            other = _facts(candidate)
            if other is not None and symbol in other.defined:
                return Answer(candidate)
        return Answer()

    @staticmethod
    def _is_pointer(target: str, symbol: str) -> bool:
        """A program that is not a PIE defines the address of a function that it only calls."""
        facts = _facts(target)
        return facts is not None and symbol not in facts.defined

    def _search_order(self, path: str) -> list[str]:
        scopes = self.linkage.scopes.get(self.names.get(path, ""))
        if not scopes and (scope := self.linkage.global_scope):
            scopes = [scope]
        if scopes:
            return [self._real(name) for scope in scopes for name in scope]
        return self._default_order()

    def _default_order(self) -> list[str]:
        """Program, preloads, then needs breadth first; then all other objects."""
        by_name: dict[str, str] = {}
        for path in self.objects:
            facts = _facts(path)
            by_name.setdefault(os.path.basename(path), path)
            if facts and facts.soname:
                by_name.setdefault(facts.soname, path)
        preloads = (self.image.preload or "").replace(":", " ").split()
        order = [self.image.exe, *(os.path.realpath(path) for path in preloads)]
        for path in order:
            facts = _facts(path)
            for need in facts.needed if facts else ():
                target = by_name.get(need)
                if target and target not in order:
                    order.append(target)
        loaded = [path for path in order if path in self.objects]
        return loaded + [path for path in self.objects if path not in loaded]
