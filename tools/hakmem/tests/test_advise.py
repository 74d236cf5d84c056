# SPDX-License-Identifier: MIT
"""`hakmem advise`: both answers, on programs whose answer is known, and what decides between them."""

from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import Hakmem

from hakmem_workbench import advice, trace
from hakmem_workbench.advice import Candidate
from hakmem_workbench.errors import Problem
from hakmem_workbench.library import at, beside
from hakmem_workbench.variants import Variant

Compiled = Callable[..., Path]
MIB = 1 << 20
FEW = ("--runs", "1", "-w", "0", "--memory-runs", "1", "--no-syscalls", "--no-files", "-q")


@pytest.fixture(scope="module")
def library_of_kit(real_library: Path) -> Path:
    try:
        beside(at(real_library, "under test"), trace.REPLAYER)
    except Problem as problem:
        pytest.skip(problem.sentence)
    return real_library


def candidate(spec: str, cpus: list[float], mean: float, peak: float) -> Candidate:
    variant = Variant(spec, spec, None, True)
    return Candidate(variant, cpus, int(mean * MIB), int(peak * MIB))


BASE = candidate("hakmem", [1.02, 1.0, 1.01, 1.03], 40, 50)


@pytest.mark.parametrize(
    ("cpu", "mean", "peak", "gained"),
    [
        (1.0, 40, 50, set()),
        (0.9, 40, 50, {"CPU time"}),
        (0.97, 40, 50, set()),  # too little
        (0.9, 46, 50, set()),  # for too much memory
        (1.0, 30, 50, {"memory"}),
        (1.0, 39.5, 50, set()),
        (1.2, 30, 50, set()),  # for too much time
        (0.9, 30, 40, {"CPU time", "memory"}),
    ],
)
def test_gains(cpu: float, mean: float, peak: float, gained: set[str]) -> None:
    assert set(advice.gains(candidate("x", [cpu + 0.01, cpu], mean, peak), BASE)) == gained


def test_noise_is_no_gain() -> None:
    noisy = candidate("hakmem", [1.2, 1.0, 1.3, 1.01, 1.25, 1.1], 40, 50)
    assert not advice.gains(candidate("x", [0.9], 40, 50), noisy)


def test_small_programs_have_nothing_to_save() -> None:
    small = candidate("hakmem", [1.0, 1.0], 1.0, 1.5)
    assert not advice.gains(candidate("x", [1.0], 0.4, 0.9), small)


def test_finalists() -> None:
    fast = candidate("set:HAKMEM_THP=never", [0.8], 40, 50)
    lean = candidate("set:HAKMEM_BACKGROUND=1", [1.0], 20, 50)
    dull = candidate("backend=legacy", [1.0], 40, 50)
    assert advice.finalists(BASE, [dull], None) == []
    found = advice.finalists(BASE, [dull, fast, lean], None)
    assert [one.variant for one in found[:2]] == [fast.variant, lean.variant]
    assert "20.0 % less CPU time" in found[0].reason and "50.0 % less memory" in found[1].reason


def test_mean_of_samples() -> None:
    assert advice.mean_of([(0.0, 1)]) is None
    assert advice.mean_of([(float(n), 10 if n < 5 else 30) for n in range(11)]) == 20


def test_a_setting_that_helps(hakmem: Hakmem, library_of_kit: Path, compiled: Compiled) -> None:
    """Only the background thread returns memory of a program that makes no calls. On a busy machine
    a run may lose too much time, but not every run does.
    """
    words = ("advise", "--library", library_of_kit, *FEW, "--try", "set:HAKMEM_BACKGROUND=1")
    for _ in range(3):
        done = hakmem(*words, "--", compiled("idles"))
        assert done.code == 0, done.text
        answer = done.out.rstrip().splitlines()[-2:]
        if answer[0].startswith("Better"):
            break
    assert answer[0].startswith("Better than the defaults: BACKGROUND=1"), done.text
    assert "less memory in the mean" in answer[0]
    assert answer[1] == "  export HAKMEM_BACKGROUND=1"


def test_the_defaults_are_best(hakmem: Hakmem, library_of_kit: Path, compiled: Compiled) -> None:
    """A program that holds little, so that neither time nor memory could gain."""
    words = ("advise", "--library", library_of_kit, *FEW, "--try", "set:HAKMEM_LIMIT_MB=4000")
    done = hakmem(*words, "--", compiled("hand_over", "-pthread"), "300")
    assert done.code == 0, done.text
    assert done.out.rstrip().splitlines()[-1].startswith("The defaults are best: "), done.text
    assert "LIMIT_MB=4000" in done.out


def test_mistakes(hakmem: Hakmem, library_of_kit: Path) -> None:
    where = ("--library", library_of_kit, *FEW[:-1])
    for words in (("--try", "set:NO=1", "--", "ls"), ("--try", "backend=legacy", "--", "false")):
        done = hakmem("advise", *where, *words)
        assert done.code != 0 and done.err.strip().splitlines()[-1].startswith("hakmem: ")
