# SPDX-License-Identifier: MIT
"""Meson build directories made for an experiment: one for each combination of options.

Options are checked against the project's own list before anything is configured.
Directories live in a cache and are reused: a second experiment only rebuilds
what changed in the sources.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import library
from .errors import TOOL_FAILED, Problem
from .library import IN_BUILD
from .text import closest

ALIASES = {"header": "tiny_header", "backend": "default_backend"}
RELEASES = {"batch": True, "direct": False}
# Not needed for a measurement, and switched off if the project has them.
_UNNEEDED = ("tests", "bench", "man", "docs", "examples")


@dataclass(frozen=True)
class Option:
    """One build option of the project."""

    name: str
    type: str
    choices: tuple[str, ...]
    value: Any


class Project:
    """A source tree with its options."""

    def __init__(self, source: str | None = None) -> None:
        found = Path(source) if source else library.source_tree()
        if found is None or not (found / "meson.build").is_file():
            raise Problem(
                f"{source} is not a source tree with a meson.build"
                if source
                else "the sources of hakmem are not here",
                "Name them with --source DIR.",
            )
        self.source = found.resolve()
        self.meson = shutil.which("meson") or ""
        if not self.meson or not shutil.which("ninja"):
            raise Problem(
                "meson and ninja are needed to build", "On Debian: apt install meson.", TOOL_FAILED
            )
        self.options = self._options()

    def _options(self) -> dict[str, Option]:
        done = subprocess.run(
            [self.meson, "introspect", "--buildoptions", str(self.source / "meson.build")],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise Problem(
                f"meson can't read {self.source}", _error(done.stderr + done.stdout), TOOL_FAILED
            )
        rows = json.loads(done.stdout[done.stdout.index("[") :])
        return {
            row["name"]: Option(
                row["name"],
                row["type"],
                tuple(map(str, row.get("choices") or ())),
                row.get("value"),
            )
            for row in rows
        }

    def assignments(self, factor: str, level: str) -> dict[str, str]:
        """The build options that one level of a factor stands for."""
        if factor == "release" and "release" not in self.options:
            return self._release(level)
        name = ALIASES.get(factor, factor)
        option = self.options.get(name)
        if option is None:
            best = closest(factor, [*ALIASES, "release", *self.options])
            raise Problem(
                f"'{factor}' is neither a build option nor a setting",
                f"did you mean {best}?" if best else f"Aliases are: {', '.join(ALIASES)}, release.",
            )
        allowed = option.choices or (("true", "false") if option.type == "boolean" else ())
        if option.type != "array" and allowed and level not in allowed:
            raise Problem(f"{name} can't be '{level}'", f"It can be: {', '.join(allowed)}.")
        return {name: level.replace("+", ",")}

    def _release(self, level: str) -> dict[str, str]:
        """'batch' is a part that is built in or left out."""
        if level not in RELEASES:
            raise Problem(f"release can't be '{level}'", "It can be: batch, direct.")
        parts = [part for part in self.options["backends"].choices if part != "batch"]
        return {"backends": ",".join([*parts, *(["batch"] if RELEASES[level] else [])])}

    def directory(self, root: Path, options: Mapping[str, str]) -> Path:
        """The folder for a set of options, the same every time."""
        words = "-".join(
            f"{key}.{value.replace(',', '+')}" for key, value in sorted(options.items())
        )
        digest = hashlib.sha256(words.encode()).hexdigest()[:8]
        return root / f"{words[:80]}-{digest}"

    def build(
        self, directory: Path, options: Mapping[str, str], say: Callable[[str], None]
    ) -> None:
        """Configures and compiles; a Problem has the end of the output."""
        unneeded = [f"-D{name}=false" for name in _UNNEEDED if name in self.options]
        chosen = [f"-D{key}={value}" for key, value in sorted(options.items())]
        configured = (directory / "meson-private").is_dir()
        say(f"{'reconfiguring' if configured else 'configuring'} {directory.name}")
        setup = [
            self.meson,
            "setup",
            str(directory),
            str(self.source),
            "--buildtype=release",
            *unneeded,
            *chosen,
            *(["--reconfigure"] if configured else []),
        ]
        self._run(setup, directory)
        say(f"compiling {directory.name}")
        self._run([self.meson, "compile", "-C", str(directory), "hakmem:shared_library"], directory)
        if not (directory / IN_BUILD).exists():
            raise Problem(
                f"{directory} was built, but has no {IN_BUILD}",
                "Are these the sources of hakmem? Name them with --source DIR.",
                TOOL_FAILED,
            )

    def _run(self, command: Sequence[str], directory: Path) -> None:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", check=False
        )
        if done.returncode:
            log = directory.parent / f"{directory.name}.log"
            log.parent.mkdir(parents=True, exist_ok=True)
            log.write_text(done.stdout + done.stderr, encoding="utf-8")
            raise Problem(
                f"{' '.join(command[:2])} failed for {directory.name}",
                f"{_error(done.stdout + done.stderr)}; its full output is in {log}",
                TOOL_FAILED,
            )


def default_root(source: Path) -> Path:
    """Where builds are cached: one folder for each checkout."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    digest = hashlib.sha256(str(source).encode()).hexdigest()[:12]
    return cache / "hakmem" / f"matrix-{digest}"


def _error(text: str) -> str:
    """The first line that mentions an error, else the last one."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if "error" in line.lower()]
    return f"It said: {(errors or lines[-1:] or ['nothing'])[0]}"
