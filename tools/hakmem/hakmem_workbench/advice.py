# SPDX-License-Identifier: MIT
"""Finds what may serve a program better than the defaults, by replaying its calls.

A replay only proposes: times are those of calls alone, and memory is what malloc made resident. The program itself then
proves the proposal, or not.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from . import library, trace, variants
from .errors import Problem
from .text import percent
from .variants import Variant

# Each is tried alone; a setting that the build lacks is left out.
SETTINGS = (
    "backend=legacy",
    "set:HAKMEM_BACKGROUND=1",
    "set:HAKMEM_PURGE_DELAY_MS=10",
    "set:HAKMEM_PURGE_DELAY_MS=2000",
    "set:HAKMEM_THP=never",
    "set:HAKMEM_THP=always",
    "set:HAKMEM_ACE_CACHE_MB=32",
    "set:HAKMEM_ACE_WASTE_PCT=0",
    "set:HAKMEM_POOL_TLS=0",
    "set:HAKMEM_TINY_PREWARM=1",
)
ROUNDS = 5
PACED_SECONDS = 3.0  # most seconds of the replay that keeps the pauses
GAIN = 0.05  # a replay must gain this to be worth a proof; in CPU time also twice the noise
MEMORY_GAIN = 1 << 20  # and in bytes
MEAN_GAIN = 0.20  # a single run that saves this much mean memory is a proof
LOSS = 0.10  # most that it may lose of the other quantity
FINALISTS = 3


@dataclass
class Candidate:
    """A variant and its replays: CPU seconds of each, bytes over time of the paced one."""

    variant: Variant
    cpus: list[float] = field(default_factory=list)
    mean: int = 0
    peak: int = 0

    @property
    def cpu(self) -> float:
        return min(self.cpus)

    @property
    def noise(self) -> float:
        """How much it differs from itself: every second replay against the others."""
        first, second = min(self.cpus[::2]), min(self.cpus[1::2])
        return max(first, second) / max(min(first, second), 1e-6) - 1


@dataclass(frozen=True)
class Finalist:
    """A variant worth a proof, and why."""

    variant: Variant
    reason: str


def builds(baseline: Variant, named: Sequence[str]) -> list[str]:
    """VARIANTs of other builds: those that the user named, and release builds beside the library."""
    found = [f"build:{folder}" for folder in named]
    tree = library.source_tree()
    if named or tree is None or baseline.library is None:
        return found
    if tree not in Path(baseline.library.real).parents:
        return found
    seen = {_kind(baseline)}
    for path in sorted(tree.glob(f"*/{library.IN_BUILD}")):
        spec = f"build:{path.parents[1]}"
        try:
            other = variants.parse(spec)
        except Problem:
            continue
        if "-release-" in str(_allocator(other, "build_id")) and _kind(other) not in seen:
            seen.add(_kind(other))
            found.append(spec)
    return found


def _allocator(variant: Variant, name: str) -> object:
    return variant.stats.allocator.get(name) if variant.stats else None


def _kind(variant: Variant) -> tuple[object, ...]:
    names = ("tiny_header", "cache", "frontends", "backends", "hardened")
    return tuple(_allocator(variant, name) for name in names)


def candidates(specs: Iterable[str], library_path: str | None) -> list[Candidate]:
    """The variants that this library supports."""
    found = []
    for spec in specs:
        try:
            found.append(Candidate(variants.parse(spec, library_path)))
        except Problem:
            continue
    return found


def screen(
    replayer: str,
    plan: Path,
    baseline: Candidate,
    others: Sequence[Candidate],
    seed: int,
    step: Callable[[str], None],
) -> None:
    """Replays all variants in rounds of random order, so that a busy moment affects all; once paced."""
    order = random.Random(seed)
    everybody = [baseline, *others]
    twice = [baseline, *everybody]  # all share the baseline's noise
    for _ in range(ROUNDS):
        for one in order.sample(twice, len(twice)):
            step(one.variant.label)
            one.cpus.append(trace.carry_out(replayer, plan, one.variant.assignments()).cpu)
    for one in everybody:
        step(f"{one.variant.label}, with its pauses")
        options = ("--paced", str(PACED_SECONDS))
        outcome = trace.carry_out(replayer, plan, one.variant.assignments(), options)
        one.mean, one.peak = outcome.mean_resident, outcome.max_rss


def gains(one: Candidate, baseline: Candidate) -> dict[str, float]:
    """The share that it gains, by quantity; none if it loses too much of another."""
    cpu = 1 - one.cpu / max(baseline.cpu, 1e-6)
    mean = 1 - one.mean / max(baseline.mean, 1)
    peak = 1 - one.peak / max(baseline.peak, 1)
    found = {}
    if cpu >= max(GAIN, 2 * baseline.noise) and min(mean, peak) > -LOSS:
        found["CPU time"] = cpu
    saves = max(baseline.mean - one.mean, baseline.peak - one.peak) >= MEMORY_GAIN
    if saves and max(mean, peak) >= GAIN and min(mean, peak) > -LOSS and cpu > -LOSS:
        found["memory"] = max(mean, peak)
    return found


def finalists(
    baseline: Candidate, others: Sequence[Candidate], library_path: str | None
) -> list[Finalist]:
    """The best by each quantity, and both combined if they differ."""
    found: list[Finalist] = []
    for quantity in ("CPU time", "memory"):
        scored = [(gains(one, baseline).get(quantity, 0.0), one) for one in others]
        gain, best = max(scored, key=lambda pair: pair[0], default=(0.0, baseline))
        if gain > 0 and all(best.variant.label != one.variant.label for one in found):
            reason = f"{percent(gain)} less {quantity} on the replay"
            found.append(Finalist(best.variant, reason))
    if len(found) == 2:
        both = ",".join(one.variant.spec for one in found)
        try:
            found.append(Finalist(variants.parse(both, library_path), "both together"))
        except Problem:
            pass  # two builds, or two values of one setting
    return found[:FINALISTS]


def mean_of(samples: Sequence[tuple[float, int]]) -> float | None:
    """Mean bytes over time, from (seconds, bytes); None if there are too few."""
    if len(samples) < 8:
        return None
    pairs = list(itertools.pairwise(samples))
    area = sum((later - moment) * amount for (moment, amount), (later, _) in pairs)
    return area / (samples[-1][0] - samples[0][0])


def how_to(variant: Variant) -> list[str]:
    """The lines that apply a variant."""
    lines = [f"export {name}={value}" for name, value in sorted(variant.settings.items())]
    build = [part for part in variant.spec.split(",") if part.startswith("build:")]
    if build and variant.library:
        options = [f"-D{name}={_allocator(variant, name)}" for name in ("cache", "tiny_header")]
        lines.append(f"meson configure BUILD {' '.join(options)}    # as {variant.library.path}")
    return lines
