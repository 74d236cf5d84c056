# SPDX-License-Identifier: MIT
"""Parses the output of glibc's dynamic linker under LD_DEBUG. `files` says which objects were loaded and what loaded
them, `scopes` in which order each object looks up names, `bindings` to what a name was actually bound. One file holds
the programs that one process ran, one after the other; each becomes a `Linkage`.
musl prints nothing: then there are no linkages, and callers fall back.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

ALLOCATION = ("malloc", "calloc", "realloc", "free", "posix_memalign", "aligned_alloc")
OPERATOR_NEW = ("_Znwm", "_Znwj", "_Znam", "_Znaj")
OPERATOR_DELETE = ("_ZdlPv", "_ZdlPvm", "_ZdaPv")
INTERESTING = frozenset(ALLOCATION + OPERATOR_NEW + OPERATOR_DELETE)

_BINDING = re.compile(r"binding file (.+?) \[(\d+)\] to (.+?) \[(\d+)\]: \w+ symbol [`'](\w+)'")
_OBJECT = re.compile(r"object=(.+?) \[(\d+)\]")
_SCOPE = re.compile(r" scope (\d+): (.*)")
_LOADER = re.compile(r"file=(.+?) \[\d+\];  dynamically loaded by (.+?) \[\d+\]")


@dataclass
class Linkage:
    """How the names of one running program were resolved."""

    pid: int
    program: str = ""
    bindings: dict[tuple[str, str], str] = field(default_factory=dict)
    scopes: dict[str, list[list[str]]] = field(default_factory=dict)
    loaded_by: dict[str, str] = field(default_factory=dict)
    namespaces: dict[str, int] = field(default_factory=dict)

    @property
    def global_scope(self) -> list[str]:
        first = self.scopes.get(self.program)
        return first[0] if first else []

    @property
    def objects(self) -> list[str]:
        """Every object that has a scope, the program first; not the kernel's page."""
        return [name for name in self.scopes if not name.startswith("linux-")]

    def deep(self, name: str) -> bool:
        """Whether the object looks up names in itself before the program."""
        order = self.scopes.get(name, [])
        return (
            self.namespaces.get(name, 0) == 0
            and len(order) > 1
            and order[0] != self.global_scope
            and self.global_scope in order[1:]
        )


def environment(directory: Path) -> dict[str, str]:
    """The variables that make glibc's linker write its report into `directory`, one file per process."""
    return {"LD_DEBUG": "files,bindings,scopes", "LD_DEBUG_OUTPUT": str(directory / "ld")}


def linkages(directory: Path) -> dict[int, list[Linkage]]:
    """All reports under `directory`, by process id."""
    found: dict[int, list[Linkage]] = {}
    for path in sorted(directory.glob("ld.*")):
        if path.suffix[1:].isdigit():
            with path.open(encoding="utf-8", errors="replace") as stream:
                found[int(path.suffix[1:])] = parse(int(path.suffix[1:]), stream)
    return found


def parse(pid: int, lines: Iterable[str]) -> list[Linkage]:
    """The programs of one process, in order of exec."""
    done: list[Linkage] = []
    now = Linkage(pid)
    current = ""
    for raw in lines:
        line = raw.partition(":\t")[2].rstrip("\n")
        if line.startswith("binding file"):
            _binding(now, line)
        elif line.startswith("object="):
            current = _object(now, line)
        elif line.startswith(" scope"):
            _scope(now, current, line)
        elif line.startswith("file="):
            _loader(now, line)
        elif line.startswith("Initial object scopes"):
            now = Linkage(pid)
            done.append(now)
    return done


def _binding(now: Linkage, line: str) -> None:
    match = _BINDING.match(line)
    if match and match[5] in INTERESTING:
        key = (match[1], match[5])
        if now.bindings.get(key, match[1]) == match[1]:  # a binding to itself may be only a pointer; see resolve
            now.bindings[key] = match[3]


def _object(now: Linkage, line: str) -> str:
    match = _OBJECT.match(line)
    if not match:
        return ""
    name = match[1]
    now.program = now.program or name
    now.namespaces.setdefault(name, int(match[2]))
    now.scopes[name] = []
    return name


def _scope(now: Linkage, current: str, line: str) -> None:
    match = _SCOPE.match(line)
    if match and current in now.scopes:
        now.scopes[current].append(match[2].split())


def _loader(now: Linkage, line: str) -> None:
    match = _LOADER.match(line)
    if match:
        now.loaded_by.setdefault(match[1], match[2])


_REFUSED = re.compile(r"object '([^']*)' from LD_PRELOAD cannot be preloaded \(([^)]*)\)")


def refusals(stderr: str) -> Mapping[str, str]:
    """Preloads that the linker refused, with its reason, from a program's stderr."""
    found = {os.path.basename(path): why for path, why in _REFUSED.findall(stderr)}
    for name, why in re.findall(r"Error loading shared library (\S+): (.*)", stderr):
        found.setdefault(os.path.basename(name), why)
    return found
