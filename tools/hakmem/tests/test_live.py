# SPDX-License-Identifier: MIT
"""How an experiment reports progress if nothing can be redrawn: in a log."""

import pytest

pytest.importorskip("rich")

from hakmem_workbench import live  # noqa: E402


def test_a_line_now_and_then(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """At most every 15 seconds: how many runs are done, and how long the rest will take."""
    now = 1000.0
    monkeypatch.setattr(live.time, "monotonic", lambda: now)
    with live.Display() as display:
        display.phase("Timing", 60)
        for _ in range(60):
            display.step("hakmem")
            now += 2.0
    lines = capsys.readouterr().err.splitlines()
    assert lines[:3] == [
        "Timing (60 runs) …",
        "Timing: 8 of 60 runs, 104 s left",
        "Timing: 16 of 60 runs, 88.0 s left",
    ]
    assert len(lines) == 1 + 7


def test_quiet_is_quiet(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "EVERY", 0.0)
    with live.Display(quiet=True) as display:
        display.phase("Timing", 2)
        display.step("a")
        display.step("b")
    assert capsys.readouterr().err == ""
