# SPDX-License-Identifier: MIT
"""`hakmem run`: everything passes through, and nothing is silently without effect."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import TOOL, Hakmem, clean_environment
from hakmem_workbench.errors import Problem
from hakmem_workbench.library import at, beside

Compiled = Callable[..., Path]


def test_under_the_library(hakmem: Hakmem, library: Path) -> None:
    script = "grep -c libhakmem /proc/self/maps"
    done = hakmem("run", "--library", library, "--", "sh", "-c", script)
    assert done.code == 0 and int(done.out) > 0


def test_exit_code_stdio_and_arguments(hakmem: Hakmem, library: Path) -> None:
    script = 'cat; echo "$1" >&2; exit 42'
    words = ("run", "--library", library, "--", "sh", "-c", script, "sh", "a  'b' -- c")
    done = hakmem(*words, stdin="from stdin\n")
    assert (done.code, done.out, done.err) == (42, "from stdin\n", "a  'b' -- c\n")


def test_the_separator_may_be_left_out(hakmem: Hakmem, library: Path) -> None:
    done = hakmem("run", "--library", library, "echo", "-n", "hi")
    assert (done.code, done.out) == (0, "hi")


def test_same_process_and_default_signals(library: Path) -> None:
    """The tool becomes the command; what Python ignores is not ignored there."""
    process = subprocess.Popen(
        [sys.executable, TOOL, "run", "--library", library, "--", "sleep", "60"],
        env=clean_environment(),
    )
    status = Path(f"/proc/{process.pid}/status")
    deadline = time.monotonic() + 60
    while "sleep" not in status.read_text().splitlines()[0] and time.monotonic() < deadline:
        time.sleep(0.01)
    ignored = next(line for line in status.read_text().splitlines() if line.startswith("SigIgn"))
    assert int(ignored.split()[1], 16) & (1 << (signal.SIGPIPE - 1)) == 0
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == -signal.SIGTERM


def test_settings_arrive(hakmem: Hakmem, library: Path) -> None:
    words = ("--backend", "legacy", "--set", "tiny_ss_partial=0", "--set", "HAKMEM_STRICT=1")
    done = hakmem("run", "--library", library, *words, "--", "env")
    lines = done.out.splitlines()
    for line in ("HAKMEM_BACKEND=legacy", "HAKMEM_TINY_SS_PARTIAL=0", "HAKMEM_STRICT=1"):
        assert line in lines


def test_a_preload_of_the_user_stays(hakmem: Hakmem, library: Path) -> None:
    done = hakmem("run", "--library", library, "--", "env", env={"LD_PRELOAD": "libm.so.6"})
    assert f"LD_PRELOAD={library}:libm.so.6" in done.out.splitlines()


def test_no_locale_slips_in(hakmem: Hakmem, library: Path) -> None:
    done = hakmem("run", "--library", library, "--", "env", env={"LC_ALL": "", "LANG": ""})
    assert not [line for line in done.out.splitlines() if line.startswith("LC_CTYPE")]


def test_statistics(hakmem: Hakmem, library: Path, tmp_path: Path) -> None:
    target = tmp_path / "s.json"
    options = ("--stats", "json", "--stats-file", target)
    assert hakmem("run", "--library", library, *options, "--", "ls", "/").code == 0
    assert '"allocator"' in target.read_text()


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("--set", "HAKMEM_TINY_SS_PARTAIL=0"), 2, "did you mean HAKMEM_TINY_SS_PARTIAL?"),
        (("--set", "TINY_SS_PARTIAL=maybe"), 2, "was refused"),
        (("--set", "TINY_SS_PARTIAL"), 2, "is not KEY=VALUE"),
        (("--backend", "legcy"), 2, "HAKMEM_BACKEND=legcy was refused"),
        (("--library", "/nowhere/libhakmem.so.0"), 2, "there is no library"),
        (("--library", "/bin/sh"), 2, "is a program, not a shared library"),
        (("--library", "/proc"), 2, "is not a Meson build directory"),
    ],
)
def test_mistakes(
    hakmem: Hakmem, library: Path, words: tuple[str, ...], code: int, said: str
) -> None:
    options = words if "--library" in words else ("--library", str(library), *words)
    done = hakmem("run", *options, "--", "true")
    assert done.code == code
    assert said in done.err
    assert done.out == ""


def test_missing_commands(hakmem: Hakmem, library: Path, tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.write_text("data")
    assert hakmem("run", "--library", library, "--", "no-such-command").code == 127
    assert hakmem("run", "--library", library, "--", plain).code == 126
    assert hakmem("run", "--library", library, "--", tmp_path).code == 126
    assert hakmem("run", "--library", library).code == 2


def test_a_script_without_interpreter_line(hakmem: Hakmem, library: Path, tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text("echo plain script\n")
    script.chmod(0o755)
    assert hakmem("run", "--library", library, "--", script).out == "plain script\n"


def test_library_with_a_space_in_its_path(hakmem: Hakmem, library: Path, tmp_path: Path) -> None:
    folder = tmp_path / "a b"
    folder.mkdir()
    (folder / library.name).write_bytes(library.read_bytes())
    done = hakmem("run", "--library", folder / library.name, "--", "true")
    assert done.code == 2 and "space" in done.err


@pytest.mark.parametrize(
    ("source", "flag", "said"),
    [
        ("allocates", "-static", "static: plain is statically linked"),
        ("own_malloc", "-fno-builtin", "own-malloc: plain defines malloc itself"),
    ],
)
def test_no_effect_is_told(
    hakmem: Hakmem,
    library: Path,
    compiled: Compiled,
    tmp_path: Path,
    source: str,
    flag: str,
    said: str,
) -> None:
    """One line before the command, which still runs; also for scripts."""
    program = tmp_path / "plain"
    shutil.copy(compiled(source, flag), program)
    done = hakmem("run", "--library", library, "--", program)
    assert done.code == 0
    (line,) = done.err.splitlines()
    assert line.startswith(f"hakmem: no effect on {program}, {said}")
    assert json.loads(hakmem("verify", "--library", library, "--json", "--", program).out)[
        "findings"
    ][0]["sentence"] in line
    script = tmp_path / "script"
    script.write_text(f"#!{program}\n")
    script.chmod(0o755)
    assert said in hakmem("run", "--library", library, "--", script).err
    quiet = hakmem("run", "--library", library, "--", program, env={"HAKMEM_QUIET": "1"})
    assert (quiet.code, quiet.err) == (0, "")


def test_an_effect_is_not_denied(hakmem: Hakmem, library: Path, compiled: Compiled) -> None:
    """A program that only takes malloc's address defines none; as Debian's python3."""
    program = compiled("takes_address", "-no-pie", "-fno-pic")
    assert hakmem("run", "--library", library, "--", program).err == ""


def test_no_effect_on_raised_privileges(
    hakmem: Hakmem, library: Path, compiled: Compiled, tmp_path: Path
) -> None:
    if os.getuid() != 0:
        pytest.skip("only root can make a program of another user setuid")
    program = tmp_path / "raised"
    shutil.copy(compiled("allocates"), program)
    os.chown(program, 65534, -1)
    program.chmod(0o4755)
    done = hakmem("run", "--library", library, "--", program)
    assert done.code == 0 and f"no effect on {program}, setuid: " in done.err


def test_no_effect_on_another_machine(library: Path, compiled: Compiled, tmp_path: Path) -> None:
    """Detected from the two files, without running anything."""
    from hakmem_workbench import checks
    from hakmem_workbench import library as finder

    data = bytearray(library.read_bytes())
    data[18:20] = (183).to_bytes(2, "little")  # e_machine: aarch64
    other = tmp_path / "libhakmem.so.0"
    other.write_bytes(data)
    program = str(compiled("allocates"))
    (finding,) = checks.foresee(program, [program], finder.at(other, "test"))
    assert finding.kind == "refused-preload" and "aarch64" in finding.sentence


def test_a_heap_for_each_library(hakmem: Hakmem, real_library: Path, compiled: Compiled, tmp_path: Path) -> None:
    try:
        beside(at(real_library, "test"), "libhakmem-libraries.so")
    except Problem as problem:
        pytest.skip(problem.sentence)
    target, program = tmp_path / "s.json", compiled("libraries", "-fno-builtin", name="many-blocks")
    options = ("--heap-by=library", "--stats", "json", "--stats-file", target)
    done = hakmem("run", "--library", real_library, *options, "--", program)
    assert (done.code, done.out, done.err) == (0, "", "")
    live = {row["name"]: row["live_bytes"] for row in json.loads(target.read_text())["heaps"]}
    assert 8_000_000 <= live["many-blocks"] <= 9_500_000 and 4_000_000 <= live["libc.so.6"] <= 5_000_000
