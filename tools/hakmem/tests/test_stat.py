# SPDX-License-Identifier: MIT
"""`hakmem stat`: the counters of a running process, read from outside."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import TOOL, Hakmem, clean_environment

from hakmem_workbench import process

WORK = """
import sys, time
blocks = []
while True:
    blocks = [bytearray(3000 + n % 64) for n in range(2000)]
    time.sleep(0.005)
"""


@pytest.fixture
def served(real_library: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A living process under the real library."""
    environment = clean_environment() | {
        "LD_PRELOAD": str(real_library),
        "HAKMEM_LIMIT_MB": "640",
        "HAKMEM_PURGE_DELAY_MS": "soon",
        "PYTHONMALLOC": "malloc",
    }
    words = ["\x1b]0;owned\x07\nline", "-c", WORK]
    child = subprocess.Popen(words, executable=os.path.realpath(sys.executable), env=environment)
    yield child
    child.kill()
    child.wait()


@pytest.mark.library
def test_a_living_process(hakmem: Hakmem, served: subprocess.Popen[bytes]) -> None:
    pid = served.pid
    shown = _until(hakmem, pid, lambda seen: seen["values"].get("bins.refills", 0) > 0)
    assert shown["pid"] == pid and " -c " in shown["program"]
    assert shown["settings"] == ["HAKMEM_LIMIT_MB=640"]
    assert shown["values"]["os_calls.metadata.mmap.calls"] >= 1
    assert shown["values"]["threads.live"] == 1
    assert shown["values"]["stages.map"] >= 1
    before = shown["values"]["bins.refills"]
    _until(hakmem, pid, lambda seen: seen["values"]["bins.refills"] > before)
    once, everything = (hakmem("stat", *words, str(pid)) for words in (["--once"], ["--once", "--all"]))
    assert once.code == 0, once.err
    assert f"process {pid} " in once.out and "HAKMEM_LIMIT_MB=640" in once.out
    assert "refill_blocks" in once.out and "metadata.mmap" in once.out
    assert "regret " in once.out and "handed out again" in once.out  # the words of the table
    assert hakmem("set", str(pid), "LIMIT_MB=0", "PURGE_DELAY_MS=500").code == 0
    assert json.loads(hakmem("stat", "--json", str(pid)).out)["settings"] == ["HAKMEM_PURGE_DELAY_MS=500"]
    assert hakmem("set", str(pid), "PURGE_DELAY_MS=100").code == 0
    assert "\n    all at their defaults\n" in hakmem("stat", "--once", str(pid)).out
    for words in ["stat", "--once"], ["causes"], ["export"]:
        done = hakmem(*words, str(pid))
        assert done.code == 0 and not {*"\x1b\x07"} & {*done.text}, done.text
        assert ("owned" in done.out) == (words != ["export"])  # which labels by the file
    assert len(everything.out.splitlines()) > len(once.out.splitlines())  # zeros too


def _until(hakmem: Hakmem, pid: int, wanted: object) -> dict:
    assert callable(wanted)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        done = hakmem("stat", "--json", str(pid))
        if done.code == 0 and wanted(seen := json.loads(done.out)):
            return seen
    raise AssertionError(done.text)


@pytest.mark.library
def test_refreshes_on_a_terminal(hakmem: Hakmem, served: subprocess.Popen[bytes]) -> None:
    _until(hakmem, served.pid, lambda seen: True)
    words = [sys.executable, str(TOOL), "stat", "-i", "0.1", str(served.pid)]
    viewer = subprocess.Popen(
        [sys.executable, "-c", f"import pty; pty.spawn({words!r})"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=os.environ | {"TERM": "xterm"},
    )
    assert viewer.stdout is not None
    out = b""
    while out.count(b"refill_blocks") < 3:
        more = os.read(viewer.stdout.fileno(), 65536)
        assert more, out
        out += more
    served.kill()  # it stays as a zombie, which counts as ended
    rest, _ = viewer.communicate(timeout=60)
    assert b"has ended" in out + rest


def test_no_counters(hakmem: Hakmem) -> None:
    done = hakmem("stat", str(os.getpid()))
    assert done.code == 1
    assert "not served by a hakmem" in done.err
    done = hakmem("stat", "4194999")
    assert done.code == 1 and "there is no process" in done.err


def test_ended(hakmem: Hakmem) -> None:
    child = subprocess.Popen(["true"])
    while process.alive(child.pid):
        time.sleep(0.01)
    done = hakmem("stat", str(child.pid))
    child.wait()
    assert done.code == 1 and "there is no process" in done.err
