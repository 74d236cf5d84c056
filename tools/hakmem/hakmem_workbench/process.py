# SPDX-License-Identifier: MIT
"""What /proc says of a process, without its memory."""

from __future__ import annotations

import errno
import os
import re
from pathlib import Path

from .text import word


def program(pid: int) -> str:
    """The command line of the process; empty once it has ended."""
    return " ".join(_strings(pid, "cmdline"))


def file(pid: int) -> str:
    """The name of its program's file, whatever it calls itself; empty once it has ended."""
    try:
        return word(os.path.basename(os.readlink(f"/proc/{pid}/exe").removesuffix(" (deleted)")))
    except OSError:
        return ""


def has_our_root(pid: int) -> bool:
    """Whether names of files mean the same there; not in a container. True once it has ended."""
    try:
        return os.path.samefile(f"/proc/{pid}/root", "/")
    except OSError:
        return True


def name(pid: int) -> str:
    """What it was started as: of a script, the script's name, and of a link, the link's; empty once it has ended."""
    try:
        return word(Path(f"/proc/{pid}/comm").read_text(errors="replace").strip())
    except OSError:
        return ""


def names(pid: int) -> set[str]:
    """What its program is called: by the kernel, by itself, by its file."""
    try:
        return {
            name(pid),
            os.path.basename(program(pid).partition(" ")[0]),
            file(pid),
        } - {""}
    except OSError:
        return set()


def _strings(pid: int, name: str) -> list[str]:
    try:
        words = Path(f"/proc/{pid}/{name}").read_bytes().split(b"\0")
    except OSError:
        return []
    return [word(one.decode("utf-8", "replace")) for one in words if one]


def container(pid: int, root: str = "/sys/fs/cgroup") -> dict[str, int]:
    """Bytes of its cgroup (version 2), or the one above it with the least limit: the limit, what counts against it, and
    parts of that. Empty without a limit.
    """
    found: dict[str, int] = {}
    try:
        group = re.search(r"(?m)^0::(/.*)$", Path(f"/proc/{pid}/cgroup").read_text())
        folders = [Path(root + group[1]), *Path(root + group[1]).parents] if group and ".." not in group[1] else []
        for folder in folders[: folders.index(Path(root))] if Path(root) in folders else []:
            if not (folder / "memory.current").is_file():
                continue
            limits = [(folder / f"memory.{name}").read_text().strip() for name in ("max", "high")]
            limit = min((int(text) for text in limits if text.isdecimal()), default=0)
            if limit and limit < found.get("limit", limit + 1):
                rows = map(str.split, (folder / "memory.stat").read_text().splitlines())
                stat = {row[0]: int(row[1]) for row in rows}
                parts = {name: stat.get(name, 0) for name in ("anon", "file", "shmem", "kernel", "inactive_file")}
                found = {"limit": limit, "current": int((folder / "memory.current").read_text()), **parts}
    except (OSError, ValueError, IndexError):
        pass
    return found


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except OverflowError:  # no pid is so large
        return False
    except OSError as error:
        return error.errno == errno.EPERM
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"
