# SPDX-License-Identifier: MIT
"""What /proc says of a process, without its memory."""

from __future__ import annotations

import errno
import os
from pathlib import Path


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


def number_inside(pid: int) -> int:
    """The process's id in its own namespace."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("NSpid:"):
            return int(line.split()[-1])
    return pid


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
