# SPDX-License-Identifier: MIT
"""One watched run: programs, memory, exit codes, signals."""

import contextlib
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from hakmem_workbench.observe import Observation, Request, observe


def watch(*command: str | Path, **options: object) -> Observation:
    assign = options.pop("assign", {})
    return observe(
        Request([str(word) for word in command], assign, dict(os.environ), **options)  # type: ignore[arg-type]
    )


@pytest.mark.parametrize("orphan", [True, False])
@pytest.mark.parametrize("trace", [True, False])
def test_exit_codes(orphan: bool, trace: bool) -> None:
    assert watch("sh", "-c", "exit 7", orphan=orphan, trace=trace).exit_code == 7
    assert watch("sh", "-c", "kill -9 $$", orphan=orphan, trace=trace).exit_code == 137


def test_every_program_of_the_tree_is_seen() -> None:
    seen = watch("sh", "-c", "sleep 0.01; env -i /bin/cat /dev/null; exec /bin/ls /", orphan=False)
    names = [os.path.basename(image.exe) for image in seen.images]
    assert names[0] in ("sh", "dash", "bash", "busybox")
    assert names[1:] == ["sleep", "env", "cat", "ls"]
    assert [os.path.basename(image.exe) for image in seen.main][1:] == ["ls"]
    assert any("libc" in path for path in seen.images[-1].objects)


def test_assignments_reach_the_command_only() -> None:
    seen = watch("sh", "-c", 'test "$HAKMEM_X" = "a b"', assign={"HAKMEM_X": "a b"})
    assert seen.exit_code == 0
    assert "HAKMEM_X" not in os.environ


def test_peak_and_final_memory(compiled: Callable[..., Path]) -> None:
    program, mebi, most = compiled("second_thread", "-pthread"), 2**20, 0
    while most < 20 * mebi:  # on a busy machine all samples may miss the 15 ms of the peak, though not each time
        seen = watch(program)
        assert 32 * mebi < seen.peak < 48 * mebi
        assert 7 * mebi < seen.final < 20 * mebi
        assert seen.minor_faults > 100
        most = max(amount for _, amount in seen.samples)


def test_small_programs_are_not_blurred_by_the_interpreter() -> None:
    assert watch("/bin/cat", "/dev/null").peak < 4 * 2**20


def test_stderr_is_kept() -> None:
    assert watch("sh", "-c", "echo broken >&2; exit 1").stderr.strip() == "broken"


def test_limit_ends_a_server() -> None:
    assert watch("sleep", "60", limit=0.2, orphan=False).exit_code == 128 + signal.SIGTERM


def test_signals_reach_the_command() -> None:
    """The trace does not keep a signal from the command."""
    script = 'trap "exit 9" USR1; kill -USR1 $$; sleep 5'
    assert watch("sh", "-c", script).exit_code == 9


def test_stopped_and_continued(tmp_path: Path) -> None:
    """The other process continues it again and again: the first time may come before the stop."""
    awake = tmp_path / "awake"
    others = f"(until test -e {awake}; do sleep 0.1; kill -CONT $$; done) &"
    script = f"{others} kill -STOP $$; : > {awake}; wait; exit 4"
    assert watch("sh", "-c", script).exit_code == 4


def test_our_own_state_is_restored() -> None:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [])
    handler = signal.getsignal(signal.SIGINT)
    watch("true", orphan=False)
    assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == before
    assert signal.getsignal(signal.SIGINT) == handler
    with contextlib.suppress(ChildProcessError):  # other tests may have a browser
        assert os.waitpid(-1, os.WNOHANG) == (0, 0)
