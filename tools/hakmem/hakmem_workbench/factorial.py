# SPDX-License-Identifier: MIT
"""Factorial experiments: what each option does alone, and what two do together.

All cells run in each block; an effect is a contrast of the logarithms of a
block's times, so it is a ratio, and its median over the blocks counts. Each level
is compared with the first level of its factor, averaged over all others. An
interaction says by how much the effect of one option depends on another.
Claims follow the rule of `inference`, with its level shared between all effects
of one kind; the noise is that of the cell that runs twice.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .errors import Problem
from .inference import (
    LEVEL,
    Array,
    Noise,
    Ratio,
    Verdict,
    amount,
    ratio_of,
    reason_of,
    sign_flips,
    verdict_of,
)


@dataclass(frozen=True)
class Factor:
    """One option and the levels that are tried; the first is the reference."""

    name: str
    levels: tuple[str, ...]


@dataclass(frozen=True)
class Effect:
    """A main effect or an interaction, as a ratio of times."""

    name: str
    ratio: Ratio
    verdict: Verdict
    sentence: str
    reason: str = ""


@dataclass(frozen=True)
class Analysis:
    """What the experiment says about its factors."""

    main: list[Effect]
    interactions: list[Effect]
    shares: dict[str, float]


def cells(factors: Sequence[Factor]) -> list[tuple[str, ...]]:
    """All combinations, the last factor changing fastest."""
    return list(itertools.product(*(factor.levels for factor in factors)))


def parse_factor(text: str) -> Factor:
    """'NAME=A,B,C'."""
    name, equals, values = text.partition("=")
    levels = tuple(value.strip() for value in values.split(",") if value.strip())
    if not equals or not name.strip() or len(levels) < 2:
        raise Problem(f"'{text}' is not NAME=VALUE,VALUE…", "A factor needs two values or more.")
    if len(set(levels)) < len(levels):
        raise Problem(f"'{text}' has a value twice", "Leave out one of the two.")
    return Factor(name.strip(), levels)


def analyse(
    factors: Sequence[Factor], times: Array, noise: Noise, seed: int, quantity: str = "time"
) -> Analysis:
    """`times` is blocks × cells, in the order of `cells`."""
    shape = tuple(len(factor.levels) for factor in factors)
    logs = np.log(times).reshape((len(times), *shape))
    main = _main(factors, logs)
    crossed = _crossed(factors, logs)
    return Analysis(
        [
            _effect(name, contrast, len(main), noise, seed, quantity, False)
            for name, contrast in main
        ],
        [
            _effect(name, contrast, len(crossed), noise, seed, quantity, True)
            for name, contrast in crossed
        ],
        _shares(factors, np.median(logs, axis=0)),
    )


def _main(factors: Sequence[Factor], logs: Array) -> list[tuple[str, Array]]:
    """(name, contrast of each block) of every level except the first."""
    return [
        (
            f"{factor.name}: {factor.levels[level]} instead of {factor.levels[0]}",
            _flat(_step(logs, axis + 1, level)),
        )
        for axis, factor in enumerate(factors)
        for level in range(1, len(factor.levels))
    ]


def _crossed(factors: Sequence[Factor], logs: Array) -> list[tuple[str, Array]]:
    """The same for every pair of levels of two factors."""
    found = []
    for one, two in itertools.combinations(range(len(factors)), 2):
        first, second = factors[one], factors[two]
        for level, other in itertools.product(
            range(1, len(first.levels)), range(1, len(second.levels))
        ):
            # The first step removes its axis, so the second one moves down.
            contrast = _step(_step(logs, one + 1, level), two, other)
            name = f"{first.name}={first.levels[level]} with {second.name}={second.levels[other]}"
            found.append((name, _flat(contrast)))
    return found


def _step(values: Array, axis: int, level: int) -> Array:
    """The difference between a level and the first one; removes the axis."""
    return np.asarray(np.take(values, level, axis=axis) - np.take(values, 0, axis=axis))


def _flat(contrast: Array) -> Array:
    """Averaged over all other factors: one number per block."""
    return np.asarray(contrast.reshape(len(contrast), -1).mean(axis=1))


def _effect(
    name: str,
    contrast: Array,
    among: int,
    noise: Noise,
    seed: int,
    quantity: str,
    crossed: bool,
) -> Effect:
    ratio = ratio_of(contrast, 1 - (1 - LEVEL) / among, seed)
    p = sign_flips(contrast, seed)
    verdict = verdict_of(len(contrast), ratio, p, noise.floor)
    sentence = _sentence(name, ratio, verdict, quantity, crossed)
    reason = reason_of(ratio, p, noise.floor) if verdict == "same" else ""
    return Effect(name, ratio, verdict, sentence, reason)


def _sentence(name: str, ratio: Ratio, verdict: Verdict, quantity: str, crossed: bool) -> str:
    if verdict == "few":
        return f"{name}: too few runs for a verdict"
    if verdict == "same":
        what = "interaction" if crossed else "difference"
        return f"{name}: no {what} above the noise"
    words = f"{name}: {amount(ratio, verdict)} {quantity}"
    return f"{words} than their single effects predict" if crossed else words


def _shares(factors: Sequence[Factor], middle: Array) -> dict[str, float]:
    """How much of the spread between cells each factor explains by itself."""
    total = float(((middle - middle.mean()) ** 2).sum())
    if total == 0:
        return {factor.name: 0.0 for factor in factors}
    shares = {}
    for axis, factor in enumerate(factors):
        others = tuple(i for i in range(middle.ndim) if i != axis)
        means = middle.mean(axis=others)
        weight = middle.size / len(factor.levels)
        shares[factor.name] = float(((means - middle.mean()) ** 2).sum()) * weight / total
    shares["interactions"] = max(0.0, 1 - sum(shares.values()))
    return shares
