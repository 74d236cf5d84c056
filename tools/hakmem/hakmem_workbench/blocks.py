# SPDX-License-Identifier: MIT
"""Blocks: in each, every arm runs once, in random order.

Whatever slows the machine for a while slows all arms of a block, so ratios are
taken inside blocks (`inference`). Experiments and the scripts of bench/ share this.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from random import Random
from typing import TypeVar

T = TypeVar("T")

FEWEST_BLOCKS = 8  # with fewer blocks no difference is claimed


def shuffled(arms: Iterable[T], rng: Random) -> list[T]:
    """The arms in the order of one block."""
    order = list(arms)
    rng.shuffle(order)
    return order


def interleaved(arms: Iterable[T], blocks: int, rng: Random) -> Iterator[tuple[int, int, T]]:
    """(block, position in it, arm) of all runs, in the order in which they are made."""
    arms = list(arms)
    for block in range(blocks):
        for place, arm in enumerate(shuffled(arms, rng)):
            yield block, place, arm
