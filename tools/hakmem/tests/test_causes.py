# SPDX-License-Identifier: MIT
"""`hakmem causes`: a stats file in sentences."""

import contextlib
import dataclasses
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import TOOL, Hakmem, clean_environment

from hakmem_workbench import explain, inspection, process, statsfile
from hakmem_workbench.commands import causes

STATS: dict[str, Any] = {
    "allocator": {
        "name": "hakmem", "version": "1.2", "build_id": "abcdef0123456789", "backend": "legacy",
    },
    "settings": [
        {"name": "HAKMEM_TINY_SS_PARTIAL", "type": "bool", "default": 1, "value": 1,
         "source": "default", "moves": "os_calls.partial_release", "sentence": "gives pages back"},
        {"name": "HAKMEM_SUPERSLAB_MAX_CACHED", "type": "int", "default": 256, "value": 8, "min": 0,
         "max": 1000, "source": "environment", "moves": "os_calls.lru_evict, retained.lru",
         "sentence": "superslabs kept"},
        {"name": "HAKMEM_TINY_USE_SUPERSLAB", "type": "bool", "sentence": "-> HAKMEM_BACKEND"},
    ],
    "os_calls": [
        {"cause": "superslab_map", "call": "mmap", "calls": 3, "bytes": 6291456, "ns": 30000},
        {"cause": "partial_release", "call": "madvise", "calls": 10, "bytes": 1000000, "ns": 90000,
         "regret_bytes": 900000, "failed": 2},
        {"cause": "lru_evict", "call": "munmap", "calls": 2, "bytes": 4194304, "ns": 5000},
        {"cause": "brand_new_cause", "call": "mmap", "calls": 1, "bytes": 4096, "ns": 10},
        {"cause": "trim", "call": "madvise", "calls": 0},
        {"cause": "huge_page", "call": "madvise", "calls": 1, "bytes": 2097152, "ns": 1},
    ],
    "stages": {"hot": 95, "map": 5, "failed": 1},
    "retained": {"lru": {"bytes": 2097152, "age_ns": 3000000000}, "partial": 1048576, "empty": 0},
    "conservation": {"violations": 0},
    "something_new": [1, 2, 3],
}  # fmt: skip


@pytest.fixture
def said(hakmem: Hakmem, tmp_path: Path) -> str:
    path = tmp_path / "stats.json"
    path.write_text(json.dumps(STATS))
    done = hakmem("causes", path)
    assert done.code == 0, done.err
    return " ".join(done.out.split())


def test_head(said: str) -> None:
    assert said.startswith("hakmem 1.2 (build abcdef012345) backend legacy")
    assert "HAKMEM_SUPERSLAB_MAX_CACHED=8 from environment" in said


def test_system_calls(said: str) -> None:
    assert "made 17 system calls, 125 µs in all; 72.0 % of that time is partial_release" in said
    assert "10 × madvise (2 failed), 977 KiB, 90.0 µs" in said
    assert re.search(r"Of \d\.\d\d MiB that went back, \d+\.\d % was handed out again within a second\.", said)
    assert "brand_new_cause 1 × mmap, 4.00 KiB" in said
    assert "trim" not in said


def test_which_setting_would_change_it(said: str) -> None:
    assert "HAKMEM_TINY_SS_PARTIAL changes it (now 1; 0 | 1): gives pages back" in said
    assert said.count("HAKMEM_SUPERSLAB_MAX_CACHED changes it (now 8; 0 – 1000)") == 2


def test_retained(said: str) -> None:
    assert "3.00 MiB of free memory are kept, most of it (66.7 %) as lru" in said
    assert "lru 2.00 MiB, the oldest for 3.00 s: whole superslabs kept for the next need;" in said
    assert "• empty" not in said


def test_retained_from_the_sections_of_the_parts() -> None:
    """A library that writes no summary reports memory part by part."""
    parts = {
        "conservation": {"free_bytes": 1 << 20, "allocated_bytes": 5 << 20, "large_bytes": 1 << 20},
        "shared_pool": {"dirty_bytes": 3 << 20},
        "lru": {"cached_bytes": 2 << 20},
        "large": {"direct_bytes": 32 << 20},
    }
    stats = statsfile.parse({key: STATS[key] for key in STATS if key != "retained"} | parts)
    rows = {row.reason: (row.bytes >> 20, row.memory) for row in stats.retained}
    assert rows == {"partial": (1, True), "dirty": (3, True), "lru": (2, False)}
    section = next(s for s in explain.explain(stats) if s.title == "Memory that is kept")
    assert "4.00 MiB of free memory are kept, most of it (75.0 %) as dirty" in section.lead
    assert "38.0 MiB are in blocks that the program holds" in section.lead


def test_in_short(said: str) -> None:
    assert "The kernel worked 125 µs for the allocator, 72.0 % of it for partial_release." in said
    assert "3.00 MiB of free memory was kept at the end. Nothing in it calls for a change." in said


def test_in_short_says_what_to_try() -> None:
    """Much was purged in vain: suggests the setting that changes this, with another value."""
    row = {"cause": "partial_release", "call": "madvise", "calls": 10, "ns": 90000}
    vain = {**row, "bytes": 10 << 20, "regret_bytes": 9 << 20, "ns": 3_000_000}
    section = explain.explain(statsfile.parse({**STATS, "os_calls": [vain]}))[0]
    assert section.lead.endswith("hakmem ab hakmem set:TINY_SS_PARTIAL=0 -- CMD")
    dear = {"cause": "lru_evict", "call": "madvise", "calls": 9, "bytes": 1, "ns": 5_000_000}
    section = explain.explain(statsfile.parse({**STATS, "os_calls": [dear]}))[0]
    assert section.lead.endswith("hakmem ab hakmem set:SUPERSLAB_MAX_CACHED=80 -- CMD")
    kept = {"os_calls": [row], "retained": {"dirty": 64 << 20}}
    section = explain.explain(statsfile.parse({**STATS, **kept}))[0]
    assert section.lead.endswith("hakmem ab hakmem set:BACKGROUND=1 -- CMD")
    kept = {"os_calls": [row], "retained": {"dirty": 3 << 20, "bins": 2 << 20, "sparse": 1 << 20}}
    section = explain.explain(statsfile.parse({**STATS, **kept}))[0]
    assert "HAKMEM_BACKGROUND=1 would give back, while the program sleeps, up to 5.00 MiB. " in section.lead
    background = {"settings": [{"name": "HAKMEM_BACKGROUND", "type": "bool", "value": 1}]}
    sections = explain.explain(statsfile.parse({**STATS, **kept, **background}))
    assert not any("BACKGROUND" in item.judgement for section in sections for item in section.items)
    assert "BACKGROUND" not in sections[0].lead
    kept = {"os_calls": [row], "retained": {"sparse": 64 << 20, "dirty": 1 << 20}}
    section = explain.explain(statsfile.parse({**STATS, **kept}))[0]
    assert "Most of it is sparse. What would release it: hakmem_trim(0) or malloc_trim(0), called" in section.lead
    short = {**row, "bytes": 10 << 20, "regret_bytes": 9 << 20, "ns": 322_000}
    assert "hakmem" not in explain.explain(statsfile.parse({**STATS, "os_calls": [short]}))[0].lead
    dear["cause"] = "large_unmap"
    section = explain.explain(statsfile.parse({**STATS, "os_calls": [dear]}))[0]
    assert section.lead.endswith("No setting makes the kernel's part smaller.")


@pytest.mark.library
def test_every_cause_of_the_library_is_explained() -> None:
    """The list of causes is src/core/os/os.h; the meaning of a new one must be added here."""
    core = Path(__file__).resolve().parents[3] / "src" / "core"
    if not core.is_dir():
        pytest.skip("not in the source tree")
    causes = set(re.findall(r"X\((\w+), \"", (core / "os" / "os.h").read_text()))
    assert len(causes) > 10
    assert causes - explain.CAUSES.keys() == set()
    assert explain.CAUSES.keys() - causes == set()


def test_supply_and_books(said: str) -> None:
    assert "asked for 100 times. 1 further request failed. 95.0 % of them were served" in said
    assert "They balance" in said


def test_broken_books() -> None:
    stats = statsfile.parse({**STATS, "conservation": {"violations": 3}})
    assert "3 conservation laws broken" in explain.explain(stats)[-1].lead


def test_nothing_is_required() -> None:
    """An empty object is explained, too."""
    (section,) = explain.explain(statsfile.parse({}))
    assert "no system call" in section.lead


def test_maps_to() -> None:
    setting = statsfile.parse(STATS).setting("HAKMEM_TINY_USE_SUPERSLAB")
    assert setting is not None
    assert (setting.sentence, setting.maps_to) == ("", "HAKMEM_BACKEND")


def test_command_and_standard_input(hakmem: Hakmem, library: Path) -> None:
    done = hakmem("causes", "--library", library, "--", "cat", stdin="through\n")
    assert done.code == 0
    assert done.out.startswith("through\nhakmem 0.0-fake")
    assert hakmem("causes", "-", stdin=json.dumps(STATS)).code == 0


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "is empty"),
        ("hello", "holds no JSON object"),
        ("[]", "holds no JSON object"),
        ('{"allocator": {', "is damaged"),
        ('{"a": 1}', "no report of hakmem"),
        ('{"pid": 1, "settings": [], "values": {}}', "`hakmem stat --json` wrote"),
        (b"\xff\xfe\x00", "is not text"),
    ],
)
def test_bad_files(hakmem: Hakmem, tmp_path: Path, content: str | bytes, said: str) -> None:
    path = tmp_path / "stats.json"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    done = hakmem("causes", path)
    assert done.code == 2 and said in done.err


def test_missing_file(hakmem: Hakmem) -> None:
    assert "No such file" in hakmem("causes", "/nowhere/stats.json").err
    assert "is needed" in hakmem("causes").err


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_command_too(library: Path, tmp_path: Path, number: signal.Signals) -> None:
    """Neither it nor a folder stays."""
    words = [sys.executable, str(TOOL), "causes", "--library", str(library), "--"]
    words += [sys.executable, "-c", "import os, time; print(os.getpid(), flush=True); time.sleep(60)"]
    environment = clean_environment() | {"TMPDIR": str(tmp_path)}
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(words, env=environment, start_new_session=True, **pipes) as tool:
        assert tool.stdout
        pid = int(tool.stdout.readline())
        # a terminal's Ctrl-C reaches both
        os.killpg(tool.pid, number) if number == signal.SIGINT else tool.send_signal(number)
        _, said = tool.communicate(timeout=60)
    assert tool.returncode == 128 + number and not process.alive(pid) and not list(tmp_path.iterdir())
    assert f"{number.name} ended" in said and "'hakmem causes PID'" in said


def test_statistics_of_a_child(hakmem: Hakmem, library: Path) -> None:
    """A shell that exits without writing statistics: those of its children are used."""
    script = "import os, subprocess; subprocess.run(['ls', '/']); os._exit(0)"
    done = hakmem("causes", "--library", library, "--", sys.executable, "-c", script)
    assert done.code == 0, done.err
    assert "System calls" in done.out


@pytest.mark.library
@pytest.mark.parametrize("command", ["ls /", "cat /dev/null", "sort /dev/null", "sh -c ls"])
def test_programs_that_close_stderr(hakmem: Hakmem, real_library: Path, command: str) -> None:
    """All coreutils do so at exit."""
    done = hakmem("causes", "--library", real_library, "--", *command.split())
    assert done.code == 0, done.err
    assert "System calls" in done.out and "They balance" in done.out


@pytest.mark.library
def test_each_setting_that_releases_memory_is_there() -> None:
    table = (Path(__file__).resolve().parents[3] / "src" / "core" / "options.def").read_text()
    for reason in explain.REASONS.values():
        assert all(f'"{assignment.partition("=")[0]}"' in table for assignment in reason.settings)


def test_in_short_of_a_process() -> None:
    """A daemon is not run by `ab`: a setting that changes while it runs is changed there, others at its next start."""
    vain = {"cause": "partial_release", "call": "madvise", "calls": 10, "ns": 90_000_000, "bytes": 10 << 20,
            "regret_bytes": 9 << 20}
    delay = statsfile.Setting("HAKMEM_PURGE_DELAY_MS", "int", "100", "100", high="3600000")
    stats = dataclasses.replace(statsfile.parse({**STATS, "os_calls": [vain]}), running=True, pid=77, settings=(delay,))
    found = " 90.0 % of what was given back was in vain. To change that: "
    assert explain.explain(stats)[0].lead.endswith(found + "start it anew with HAKMEM_PURGE_DELAY_MS=1000.")
    stats = dataclasses.replace(stats, settings=(dataclasses.replace(delay, changeable=True),))
    assert explain.explain(stats)[0].lead.endswith(found + "hakmem set 77 HAKMEM_PURGE_DELAY_MS=1000.")
    old = dataclasses.replace(stats, age_seconds=86400.0)
    assert "that: " not in explain.explain(old)[0].lead


def test_no_longer_delay_under_a_limit() -> None:
    """Which makes it return memory anyway. And no more than all of it was in vain, whichever cause is to blame."""
    def lead(**values: int) -> str:
        vain = {"cause": "batch_release", "call": "madvise", "calls": 10, "ns": 90_000_000, "bytes": 10 << 20,
                "regret_bytes": 15 << 20}
        settings = (statsfile.Setting("HAKMEM_PURGE_DELAY_MS", "int", "100", "100", high="3600000"),
                    statsfile.Setting("HAKMEM_LIMIT_MB", "int", "0", str(values.get("limit", 0))))
        stats = statsfile.parse({**STATS, "os_calls": [vain], "budget": {"budget_bytes": values.get("budget", 0)}})
        return explain.explain(dataclasses.replace(stats, settings=settings, running=True))[0].lead

    assert "100 % of what was given back was in vain. To change that: " in lead()
    for words in lead(limit=64), lead(budget=1 << 26):
        assert "DELAY" not in words and "that: " not in words


def test_what_it_depends_on_is_said() -> None:
    """A limit trims, too; the thread of BACKGROUND starts late, and only a thread that is awake empties its bins."""
    assert "exceeded the limit" in explain.CAUSES["trim"]
    said = explain._release(statsfile.Stats(), statsfile.Retained("bins", 8 << 20))
    assert "each thread empties its bins when it next calls malloc or free" in said and "has held 4 MiB" in said
    assert "once the heap has held 4 MiB" in explain._release(statsfile.Stats(), statsfile.Retained("dirty", 8 << 20))


def test_a_trim_is_not_promised_where_it_returns_nothing() -> None:
    background = statsfile.Setting("HAKMEM_BACKGROUND", "bool", "0", "1")
    for settings in (), (background,):
        for returnable, said in (1 << 10, "no setting; only the program"), (1 << 22, "BACKGROUND=1|at once"):
            row = statsfile.Retained("sparse", 8 << 20, returnable=returnable)
            assert re.search(said, explain._release(statsfile.Stats(settings=settings), row))


class Keeping(subprocess.Popen[bytes]):
    line = b""  # the id of the process that keeps memory


@contextlib.contextmanager
def keeping(program: Path, library: Path, *words: str, **settings: str) -> Iterator[Keeping]:
    environment = clean_environment() | {"LD_PRELOAD": str(library), **settings}
    with Keeping([program, *words], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdin and child.stdout
        child.line = child.stdout.readline()
        yield child


def kept_of(pid: int) -> tuple[statsfile.Stats, list[statsfile.Retained], int]:
    stats = inspection.look(pid).stats()
    free = [row for row in stats.retained if row.free]
    return stats, free, sum(row.bytes for row in free)


@pytest.mark.library
@pytest.mark.parametrize(("size", "every"), [(20000, 2), (1000, 7), (20000, 0), (1000, 0), (1000, 2)])
def test_what_is_promised_comes_back(
    real_library: Path, compiled: Any, tmp_path: Path, size: int, every: int
) -> None:
    """Each remedy, applied to a process in that state. The report at its end tells the same."""
    program = compiled("keeps", "-O1", "-pthread")
    words = (str(size), str(every))
    report = {"HAKMEM_STATS": "json", "HAKMEM_STATS_FILE": str(tmp_path / "report")}
    with keeping(program, real_library, *words, HAKMEM_PURGE_DELAY_MS="600000", **report) as plain, \
            keeping(program, real_library, *words, HAKMEM_BACKGROUND="1") as other:
        stats, free, before = kept_of(plain.pid)
        best, promised = explain._best_setting(stats, free)
        sparse = next((row for row in free if row.reason == "sparse"), None)
        if (size, every) == (1000, 2):  # a live block in each system page
            assert sparse and explain._release(stats, sparse).startswith("What would release it: no setting; only the")
            promised -= sum(row.bytes for row in free if row.reason != "sparse")
        assert best == "HAKMEM_BACKGROUND=1" or (size, every) == (1000, 2)
        assert (promised > 1 << 20) == ((size, every) != (1000, 2))
        until = time.monotonic() + 60
        while promised > 1 << 20 and kept_of(other.pid)[2] > before - 0.8 * promised and time.monotonic() < until:
            time.sleep(0.05)
        assert promised <= 1 << 20 or kept_of(other.pid)[2] <= before - 0.8 * promised
        assert plain.stdin and plain.stdout
        plain.stdin.write(b"t")
        plain.stdin.flush()
        plain.stdout.readline()
        after = next((row.bytes for row in kept_of(plain.pid)[1] if row.reason == "sparse"), 0)
        assert not sparse or sparse.bytes - after == pytest.approx(sparse.returnable, rel=0.1, abs=1 << 19)
        plain.stdin.close()
        plain.wait()
        said = {row.reason: row.bytes for row in statsfile.load(tmp_path / "report").retained}
        assert said["sparse"] == pytest.approx(after, abs=1 << 19)


@pytest.mark.library
@pytest.mark.parametrize(
    ("reason", "assignment", "words", "before"),
    [
        ("cached", "HAKMEM_SUPERSLAB_MAX_CACHED=0", "20000 0", ""),
        ("empty", "HAKMEM_SS_HOT_SLABS=1", "20000 0", ""),
        ("lazy", "HAKMEM_MADV=dontneed", "1000 0", "HAKMEM_MADV=free"),
        ("refused", "munlock", "20000 0 locked", ""),
        ("pinned", "fork before threads start", "1000 2 thread", ""),
    ],
)
def test_other_remedies(
    real_library: Path, compiled: Any, reason: str, assignment: str, words: str, before: str
) -> None:
    """Those that BACKGROUND does not outdo: of what is kept for the reason, most is gone."""
    program = compiled("keeps", "-O1", "-pthread")
    offered = explain.REASONS[reason]
    assert assignment in offered.settings or assignment in offered.release

    def kept(line: bytes) -> int:
        return next((row.bytes for row in kept_of(int(line))[1] if row.reason == reason), 0)

    with keeping(program, real_library, *words.split(), **dict([before.split("=")] if before else [])) as child:
        if child.poll() or not child.line:
            pytest.skip("the limits do not let it lock its memory")
        amount = kept(child.line)
        assert amount > (1 << 20 if reason != "pinned" else 0)
        if reason == "refused":
            assert child.stdin and child.stdout
            child.stdin.write(b"u")
            child.stdin.flush()
            assert kept(child.stdout.readline()) < amount / 2
    if reason == "refused":
        return
    words = words.replace("thread", "fork")
    settings = {} if reason == "pinned" else dict([assignment.split("=")])
    with keeping(program, real_library, *words.split(), **settings) as child:
        assert kept(child.line) < amount / 2


@pytest.mark.library
def test_a_running_process(hakmem: Hakmem, real_library: Path) -> None:
    """Every second of its blocks is free: these are not the program's, and no setting is suggested."""
    work = """
import sys
blocks = [bytes(1000) for _ in range(60000)]
blocks[::2] = [None] * 30000
print("ready", flush=True)
sys.stdin.read()
"""
    environment = clean_environment() | {"LD_PRELOAD": str(real_library), "PYTHONMALLOC": "malloc"}
    child = subprocess.Popen(
        [sys.executable, "-c", work],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert child.stdout and child.stdout.readline()
    pid = str(child.pid)
    causes, top = hakmem("causes", pid), hakmem("top", "--once")
    parsed, all_parsed = hakmem("causes", "--json", pid), hakmem("top", "--json")
    child.kill()
    child.communicate()
    if "can't be read" in causes.err:
        pytest.skip(causes.err)
    text = " ".join(causes.out.split())
    assert re.search(r"live \d\d\.\d MiB in blocks that the program holds retained \d\d\.\d MiB: sparse", text)
    assert "Most of it is sparse. What would release it: no setting" in text
    assert "System calls The allocator made" in text
    assert "to 50-60 %" in text
    assert re.search(r"Live blocks in slabs by size: 1\d\d\d bytes \d\d\.\d MiB", text)
    assert re.search(r"sparse \d\d\.\d MiB beside \d+-byte blocks \(", text)
    assert any(line.split()[0] == pid and "sparse" in line for line in top.out.splitlines())
    seen = json.loads(parsed.out)
    (row,) = (row for row in json.loads(all_parsed.out) if row["pid"] == child.pid)
    assert seen["pid"] == child.pid and seen["live_bytes"] == row["live_bytes"] > 25e6
    assert seen["retained_bytes"]["sparse"] == row["retained_bytes"]["sparse"] > 25e6
    assert seen["sections"][0]["title"] == "In short"


HOLDS = """
import ctypes, sys
c = ctypes.CDLL(None)
c.malloc.restype = c.calloc.restype = ctypes.c_void_p
blocks = [bytes(100000) for _ in range(1000)]
blocks += [c.malloc(1 << 20) for _ in range(100)] + [c.malloc(200 << 20)] + [c.calloc(1, 3000000) for _ in range(10)]
blocks += [c.malloc(32768) for _ in range(64)]
class Info(ctypes.Structure):
    _fields_ = [(f"f{i}", ctypes.c_size_t) for i in range(10)]
c.mallinfo2.restype = Info
info = c.mallinfo2()
print(info.f4 + info.f7, flush=True)  # hblkhd, uordblks
sys.stdin.read()
"""


@pytest.mark.library
@pytest.mark.parametrize("guard_rate", ["0", "7"])
def test_what_is_live_need_not_be_resident(hakmem: Hakmem, real_library: Path, guard_rate: str) -> None:
    """As the library counts it; what is resident is a part of it, and of what the kernel counts."""
    environment = clean_environment() | {"LD_PRELOAD": str(real_library), "HAKMEM_GUARD_RATE": guard_rate}
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", HOLDS], env=environment, **pipes) as child:
        assert child.stdout
        counted = int(child.stdout.readline())
        heap = inspection.look(child.pid)
        said = " ".join(hakmem("causes", str(child.pid)).out.split())
        parsed = json.loads(hakmem("causes", "--json", str(child.pid)).out)
        metrics = hakmem("export", str(child.pid)).out
    assert heap.live == pytest.approx(counted, abs=1 << 16) and counted > 430e6
    assert heap.live_resident + sum(heap.kept.values()) == heap.resident < 50e6
    assert heap.live_sizes[32768] >= 48 * 32768
    assert re.search(r"live 4\d\d MiB in blocks that the program holds, \d\.\d\d MiB of it resident retained", said)
    assert re.search(r"4\d\d MiB are in blocks that the program holds, \d\.\d\d MiB of it resident\.", said)
    assert parsed["live_bytes"] == heap.live and parsed["live_resident_bytes"] == heap.live_resident
    assert re.search(rf"^hakmem_live_bytes{{.*}} {heap.live}$", metrics, re.MULTILINE)
    assert re.search(rf"^hakmem_live_resident_bytes{{.*}} {heap.live_resident}$", metrics, re.MULTILINE)


def test_container(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The least limit on the way up, and what counts against it."""
    stat = "anon 700000\nfile 200000\nkernel 50000\nshmem 0\ninactive_file 150000"
    for folder, high, most in ("outer", "1000000", "max"), ("outer/inner", "max", "4000000"):
        (tmp_path / folder).mkdir()
        for name, text in ("high", high), ("max", most), ("current", "950000"), ("stat", stat):
            (tmp_path / folder / f"memory.{name}").write_text(text + "\n")
    read = Path.read_text

    def of_group(path: Path, **more: Any) -> str:
        return "1:cpu:/x\n0::/outer/inner\n" if path.name == "cgroup" else read(path, **more)

    monkeypatch.setattr(Path, "read_text", of_group)
    group = process.container(1, str(tmp_path))
    assert (group["limit"], group["current"], group["anon"]) == (1000000, 950000, 700000)
    assert causes._container(group).startswith("container  928 KiB of 977 KiB in use: anon 684 KiB, file 195 KiB, ")
    assert process.container(1, str(tmp_path / "none")) == {} and causes._container({}) == ""


def test_what_keeps_free_blocks() -> None:
    """Live blocks of their slab, blocks in bins alone, or nothing: only the first is sparse."""
    look = inspection._Look.__new__(inspection._Look)
    look.heap, page = inspection.Heap(1, ""), inspection.PAGE
    look.waiting = Counter({5: 3, 7: 1, 8: 1})
    look.slabs = [
        (5 * page, 6 * page, 3, 100, 0, 64, 0),
        (6 * page, 7 * page, 1, 50, 0, 64, 20),
        (7 * page, 9 * page, 2, 30, 0, 64, 10),
        (9 * page, 10 * page, 0, 7, 0, 64, 5),
    ]
    look._free_blocks()
    assert look.heap.kept == {"bins": 130, "sparse": 50, "empty": 7}
    assert look.heap.returnable == 20 and look.heap.sparse_sizes == {64: 50}


def test_a_zone_of_any_size_is_read_in_time() -> None:
    """As a process shows it that executes another program meanwhile."""
    look = inspection._Look.__new__(inspection._Look)
    look.p = inspection.Process.__new__(inspection.Process)
    look.p.pid, look.p.bias, look.p.memory = 1, 0, -1
    look.p.mappings = [inspection.Mapping(0, 1 << 31, 0, 0, "", 0)]
    look.p.layout = inspection.Layout(
        {"hak_page_map": (0, 8)},
        {f"hak_page_map.{name}": (0, 8) for name in ("descriptors", "rotation", "mask")},
        {"superslab_lg": 21, "sizeof.hak_slab": 128},
    )
    look.resident = inspection.Residence.__new__(inspection.Residence)
    look.resident.parts = [(0, 1 << 21, bytes(512))]
    look._zone(1 << 20, 1 << 63)


def test_no_process(hakmem: Hakmem) -> None:
    assert "there is no process 4194999" in hakmem("causes", "4194999").err


HEAPS = [
    {"name": "small", "live_bytes": 1040000, "blocks": 7, "held_bytes": 1048576, "peak_bytes": 1048576,
     "limit_bytes": 1048576},
    {"name": "", "live_bytes": 10, "blocks": 1, "held_bytes": 8388608, "peak_bytes": 16777216, "limit_bytes": 0},
]  # fmt: skip


def test_heaps_of_a_program(hakmem: Hakmem, tmp_path: Path) -> None:
    path = tmp_path / "stats.json"
    path.write_text(json.dumps(STATS | {"heaps": HEAPS}))
    said = " ".join(hakmem("causes", path).out.split())
    assert "Heaps of the program 2 heaps hold 9.00 MiB of pages" in said
    assert "(no name) 8.00 MiB held, 10 B live in 1 block, at most 16.0 MiB." in said
    assert "small 1.00 MiB held, 1016 KiB live in 7 blocks, at most 1.00 MiB, limit 1.00 MiB: at its limit." in said
    assert said.index("(no name)") < said.index("small")
    path.write_text(json.dumps(STATS | {"heaps": HEAPS[:1]}))
    assert "1 heap holds 1.00 MiB of pages" in " ".join(hakmem("causes", path).out.split())


MAKES_HEAPS = """
import ctypes, time
hakmem = ctypes.CDLL(None)
hakmem.hakmem_heap_new.restype = hakmem.hakmem_heap_malloc.restype = ctypes.c_void_p
options = (ctypes.c_void_p * 8)(ctypes.cast(ctypes.c_char_p(b"a tenant"), ctypes.c_void_p), 1 << 30)
heap = ctypes.c_void_p(hakmem.hakmem_heap_new(options))
for size in [1000] * 5000 + [3000000]:
    ctypes.memset(hakmem.hakmem_heap_malloc(heap, size), 1, size)
print("ready", flush=True)
time.sleep(60)
"""


@pytest.mark.library
def test_heaps_of_a_running_process(real_library: Path) -> None:
    environment = clean_environment() | {"LD_PRELOAD": str(real_library)}
    with subprocess.Popen(
        [sys.executable, "-c", MAKES_HEAPS], env=environment, stdout=subprocess.PIPE, text=True
    ) as child:
        try:
            assert child.stdout and child.stdout.readline() == "ready\n"
            heap = inspection.look(child.pid)
        finally:
            child.kill()
    (row,) = heap.program_heaps
    assert (row.name, row.limit_bytes) == ("a tenant", 1 << 30)
    assert 5001 <= row.blocks < 5050 and 8000000 <= row.live_bytes <= row.held_bytes < 9500000
    assert heap.live >= 8000000 and any("a tenant" in line for line in heap.lines())
