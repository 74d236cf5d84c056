# SPDX-License-Identifier: MIT
"""The measurements other than time, and the record of the machine."""

import os
import shutil

import pytest

pytest.importorskip("numpy")

from hakmem_workbench import machine, sidecar

SUMMARY = """\
% time     seconds  usecs/call     calls    errors syscall
------ ----------- ----------- --------- --------- ----------------
 50.00    0.000500          10        50        12 openat
 40.00    0.000400          20        20           mmap
 10.00    0.000100         100         1           exit_group
------ ----------- ----------- --------- --------- ----------------
100.00    0.001000          14        71        12 total
"""


def test_strace_summary() -> None:
    assert sidecar.parse_summary(SUMMARY) == {"openat": 50, "mmap": 20, "exit_group": 1}
    assert sidecar.parse_summary("") == {}


def test_system_calls_are_counted() -> None:
    if not shutil.which("strace"):
        pytest.skip("strace is not installed")
    calls, why = sidecar.count_system_calls(["cat", "/dev/null"], {}, dict(os.environ), None)
    assert calls is not None, why
    assert calls["execve"] == 1 and calls["mmap"] > 3


def test_without_strace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sidecar.shutil, "which", lambda name: None)
    assert sidecar.count_system_calls(["true"], {}, {}, None) == (None, "strace is not installed")


def test_thinning_keeps_peaks() -> None:
    samples = [(i / 1000, i % 100) for i in range(5000)]
    samples[2345] = (2.345, 10**6)
    thinned = sidecar.thin(samples, 50)
    assert len(thinned) == 50
    assert (2.345, 10**6) in thinned
    assert thinned == sorted(thinned)


def test_machine_state() -> None:
    state = machine.record()
    for key in ("kernel", "cpus_usable", "page_size", "memory_bytes", "load", "time"):
        assert state[key]
    assert all(isinstance(value, str) for _, value in machine.rows(state))


def test_cgroup_limits_up_the_tree(tmp_path) -> None:  # type: ignore[no-untyped-def]
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    (inner / "memory.max").write_text("max\n")
    (tmp_path / "a" / "memory.max").write_text("1073741824\n")
    assert machine._tightest(tmp_path, "/a/b", "memory.max") == "1073741824"
    assert machine._tightest(tmp_path, "/a/b", "cpu.max") is None


def test_notes() -> None:
    quiet = {"cpus_online": 4, "governor": "performance"}
    assert machine.notes(quiet) == []
    busy = machine.notes(
        {
            "cpus_online": 4,
            "governor": "powersave",
            "boost": "on",
            "cgroup_cpu_max": "50000 100000",
        },
        1.5,
    )
    assert len(busy) == 4 and "1.5 of 4 CPUs" in busy[0]


def test_neighbours_do_not_count_ourselves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Others had 1.5 of the 3 CPUs that were busy for ten seconds."""

    def at(elapsed: float, busy: float, own: float) -> None:
        ticks = int(busy * os.sysconf("SC_CLK_TCK"))
        times = os.times_result((own / 4, own / 4, own / 4, own / 4, elapsed))
        monkeypatch.setattr(machine, "_read", lambda _: f"cpu {ticks} 0 0 {9 * ticks} {ticks} 0 0 0")
        monkeypatch.setattr(os, "times", lambda: times)

    at(100, 50, 2)
    seen = machine.Neighbours()
    at(110, 80, 17)
    assert seen.cpus() == pytest.approx(1.5)
