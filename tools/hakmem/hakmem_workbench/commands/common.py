# SPDX-License-Identifier: MIT
"""Options that several commands share, with one meaning and one wording."""

from __future__ import annotations

import argparse
import importlib.util
import os
import shutil
import sys

from .. import elf, inspection, library, preload
from ..errors import Problem
from ..settings import PREFIX, parse_assignment


def add_library(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--library",
        metavar="PATH",
        help="hakmem library or Meson build directory (default: build tree, then installed)",
    )


def process_id(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"'{text}' is not a process id")
    return int(text)


def add_policy(parser: argparse.ArgumentParser) -> None:
    """--library, --backend, --release and --set."""
    add_library(parser)
    parser.add_argument("--backend", metavar="NAME", help="the span backend (HAKMEM_BACKEND)")
    parser.add_argument("--release", metavar="NAME", help="how pages return to the kernel (HAKMEM_RELEASE)")
    parser.add_argument(
        "--set",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        dest="assigned",
        help="a setting of hakmem, HAKMEM_ may be left out; repeatable",
    )


def add_heap_by(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--heap-by",
        choices=("library",),
        help="the memory of each shared object in a heap named like it",
    )


def heap_by(args: argparse.Namespace, chosen: library.Library, loaded: str) -> str:
    """LD_PRELOAD, with what --heap-by needs before `loaded`."""
    return preload.chain(library.beside(chosen, "libhakmem-libraries.so"), loaded) if args.heap_by else loaded


def add_command(parser: argparse.ArgumentParser, before: str | None = None) -> None:
    """The command to run; it may follow without -- if nothing stands `before` it."""
    parser.set_defaults(command=[])
    parser.usage = f"{parser.prog} [OPTION]… {'[--] CMD …' if before is None else before}"
    if before is None:
        parser.add_argument(
            "command",
            metavar="CMD",
            nargs=argparse.REMAINDER,
            help="the command and its arguments",
        )


def served() -> tuple[list[int], int]:
    """Processes that hakmem may serve, by the name of a mapped file, or by the records in a program that contains it;
    and how many more may not be read.
    """
    found, refused = [], 0
    for entry in os.listdir("/proc"):
        if not entry.isdecimal() or int(entry) == os.getpid():
            continue
        try:
            with open(f"/proc/{entry}/maps", errors="replace") as maps:
                if "hakmem" in maps.read() or elf.section(f"/proc/{entry}/exe", inspection.SECTION):
                    found.append(int(entry))
        except PermissionError:
            refused += 1
        except (elf.NotElf, OSError):
            pass
    return found, refused


def policy(args: argparse.Namespace) -> dict[str, str]:
    """The settings that the options set; the later of two wins."""
    settings: dict[str, str] = {}
    if args.backend:
        settings[PREFIX + "BACKEND"] = args.backend
    if args.release:
        settings[PREFIX + "RELEASE"] = args.release
    for text in args.assigned:
        key, value = parse_assignment(text)
        settings[key] = value
    return settings


def need(*modules: str) -> None:
    """Fails with one sentence if the packages for measuring are not installed. It searches for them instead of
    importing them, which would delay every error message.
    """
    missing = []
    for module in modules:
        try:
            there = importlib.util.find_spec(module)
        except ImportError:
            there = None
        if there is None:
            missing.append(module)
    if missing:
        packages = " ".join(f"python3-{name}" for name in missing)
        ours = sys.prefix == sys.base_prefix and os.path.realpath(sys.executable).startswith("/usr/bin/")
        wanted = "'hakmem[measure]'" if library.of_wheel().parent.is_dir() else " ".join(missing)
        pip = f"{sys.executable} -m pip install {wanted}"
        cure = f"apt-get install {packages}" if ours and shutil.which("apt-get") else pip
        raise Problem(
            f"this command needs {', '.join(missing)}, which {sys.executable} does not have",
            f"Install it there: {cure}.",
        )
