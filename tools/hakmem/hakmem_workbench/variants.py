# SPDX-License-Identifier: MIT
"""The grammar of VARIANT: which allocator, which build, which policy.

    system                    the C library's malloc
    mimalloc, jemalloc, …     another allocator that is installed
    lib:PATH                  any allocator, by its file
    hakmem                    hakmem as it is
    build:DIR                 hakmem from a Meson build directory
    backend=NAME, release=NAME, set:KEY=VALUE    hakmem with another policy
    env:NAME=VALUE            any of them, with a variable of the environment

Parts are joined by commas (`build:../b2,backend=legacy`); `as:NAME` names the whole. Settings are checked with the
library for which they are meant.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from . import elf, library, preload, settings
from .checks import Expected
from .errors import Problem
from .library import PEERS, Library
from .statsfile import Stats
from .text import closest

_WORDS = ("system", "hakmem", *PEERS)
_POLICIES = {"backend": "HAKMEM_BACKEND", "release": "HAKMEM_RELEASE"}


@dataclass(frozen=True)
class Variant:
    """One contestant: a label, what is preloaded, and the settings."""

    label: str
    spec: str
    library: Library | None
    hakmem: bool
    settings: Mapping[str, str] = field(default_factory=dict)
    stats: Stats | None = None
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def expected(self) -> Expected:
        return Expected("the system's malloc" if self.library is None else self.label, self.library)

    def assignments(self) -> dict[str, str]:
        return {**self.environment, **preload.assignments(self.library, self.settings)}


def parse(spec: str, hakmem_library: str | None = None) -> Variant:
    """One VARIANT; a Problem says what is wrong with it."""
    draft = _Draft(spec, hakmem_library)
    for part in spec.split(","):
        draft.add(part.strip())
    return draft.finish()


def lineup(
    specs: Sequence[str], baseline: str | None, hakmem_library: str | None = None
) -> list[Variant]:
    """All contestants, the baseline first.

    With a single variant, the baseline is the obvious one: hakmem with defaults for another policy, the system's malloc
    for hakmem, hakmem for another allocator.
    """
    chosen = list(specs)
    if baseline is not None:
        chosen = [baseline, *(spec for spec in chosen if spec != baseline)]
    elif not chosen:
        chosen = ["system", "hakmem"]
    elif len(chosen) == 1:
        chosen.insert(0, "system" if chosen[0] == "hakmem" else "hakmem")
    variants = [parse(spec, hakmem_library) for spec in chosen]
    labels = [variant.label for variant in variants]
    for variant in variants:
        if labels.count(variant.label) > 1:
            raise Problem(
                f"two variants are called {variant.label}",
                "A against A is measured anyway; name different ones with as:NAME.",
            )
    if len(variants) < 2:
        raise Problem("there is only one variant", "Name another one, or leave out --baseline.")
    return variants


class _Draft:
    """Collects the parts of one VARIANT."""

    def __init__(self, spec: str, hakmem_library: str | None) -> None:
        self.spec = spec
        self.hakmem_library = hakmem_library
        self.base: str | None = None
        self.found: Library | None = None
        self.settings: dict[str, str] = {}
        self.environment: dict[str, str] = {}
        self.label: str | None = None

    def add(self, part: str) -> None:
        key, colon, value = part.partition(":")
        policy, equals, name = part.partition("=")
        if part in _WORDS:
            self._take_base(part)
        elif colon and key == "lib":
            self._take_base("lib")
            self.found = library.at(os.path.expanduser(value), "named")
        elif colon and key == "build":
            self._take_base("hakmem")
            self.found = library.from_build(os.path.expanduser(value))
        elif colon and key == "set":
            setting, content = settings.parse_assignment(value)
            self.settings[setting] = content
        elif colon and key == "env":
            self._set_variable(value)
        elif colon and key == "as" and value:
            self.label = value
        elif equals and policy in _POLICIES and name:
            self.settings[_POLICIES[policy]] = name
        else:
            self._unknown(part)

    def _take_base(self, word: str) -> None:
        if self.base is not None:
            raise Problem(
                f"'{self.spec}' names two allocators", "Put a space between two variants."
            )
        self.base = word

    def _set_variable(self, text: str) -> None:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise Problem(
                f"'env:{text}' is not env:NAME=VALUE", "As in: env:PYTHONMALLOC=malloc."
            )
        if name == "LD_PRELOAD" or name.startswith(settings.PREFIX):
            raise Problem(
                f"env:{name} is not for the allocator's own variables",
                "Name a library with lib:PATH, a setting of hakmem with set:KEY=VALUE.",
            )
        self.environment[name] = value

    def _unknown(self, part: str) -> None:
        guesses = [*_WORDS, "build:", "lib:", "set:", "env:", "backend=", "release=", "as:"]
        head = (
            part.split(":")[0] + ":"
            if ":" in part
            else part.split("=")[0] + "="
            if "=" in part
            else part
        )
        best = closest(head, guesses)
        hint = (
            f"did you mean {best}?"
            if best
            else (
                "There are: system, hakmem, mimalloc, jemalloc, tcmalloc, lib:PATH, build:DIR, "
                "backend=NAME, release=NAME, set:KEY=VALUE."
            )
        )
        raise Problem(f"'{part}' is no variant", hint)

    def finish(self) -> Variant:
        base = self.base or "hakmem"
        found = self.found
        if base == "hakmem" and found is None:
            found = library.find(self.hakmem_library)
        elif base in PEERS:
            found = library.find_peer(base)
        is_hakmem = found is not None and library.is_hakmem(elf.read(found.path))
        if self.settings and not is_hakmem:
            raise Problem(
                f"'{self.spec}': {base} is not hakmem and has none of its settings",
                "Leave backend=, release= and set: to variants of hakmem.",
            )
        if base == "hakmem" and not is_hakmem:
            assert found is not None
            raise Problem(
                f"{found.path} is not hakmem", "Name it with lib:PATH, or hakmem with --library."
            )
        variant = Variant(
            self.label or self._label(base),
            self.spec,
            found,
            is_hakmem,
            self.settings,
            environment=self.environment,
        )
        if is_hakmem:
            assert found is not None
            variant = replace(variant, stats=settings.check(found, self.settings))
        return variant

    def _label(self, base: str) -> str:
        """What the user typed, with paths shortened to their last part."""
        parts = []
        for part in self.spec.split(","):
            key, colon, value = part.strip().partition(":")
            if colon and key in ("build", "lib"):
                part = os.path.basename(os.path.normpath(value)) or value
            elif colon and key == "set":
                part = value.removeprefix(settings.PREFIX)
            elif colon and key == "env":
                part = value
            parts.append(part.strip())
        return ",".join(parts)
