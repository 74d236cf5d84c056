# SPDX-License-Identifier: MIT
"""What /proc says of a process, without its memory."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from .text import word


def program(pid: int) -> str:
    """The command line of the process; empty once it has ended."""
    return " ".join(_strings(pid, "cmdline"))


def names(pid: int) -> set[str]:
    """What its program is called: by the kernel, by itself, by its file."""
    try:
        return {
            Path(f"/proc/{pid}/comm").read_text(errors="replace").strip(),
            os.path.basename(program(pid).partition(" ")[0]),
            os.path.basename(os.readlink(f"/proc/{pid}/exe")),
        } - {""}
    except OSError:
        return set()


def settings(pid: int) -> list[str]:
    """The settings of hakmem in its environment, as they were at its start."""
    return sorted(one for one in _strings(pid, "environ") if one.startswith("HAKMEM_"))


def _strings(pid: int, name: str) -> list[str]:
    try:
        words = Path(f"/proc/{pid}/{name}").read_bytes().split(b"\0")
    except OSError:
        return []
    return [word(one.decode("utf-8", "replace")) for one in words if one]


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
