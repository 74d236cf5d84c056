# SPDX-License-Identifier: MIT
"""`hakmem stat`: the live counters of a running process."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import Hakmem, clean_environment

from hakmem_workbench import shm

pytest.importorskip("rich")

SET = {
    "pool.adaptive_prewarm.0.size": 8192,
    "pool.adaptive_prewarm.0.blocks": 4,
    "budget.budget_bytes": 64 << 20,
}
VALUES = {
    "stages.hot": 1200,
    "stages.map": 0,
    "os_calls.superslab_map.mmap.calls": 3,
    "os_calls.superslab_map.mmap.bytes": 6 << 20,
    "os_calls.superslab_map.mmap.ns": 62000,
    "lru.cached_bytes": 4 << 20,
    **SET,
}


def segment(pid: int, values: dict[str, int], magic: bytes = shm.MAGIC) -> bytes:
    """What the library writes, by the layout in `shm`."""
    head = shm.HEADER.pack(magic, 64, len(values), pid, 17, time.time_ns(), shm.RECORD.size)
    return head + b"".join(shm.RECORD.pack(name.encode(), value) for name, value in values.items())


@pytest.fixture
def shown() -> Iterator[tuple[int, Path]]:
    """A process that shows counters, and where."""
    file = os.memfd_create("hakmem.live", 0)
    child = subprocess.Popen(
        ["sleep", "60"], env=clean_environment() | {"HAKMEM_LIMIT_MB": "64"}, pass_fds=[file]
    )
    os.close(file)
    path = Path(f"/proc/{child.pid}/fd/{file}")
    path.write_bytes(segment(child.pid, VALUES))
    yield child.pid, path
    child.kill()
    child.wait()


@pytest.fixture
def process(shown: tuple[int, Path]) -> int:
    return shown[0]


def test_layout_is_as_documented() -> None:
    assert (shm.HEADER.size, shm.RECORD.size) == (64, 64)


def test_once(hakmem: Hakmem, process: int) -> None:
    done = hakmem("stat", "--once", str(process))
    assert done.code == 0, done.err
    lines = [line.split() for line in done.out.splitlines()]
    assert ["hot", "1", "200"] in lines
    assert ["superslab_map.mmap", "3", "6.00", "MiB", "62.0", "µs"] in lines
    assert ["cached_bytes", "4.00", "MiB"] in lines
    assert not [line for line in lines if line[:1] == ["map"]]  # zero is hidden
    assert ["map", "0"] in [
        line.split() for line in hakmem("stat", "--all", str(process)).out.splitlines()
    ]


def test_json(hakmem: Hakmem, process: int) -> None:
    shown = json.loads(hakmem("stat", "--json", str(process)).out)
    counters = {name: value for name, value in VALUES.items() if name not in SET}
    assert shown == {
        "pid": process,
        "program": "sleep 60",
        "updates": 17,
        "settings": ["HAKMEM_LIMIT_MB=64"],
        "configuration": SET,
        "values": counters,
    }


def test_configuration_is_no_counter(hakmem: Hakmem, process: int) -> None:
    done = hakmem("stat", "--once", str(process))
    assert f"process {process}  sleep 60 " in done.out
    counted, _, rest = done.out.partition("\nconfiguration")
    for words in ("HAKMEM_LIMIT_MB=64", "budget.budget_bytes  64.0 MiB"):
        assert words in rest and words.split("  ")[0] not in counted
    assert "pool.adaptive_prewarm  8.00 KiB: 4 blocks" in rest
    assert "regret " in rest and "handed out again" in rest  # the words of the table


def test_values_follow_the_process(shown: tuple[int, Path]) -> None:
    process, path = shown
    live = shm.open_live(process)
    with path.open("r+b") as stream:
        stream.seek(64 + 56)
        stream.write((7777).to_bytes(8, "little"))
    assert live.read().values["stages.hot"] == 7777
    live.close()


def test_refreshes_on_a_terminal(process: int) -> None:
    tool = Path(__file__).resolve().parent.parent / "hakmem"
    words = [sys.executable, str(tool), "stat", "-i", "0.1", str(process)]
    script = f"import pty; pty.spawn({words!r})"
    viewer = subprocess.Popen(
        [sys.executable, "-c", script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=os.environ | {"TERM": "xterm"},
    )
    assert viewer.stdout is not None
    out = b""
    while out.count(b"stages") < 3:
        more = os.read(viewer.stdout.fileno(), 65536)
        assert more, out
        out += more
    os.kill(process, 9)  # it stays as a zombie, which counts as ended
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
    while shm.alive(child.pid):
        time.sleep(0.01)
    done = hakmem("stat", str(child.pid))
    child.wait()
    assert done.code == 1 and "there is no process" in done.err


def test_the_parents_counters_are_not_the_childs(hakmem: Hakmem, shown: tuple[int, Path]) -> None:
    process, path = shown
    path.write_bytes(segment(process + 1, VALUES))
    done = hakmem("stat", str(process))
    assert done.code == 1 and "not served by a hakmem" in done.err
    assert process not in shm.running()
    path.write_bytes(segment(process, VALUES))
    assert process in shm.running()


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"HAKSTAT1", "too short"),
        (b"HAKSTAT9" + bytes(56), "no counters that this tool knows"),
        (None, ""),  # fewer records than promised: shows what is there
    ],
)
def test_damaged(
    hakmem: Hakmem, shown: tuple[int, Path], data: bytes | None, said: str
) -> None:
    process, path = shown
    path.write_bytes(segment(process, VALUES)[:-60] if data is None else data)
    done = hakmem("stat", "--once", str(process))
    assert said in done.err
    assert (done.code == 0) == (not said)


WORK = """
import sys, time
blocks = []
while True:
    blocks = [bytearray(3000 + n % 64) for n in range(2000)]
    time.sleep(0.005)
"""


@pytest.fixture
def served(real_library: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A living process under the real library, which shows its counters."""
    environment = clean_environment() | {
        "LD_PRELOAD": str(real_library),
        "HAKMEM_STATS_SHM": "1",
        "PYTHONMALLOC": "malloc",
    }
    python = os.path.realpath(sys.executable)
    child = subprocess.Popen([python, "-c", WORK], env=environment)
    deadline = time.monotonic() + 60
    while child.pid not in shm.running() and time.monotonic() < deadline:
        time.sleep(0.02)
    yield child
    child.kill()
    child.wait()


@pytest.mark.library
def test_a_living_process(hakmem: Hakmem, served: subprocess.Popen[bytes]) -> None:
    pid = served.pid
    assert shm.open_live(pid).path.stat().st_mode & 0o777 == 0o600
    look = lambda: json.loads(hakmem("stat", "--json", str(pid)).out)
    before = after = look()
    deadline = time.monotonic() + 60  # a refresh takes at most 2 % of the time
    while after["updates"] == before["updates"] and time.monotonic() < deadline:
        after = look()
    assert after["pid"] == pid
    assert after["updates"] > before["updates"]
    assert after["values"]["bins.refills"] > before["values"]["bins.refills"]
    assert after["values"]["os_calls.metadata.mmap.calls"] >= 1
    assert after["values"]["threads.live"] == 1
    shown = hakmem("stat", "--once", str(pid))
    assert shown.code == 0 and "refill_blocks" in shown.out


@pytest.mark.library
def test_run_live_and_its_end(hakmem: Hakmem, real_library: Path) -> None:
    """hakmem run --live shows counters; they have no name that could stay behind."""
    look = """
import os
print(os.getpid())
for number in os.listdir("/proc/self/fd"):
    if os.path.exists(f"/proc/self/fd/{number}"):
        print(os.readlink(f"/proc/self/fd/{number}"))
"""
    python = os.path.realpath(sys.executable)
    done = hakmem("run", "--live", "--library", real_library, "--", python, "-c", look)
    assert done.code == 0, done.err
    assert shm.LINK in done.out
    pid = done.out.split()[0]
    assert not [name for name in os.listdir("/dev/shm") if pid in name]
