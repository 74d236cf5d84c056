# SPDX-License-Identifier: MIT
"""The heap profile, on programs whose memory is known (programs/profiled.c)."""

from __future__ import annotations

import gzip
import json
import lzma
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import TOOL, Hakmem, clean_environment

from hakmem_workbench import elf, heapprofile, library
from hakmem_workbench.errors import Problem
from hakmem_workbench.heapprofile import HeapProfile
from hakmem_workbench.symbols import Frame, Symbols, jit_functions

MEAN = 4096  # some 6000 samples of 24 MB: 10 % are seven deviations


@pytest.fixture(scope="session")
def observer(real_library: Path) -> Path:
    try:
        return Path(library.beside(library.at(real_library, "test"), heapprofile.OBSERVER))
    except Problem as problem:
        pytest.skip(problem.sentence)


@pytest.fixture(scope="session")
def profiled(compiled: Callable[..., Path]) -> Path:
    flags = ("-O1", "-g", "-pthread", "-fno-omit-frame-pointer", "-fno-optimize-sibling-calls")
    return compiled("profiled", *flags)


def live(profile: HeapProfile, function: str, caller: str = "", kind: str = "live_bytes") -> float:
    """Bytes of all stacks that go through both."""
    symbols = Symbols(profile.mappings, profile.addresses)
    found = 0.0
    for (stack, _), amount in profile.sites.items():
        names = {frame.function for at in stack for frame in symbols.frames[at]}
        if function in names and (not caller or caller in names):
            found += getattr(amount, kind)
    return found


@pytest.mark.parametrize("unwind", ["tables", "frames"])
def test_a_known_program(
    hakmem: Hakmem, real_library: Path, observer: Path, profiled: Path, tmp_path: Path, unwind: str
) -> None:
    words = ("--mean", str(MEAN), "--library", str(real_library), "-o", str(tmp_path / "known"))
    done = hakmem("profile", *words, *(["--frames"] * (unwind == "frames")), "--", profiled)
    assert done.code == 0, done.text
    profile = heapprofile.load(tmp_path / "known.hakprof")
    assert profile.lost == 0
    assert live(profile, "keeps", "main") == pytest.approx(24e6, rel=0.1)
    assert live(profile, "keeps", "threads_own") == pytest.approx(6e6, rel=0.2)
    assert live(profile, "grows", "main") == pytest.approx(8e6, rel=0.01)
    assert live(profile, "drops") == 0
    assert profile.total.all_bytes == pytest.approx(24e6 + 6e6 + 48e6 + 36e6, rel=0.1)
    never_freed = re.search(r"never freed: (\d+\.\d) MiB", done.out)
    assert never_freed and float(never_freed[1]) * 2**20 == pytest.approx(38e6, rel=0.1), done.out
    assert "keeps  profiled.c:" in done.out
    page = (tmp_path / "known.html").read_text()
    assert '"n":"keeps"' in page.replace(" ", "") and "http:" not in page
    assert gzip.decompress((tmp_path / "known.pb.gz").read_bytes())


def test_a_program_that_contains_it(
    hakmem: Hakmem, real_library: Path, observer: Path, compiled: Callable[..., Path], tmp_path: Path
) -> None:
    """Linked with libhakmem-profile.a: nothing can be preloaded, all else is the same."""
    linked = ("-Wl,-u,malloc", str(observer.parent / "libhakmem-profile.a"), "-lm")
    program = compiled("profiled", "-O1", "-g", "-pthread", "-static", *linked, "-fno-optimize-sibling-calls")
    words = ("--mean", str(MEAN), "--library", str(real_library), "-o", str(tmp_path / "known"))
    done = hakmem("profile", *words, "--", program)
    assert done.code == 0 and "keeps  profiled.c:" in done.out, done.text
    profile = heapprofile.load(tmp_path / "known.hakprof")
    assert live(profile, "keeps", "main") == pytest.approx(24e6, rel=0.1)
    assert live(profile, "keeps", "threads_own") == pytest.approx(6e6, rel=0.2)
    assert live(profile, "drops") == 0
    with subprocess.Popen([program, "wait"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin and process.stdout and process.stdout.readline() == b"ready\n"
        assert hakmem("profile", "--on", "--mean", str(MEAN), str(process.pid)).code == 0
        process.stdin.write(b"go on")  # five times 12 MB
        process.stdin.flush()
        until = time.monotonic() + 60
        while heapprofile.of_process(process.pid).total.live_bytes < 50e6 and time.monotonic() < until:
            time.sleep(0.05)
        assert "keeps  profiled.c:" in hakmem("profile", str(process.pid)).out
        process.stdin.close()


def test_a_program_that_cannot_have_one(
    hakmem: Hakmem, real_library: Path, observer: Path, compiled: Callable[..., Path]
) -> None:
    for said, flags in (
        ("is statically linked", ("-static",)),
        ("contains a hakmem without the profile", ("-Wl,-u,malloc", str(real_library.parent / "libhakmem.a"))),
    ):
        program = compiled("profiled", "-pthread", *flags)
        done = hakmem("profile", "--library", str(real_library), "--", program)
        assert done.code == 2 and said in done.err and "libhakmem-profile.a" in done.err


def test_each_block_without_preload(observer: Path, compiled: Callable[..., Path], tmp_path: Path) -> None:
    """With a shared C library."""
    linked = ("-Wl,-u,malloc", str(observer.parent / "libhakmem-profile.a"), "-lm")
    program = compiled("profile_calls", "-O1", "-pthread", *linked)
    each_block(program, clean_environment(), tmp_path)


def test_pprof_agrees(
    hakmem: Hakmem, real_library: Path, observer: Path, profiled: Path, tmp_path: Path
) -> None:
    go = shutil.which("go") or shutil.which("go", path="/usr/local/go/bin")
    if not go:
        pytest.skip("no go, whose pprof reads the file")
    name = str(tmp_path / "known")
    words = ("--mean", str(MEAN), "--library", str(real_library), "-o", name)
    assert hakmem("profile", *words, "--", profiled).code == 0
    profile = heapprofile.load(f"{name}.hakprof")
    said = subprocess.run(
        [go, "tool", "pprof", "-top", "-unit=B", f"{name}.pb.gz"],
        env=clean_environment() | {"PPROF_TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=600,
        check=True,
    ).stdout
    assert "Type: inuse_space" in said
    flat = {line.split()[-1]: line.split()[0] for line in said.splitlines() if line.endswith(("keeps", "grows"))}
    for function in "keeps", "grows":
        assert float(flat[function].removesuffix("B")) == pytest.approx(live(profile, function), rel=1e-3)


def test_a_file_that_was_replaced_has_no_names(
    hakmem: Hakmem, real_library: Path, observer: Path, profiled: Path, tmp_path: Path
) -> None:
    """As after an upgrade: the names would be those of another program."""
    program, file = tmp_path / "program", tmp_path / "profile"
    shutil.copy(profiled, program)
    environment = _environment(real_library, observer) | {"HAKMEM_PROFILE_FILE": str(file)}
    subprocess.run([program], env=environment, check=True)
    assert "    keeps  profiled.c:" in hakmem("profile", str(file)).out
    program.unlink()
    shutil.copy(profiled, program)
    said = hakmem("profile", str(file)).out
    assert "keeps" not in said and "    program+0x" in said


def test_a_forked_child_has_its_own(
    real_library: Path, observer: Path, profiled: Path, tmp_path: Path
) -> None:
    environment = _environment(real_library, observer) | {"HAKMEM_PROFILE_FILE": f"{tmp_path}/%p"}
    subprocess.run([profiled, "fork"], env=environment, check=True)
    first, second = sorted((heapprofile.load(path) for path in tmp_path.iterdir()), key=lambda p: p.started_ns)
    assert live(first, "keeps", "main") == pytest.approx(24e6, rel=0.1)
    assert live(second, "keeps", "main") == pytest.approx(12e6, rel=0.2)
    assert live(second, "grows") == pytest.approx(8e6, rel=0.01)


def test_children_take_samples_of_their_own(
    real_library: Path, observer: Path, compiled: Callable[..., Path], tmp_path: Path
) -> None:
    """Some 76 each, of 5 MB: 15 % are five deviations of their sum,."""
    environment = _environment(real_library, observer) | {"HAKMEM_PROFILE": "65536"}
    program = compiled("forks", "-O1", "-g")
    subprocess.run([program], env=environment | {"HAKMEM_PROFILE_FILE": f"{tmp_path}/%p"}, check=True)
    profiles = [one for path in tmp_path.iterdir() if (one := heapprofile.load(path)).sites]
    assert len(profiles) == 16 and len({live(one, "leaks") for one in profiles}) > 4
    assert sum(live(one, "leaks") for one in profiles) == pytest.approx(80e6, rel=0.15)


def test_the_peak(
    hakmem: Hakmem, real_library: Path, observer: Path, compiled: Callable[..., Path], tmp_path: Path
) -> None:
    """What lived when most did, though little of it lives at the end."""
    program = compiled("peaks", "-O1", "-g", "-fno-optimize-sibling-calls")
    words = ("--mean", str(MEAN), "--library", str(real_library), "-o", str(tmp_path / "peak"), "--peak", "-n", "1")
    done = hakmem("profile", *words, "--", program)
    profile = heapprofile.load(tmp_path / "peak.hakprof")
    assert live(profile, "hump") == 0 and live(profile, "stays") == pytest.approx(15e6, rel=0.15)
    assert live(profile, "hump", kind="peak_bytes") == pytest.approx(30e6, rel=0.1)
    assert live(profile, "stays", kind="peak_bytes") == pytest.approx(5e6, rel=0.2)
    assert re.search(r"^at its peak: 3\d\.\d MiB in ", done.out, re.MULTILINE), done.text
    assert "    hump  peaks.c" in done.out, done.text


def test_all_processes_are_kept(
    hakmem: Hakmem, real_library: Path, observer: Path, profiled: Path, tmp_path: Path
) -> None:
    """And merged by program, in files that agree; a difference has signs, and the same code at two addresses is the
    same.
    """
    words = ("--mean", str(MEAN), "--library", str(real_library), "-n", "1")
    command = ("sh", "-c", f"{profiled} fork; {profiled}; cat /dev/null")
    done = hakmem("profile", *words, "-o", str(tmp_path / "all"), "--", *command)
    assert done.code == 0, done.text
    title = re.search(f"^heap profile of 3 processes of {profiled.name} .*: ", done.out)
    assert title and title[0] in hakmem("profile", str(tmp_path / "all.hakprof")).out
    assert title[0][:-2] in (tmp_path / "all.html").read_text()
    assert re.search(r"^children share some 3\d\.\d MiB with their parents: it counts in each$", done.out, re.MULTILINE)
    stems = {path.name.removesuffix(".hakprof") for path in tmp_path.glob("*.hakprof")}
    assert "all" in stems and {path.name.removesuffix(".html") for path in tmp_path.glob("*.html")} == stems
    assert (tmp_path / "all.hakprof").stat().st_blocks * 512 < 30 << 20  # a third has no gaps
    profiles = heapprofile.load_all(tmp_path / "all.hakprof")
    assert {one.program for one in profiles} == {str(profiled)}
    first, child, second = sorted(profiles, key=lambda one: one.started_ns)
    assert live(heapprofile.load(tmp_path / "all.hakprof"), "keeps", "main") == pytest.approx(60e6, rel=0.1)
    difference = heapprofile.merged([second], [child])
    assert live(difference, "keeps", "main") == pytest.approx(12e6, rel=0.3)
    assert live(heapprofile.merged([child], [first]), "keeps", "main") == pytest.approx(-12e6, rel=0.3)
    done = hakmem("profile", *words, "-o", str(tmp_path / "one"), "--", profiled)
    assert done.code == 0 and "children" not in done.out, done.text
    done = hakmem("profile", "--base", str(tmp_path / "all.hakprof"), str(tmp_path / "one.hakprof"), "-n", "1")
    assert f", less that of 3 processes of {profiled.name}" in done.out
    assert re.search(r"^-2\d\.\d MiB  \d.*  -[\d\u202f]+ × 240 B$", done.out, re.MULTILINE), done.out


def test_files_come_first(
    hakmem: Hakmem, real_library: Path, observer: Path, profiled: Path, tmp_path: Path
) -> None:
    """Before the table, whose reader may leave; if they can't be written, the table remains. What is known to be wrong
    is said before the command runs.
    """
    words = ("profile", "--library", str(real_library))
    for wrong in ("-o", str(tmp_path / "none" / "x")), ("--base", str(tmp_path / "none")):
        done = hakmem(*words, *wrong, "--", "echo", "ran")
        assert done.code == 2 and not done.out and len(done.err.splitlines()) == 1, done.text
    (tmp_path / "x.html").mkdir()
    done = hakmem(*words, "-o", str(tmp_path / "x"), "--", profiled)
    assert done.code == 1 and "keeps  profiled.c" in done.out and len(done.err.splitlines()) == 1, done.text
    line = [sys.executable, TOOL, *words, "-o", tmp_path / "y", "--", profiled]
    unread, end = os.pipe()
    os.close(unread)
    subprocess.run(line, env=clean_environment(), stdout=end, stderr=subprocess.DEVNULL, check=False)
    os.close(end)
    assert {path.name for path in tmp_path.glob("y*")} == {"y.pb.gz", "y.html", "y.hakprof"}


def test_programs_without_samples(
    hakmem: Hakmem, real_library: Path, observer: Path, profiled: Path, tmp_path: Path
) -> None:
    """Their names are not known."""
    words = ("--mean", str(1 << 30), "--library", str(real_library), "-o", str(tmp_path / "all"))
    done = hakmem("profile", *words, "--", "sh", "-c", "cat /dev/null; cat /dev/null")
    assert done.code == 0 and "heap profile of process " in done.out and "other program" not in done.out, done.text
    assert {path.name for path in tmp_path.iterdir()} == {"all.pb.gz", "all.html", "all.hakprof"}


def test_a_running_process(
    hakmem: Hakmem, real_library: Path, observer: Path, profiled: Path, tmp_path: Path
) -> None:
    environment = _environment(real_library, observer) | {"HAKMEM_PROFILE": "0"}
    with subprocess.Popen(
        [profiled, "wait"], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdin and process.stdout
        assert process.stdout.readline() == b"ready\n"
        pid = str(process.pid)
        assert f"0 samples; it is switched off\n'hakmem profile --on {pid}'" in hakmem("profile", pid).out
        assert hakmem("profile", "--on", "--mean", str(MEAN), pid).code == 0
        process.stdin.write(b"go on")  # five times 12 MB
        process.stdin.flush()
        until = time.monotonic() + 60
        while heapprofile.of_process(process.pid).total.live_bytes < 50e6 and time.monotonic() < until:
            time.sleep(0.05)
        done = hakmem("profile", "-o", str(tmp_path / "now"), pid)
        assert done.code == 0 and "keeps  profiled.c:" in done.out, done.text
        assert hakmem("profile", "--off", pid).code == 0
        done = hakmem("profile", "--base", str(tmp_path / "now.hakprof"), pid)
        assert f"less that of process {pid}: " in done.out, done.text
        process.stdin.close()
    assert "there is no process" in hakmem("profile", pid).err


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_the_end_of_a_service(real_library: Path, observer: Path, profiled: Path, tmp_path: Path, number: int) -> None:
    """A signal to the tool reaches the command, and the report follows; what nohup has it ignore, both do."""
    words = ["profile", "--mean", str(MEAN), "--library", str(real_library), "--", "sh", "-c"]
    traps, wait = "trap 'exit 3' TERM; trap 'exit 4' HUP", "for i in $(seq 1000); do sleep 0.05; done"
    words += [f"{traps}; {profiled}; echo ready; {wait}"]
    with subprocess.Popen(
        ["sh", "-c", 'trap "" "$1"; shift; exec "$@"', "sh", "HUP" if number == signal.SIGTERM else "USR1"]
        + [sys.executable, str(TOOL), *words],
        env=clean_environment() | {"TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout and process.stdout.readline() == "ready\n" and len(list(tmp_path.iterdir())) == 1
        if number == signal.SIGTERM:
            process.send_signal(signal.SIGHUP)
        process.send_signal(number)
        said = process.communicate(timeout=100)[0]
    assert process.returncode == (3 if number == signal.SIGTERM else 4) and said.startswith("heap profile of "), said
    assert "keeps  profiled.c" in said and not list(tmp_path.iterdir())


@pytest.mark.parametrize("named", [True, False])
def test_a_child_cannot_harm_its_parent(
    real_library: Path, observer: Path, compiled: Callable[..., Path], tmp_path: Path, named: bool
) -> None:
    """The child, which may have given up its rights, writes to all that it shares with its parent, and truncates it."""
    program = compiled("hostile_child", "-O1", "-pthread")
    environment = _environment(real_library, observer) | {"HAKMEM_PROFILE": "1000"}
    environment |= {"HAKMEM_PROFILE_FILE": f"{tmp_path}/%p"} if named else {}
    done = subprocess.run([program], env=environment, capture_output=True, text=True, timeout=600, check=False)
    assert (done.returncode, done.stdout) == (0, "the child found 0\n"), done


def test_no_file_of_the_process_is_written(hakmem: Hakmem) -> None:
    """A descriptor that looks like a profile may be any file of root's by the time that it is opened."""
    file = os.memfd_create("hakmem.profile", 0)
    with subprocess.Popen(["sleep", "60"], pass_fds=[file]) as process:
        head = heapprofile.HEADER.pack(heapprofile.MAGIC, 4096, 64, process.pid, *(0,) * 16).ljust(4096, b"\0")
        os.write(file, head)
        done = hakmem("profile", "--on", str(process.pid))
        process.kill()
    assert done.code and "has no heap profile" in done.err
    assert os.pread(file, 8192, 0) == head
    os.close(file)


def test_each_block(real_library: Path, observer: Path, compiled: Callable[..., Path], tmp_path: Path) -> None:
    """A mean of 1 counts each block, whatever call made it and took it away."""
    each_block(compiled("profile_calls", "-O1", "-pthread"), _environment(real_library, observer), tmp_path)


def each_block(program: Path, environment: dict[str, str], folder: Path) -> None:
    file = folder / "each"
    environment |= {"HAKMEM_PROFILE": "1", "HAKMEM_PROFILE_FILE": str(file)}
    done = subprocess.run([program], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    profile = heapprofile.load(file)
    assert live(profile, "makes_all") == pytest.approx(float(done.stdout))
    assert live(profile, "takes_all") == 0


@pytest.mark.parametrize("linked", [False, True])
def test_heaps(
    hakmem: Hakmem, real_library: Path, observer: Path, compiled: Callable[..., Path], tmp_path: Path, linked: bool
) -> None:
    """Each block counts for its heap, by whatever call it came; the end of a heap is the end of its blocks."""
    api = Path(__file__).resolve().parents[3] / "src" / "api"
    shared = (str(real_library), f"-Wl,-rpath,{real_library.parent}")
    archive = ("-Wl,-u,malloc", str(observer.parent / "libhakmem-profile.a"), "-lm")
    flags = ("-O1", "-g", "-pthread", f"-I{api}", "-fno-optimize-sibling-calls")
    program = compiled("heaps", *flags, *(archive if linked else shared))
    done = hakmem("profile", "--mean", "1", "--library", str(real_library), "-o", str(tmp_path / "all"), "--", program)
    assert done.code == 0, done.text
    tenant, default, none = map(int, re.search(r"^(\d+) (\d+) (\d+)$", done.out, re.MULTILINE).groups())  # type: ignore
    profile = heapprofile.load(tmp_path / "all.hakprof")
    heaps = {name: round(amount.live_bytes) for name, amount in profile.heaps.items() if name}
    assert heaps == {"tenant": tenant, "default": default, "request": 0} and profile.lost == 0
    assert round(profile.heaps["request"].all_bytes) == 50 * sum(range(50, 150))
    assert live(profile, "keeps") == pytest.approx(tenant)  # and of the blocks in no heap, it freed each
    assert live(profile, "answers") == pytest.approx(default) and live(profile, "requests") == 0
    assert f"heap default: {default / 1024:.1f} KiB in 300 blocks, of " in done.out
    assert "    in heap tenant\n    keeps  heaps.c:" in done.out
    only = hakmem("profile", "--heap", "default", str(tmp_path / "all.hakprof")).out
    assert "    in heap default\n    answers  heaps.c:" in only and "keeps" not in only
    outside = hakmem("profile", "--heap", "", str(tmp_path / "all.hakprof")).out
    assert f"{none / 1024:.2f} KiB " in outside and "in heap" not in outside
    wrong = hakmem("profile", "--heap", "NOSUCH", str(tmp_path / "all.hakprof"))
    assert wrong.out.endswith("no heap has the name 'NOSUCH'; there are: default, request, tenant\n"), wrong.out
    assert wrong.code == 1
    page = (tmp_path / "all.html").read_text()
    graph = json.loads(re.search(r"^const root = (.*)$", page, re.MULTILINE)[1])  # type: ignore
    widths = {child["n"]: child["v"][0] for child in graph["c"]}
    assert widths.pop("no heap") >= none
    assert widths == {"heap tenant": tenant, "heap default": default, "heap request": 0}
    if go := shutil.which("go"):
        words = [go, "tool", "pprof", "-tags", "-unit=B", str(tmp_path / "all.pb.gz")]
        environment = clean_environment() | {"PPROF_TMPDIR": str(tmp_path)}
        said = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=600, check=True).stdout
        assert f" heap: Total {tenant + default}B of " in said, said
        assert re.search(rf"^ *{tenant}B \(.*%\): tenant$", said, re.MULTILINE), said


def test_a_heap_for_each_library(
    hakmem: Hakmem, real_library: Path, observer: Path, compiled: Callable[..., Path], tmp_path: Path
) -> None:
    if not (real_library.parents[1] / "tools" / "libraries" / "libhakmem-libraries.so").exists():
        pytest.skip("no libhakmem-libraries.so was built")
    program = compiled("libraries", "-O1", "-g", "-fno-builtin", name="many-blocks")
    words = ("--mean", str(MEAN), "--heap-by=library", "--library", str(real_library), "-o", str(tmp_path / "by"))
    done = hakmem("profile", *words, "--", program)
    assert done.code == 0, done.text
    heaps = heapprofile.load(tmp_path / "by.hakprof").heaps
    assert heaps["many-blocks"].live_bytes == pytest.approx(8e6, rel=0.1)
    assert heaps["libc.so.6"].live_bytes == pytest.approx(4e6, rel=0.2)
    assert "    in heap libc.so.6\n" in done.out and "  libraries.c:" in done.out


def test_a_difference_by_heap() -> None:
    """Merged profiles keep the heaps apart."""
    def of(**heaps: int) -> HeapProfile:
        sites = {heapprofile.Site((0x1000,), name): heapprofile.Amount(size, 1) for name, size in heaps.items()}
        return HeapProfile(1, 0, 1, 0, [], sites)

    found = heapprofile.merged([of(a=5, b=7), of(a=1)], [of(b=3, c=1)]).heaps
    assert {name: amount.live_bytes for name, amount in found.items()} == {"a": 6, "b": 4, "c": -1}


def test_the_program_of_a_difference() -> None:
    """pprof takes the first mapping's file for the program, whichever code has a sample first."""
    mappings = [heapprofile.Mapping(100, 199, 0, "/program"), heapprofile.Mapping(200, 299, 0, "/library")]
    sites = {heapprofile.Site((201, 101)): heapprofile.Amount(5, 1)}
    one = HeapProfile(1, 0, 1, 0, mappings, sites)
    result = heapprofile.merged([one, one], [one])
    assert [mapping.path for mapping in result.mappings] == ["/program", "/library"] and result.program == "/program"
    (stack, _), = result.sites
    assert [Symbols(result.mappings, []).mapping(at).path for at in stack] == ["/library", "/program"]  # type: ignore


def test_what_is_none(hakmem: Hakmem, tmp_path: Path) -> None:
    file = tmp_path / "none"
    file.write_text("no profile")
    for words, said in (
        ((str(file),), "is no heap profile"),
        ((str(tmp_path / "missing"),), "can't be read"),
        ((str(os.getpid()),), "has no heap profile"),
        ((), "name a process, a file, or a command"),
        (("--mean", "0", "--", "true"), "is not a number of bytes"),
        (("--on", str(file)), "need a process"),
    ):
        done = hakmem("profile", *words)
        assert done.code and said in done.err and len(done.err.splitlines()) == 1, done.text


def test_without_its_library(real_library: Path) -> None:
    environment = clean_environment() | {"LD_PRELOAD": str(real_library), "HAKMEM_PROFILE": "1000"}
    said = subprocess.run(["/bin/ls", "/"], env=environment, capture_output=True, text=True, check=True).stderr
    assert said.startswith("hakmem: HAKMEM_PROFILE has no effect: its library is not loaded")
    assert len(said.splitlines()) == 1

# --- names ---------------------------------------------------------------------------------------


def named(path: Path, address: int) -> list[str]:
    """The words of a return address at this address of the file, which is its offset, too."""
    mapping = heapprofile.Mapping(0x5000000, 0x5F00000, 0, str(path))
    frames = Symbols([mapping], [0x5000000 + address + 1]).frames[0x5000000 + address + 1]
    return [frame.function for frame in frames]


@pytest.fixture(scope="module")
def names(compiled: Callable[..., Path]) -> tuple[Path, dict[str, int]]:
    program = compiled("profiled", "-O1", "-g", "-pthread", "-rdynamic", "-Wl,--build-id", name="names")
    said = subprocess.run(["nm", program], capture_output=True, text=True, check=True).stdout
    return program, {line.split()[2]: int(line.split()[0], 16) for line in said.splitlines() if line[17] in "tT"}


def stripped(program: Path, folder: Path, *flags: str) -> Path:
    subprocess.run(["objcopy", "--strip-all", *flags, program, folder / "program"], check=True)
    return folder / "program"


def test_a_name_holds_within_its_symbol(names: tuple[Path, dict[str, int]], tmp_path: Path) -> None:
    """`main` is exported, `keeps` is not: no exported name may stand for it."""
    program, at = names
    bare = stripped(program, tmp_path)
    assert named(program, at["keeps"] + 4) == ["keeps"]
    assert named(bare, at["main"] + 4) == ["main"]
    assert named(bare, at["keeps"] + 4) == [f"program+{at['keeps'] + 4:#x}"]
    assert named(bare, at["main"] + 0x100000) == [f"program+{at['main'] + 0x100000:#x}"]


def test_symbols_without_lines(names: tuple[Path, dict[str, int]], tmp_path: Path) -> None:
    program, at = names
    subprocess.run(["strip", "--strip-debug", "-o", tmp_path / "program", program], check=True)
    assert named(tmp_path / "program", at["keeps"] + 4) == ["keeps"]


def test_packed_symbols(names: tuple[Path, dict[str, int]], tmp_path: Path) -> None:
    """.gnu_debugdata, as Fedora's programs have it."""
    program, at = names
    mini = tmp_path / "mini"
    subprocess.run(["objcopy", "--only-keep-debug", "--strip-debug", program, mini], check=True)
    subprocess.run(["objcopy", "--keep-file-symbols", "--only-keep-debug", program, mini], check=True)
    subprocess.run(["strip", "--strip-debug", mini], check=True)
    (tmp_path / "mini.xz").write_bytes(lzma.compress(mini.read_bytes()))
    bare = stripped(program, tmp_path, f"--add-section=.gnu_debugdata={tmp_path}/mini.xz")
    assert named(bare, at["keeps"] + 4) == ["keeps"]


@pytest.mark.parametrize("place", [".debug/program.debug", "program.debug", "by build id"])
def test_debug_files(
    names: tuple[Path, dict[str, int]], tmp_path: Path, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A debug file of another build counts for nothing."""
    program, at = names
    build_id = elf.read(str(program)).build_id or ""
    link: tuple[str, ...] = ()
    debug = tmp_path / place
    if place == "by build id":
        monkeypatch.setattr(elf, "DEBUG_ROOTS", [str(tmp_path)])
        debug = tmp_path / ".build-id" / build_id[:2] / f"{build_id[2:]}.debug"
    debug.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(["objcopy", "--only-keep-debug", program, debug], check=True)
    if place != "by build id":
        link = (f"--add-gnu-debuglink={debug}",)
    bare = stripped(program, tmp_path, *link)
    assert named(bare, at["keeps"] + 4) == ["keeps"]
    other = debug.read_bytes().replace(bytes.fromhex(build_id), bytes(20))
    debug.write_bytes(other)
    assert named(bare, at["keeps"] + 4) == [f"program+{at['keeps'] + 4:#x}"]


def test_functions_of_a_jit(tmp_path: Path) -> None:
    """The map of perf names code of no file; a map that is older than the process, or a link, does not."""
    pid, file = os.getpid(), Path(f"/tmp/perf-{os.getpid()}.map")
    file.unlink(missing_ok=True)
    started = time.time_ns()
    mapping = heapprofile.Mapping(0x1000, 0x2000, 0, "")
    try:
        file.write_text("1100 20 ~hot function\n0x1200 0x10 other\nno row\n")
        os.utime(file, ns=(started, started))
        jit = jit_functions(pid, started)
        frames = Symbols([mapping], (0x1111, 0x1121, 0x1210, 0x9000), jit).frames
        assert frames[0x1111][0].function == "~hot function" and frames[0x1210][0].function == "other"
        assert frames[0x1121] == frames[0x9000] == [Frame("(code of no known file)")]
        assert jit_functions(pid, started + 1) == []
        file.rename(tmp_path / "map")
        file.symlink_to(tmp_path / "map")
        assert jit_functions(pid, started) == []
    finally:
        file.unlink(missing_ok=True)


def _environment(real_library: Path, observer: Path) -> dict[str, str]:
    return clean_environment() | {"LD_PRELOAD": f"{observer}:{real_library}", "HAKMEM_PROFILE": str(MEAN)}
