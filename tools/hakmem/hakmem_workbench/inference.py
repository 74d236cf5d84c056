# SPDX-License-Identifier: MIT
"""Decides whether a difference is real, and says so in words.

The unit is the block: every variant ran once in it, in random order, and the
baseline twice. A ratio is the median over the blocks of the time divided by the
baseline's time in the same block, so that whatever slows a whole block cancels
out. A difference is claimed only if all three agree:

1. the bootstrap interval of the ratio, whole blocks drawn again, excludes 1, at
   99 % shared between all comparisons of the experiment (Bonferroni);
2. it is larger than the noise: the baseline's difference from itself in the
   same blocks, and never less than half a percent, since two processes of the
   same program differ that much by their layout in memory alone;
3. shuffling the labels inside the blocks seldom gives as much (p < 0.01).

Simulated without any effect, about 1 in 200 experiments claims one; a slowdown
of 5 % under a noise of 2 % is found in nearly all with 15 blocks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from .blocks import FEWEST_BLOCKS
from .text import percent, plural

Array = NDArray[np.float64]
Verdict = Literal["faster", "slower", "same", "few"]

LEVEL = 0.99
RESAMPLES = 4000
SMALLEST_CLAIM = 0.005


@dataclass(frozen=True)
class Ratio:
    """A ratio with its interval."""

    value: float
    low: float
    high: float

    @property
    def half_width(self) -> float:
        """How far the interval extends on either side, as a share."""
        return float(np.expm1((np.log(self.high) - np.log(self.low)) / 2))

    @property
    def excludes_one(self) -> bool:
        return self.low > 1 or self.high < 1


@dataclass(frozen=True)
class Noise:
    """The baseline against itself, in the same blocks."""

    ratio: Ratio
    floor: float
    steady: bool


@dataclass(frozen=True)
class Comparison:
    """One variant against the baseline."""

    ratio: Ratio
    level: float
    p: float
    verdict: Verdict
    sentence: str
    reason: str = ""


@dataclass(frozen=True)
class Judgement:
    """All comparisons of one quantity."""

    noise: Noise
    comparisons: dict[str, Comparison]


def ratio_of(differences: Array, level: float, seed: int) -> Ratio:
    """The median of logarithmic differences (blocks × any), blocks drawn again."""
    matrix = differences.reshape(len(differences), -1)
    blocks = len(matrix)
    picks = np.random.default_rng(seed).integers(0, blocks, (RESAMPLES, blocks))
    draws = np.median(matrix[picks].reshape(RESAMPLES, -1), axis=1)
    tail = (1 - level) / 2
    low, high = np.quantile(draws, [tail, 1 - tail])
    return Ratio(float(np.exp(np.median(matrix))), float(np.exp(low)), float(np.exp(high)))


def sign_flips(differences: Array, seed: int) -> float:
    """How often random signs yield as large a signed-rank sum: p. It uses ranks, since the median under random signs
    would be as large as the median itself.
    """
    ranks = np.argsort(np.argsort(np.abs(differences))) + 1.0
    signs = np.random.default_rng(seed).choice([-1.0, 1.0], (RESAMPLES, len(differences)))
    return _share(signs @ ranks, float(np.sign(differences) @ ranks))


def verdict_of(blocks: int, ratio: Ratio, p: float, floor: float) -> Verdict:
    """Applies the rule at the head of this file."""
    if blocks < FEWEST_BLOCKS:
        return "few"
    if ratio.excludes_one and abs(np.log(ratio.value)) > np.log1p(floor) and p < 1 - LEVEL:
        return "slower" if ratio.value > 1 else "faster"
    return "same"


def reason_of(ratio: Ratio, p: float, floor: float) -> str:
    """Why an interval that excludes 1 is still no difference; empty if it includes 1."""
    if not ratio.excludes_one:
        return ""
    if abs(np.log(ratio.value)) <= np.log1p(floor):
        return f"within the noise of {percent(floor)}"
    return f"chance gives as much in {percent(p)} of cases"


def noise_of(first: Array, again: Array, seed: int) -> Noise:
    """How much the same command, measured twice in each block, differs from itself."""
    differences = np.log(again) - np.log(first)
    ratio = ratio_of(differences, LEVEL, seed)
    floor = max(float(np.expm1(abs(np.log(ratio.value)))), SMALLEST_CLAIM)
    differs = ratio.excludes_one and sign_flips(differences, seed) < 1 - LEVEL
    return Noise(ratio, floor, not differs or floor <= SMALLEST_CLAIM)


def judge(
    baseline: str,
    first: Array,
    again: Array,
    others: dict[str, Array],
    seed: int,
    quantity: str = "time",
) -> Judgement:
    """Compares each of `others` with the baseline, which was measured twice.

    All arrays are in block order.
    """
    level = 1 - (1 - LEVEL) / max(len(others), 1)
    noise = noise_of(first, again, seed)
    found = {}
    for name, values in others.items():
        block = np.log(np.stack([values, first, again], axis=1))
        ratio = ratio_of(_from_both(block), level, seed)
        p = _shuffles(block, seed)
        verdict = verdict_of(len(first), ratio, p, noise.floor)
        sentence = _sentence(name, baseline, ratio, p, verdict, noise, len(first), quantity)
        reason = reason_of(ratio, p, noise.floor) if verdict == "same" else ""
        found[name] = Comparison(ratio, level, p, verdict, sentence, reason)
    return Judgement(noise, found)


def _from_both(block: Array) -> Array:
    """The variant (column 0) minus each arm of the baseline: a skewed noise cancels."""
    return np.asarray(block[..., :1] - block[..., 1:])


def _shuffles(block: Array, seed: int) -> float:
    """How often a random arm of each block in place of the variant yields as much: p."""
    blocks = len(block)
    chosen = np.random.default_rng(seed).integers(0, 3, (RESAMPLES, blocks))
    rows = np.arange(blocks)
    shuffled = np.stack([block[rows, (chosen + turn) % 3] for turn in range(3)], axis=2)
    draws = np.median(_from_both(shuffled).reshape(RESAMPLES, -1), axis=1)
    return _share(draws, float(np.median(_from_both(block))))


def _share(draws: Array, seen: float) -> float:
    return float((1 + np.sum(np.abs(draws) >= abs(seen) - 1e-12)) / (1 + len(draws)))


def _sentence(
    name: str,
    baseline: str,
    ratio: Ratio,
    p: float,
    verdict: Verdict,
    noise: Noise,
    blocks: int,
    quantity: str,
) -> str:
    span = f"between {change(ratio.low)} and {change(ratio.high)}"
    if verdict == "few":
        there = plural(blocks, "block")
        return f"{name}: too few runs for a verdict ({there}, {FEWEST_BLOCKS} are needed)"
    if verdict == "same":
        seen = percent(max(noise.floor, ratio.half_width))
        limit = f"this experiment could show {seen} or more"
        if reason := reason_of(ratio, p, noise.floor):
            limit = f"{reason}; more runs may show one"
        return f"{name}: no difference above the noise ({span} of {baseline}; {limit})"
    times = ""
    if quantity == "time" and ratio.value < 0.8:
        times = f"; {1 / ratio.value:.2f} times as fast"
    return f"{name} takes {amount(ratio, verdict)} {quantity} than {baseline} ({span}{times})"


def same(reason: str) -> str:
    """The cell of a table: 'no difference', and why if the interval excludes 1."""
    return f"no difference: {reason}" if reason else "no difference"


def amount(ratio: Ratio, verdict: Verdict) -> str:
    """'5.0 % more', '12.3 % less'; only if there is a difference."""
    return f"{percent(ratio.value - 1)} {'more' if verdict == 'slower' else 'less'}"


def change(ratio: float) -> str:
    """1.05 → '+5.0 %'."""
    sign = "+" if ratio >= 1 else "−"
    return f"{sign}{percent(ratio - 1)}"


def noise_sentence(baseline: str, noise: Noise) -> str:
    words = (
        f"{baseline} against itself: {change(noise.ratio.value)} "
        f"(between {change(noise.ratio.low)} and {change(noise.ratio.high)})"
    )
    if noise.steady:
        return f"{words}. That is the noise."
    return (
        f"{words}. The machine was not steady: the same command differed from itself, "
        "so only differences larger than that are claimed."
    )
