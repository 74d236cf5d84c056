# SPDX-License-Identifier: MIT
"""`hakmem record` and `hakmem replay`: the replay repeats the record, block by block. `Decoder` implements
docs/trace-format.md independently, and computes live bytes itself.
"""

import gzip
import os
import re
import shutil
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from conftest import Hakmem, clean_environment

from hakmem_workbench import trace
from hakmem_workbench.errors import Problem
from hakmem_workbench.library import Library, at, beside
from hakmem_workbench.variants import parse

Compiled = Callable[..., Path]
LINE = re.compile(r"hakmem: (\S+) \(\d+\): .* calls? of (\S+) threads? .* in (\S+) \(")


@dataclass
class Decoder:
    """The events of a trace in their order, and live bytes after each tenth of them."""

    data: bytes
    events: dict[int, tuple[int, ...]] = field(default_factory=dict)
    threads: set[int] = field(default_factory=set)
    at: int = 0

    def varint(self) -> int:
        value = shift = 0
        while True:
            byte = self.data[self.at]
            self.at += 1
            value |= (byte & 127) << shift
            if byte < 128:
                return value
            shift += 7

    def address(self, before: int) -> int:
        value = self.varint()
        return (before + (value >> 1 ^ -(value & 1))) & (1 << 61) - 1

    def read(self) -> "Decoder":
        magic, version, header, chunk = struct.unpack_from("<8sIII", self.data)
        assert magic == b"HAKTRACE" and version == 1
        for start in range(header, len(self.data), chunk):
            self.chunk(start, start + chunk)
        return self

    def chunk(self, start: int, end: int) -> None:
        thread, _, number, moment, address = struct.unpack_from("<IIQQQ", self.data, start)
        self.at = start + 32
        while self.at < end and self.data[self.at]:
            first = self.data[self.at]
            self.at += 1
            if first & 7 == 6:
                thread, _ = self.varint(), self.varint()
                continue
            self.threads.add(thread)
            number += 1 if first & 8 else self.varint()
            moment += self.varint()
            op, size = first & 7, 0
            if op == 5:
                began = number - self.varint()
                address = self.address(address)
                self.events[began] = (8, thread, address, 0)
            if op == 3:
                assert self.varint() < 48
            if op != 4:
                size = self.varint()
            address = self.address(address)
            self.events[number] = (op, thread, address, size)

    def live(self) -> list[int]:
        """After each tenth of the calls; a free of an unknown block does not count."""
        known: dict[int, int] = {}
        resized: dict[int, int | None] = {}
        total, totals = 0, []
        for _, (op, thread, address, size) in sorted(self.events.items()):
            if op == 7 or (op == 4 and address not in known):
                continue
            if op == 8:
                resized[thread] = known.pop(address, None)
                continue
            if op == 4:
                total -= known.pop(address)
            else:
                total += size - (resized.pop(thread, 0) or 0 if op == 5 else 0)
                known[address] = size
            totals.append(total)
        return [totals[len(totals) * tenth // 10 - 1] for tenth in range(1, 11)]


@pytest.fixture(scope="module")
def kit(real_library: Path) -> Library:
    """The library, if recorder and replayer were built with it."""
    found = at(real_library, "under test")
    try:
        for name in (trace.RECORDER, trace.REPLAYER):
            beside(found, name)
    except Problem as problem:
        pytest.skip(problem.sentence)
    return found


def check(kit: Library, path: Path, folder: Path) -> trace.Facts:
    """Under each allocator, a replay has the trace's live bytes after each tenth."""
    replayer = beside(kit, trace.REPLAYER)
    with trace.expanded(path, folder) as plain:
        decoder = Decoder(plain.read_bytes()).read()
        facts = trace.facts_of(replayer, plain, folder / "plan")
    assert facts.lost == 0 and facts.implied == 0
    assert facts.threads == len(decoder.threads)
    assert list(facts.live) == decoder.live()
    for spec in ("hakmem", "system"):
        variant = parse(spec, kit.path)
        outcome = trace.carry_out(replayer, folder / "plan", variant.assignments())
        assert outcome.recorded == outcome.live == facts.live, spec
    return facts


def test_two_threads_that_hand_over(
    hakmem: Hakmem, kit: Library, compiled: Compiled, tmp_path: Path
) -> None:
    """Each tenth has the recorded bytes; the last one those that the program counted itself."""
    program = compiled("hand_over", "-pthread")
    for under in ("hakmem", "system"):
        path = tmp_path / f"{under}.trace.gz"
        words = ("--library", kit.path, "--under", under, "-o", path)
        done = hakmem("record", *words, "--", program, "8000")
        assert done.code == 0, done.text
        match = LINE.search(done.err)
        assert match and match[2] == "2", done.err
        facts = check(kit, path, tmp_path)
        # Besides its blocks, the thread's own tables are live, which the C library allocates.
        assert 0 <= facts.live[-1] - int(done.out) < 4096
        assert facts.peak >= 8 << 20
        resident = trace.carry_out(
            beside(kit, trace.REPLAYER), tmp_path / "plan", parse("system").assignments()
        )
        assert resident.max_rss < 8 << 20  # of the 8 MiB the program touched one


def test_cpython(hakmem: Hakmem, kit: Library, tmp_path: Path) -> None:
    """A forked child has a trace of its own; the frees of its parent's blocks are left out."""
    script = (
        "import json, os, threading\n"
        "def work():\n"
        "    for n in range(40): json.loads(json.dumps({str(i): [i] * (n % 9) for i in range(50)}))\n"
        "threads = [threading.Thread(target=work) for _ in range(2)]\n"
        "[t.start() for t in threads]; [t.join() for t in threads]\n"
        "if not os.fork():\n"
        "    kept = [str(n) for n in range(2000)]; os._exit(0)\n"
        "os.wait()"
    )
    path = tmp_path / "python.trace"
    done = hakmem(
        *("record", "--library", kit.path, "--all", "-o", path, "--"),
        *("/usr/bin/env", "PYTHONMALLOC=malloc", sys.executable, "-c", script),
    )
    assert done.code == 0, done.text
    facts = check(kit, path, tmp_path)
    assert facts.threads == 3 and facts.steps > 20000
    others = [p for p in tmp_path.glob("python-*.trace") if p != path]
    replayer = beside(kit, trace.REPLAYER)
    children = [f for f in (trace.facts_of(replayer, p) for p in others) if f.parent == facts.pid]
    assert len(children) == 1 and 2000 < children[0].steps < facts.steps


def commands() -> Iterator[bytes]:
    for number in range(6000):
        key = f"key{number * 7919 % 1500}"
        value = "v" * (number * 31 % 400)
        for words in (("SET", key, value), ("LPUSH", f"list{number % 50}", value), ("DEL", key)):
            if words[0] == "DEL" and number % 3:
                continue
            line = "".join(f"${len(word)}\r\n{word}\r\n" for word in words)
            yield f"*{len(words)}\r\n{line}".encode()


def send_to_redis(path: str) -> None:
    client = socket.socket(socket.AF_UNIX)
    for _ in range(600):
        try:
            client.connect(path)
            break
        except OSError:
            time.sleep(0.05)
    client.settimeout(60)
    sent = list(commands())
    for start in range(0, len(sent), 500):
        part = sent[start : start + 500]
        client.sendall(b"".join(part))
        lines = b""
        while lines.count(b"\r\n") < len(part):
            lines += client.recv(65536)
    client.sendall(b"SHUTDOWN NOSAVE\r\n")
    client.close()


@pytest.mark.skipif(not shutil.which("redis-server"), reason="no redis")
def test_redis(kit: Library, tmp_path: Path) -> None:
    from conftest import TOOL

    path, door = tmp_path / "redis.trace.gz", f"/tmp/hakmem-redis-{os.getpid()}"
    words = [sys.executable, TOOL, "record", "--library", kit.path, "-o", path, "--"]
    words += ["redis-server", "--port", "0", "--unixsocket", door, "--save", ""]
    with subprocess.Popen(
        words, env=clean_environment(), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            send_to_redis(door)
            _, err = process.communicate(timeout=100)
        except BaseException:
            process.terminate()
            raise
    assert process.returncode == 0, err
    assert "redis-server" in err
    assert check(kit, path, tmp_path).steps > 20000


def test_ranks_in_their_quick_form(kit: Library) -> None:
    """The section of docs/trace-format.md comes from the whole of it, which takes minutes."""
    script = Path(__file__).parents[2] / "replay_ranks.py"
    if not script.exists() or not shutil.which("cc"):
        pytest.skip("needs the checkout and compilers")
    words = [sys.executable, script, Path(kit.path).parents[1], "--quick"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    found = re.fullmatch(r"two threads: CPU time (-?[01]\.\d\d), peak memory (-?[01]\.\d\d)\n", done.stdout)
    assert found and all(abs(float(value)) <= 1 for value in found.groups()), done.stderr


def test_what_it_tells(hakmem: Hakmem, kit: Library, tmp_path: Path, compiled: Compiled) -> None:
    path = tmp_path / "ls.trace.gz"
    where = ("--library", kit.path)
    done = hakmem("record", *where, "-o", path, "--", "sh", "-c", "ls /; exit 3")
    assert done.code == 3 and "--all keeps them too" in done.err
    shown = hakmem("replay", *where, path)
    assert shown.code == 0 and len(re.findall(r"^ +\d+0 %", shown.out, re.MULTILINE)) == 10
    few = ("--runs", "1", "-w", "0", "--no-files", "--no-syscalls", "-q", "--memory-runs", "1")
    compared = hakmem("replay", *where, *few, path, "system", "hakmem")
    assert compared.code == 0 and "hakmem-replay" in compared.out, compared.text


def test_mistakes(hakmem: Hakmem, kit: Library, tmp_path: Path) -> None:
    where = ("--library", kit.path)
    for name, data in (("text", b"no trace"), ("cut", b"\x1f\x8b\x08"), ("head", b"HAKTRACE" * 99)):
        (tmp_path / name).write_bytes(data)
        done = hakmem("replay", *where, tmp_path / name)
        assert done.code == 2 and len(done.err.splitlines()) == 1, done.text
    done = hakmem("record", *where, "-o", tmp_path / "none" / "t", "--", "ls")
    assert done.code == 2 and "none" in done.err


def recorded(kit: Library, pattern: Path, command: list[str], **more: object) -> str:
    environment = clean_environment() | {
        "LD_PRELOAD": f"{beside(kit, trace.RECORDER)}:{kit.path}",
        "HAKMEM_TRACE": str(pattern),
    }
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=True, **more
    )  # type: ignore[call-overload]
    return str(done.stderr)


def test_a_full_disk_loses_and_counts(kit: Library, tmp_path: Path) -> None:
    """Under a limit on the size of files the trace is truncated, complete up to there, and says so."""
    script = "kept = [bytes(n % 90) for n in range(60000)]"
    command = ["sh", "-c", f"ulimit -f 400; PYTHONMALLOC=malloc exec {sys.executable} -c '{script}'"]
    pattern = tmp_path / "full.%p"
    assert recorded(kit, pattern, command) == ""
    replayer = beside(kit, trace.REPLAYER)
    facts = [trace.facts_of(replayer, path) for path in sorted(tmp_path.glob("full.*"))]
    (cut,) = [one for one in facts if one.lost]
    assert cut.steps > 10000 and cut.lost > 10000
    assert max(path.stat().st_size for path in tmp_path.glob("full.*")) <= 400 * 512


# Processes that leave a trace, threads of the child, and events that are lost in it, at least and at most: 20 pairs of
# malloc and free, and what pthread_create allocates in the thread that has the lock.
LOCKED = {
    "handler": (2, 1, 40, 40),
    "chunk": (2, 1, 40, 40),
    "fork": (3, 1, 0, 0),
    "wait": (2, 2, 0, 9),
    "stuck": (2, 1, 40, 49),
}


@pytest.mark.parametrize("mode", LOCKED)
def test_nobody_waits_without_end(
    kit: Library, compiled: Compiled, tmp_path: Path, mode: str
) -> None:
    """Events that would wait for their own thread, or for one that holds the recorder's lock, are lost and counted."""
    program = compiled("trace_lock", "-pthread", "-rdynamic")
    processes, threads, least, most = LOCKED[mode]
    said = recorded(kit, tmp_path / "%p", [str(program), mode], timeout=100)
    assert said == ""
    replayer = beside(kit, trace.REPLAYER)
    facts = {one.pid: one for one in (trace.facts_of(replayer, path) for path in tmp_path.iterdir())}
    assert len(facts) == processes
    (child,) = [one for one in facts.values() if one.parent in facts and facts[one.parent].parent not in facts]
    assert least <= child.lost <= most and child.threads == threads and child.steps >= 40
    assert sum(one.lost for one in facts.values()) == child.lost


def test_a_name_that_is_taken(kit: Library, tmp_path: Path) -> None:
    pattern = tmp_path / "same"
    for _ in range(3):
        assert recorded(kit, pattern, ["/bin/ls", "/"]) == ""
    assert sorted(path.name for path in tmp_path.iterdir()) == ["same", "same.1", "same.2"]
    said = recorded(kit, tmp_path / "no" / "folder", ["/bin/ls", "/"])
    assert len(said.splitlines()) == 1 and "cannot be created" in said


def test_without_the_recorder(kit: Library) -> None:
    environment = clean_environment() | {"LD_PRELOAD": kit.path, "HAKMEM_TRACE": "/tmp/t"}
    done = subprocess.run(
        ["/bin/ls", "/"], env=environment, capture_output=True, text=True, check=True
    )
    assert len(done.stderr.splitlines()) == 1 and "HAKMEM_TRACE has no effect" in done.stderr


def test_compressed_by_others(kit: Library, tmp_path: Path) -> None:
    recorded(kit, tmp_path / "t", ["/bin/ls", "/"])
    (tmp_path / "t.gz").write_bytes(gzip.compress((tmp_path / "t").read_bytes()))
    names = ["t", "t.gz"]
    if shutil.which("zstd"):
        subprocess.run(["zstd", "-q", tmp_path / "t", "-o", tmp_path / "t.zst"], check=True)
        names.append("t.zst")
    for name in names:
        check(kit, tmp_path / name, tmp_path)
