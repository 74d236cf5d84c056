# SPDX-License-Identifier: MIT
"""`hakmem ab` with hyperfine, real programs and real time.

Timings of a busy machine may be anything, so only what holds on every machine
is asserted: CPU time where a size matters, and more runs where a verdict does.
"""

import csv
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

pytest.importorskip("numpy")
pytest.importorskip("matplotlib")
pytest.importorskip("rich")
if not shutil.which("hyperfine"):
    pytest.skip("hyperfine is not installed", allow_module_level=True)

Compiled = Callable[..., Path]


def test_terminal_report(experiment: Path) -> None:
    out = (experiment / "out.txt").read_text()
    for words in (
        "10 blocks of 4 runs in random order, 1 warm-up block dropped, seed 1",
        "system (again)",
        "Verdict",
        "system against itself",
        "peak memory",
        "final memory",
        "page faults, minor",
        "context switches, voluntary",
        "partial_release",
        "Written:",
        "of the bytes given back, those handed out again within a second",
        "descriptors and tables of the allocator itself",
        "median over the blocks of its figure divided by the baseline's",
    ):
        assert words in out, out


def test_json(experiment: Path) -> None:
    found = json.loads((experiment / "ab.json").read_text())
    assert found["format"] == "hakmem-ab/1" and found["seed"] == 1
    assert [variant["label"] for variant in found["variants"]] == [
        "system",
        "hakmem",
        "backend=legacy",
    ]
    base, first, second = found["variants"]
    assert base["judgement"] is None and base["library"] is None
    assert first["judgement"]["ratio"]["low"] <= first["judgement"]["ratio"]["value"]
    assert first["build_id"] and first["allocator"]["name"] == "hakmem"
    assert {row["cause"] for row in first["os_calls"]} == {"metadata", "partial_release"}
    assert second["settings"] == {"HAKMEM_BACKEND": "legacy"}
    assert second["allocator"]["backend"] == "legacy"
    for variant in found["variants"]:
        assert variant["beside"]["peak"]["median"] > 30 * 2**20
        assert variant["beside"]["final"]["median"] < 24 * 2**20
        assert variant["memory_over_time"]
    for key in ("kernel", "load", "load_after", "thp", "cpus_busy_with_others"):
        assert key in found["machine"]


def test_csv_has_every_run(experiment: Path) -> None:
    with (experiment / "ab.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    assert len(rows) == 4 * 11
    assert [row["warmup"] for row in rows[:4]] == ["1"] * 4
    assert all(float(row["seconds"]) > 0.02 for row in rows)
    names = {"system", "system (again)", "hakmem", "backend=legacy"}
    orders = []
    for block in range(10):
        inside = [row for row in rows if row["block"] == str(block)]
        assert {row["variant"] for row in inside} == names
        orders.append(tuple(row["variant"] for row in inside))
    assert len(set(orders)) > 3  # the order is random in each block


def test_a_real_slowdown_is_found_and_nothing_else(
    hakmem: Hakmem, library: Path, compiled: Compiled, tmp_path: Path
) -> None:
    """The program does twice the work under one variant, so that no noise hides it; test_inference.py has small
    differences. It never reaches the setting of the other one: no difference, in CPU time as in time. One experiment of
    200 claims one by chance (inference.py); two in a row do not.
    """
    words = ("hakmem", "backend=legacy", "set:SUPERSLAB_MAX_CACHED=255", "--library", library, "--runs", "12")
    more = ("--no-syscalls", "--memory-runs", "1", "-o", tmp_path, "--metric", "cpu")
    for _ in range(2):
        done = hakmem("ab", *words, *more, "--", compiled("spin"), "10")
        assert done.code == 0, done.text
        slow, same = (row["judgement"] for row in json.loads((tmp_path / "ab.json").read_text())["variants"][1:])
        assert slow["verdict"] == "slower" and 1.3 < slow["ratio"]["value"] < 2.7, slow
        if same["verdict"] == "same":
            break
    assert same["verdict"] == "same" and "no difference above the noise" in done.out


@pytest.mark.parametrize("build", ["-static", "-fno-builtin"])
def test_an_ignored_preload_is_caught(
    hakmem: Hakmem, library: Path, compiled: Compiled, build: str
) -> None:
    program = compiled("allocates" if build == "-static" else "own_malloc", build)
    done = hakmem("ab", "--library", library, "--no-files", "--", program)
    assert done.code == 1
    assert "would not be in effect" in done.err


def test_a_cleared_environment_is_caught(hakmem: Hakmem, library: Path, compiled: Compiled) -> None:
    command = (compiled("drops_env"), compiled("allocates"))
    done = hakmem("ab", "--library", library, "--no-files", "--", *command)
    assert done.code == 1 and "would not be in effect" in done.err


def test_unproven_measures_nevertheless(hakmem: Hakmem, library: Path, compiled: Compiled) -> None:
    program = compiled("allocates", "-static")
    words = ("--library", library, "--no-files", "--unproven", "--runs", "2", "--no-syscalls")
    done = hakmem("ab", *words, "--", program)
    assert done.code == 0
    assert "too few runs" in done.out and "statically linked" in done.out


def test_failures(hakmem: Hakmem, library: Path) -> None:
    failing = ("--", "sh", "-c", "echo no disk >&2; exit 3")
    done = hakmem("ab", "--library", library, "--no-files", *failing)
    assert done.code == 1
    assert "failed with exit code 3 under system" in done.err and "no disk" in done.err
    more = ("-i", "--runs", "2", "--no-syscalls", "--memory-runs", "1")
    done = hakmem("ab", "--library", library, "--no-files", *more, *failing)
    assert done.code == 0 and "exit code 3" in done.out


def test_mistakes(hakmem: Hakmem, library: Path) -> None:
    def complaint(*words: str) -> str:
        done = hakmem("ab", "--library", library, *words)
        assert done.code != 0 and "Traceback" not in done.err
        return done.err

    assert "there is no command" in complaint("system")
    assert "command not found" in complaint("--", "no-such-command")
    assert "did you mean mimalloc?" in complaint("mimaloc", "--", "ls")
    assert "HAKMEM_TINY_SS_PARTIAL?" in complaint("set:HAKMEM_TINY_SS_PARTAIL=0", "--", "ls")
    assert "is not a number of 1 or more" in complaint("--runs", "0", "--", "ls")
    assert "there is no such file" in complaint("--input", "/nowhere", "--", "cat")
    assert "the preparation 'false' failed" in complaint("-p", "false", "--", "ls")


def test_the_folder_comes_first(hakmem: Hakmem, library: Path, tmp_path: Path) -> None:
    """If the folder can't be written, nothing is run; if nothing was measured, no folder remains."""
    mark = tmp_path / "ran"
    words = ("ab", "--library", library, "--runs", "2")
    done = hakmem(*words, "-o", "/proc/none", "--", "touch", mark)
    assert done.code == 1 and "/proc/none can't be written to" in done.err
    assert not mark.exists()
    folder = tmp_path / "new" / "folder"
    assert hakmem(*words, "-o", folder, "--", "false").code == 1
    assert not folder.parent.exists()
    kept = tmp_path / "old"
    kept.mkdir()
    (kept / "ab.csv").write_text("of yesterday")
    assert hakmem(*words, "-o", kept, "--", "false").code == 1
    assert (kept / "ab.csv").read_text() == "of yesterday"


def test_too_few_runs_are_told_before_anything_runs(hakmem: Hakmem, library: Path) -> None:
    words = ("ab", "--library", library, "--no-files", "--runs", "7")
    said = hakmem(*words, "--", "false").err.splitlines()
    assert said[0].startswith("hakmem: --runs 7 is too few for a verdict: 8 are needed")
    assert "too few" not in hakmem(*words[:-1], "8", "--", "false").err


@pytest.fixture
def sleeper(tmp_path: Path) -> Path:
    """A program with a unique name."""
    return Path(shutil.copy(shutil.which("sleep") or "/bin/sleep", tmp_path / "sleeper"))


def interrupted(
    library: Path,
    folder: Path,
    command: tuple[object, ...],
    number: int,
    ready: Callable[[], bool],
) -> tuple[int, str]:
    """Sends the signal at that moment; returns (exit code, stderr)."""
    words = ("ab", "--library", library, "--runs", "60", "-q", "-o", folder, "--", *command)
    process = subprocess.Popen(
        [sys.executable, TOOL, *map(str, words)],
        env=clean_environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        # The process that started the tests may ignore the signal, and they would inherit that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert holds_within(60, ready)
    process.send_signal(number)
    _, said = process.communicate(timeout=60)
    return process.returncode, said


def holds_within(seconds: float, condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.01)
    return False


def runs(program: Path) -> bool:
    for link in Path("/proc").glob("[0-9]*/exe"):
        try:
            if os.readlink(link) == str(program):
                return True
        except OSError:
            continue
    return False


def test_interrupted(library: Path, sleeper: Path, tmp_path: Path) -> None:
    """The results so far are shown and written, and the exit code says that they are incomplete."""
    folder = tmp_path / "out"
    raw = folder / "ab.csv"

    def five_blocks() -> bool:
        return raw.exists() and raw.read_text().count("\n") > 1 + 3 + 5 * 3

    code, said = interrupted(library, folder, (sleeper, "0.02"), signal.SIGTERM, five_blocks)
    assert code == 128 + signal.SIGTERM
    assert "hakmem: interrupted by SIGTERM after " in said
    assert f"what was measured is in {folder}" in said
    found = json.loads((folder / "ab.json").read_text())
    assert found["stopped"].startswith("interrupted by SIGTERM")
    with (folder / "ab.csv").open() as stream:
        rows = [row for row in csv.DictReader(stream) if row["warmup"] == "0"]
    assert len(rows) == sum(not run["warmup"] for run in found["runs"]) >= 15
    assert f"{len(rows) // 3} blocks of 3 runs" in (folder / "ab.html").read_text()
    assert found["stopped"] in (folder / "ab.html").read_text()


def test_interrupted_before_a_block_is_whole(
    library: Path, sleeper: Path, tmp_path: Path
) -> None:
    """No judgement, no page; the raw runs are kept, and no process keeps running.

    The fourth run, which is the second warm-up, would take a minute.
    """
    folder, log = tmp_path / "out", tmp_path / "log"
    script = f"echo x >> {log}; test $(wc -l < {log}) -lt 4 || {sleeper} 60"
    command = ("sh", "-c", script)
    code, said = interrupted(library, folder, command, signal.SIGINT, lambda: runs(sleeper))
    assert code == 130 and "interrupted by Ctrl-C after 0 timed runs" in said
    assert [path.name for path in folder.iterdir()] == ["ab.csv"]
    assert holds_within(20, lambda: not runs(sleeper))


def test_a_failure_keeps_what_was_measured(hakmem: Hakmem, library: Path, tmp_path: Path) -> None:
    """The command fails at its 24th run, in the middle of the timing."""
    log = tmp_path / "log"
    script = f"echo x >> {log}; test $(wc -l < {log}) -lt 24 || {{ echo no disk >&2; exit 4; }}"
    folder = tmp_path / "out"
    words = ("ab", "--library", library, "--runs", "30", "--no-syscalls", "-o", folder)
    done = hakmem(*words, "--", "sh", "-c", script)
    assert done.code == 1
    assert "stopped after 18 timed runs" in done.err and str(folder) in done.err.splitlines()[-1]
    assert "6 blocks of 3 runs" in done.out and "Written:" in done.out
    assert json.loads((folder / "ab.json").read_text())["stopped"].startswith("stopped after 18")


def test_prepare_and_input(hakmem: Hakmem, library: Path, tmp_path: Path) -> None:
    """The preparation runs before each run, and each run gets the input."""
    source = tmp_path / "input"
    source.write_text("data\n")
    log = tmp_path / "log"
    script = f"read -r word && test $word = data && test -e {tmp_path}/ready && rm {tmp_path}/ready"
    words = ("--library", library, "--no-files", "--runs", "2", "--memory-runs", "1")
    more = ("--prepare", f"touch {tmp_path}/ready; echo x >> {log}", "--input", source)
    done = hakmem("ab", "hakmem", *words, *more, "--", "sh", "-c", script)
    assert done.code == 0, done.text
    assert len(log.read_text()) // 2 >= 2 + 3 * 3 + 2


def test_settings_of_the_environment_do_not_leak(experiment: Path) -> None:
    """Every variant starts from the same environment, whatever is exported."""
    found = json.loads((experiment / "ab.json").read_text())
    assert found["variants"][1]["allocator"]["backend"] == "shared_pool"
    assert "HAKMEM_BACKEND" in (experiment / "out.txt").read_text()  # and it is said
