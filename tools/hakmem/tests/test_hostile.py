# SPDX-License-Identifier: MIT
"""Files and processes that contain anything: each reader gives a result or a Problem, in bounded time and memory.

The mutants are drawn with a seed; HOSTILE_SEED draws others, HOSTILE_MUTANTS more.
"""

from __future__ import annotations

import json
import os
import random
import resource
import shutil
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from conftest import HERE, Hakmem, clean_environment

from hakmem_workbench import elf, explain, flame, heapprofile, inspection, ldtrace, pprof, running, statsfile, symbols
from hakmem_workbench.commands import export
from hakmem_workbench.errors import Problem

SEED = int(os.environ.get("HOSTILE_SEED", "1"))
MUTANTS = int(os.environ.get("HOSTILE_MUTANTS", "60"))
REPLAYER = HERE.parents[1] / "trace"
EXTREMES = (0, 1, 2, 7, 63, 127, 255, 4095, 2**31 - 1, 2**32 - 1, 2**40, 2**48, 2**62, 2**63, 2**64 - 1)
ESCAPES = b"\x1b]0;owned\x07\x1b[2J\x9b31m\r\xe2\x80\xae"


def mutants(data: bytes, number: int = MUTANTS) -> Iterator[bytes]:
    """Words and bytes replaced, mostly near the beginning; cut off; with parts doubled, exchanged or of noise."""
    draw = random.Random(SEED)
    yield b""
    for _ in range(number):
        mutant = bytearray(data)
        for _ in range(draw.choice((1, 1, 2, 5, 20))):
            end = max(draw.choice((64, 256, 4096, len(mutant))), 1)
            at = draw.randrange(min(end, len(mutant)) or 1)
            kind = draw.randrange(7)
            if kind < 3:
                at &= ~7
                mutant[at : at + 8] = struct.pack("=Q", draw.choice(EXTREMES))
            elif kind == 3:
                mutant[at : at + 4] = struct.pack("=I", draw.choice(EXTREMES) & 0xFFFFFFFF)
            elif kind == 4:
                mutant[at : at + 1] = bytes((draw.randrange(256),))
            elif kind == 5:
                mutant[at : at + len(ESCAPES)] = ESCAPES
            else:
                mutant[at:] = draw.choice((b"", mutant[at:][::-1], mutant[:at]))
        yield bytes(mutant)


def all_bounded(files: list[bytes], path: Path, read: Callable[[str], object]) -> None:
    """In a process of its own, whose memory counts: at most ten times the largest file more than at its start."""
    child = os.fork()
    if child == 0:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for number, data in enumerate(files):
            path.write_bytes(data)
            try:
                read(str(path))
            except Problem as problem:
                if "\n" in problem.line:
                    os._exit(2)
            except BaseException:
                shutil.copy(path, f"{path}.{number}.failed")
                sys.excepthook(*sys.exc_info())
                os._exit(3)
        more = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before << 10
        print(f"{more >> 20} MiB for {max(map(len, files)) >> 10} KiB")
        sys.stdout.flush()
        os._exit(4 if more > 10 * max(map(len, files)) + (16 << 20) else 0)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0


@pytest.fixture(scope="module")
def profile(real_library: Path, compiled: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A small one: its unused entries and frames are left out."""
    folder = tmp_path_factory.mktemp("profile")
    observer = real_library.parents[1] / "tools" / "profile" / heapprofile.OBSERVER
    if not observer.exists():
        pytest.skip("no libhakmem-profile.so was built")
    environment = clean_environment() | {"LD_PRELOAD": f"{observer}:{real_library}", "HAKMEM_PROFILE": "4000000"}
    environment |= {"HAKMEM_PROFILE_FILE": f"{folder}/file"}
    subprocess.run([compiled("profiled", "-O1", "-g", "-pthread")], env=environment, check=True)
    data = (folder / "file").read_bytes()
    head = list(heapprofile.HEADER.unpack_from(data))
    starts = (4096 + heapprofile.ENTRY.size * i for i in range(head[7]))
    used = [data[at : at + heapprofile.ENTRY.size] for at in starts if any(data[at : at + 8])]
    frames = data[head[8] : head[8] + 8 * head[10]]
    maps = data[head[11] : head[11] + head[13]]
    head[6], head[7], head[8], head[9] = heapprofile.HEADER.size, len(used), 0, head[10]
    head[8] = head[6] + heapprofile.ENTRY.size * len(used)
    head[17], head[18] = head[8] + len(frames), 1
    head[11], head[12] = head[17] + heapprofile.HEAP.size, len(maps)
    heap = heapprofile.HEAP.pack(1, b"a heap" + ESCAPES)
    return heapprofile.HEADER.pack(*head) + b"".join(used) + frames + heap + maps


def test_profiles(profile: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(symbols, "_addr2line", lambda path, addresses: None)

    def read(path: str) -> None:
        found = heapprofile.load(path)
        named = symbols.Symbols(found.mappings, found.addresses)
        pprof.encode(found, named)
        flame.page("title", found, named)

    read_one = tmp_path / "one"
    read_one.write_bytes(profile)
    assert heapprofile.load(read_one).total.samples
    all_bounded(list(mutants(profile)), tmp_path / "profile", read)


def test_a_profile_is_shown_without_escapes(hakmem: Hakmem, profile: bytes, tmp_path: Path) -> None:
    """The line of each mapping names a file; a pipe there lets nobody wait."""
    os.mkfifo(tmp_path / "pipe")
    head = heapprofile.HEADER.unpack_from(profile)
    maps = b"0000-ffffffffffffffff r-xp 0 0:0 0 %s/pipe\n" % os.fsencode(tmp_path)
    file = tmp_path / "profile"
    for text in maps, maps.replace(b"/pipe", b"/" + ESCAPES), b"0-ffffffffffffffff r-xp 0 0:0 0 [" + ESCAPES + b"]\n":
        data = bytearray(profile[: head[11]] + text)
        struct.pack_into("=QQQ", data, 88, head[11], len(text), len(text))
        file.write_bytes(data)
        done = hakmem("profile", file)
        assert done.code == 0 and "sample" in done.out, done.text
        assert not {*"\x1b\x9b\x07\r\u202e"} & {*done.text}


def test_statistics(real_library: Path, tmp_path: Path) -> None:
    file = tmp_path / "stats"
    environment = clean_environment() | {"LD_PRELOAD": str(real_library), "HAKMEM_STATS": "json"}
    environment |= {"HAKMEM_STATS_FILE": str(file)}
    subprocess.run(["/bin/ls", "/"], env=environment, stdout=subprocess.DEVNULL, check=True)
    data = file.read_bytes()
    draw = random.Random(SEED)
    numbers = (b"1e999", b"-1", b"null", b"[]", b"{}", b'"\\u001b"', b"[" * 5000, b"9" * 5000, b"true", b"1e308")
    more = []
    for _ in range(MUTANTS):
        words = data.split(b" ")
        for _ in range(draw.choice((1, 5))):
            words[draw.randrange(len(words))] = draw.choice(numbers) + draw.choice((b",\n", b""))
        more.append(b" ".join(words))

    def read(path: str) -> None:
        explain.explain(statsfile.load(Path(path)))
        export._of_file(Path(path))

    assert statsfile.load(file).settings
    all_bounded([*mutants(data, MUTANTS // 4), *more], tmp_path / "mutant", read)


def test_libraries(real_library: Path, tmp_path: Path) -> None:
    """Their ELF structures, and the records of the layout."""
    stripped = tmp_path / "library"
    subprocess.run(["strip", "-o", stripped, real_library], check=True)
    data = stripped.read_bytes()
    assert inspection.layout(str(stripped)).variables  # type: ignore[union-attr]
    start = data.index(b"variable ")

    def read(path: str) -> None:
        for work in (elf.read, inspection.layout, elf.functions, elf.first_address, elf.segments):
            try:
                work(path)
            except elf.NotElf:
                pass
        try:
            elf.objects(path, "hak_")
        except elf.NotElf:
            pass

    records = [data[:start] + mutant for mutant in mutants(data[start:], MUTANTS // 4)]
    headers = [mutant + data[-4096:] for mutant in mutants(data[-4096:], 1)]
    tail = [data[:-2048] + mutant for mutant in mutants(data[-2048:], MUTANTS // 4)]
    all_bounded([*mutants(data, MUTANTS // 4), *records, *headers, *tail], tmp_path / "mutant", read)


class Lying(inspection.Process):
    """A process whose memory is partly noise: of each read, now and then, some words are extreme."""

    draw = random.Random(SEED)
    chance = 0.02

    def read(self, address: int, size: int) -> bytes:
        data = bytearray(super().read(address, size))
        for at in range(0, len(data) - 7, 8):
            if self.draw.random() < self.chance:
                value = self.draw.choice((*EXTREMES, self.draw.getrandbits(48)))
                data[at : at + 8] = struct.pack("=Q", value)
        return bytes(data)


def test_processes(real_library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    environment = clean_environment() | {"LD_PRELOAD": str(real_library)}
    with subprocess.Popen(["cat"], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin and process.stdout
        process.stdin.write(b"ready\n")
        process.stdin.flush()
        process.stdout.readline()
        assert inspection.look(process.pid).os_calls

        def read(path: str) -> None:
            Lying.chance = Lying.draw.choice((0.0003, 0.003, 0.03))
            inspection.look(process.pid).lines()
            with running.of(process.pid) as settings:
                settings.settings()

        monkeypatch.setattr(inspection, "Process", Lying)
        monkeypatch.setattr(inspection, "_MOST_READS", 1 << 14)
        all_bounded([b"x" * (1 << 20)] * MUTANTS, tmp_path / "unused", read)
        process.stdin.close()


def test_reports_of_the_linker(tmp_path: Path) -> None:
    environment = clean_environment() | ldtrace.environment(tmp_path)
    subprocess.run(["/bin/ls", "/"], env=environment, stdout=subprocess.DEVNULL, check=True)
    data = next(tmp_path.glob("ld.*")).read_bytes()
    assert ldtrace.linkages(tmp_path)
    folder = tmp_path / "mutants"
    folder.mkdir()
    all_bounded([*mutants(data, MUTANTS // 4)], folder / "ld.1", lambda path: ldtrace.linkages(folder))


def test_traces(real_library: Path, tmp_path: Path) -> None:
    """The replayer, under sanitizers, refuses them or makes a plan."""
    compiler = shutil.which("cc")
    recorder = real_library.parents[1] / "tools" / "trace" / "libhakmem-trace.so"
    if not compiler or not recorder.exists():
        pytest.skip("no compiler, or no recorder was built")
    program, file = tmp_path / "replay", tmp_path / "trace"
    flags = ("-O1", "-g", "-pthread", "-D_GNU_SOURCE", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
    subprocess.run([compiler, *flags, "-o", program, REPLAYER / "plan.c", REPLAYER / "replay.c"], check=True)
    environment = clean_environment() | {"LD_PRELOAD": str(recorder), "HAKMEM_TRACE": str(file)}
    subprocess.run(["/bin/ls", "/"], env=environment, stdout=subprocess.DEVNULL, check=True)
    data = file.read_bytes()
    plan = tmp_path / "plan"
    good = subprocess.run([program, "--plan", file, plan], capture_output=True, check=True)
    assert json.loads(good.stdout)["steps"]
    header = data[:136]
    begin = struct.unpack_from("=I", data, 12)[0]
    headers = [mutant + data[len(mutant) : begin + 8192] for mutant in mutants(header, MUTANTS // 3)]
    events = [data[:begin] + mutant for mutant in mutants(data[begin : begin + 8192], MUTANTS // 3)]
    for number, mutant in enumerate([*headers, *events]):
        file.write_bytes(mutant)
        done = subprocess.run(
            [program, "--plan", file, plan], capture_output=True, text=True, errors="replace", timeout=60, check=False
        )
        refused = done.returncode == 2 and done.stderr.startswith("hakmem-replay: ") and done.stderr.count("\n") == 1
        assert refused or (done.returncode == 0 and json.loads(done.stdout)), (number, done)
