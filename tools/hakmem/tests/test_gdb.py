# SPDX-License-Identifier: MIT
"""gdb's commands: on a process, on a core of gdb and on one of the kernel."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import clean_environment

SCRIPT = Path(__file__).resolve().parents[2] / "install" / "hakmem-gdb.py"
ASKED = ("block held", "block (char *)freed + 5", "block large", "block &held", "heap")


def gdb(*words: str | Path) -> str:
    if not shutil.which("gdb"):
        pytest.skip("no gdb")
    done = subprocess.run(
        ["gdb", "-nx", "-q", "-batch", *map(str, words)],
        env=clean_environment() | {"DEBUGINFOD_URLS": ""},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=120,
        check=False,
    )
    return done.stdout + done.stderr


def asked() -> list[str]:
    return ["-ex", f"source {SCRIPT}", *(word for ask in ASKED for word in ("-ex", f"hakmem {ask}"))]


def check(said: str) -> None:
    for pattern in (
        r"block \d+ of \d+, 112 bytes \(class 6\)\n  live",
        r"112 bytes \(class 6\), 5 bytes behind its start 0x\w+\n  free, in ",
        r"slab 0x\w+, active, of heap 0x\w+, thread 1; \d+ blocks not free in it",
        r"the block before: 0x\w+, live\n  the block behind: 0x\w+, live",
        r"large block of \d+ bytes in 8 pages",
        r"in no slab",
        r"heap 0x\w+: thread 1\n",
        r"(?m)^ +112 +\d+ +\d+ +\d+ +\d+$",
        r"large blocks: 1, \d+ bytes",
    ):
        assert re.search(pattern, said), f"{pattern}\n{said}"


def test_process_and_core_of_gdb(
    real_library: Path, compiled: Callable[..., Path], tmp_path: Path
) -> None:
    program, core = compiled("held", "-g"), tmp_path / "core"
    said = gdb(
        *("-ex", f"set environment LD_PRELOAD={real_library}", "-ex", "run"),
        *(*asked(), "-ex", f"generate-core-file {core}", program),
    )
    if "SIGABRT" not in said or "Couldn't" in said or "ptrace" in said:
        pytest.skip(f"gdb can run nothing here: {said[-300:]}")
    check(said)
    check(gdb(*asked(), program, core))


def test_core_of_the_kernel(
    real_library: Path, compiled: Callable[..., Path], tmp_path: Path
) -> None:
    program = compiled("held", "-g")
    command = f"ulimit -c unlimited; LD_PRELOAD={real_library} {program}"
    subprocess.run(["sh", "-c", command], cwd=tmp_path, capture_output=True, check=False)
    cores = list(tmp_path.glob("core*"))
    if not cores:
        pytest.skip("the kernel writes cores elsewhere, or none")
    check(gdb(*asked(), program, cores[0]))
