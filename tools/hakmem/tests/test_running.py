# SPDX-License-Identifier: MIT
"""Settings of a running process, from outside."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from conftest import TOOL, Hakmem, clean_environment

from hakmem_workbench import inspection


@pytest.fixture()
def process(real_library: Path, compiled: Callable[..., Path]) -> Iterator[subprocess.Popen[bytes]]:
    environment = clean_environment() | {"LD_PRELOAD": str(real_library), "HAKMEM_LIMIT_MB": "7"}
    program = compiled("profiled", "-O1", "-g", "-pthread")
    with subprocess.Popen(
        [program, "wait"],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout and process.stdin
        assert process.stdout.readline() == b"ready\n"
        yield process
        process.kill()


def test_get_and_set(hakmem: Hakmem, process: subprocess.Popen[bytes]) -> None:
    pid = str(process.pid)
    done = hakmem("get", pid)
    if "does not tell" in done.err or "can't be read" in done.err:
        pytest.skip(done.err)
    assert done.out == "HAKMEM_LIMIT_MB = 7  (default 0)\n", done.text
    assert hakmem("get", pid, "madv", "PURGE_DELAY_MS").out == (
        "HAKMEM_MADV = dontneed\nHAKMEM_PURGE_DELAY_MS = 100\n"
    )
    done = hakmem("set", pid, "PURGE_DELAY_MS=77", "SUPER_REG_DEBUG=1")
    assert done.code == 0, done.text
    assert done.out.splitlines()[0] == "HAKMEM_PURGE_DELAY_MS = 77  (was 100)"
    assert "at its next slow path" in done.out
    assert "has logged nothing" in hakmem("log", pid).err
    done = hakmem("set", pid, "LIMIT_MB=0", "PURGE_DELAY_MS=100", "SUPER_REG_DEBUG=0")
    assert done.code == 0 and "have their defaults" in hakmem("get", pid).err, done.text
    assert hakmem("set", pid, "SUPER_REG_DEBUG=1", "PURGE_DELAY_MS=77").code == 0
    assert hakmem("get", pid, "PURGE_DELAY_MS").out == "HAKMEM_PURGE_DELAY_MS = 77\n"
    assert process.stdin and process.stderr
    process.stdin.write(b"x" * 8)  # it allocates 96 MB more
    process.stdin.close()
    assert process.wait(60) == 0
    assert b"hakmem: " in process.stderr.read()  # the log that was switched on


def test_refusals(hakmem: Hakmem, process: subprocess.Popen[bytes]) -> None:
    pid = str(process.pid)
    for words, said in (
        ((pid, "BACKEND=legacy"), "is read only at the start"),
        ((pid, "PURGE_DELAY_MS=soon"), "is refused"),
        ((pid, "PURGE_DELAYS=1"), "did you mean HAKMEM_PURGE_DELAY_MS?"),
        ((pid, "NOPE=1"), "HAKMEM_NOPE is not a setting of hakmem. 'hakmem options' lists all."),
        ((pid, "BACKGROUND=1"), "can't be started from outside. Start the program anew with HAKMEM_BACKGROUND=1"),
        ((pid, "GUARD_RATE=100"), "no place in this process"),
        ((pid, "PROFILE=1000"), "has no heap profile"),
        ((pid, "PURGE_DELAY_MS"), "is not KEY=VALUE"),
        (("4194999", "LIMIT_MB=1"), "there is no process"),
    ):
        done = hakmem("set", *words)
        assert done.code and said in done.err and len(done.err.splitlines()) == 1, done.text
    assert hakmem("get", pid).out == "HAKMEM_LIMIT_MB = 7  (default 0)\n"


def test_nothing_of_the_process_is_executed(process: subprocess.Popen[bytes], tmp_path: Path) -> None:
    """Its library may be anybody's; the one who looks may be root."""
    if not shutil.which("strace"):
        pytest.skip("strace is not installed")
    calls = tmp_path / "calls"
    words = [sys.executable, str(TOOL), "get", str(process.pid), "MADV"]
    strace = ["strace", "-f", "-qq", "-o", str(calls), "-e", "trace=execve,open,openat"]
    done = subprocess.run([*strace, *words], env=clean_environment(), capture_output=True, text=True, check=False)
    assert done.stdout == "HAKMEM_MADV = dontneed\n", done.stderr
    said = calls.read_text()
    assert said.count("execve(") == 1
    assert f"/proc/{process.pid}/root/" not in said


def test_no_link_on_the_way_to_a_library(process: subprocess.Popen[bytes], tmp_path: Path) -> None:
    file, link = tmp_path / "real" / "file", tmp_path / "link"
    file.parent.mkdir()
    file.write_text("library")
    link.symlink_to("real")
    with inspection.of(process.pid) as seen:
        for path, there in ((file, True), (link / "file", False)):
            one = inspection.Mapping(0, 0, 0, file.stat().st_ino, str(path), 0)
            try:
                os.close(seen._open(one))
                assert there
            except OSError:
                assert not there


def test_log(hakmem: Hakmem, real_library: Path, tmp_path: Path) -> None:
    file = tmp_path / "log"
    environment = clean_environment() | {
        "LD_PRELOAD": str(real_library),
        "HAKMEM_VERBOSE": "1",
        "HAKMEM_MADV": "\x1b]0;owned\x07",
        "HAKMEM_LOG_FILE": str(file),
    }
    with subprocess.Popen(
        ["cat"], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdin and process.stdout
        process.stdin.write(b"ready\n")
        process.stdin.flush()
        assert process.stdout.readline() == b"ready\n"
        done = hakmem("log", str(process.pid))
        process.stdin.close()
    if "can't be read" in done.err:
        pytest.skip(done.err)
    assert "hakmem: version " in done.out and "HAKMEM_MADV=\u241b]0;owned\u2407: not" in done.out, done.text
    assert done.out.endswith("\n" + file.read_text())


def test_times_of_stages(hakmem: Hakmem, real_library: Path) -> None:
    """They are read from outside, and name the stages of the backend."""
    environment = clean_environment() | {
        "LD_PRELOAD": str(real_library),
        "HAKMEM_SHARED_POOL_STAGE_STATS": "1",
        "PYTHONMALLOC": "malloc",
    }
    script = "kept = [bytes(n % 900) for n in range(40000)]; print(flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", script],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as process:
        assert process.stdout
        process.stdout.readline()
        done = hakmem("stat", "--json", str(process.pid))
        process.kill()
    if "can't be read" in done.err:
        pytest.skip(done.err)
    values = json.loads(done.out)["values"]
    times = [values.get(f"stage_latency.map.{key}_ns", 0) for key in ("p50", "p99", "worst")]
    assert 0 < times[0] <= times[1] <= times[2], done.text
