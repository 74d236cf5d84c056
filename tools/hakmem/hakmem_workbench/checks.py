# SPDX-License-Identifier: MIT
"""Judges an observed run: is the expected allocator in effect, everywhere?

Each way in which a preload silently fails has a finding, with a name, a sentence and a remedy. This module neither
prints nor runs programs.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from . import elf, ldtrace, resolve
from .errors import Problem
from .ldtrace import Linkage
from .library import JEMALLOC, Library, beside, is_hakmem
from .observe import Image, Observation
from .resolve import Resolution, Row, label
from .text import listing

KINDS = {
    "static": "a program without the dynamic linker",
    "setuid": "a program with raised privileges",
    "env-cleared": "a program that was started without LD_PRELOAD",
    "refused-preload": "a preload that the linker refused",
    "own-malloc": "a program that brings its own malloc",
    "other-malloc": "malloc resolves to another object",
    "split": "malloc and free resolve to different objects",
    "deepbind": "an object loaded with RTLD_DEEPBIND",
    "namespace": "an object loaded by dlmopen",
    "second-allocator": "another allocator is loaded, and hands out blocks",
    "private-allocator": "another allocator is compiled in",
    "operator-new": "operator new is served by another object",
    "unknown-setting": "a setting that does not exist",
    "refused-setting": "a setting whose value was refused",
    "conservation": "the allocator's own books do not balance",
}

LINKED = "It needs no preload: 'hakmem verify --as-is' checks it."


@dataclass(frozen=True)
class Finding:
    """One reason why the expected allocator does not serve (all of) a process."""

    kind: str
    sentence: str
    hint: str = ""


@dataclass(frozen=True)
class Expected:
    """The allocator that should serve; no library means the system's own."""

    name: str
    library: Library | None = None
    any_hakmem: bool = False

    @property
    def system(self) -> bool:
        return self.library is None and not self.any_hakmem

    @property
    def hakmem(self) -> bool:
        return self.any_hakmem or (self.library is not None and is_hakmem(elf.read(self.library.path)))

    @property
    def interface(self) -> str:
        """How to get jemalloc's interface from it; empty if its library does not come with that."""
        try:
            found = self.library is not None and self.hakmem and beside(self.library, JEMALLOC)
        except Problem:
            found = None
        return f"preload {JEMALLOC}, which serves its interface" if found else ""

    def matches(self, path: str) -> bool:
        if resolve.serves_jemalloc(path):
            return self.hakmem
        if self.any_hakmem:
            try:
                return is_hakmem(elf.read(path))
            except elf.NotElf:
                return False
        if self.library is None:
            return resolve.is_libc(path)
        return os.path.realpath(path) == self.library.real or self._same_build(path)

    def _same_build(self, path: str) -> bool:
        """Whether it is a copy of the same build, as seen through a container or a second mount."""
        try:
            build = elf.read(path).build_id
        except elf.NotElf:
            return False
        return build is not None and self.library is not None and build == self.library.build_id


@dataclass
class Judged:
    """One program of the run, the library that serves it, and what is wrong."""

    image: Image
    resolution: Resolution
    findings: list[Finding] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)  # what else is there, and does no harm

    @property
    def served(self) -> bool:
        return not self.findings


def judge(
    seen: Observation, expected: Expected, linkages: Mapping[int, list[Linkage]] | None = None
) -> list[Judged]:
    """Every program that the command ran, in order of exec."""
    refused = ldtrace.refusals(seen.stderr)
    remaining = {pid: list(reports) for pid, reports in (linkages or {}).items()}
    last: dict[int, Image] = {}
    result = []
    for image in seen.images:
        linkage = _claim(image, remaining.get(image.pid, []))
        resolution = resolve.resolve(image, linkage)
        starter = last.get(image.pid) or last.get(image.parent)
        last[image.pid] = image
        judge = _Judge(image, resolution, expected, refused, starter)
        result.append(Judged(image, resolution, judge.findings(), judge.notes()))
    return result


def foresee(path: str, argv: list[str], library: Library) -> list[Finding]:
    """What would prevent preloading into a program, by its file alone: nothing is run. For a script, the interpreter
    counts, since the kernel executes that.
    """
    program = os.path.realpath(_interpreter(path))
    image = Image(0, 0, program, argv, preload=library.path, objects=[program])
    judge = _Judge(image, resolve.resolve(image, None), Expected("hakmem", library), {}, None)
    if found := judge.closed():
        return [found]
    image.objects.append(library.real)
    judge = _Judge(image, resolve.resolve(image, None), Expected("hakmem", library), {}, None)
    return judge.served_by()


def _interpreter(path: str) -> str:
    """The interpreter that '#!' names, followed as often as the kernel does."""
    for _ in range(4):
        try:
            with open(path, "rb") as stream:
                first = stream.readline(256)
        except OSError:
            break
        words = first[2:].split()
        if not first.startswith(b"#!") or not words:
            break
        path = os.fsdecode(words[0])
    return path


def privileges(path: str) -> str | None:
    """Why the kernel would not trust the environment of this program; None if it would."""
    try:
        state = os.stat(path)
    except OSError:
        return None
    if state.st_mode & stat.S_ISUID and state.st_uid != os.getuid():
        return "it is setuid"
    if state.st_mode & stat.S_ISGID and state.st_gid != os.getgid():
        return "it is setgid"
    try:
        if os.getuid() != 0 and os.getxattr(path, "security.capability"):
            return "it has file capabilities"
    except OSError:
        pass
    return None


def may_trace(path: str) -> bool:
    """False if tracing would remove the privileges that the check is about."""
    return os.geteuid() == 0 or privileges(path) is None


def _claim(image: Image, reports: list[Linkage]) -> Linkage | None:
    """The linker's report that belongs to this program."""
    names = {image.exe, image.argv[0] if image.argv else ""}
    for number, report in enumerate(reports):
        if report.program in names or os.path.realpath(report.program) == image.exe:
            del reports[: number + 1]
            return report
    return None


class _Judge:
    """The checks of one program, from what hides most to what hides least."""

    def __init__(
        self,
        image: Image,
        resolution: Resolution,
        expected: Expected,
        refused: Mapping[str, str],
        starter: Image | None,
    ) -> None:
        self.image = image
        self.resolution = resolution
        self.expected = expected
        self.refused = refused
        self.starter = starter
        self.name = os.path.basename(image.exe) or "the program"

    def findings(self) -> list[Finding]:
        if found := self.closed() or self._not_loaded():
            return [found]
        return self.served_by()

    def closed(self) -> Finding | None:
        """Why no preload can reach this kind of program."""
        if found := self._static() or self._privileged():
            return found
        if self.expected.library and not self._loaded and (why := self._mismatch()):
            return self._refusal(os.path.basename(self.expected.library.path), why)
        return None

    def served_by(self) -> list[Finding]:
        """Which library serves it instead, or in addition."""
        return [*self._program_malloc(), *self._objects(), *self._second_allocators()]

    @cached_property
    def _serves_itself(self) -> bool:
        return resolve.serves_itself(self.image.exe)

    @property
    def _loaded(self) -> bool:
        return any(self.expected.matches(path) for path in self.resolution.objects)

    def _static(self) -> Finding | None:
        try:
            facts = elf.read(self.image.exe)
        except elf.NotElf:
            return None
        if not facts.static or self.expected.system:
            return None
        if "hakmem" in facts.private and self.expected.any_hakmem:
            return None
        if self._serves_itself:
            return Finding("static", f"{self.name} is statically linked with libhakmem.a", LINKED)
        if elf.section(self.image.exe, ".go.buildinfo"):
            return Finding("static", f"{self.name} is a static Go program", "Go's heap does not use malloc.")
        why = "it has no dynamic linker that could preload"
        if self.expected.any_hakmem:
            why = "it contains no hakmem, or no symbols that would show it"
        return Finding(
            "static",
            f"{self.name} is statically linked: {why}",
            "Link it with -Wl,-u,malloc and then libhakmem.a (pkg-config --static --libs hakmem), "
            "or link it dynamically.",
        )

    def _privileged(self) -> Finding | None:
        if self.expected.system or self._loaded:
            return None
        why = privileges(self.image.exe)
        if not self.image.secure and why is None:
            return None
        return Finding(
            "setuid",
            f"{self.name} runs with raised privileges"
            f"{f' ({why})' if why else ''}: the linker ignores LD_PRELOAD, and hakmem its settings",
            "Link it with hakmem, or start it as a user for whom no privileges are raised.",
        )

    def _not_loaded(self) -> Finding | None:
        if self.expected.library is None and not self.expected.system:
            return self._missing()
        if self.expected.library is None or self._loaded:
            return None
        if not self.resolution.objects and self.image.preload:
            return None  # replaced by its next exec before it could be observed
        wanted = os.path.basename(self.expected.library.path)
        carried = (self.image.preload or "").replace(":", " ").split()
        if any(os.path.basename(path) == wanted for path in carried):
            return self._refused(wanted)
        starter = os.path.basename(self.starter.exe) if self.starter else ""
        by = f" by {starter}" if starter else ""
        return Finding(
            "env-cleared",
            f"{self.name} was started{by} without our LD_PRELOAD: "
            "its environment was cleared or replaced",
            "Let LD_PRELOAD pass (env -i, sudo and service managers drop it), or link the program.",
        )

    def _missing(self) -> Finding | None:
        """Without a preload of ours: the files in its own LD_PRELOAD must exist."""
        loaded = {os.path.realpath(path) for path in self.resolution.objects}
        names = {os.path.basename(path) for path in self.resolution.objects}
        for path in (self.image.preload or "").replace(":", " ").split():
            if not loaded or os.path.realpath(path) in loaded or os.path.basename(path) in names:
                continue
            gone = os.sep in path and not os.path.exists(path)
            reason = self.refused.get(os.path.basename(path)) or "the linker gave no reason"
            why = "does not exist" if gone else f"the linker refused: {reason}"
            return Finding(
                "refused-preload",
                f"LD_PRELOAD names {path}, which {why}",
                "The linker continues without it; name a library that exists.",
            )
        return None

    def _refused(self, wanted: str) -> Finding:
        return self._refusal(wanted, self.refused.get(wanted) or "the linker gave no reason")

    def _refusal(self, wanted: str, reason: str) -> Finding:
        return Finding(
            "refused-preload",
            f"the linker refused to preload {wanted} into {self.name}: {reason}",
            "Build the library for this program's machine and C library.",
        )

    def _mismatch(self) -> str | None:
        assert self.expected.library is not None
        try:
            ours, theirs = elf.read(self.expected.library.path), elf.read(self.image.exe)
        except elf.NotElf:
            return None
        if (ours.machine, ours.bits) != (theirs.machine, theirs.bits):
            return (
                f"it is {ours.bits}-bit {ours.machine}, "
                f"the program is {theirs.bits}-bit {theirs.machine}"
            )
        musl = any("musl" in need or need == "libc.so" for need in ours.needed)
        if musl and "ld-musl" not in (theirs.interpreter or ""):
            return "the library uses musl, the program does not"
        return None

    def _program_malloc(self) -> list[Finding]:
        row = self.resolution.program
        if row is None or row.malloc.target is None or self.expected.matches(row.malloc.target):
            return []
        if self._own_hakmem():
            return []
        if self._serves_itself:
            return [Finding("own-malloc", f"{self.name} is linked with libhakmem.a", LINKED)]
        if row.malloc.target == self.image.exe:
            return [
                Finding(
                    "own-malloc",
                    f"{self.name} defines malloc itself, and a program's own names come "
                    "before any preload",
                    "Rebuild it without its own allocator.",
                )
            ]
        sentence = f"malloc of {self.name} resolves to {label(row.malloc.target)}, not to {self.expected.name}"
        hint = "The first one wins: LD_PRELOAD from left to right, then the order of linking."
        if self.expected.any_hakmem and not self._loaded:
            sentence += ", which neither it nor its libraries name as needed (DT_NEEDED)"
            hint = (
                "The linker leaves out a library that the program itself does not call: link with "
                "-Wl,--push-state,--no-as-needed,-lhakmem,--pop-state, or preload it."
            )
        return [Finding("other-malloc", sentence, hint)]

    def _objects(self) -> list[Finding]:
        program = self.resolution.program
        wrong_already = (
            program is not None
            and program.malloc.target is not None
            and (not self.expected.matches(program.malloc.target))
        )
        if self._own_hakmem():
            return []
        found = []
        for row in self.resolution.rows:
            if self._is_allocator(row.path) or self.expected.matches(row.path):
                continue
            if finding := self._row(row, wrong_already):
                found.append(finding)
        return found

    def _row(self, row: Row, program_is_wrong: bool) -> Finding | None:
        name = label(row.path)
        strangers = [
            answer.target
            for answer in (row.malloc, row.free)
            if answer.target and not self.expected.matches(answer.target)
        ]
        if row.namespace and strangers:
            return Finding(
                "namespace",
                f"{name} lives in a linker namespace of its own (dlmopen): it brought "
                f"{label(strangers[0])}, and no preload reaches it",
                "Load it with dlopen instead.",
            )
        if row.deep and strangers:
            loader = f" by {label(row.loader)}" if row.loader else ""
            return Finding(
                "deepbind",
                f"{name} was loaded{loader} with RTLD_DEEPBIND: its malloc is "
                f"{label(strangers[0])}, whatever is preloaded",
                "Blocks that cross this border are freed by the wrong allocator. "
                "Load it without RTLD_DEEPBIND.",
            )
        targets = (row.malloc.target, row.free.target)
        if all(targets) and targets[0] != targets[1]:
            return Finding(
                "split",
                f"{name} takes malloc from {label(targets[0])} but free from {label(targets[1])}",
                "One of the two objects is an incomplete allocator.",
            )
        if strangers and not program_is_wrong:
            return Finding("other-malloc", f"{name} takes malloc from {label(strangers[0])}")
        if row.new.target and not self._serves_new(row):
            return Finding(
                "operator-new",
                f"operator new of {name} is served by {label(row.new.target)}",
            )
        return None

    def _serves_new(self, row: Row) -> bool:
        assert row.new.target is not None
        if self.expected.matches(row.new.target) or self._is_allocator(row.new.target):
            return True  # another allocator is reported once, as such
        behind = row.new_behind.target
        return resolve.is_cxx_runtime(row.new.target) and (
            behind is None or self.expected.matches(behind)
        )

    def _is_allocator(self, path: str) -> bool:
        return resolve.defines_malloc(path) and not resolve.is_libc(path) and path != self.image.exe

    def _second_allocators(self) -> list[Finding]:
        found = []
        for path in self.resolution.objects:
            if self.expected.matches(path) or resolve.is_libc(path):
                continue
            if self._is_allocator(path):
                if names := [name for name in self._asked_of(path) if resolve.BLOCKS.fullmatch(name)]:
                    found.append(
                        Finding(
                            "second-allocator",
                            f"{self.name} gets blocks from {label(path)}, another allocator, too ({listing(names)})",
                            "What it hands out must come back to it: link the program without it"
                            + f"{f', or {self._instead(path)}' if self._instead(path) else ''}.",
                        )
                    )
            elif private := sorted(resolve.private_allocators(path) - {"hakmem"}):
                found.append(
                    Finding(
                        "private-allocator",
                        f"{label(path)} has {listing(private)} compiled in under its own names; "
                        f"{self.expected.name} serves nothing that goes through it",
                        "Build it to use malloc (for example with MALLOC=libc).",
                    )
                )
        return found

    def _instead(self, path: str) -> str:
        return self.expected.interface if "mallctl" in elf.read(path).defined else ""

    def _asked_of(self, path: str) -> list[str]:
        """Names of the allocator's own interface that other objects get from it."""
        return sorted({name for row in self.resolution.rows for name, at in row.beside.items() if at == path})

    def _own_hakmem(self) -> bool:
        """Whether the program contains hakmem under its own names, as with the crate for Rust."""
        exe = self.image.exe
        return self.expected.any_hakmem and "hakmem" in resolve.private_allocators(exe) and not self._loaded

    def notes(self) -> list[str]:
        """What stands beside the allocator that serves, and takes nothing from it."""
        found = []
        for path in self.resolution.objects:
            if resolve.serves_jemalloc(path) and self.expected.matches(path):
                found.append(f"{JEMALLOC} serves jemalloc's interface (mallctl, mallocx) over hakmem's heap")
            if self.expected.matches(path) or resolve.is_libc(path):
                continue
            names = self._asked_of(path)
            if self._is_allocator(path) and not any(map(resolve.BLOCKS.fullmatch, names)):
                told = f"{listing(names)} still ask it, so they tell and tune what nobody uses" if names else ""
                told += f"; {self._instead(path)}" if names and self._instead(path) else ""
                found.append(f"{label(path)} is loaded, but serves no malloc" + (f": {told}" if told else ""))
            elif path == self.image.exe and self._serves_itself:
                found.append(f"{self.name} is linked with libhakmem.a, which serves its malloc")
            elif path == self.image.exe and "hakmem" in resolve.private_allocators(path):
                rest = "malloc of its C code is not hakmem's (the crate's feature override)"
                rest = rest if self._own_hakmem() else "the preloaded one serves its C code"
                found.append(f"{self.name} contains a hakmem, as by the crate for Rust; {rest}")
        return found
