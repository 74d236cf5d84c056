# SPDX-License-Identifier: MIT
"""The JSON that hyperfine writes."""

from hakmem_workbench.timing import Timing, timing

SECOND = {"time_wall_clock": {"value": 0.5, "unit": "second"}, "time_user": {"value": 0.25, "unit": "second"}}


def test_both_forms() -> None:
    """That of hyperfine 1, and of 2; a run that a signal ended has no exit code."""
    first = {"times": [0.5], "user": 0.25, "system": None, "exit_codes": [3]}
    assert timing(first) == Timing(0.5, 0.25, 0.0, 3)
    assert timing({**first, "exit_codes": [None]}).exit_code == 0
    assert timing({"measurements": [{**SECOND, "time_system": 0.125, "exit_code": 3}]}) == Timing(0.5, 0.25, 0.125, 3)
    assert timing({"measurements": [{**SECOND, "exit_code": None}]}) == Timing(0.5, 0.25, 0.0, 0)
