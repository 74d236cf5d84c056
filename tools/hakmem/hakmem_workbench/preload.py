# SPDX-License-Identifier: MIT
"""The environment in which a command runs under a library, and its checks.

The only place that writes LD_PRELOAD. Our library comes first and the user's own follow; values that Python itself
added to the environment are removed.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence

from .errors import NOT_EXECUTABLE, NOT_FOUND, Problem
from .library import Library
from .settings import PREFIX


def original_environment() -> dict[str, str]:
    """Our environment as we received it: Python adds LC_CTYPE in a C locale."""
    environment = dict(os.environ)
    try:
        with open("/proc/self/environ", "rb") as stream:
            given = {word.partition(b"=")[0] for word in stream.read().split(b"\0")}
    except OSError:
        return environment
    if b"LC_CTYPE" not in given:
        environment.pop("LC_CTYPE", None)
    return environment


def neutral_environment() -> dict[str, str]:
    """The same without any setting of hakmem: every variant starts from here."""
    return {k: v for k, v in original_environment().items() if not k.startswith(PREFIX)}


def assignments(library: Library | None, settings: Mapping[str, str]) -> dict[str, str]:
    """The variables to set for a command to run under the library with these settings."""
    assigned = dict(settings)
    if library is not None:
        assigned["LD_PRELOAD"] = chain(library.path)
    return assigned


def chain(first: str, others: str | None = None) -> str:
    """LD_PRELOAD with one more library before those with which we were started."""
    inherited = os.environ.get("LD_PRELOAD", "") if others is None else others
    return ":".join(filter(None, [first, inherited]))


def resolve_command(command: Sequence[str]) -> str:
    """The file that will be executed; a Problem like a shell's when there is none."""
    if not command:
        raise Problem("there is no command to run", "Put it behind --, as in: -- ls -l.")
    found = shutil.which(command[0])
    if found:
        return found
    if os.sep in command[0] and os.path.exists(command[0]):
        what = "is a directory" if os.path.isdir(command[0]) else "is not executable"
        raise Problem(
            f"{command[0]} {what}", "Name a program, or make it one: chmod +x.", NOT_EXECUTABLE
        )
    raise Problem(
        f"{command[0]}: command not found", "Is it in PATH? Else name it with its path.", NOT_FOUND
    )
