# SPDX-License-Identifier: MIT
"""`hakmem top --heaps`: the heaps of running programs, without rich."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import TOOL, Hakmem, clean_environment

from hakmem_workbench import cli
from hakmem_workbench.commands import top
from hakmem_workbench.statsfile import ProgramHeap, by_name

GROWS = """
import ctypes, sys
hakmem = ctypes.CDLL(None)
hakmem.hakmem_heap_new.restype = hakmem.hakmem_heap_malloc.restype = ctypes.c_void_p
def heap(name, limit):
    options = (ctypes.c_void_p * 8)(ctypes.cast(ctypes.c_char_p(name), ctypes.c_void_p), limit)
    return ctypes.c_void_p(hakmem.hakmem_heap_new(options))
large, small, again = heap(b"large", 0), heap(b"small", 1 << 20), heap(b"small", 1 << 20)
hakmem.hakmem_heap_malloc(large, 1 << 23) # of which nothing is touched
for one in small, again:
    ctypes.memset(hakmem.hakmem_heap_malloc(one, 1 << 18), 1, 1 << 18)
print("ready", flush=True)
for line in sys.stdin:
    hakmem.hakmem_heap_malloc(large, 3 << 20)
"""


@pytest.fixture
def grows(real_library: Path) -> Iterator[subprocess.Popen[str]]:
    environment = clean_environment() | {"LD_PRELOAD": str(real_library)}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", GROWS], env=environment, text=True, **pipes) as child:
        assert child.stdout and child.stdout.readline() == "ready\n"
        yield child
        child.kill()


@pytest.mark.library
def test_heaps(hakmem: Hakmem, grows: subprocess.Popen[str]) -> None:
    """Heaps of one name are one row; what is resident is less than what is held."""
    def rows(*words: str) -> list[list[str]]:
        done = hakmem("top", "--once", "--heaps", *words)
        assert done.code == 0, done.text
        found = [re.split("  +", line.strip()) for line in done.out.splitlines()]
        assert found[0] == ["PID", "heap", "live", "change", "held", "resident", "blocks", "limit", "program"]
        return [row[1:-1] for row in found if row[0] == str(grows.pid)]

    large = ["large", "8.00 MiB", "8.00 MiB", "0 B", "1"]
    small = ["small", "512 KiB", "512 KiB", "512 KiB", "2", "2.00 MiB"]
    assert rows() == rows("--sort", "resident") == [small, large]
    assert rows("--sort", "live") == [large, small]


@pytest.mark.library
def test_change(grows: subprocess.Popen[str]) -> None:
    words = [sys.executable, str(TOOL), "top", "--heaps", "-i", "0.1"]
    viewer = subprocess.Popen(
        [sys.executable, "-c", f"import pty; pty.spawn({words!r})"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=os.environ | {"TERM": "xterm", "COLUMNS": "120", "LINES": "24"},
    )
    assert viewer.stdout and grows.stdin
    out, asked = b"", False
    while not re.search(rb" large +[0-9.]+ MiB +\+3\.00 MiB ", out):
        more = os.read(viewer.stdout.fileno(), 65536)
        assert more, out
        out += more
        if not asked and re.search(rb" large +[0-9.]+ MiB +\xc2\xb7 ", out):
            asked = True
            grows.stdin.write("\n")
            grows.stdin.flush()
    viewer.kill()
    viewer.communicate()
    for row in rb" large +8\.00 MiB +\xc2\xb7 +8\.00 MiB ", rb" small +512 KiB +\xc2\xb7 ":
        assert re.search(row, out)


def test_the_unreadable_are_not_called_served(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(top, "served", lambda: ([], 89))
    assert cli.main(["top", "--once"]) == 0
    assert "0 processes, read " in (out := capsys.readouterr().out)
    assert "; 89 others can't be read: hakmem may serve some\n" in out


def test_sums_by_name() -> None:
    """A sum has a limit if all have; what is resident is known if it is of all."""
    one, free = ProgramHeap("a", 1, 2, 3, 4, 5, 6), ProgramHeap("a", 10, 20, 30, 40)
    assert by_name([one, one, ProgramHeap("b", 9, 1, 9, 9)]) == {
        "b": ProgramHeap("b", 9, 1, 9, 9), "a": ProgramHeap("a", 2, 4, 6, 8, 10, 12),
    }  # fmt: skip
    assert by_name([one, free]) == {"a": ProgramHeap("a", 11, 22, 33, 44)}
