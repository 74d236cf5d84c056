# SPDX-License-Identifier: MIT
"""The results of an experiment: raw runs, judgements, and their JSON and CSV forms. Raw figures are kept unchanged, and
written during the measurement (`RunLog`); judgements are computed from them on demand. Runs of an unfinished block are
in the raw figures, but not judged.
"""

from __future__ import annotations

import csv
import json
import shlex
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np

from . import __version__, inference
from .errors import Problem
from .inference import Array, Judgement
from .sidecar import METRICS, Sidecar
from .statsfile import Stats
from .text import duration, plural
from .variants import Variant

FORMAT = "hakmem-ab/1"
Metric = Literal["seconds", "cpu"]


@dataclass(frozen=True)
class Arm:
    """One position in each block; the baseline has two."""

    label: str
    variant: int
    again: bool = False

    @property
    def key(self) -> str:
        return f"{self.variant}'" if self.again else str(self.variant)

    @property
    def title(self) -> str:
        return f"{self.label} (again)" if self.again else self.label


@dataclass(frozen=True)
class Run:
    """One timed run."""

    block: int
    place: int
    arm: str
    warmup: bool
    seconds: float
    user: float
    system: float
    exit_code: int


@dataclass(frozen=True)
class Stop:
    """Why an experiment ended before its time, and the exit code that says so."""

    sentence: str
    code: int


@dataclass(frozen=True)
class Spread:
    """The median of a few untimed measurements, and their range."""

    median: float
    low: float
    high: float
    runs: int


@dataclass
class Results:
    """Everything that was measured."""

    command: list[str]
    variants: Sequence[Variant]
    arms: Sequence[Arm]
    runs: Sequence[Run]
    sidecars: Sequence[Sidecar]
    stats: Sequence[Stats | None]
    machine: dict[str, Any]
    seed: int
    notes: list[str]
    floor: float
    hyperfine: str
    elapsed: float
    metric: Metric = "seconds"
    stopped: Stop | None = None

    @property
    def metric_title(self) -> str:
        return "CPU time" if self.metric == "cpu" else "time"

    @property
    def other(self) -> tuple[Metric, str]:
        """The metric that is shown but not judged, and its title."""
        return ("seconds", "time") if self.metric == "cpu" else ("cpu", "CPU time")

    @property
    def shell_command(self) -> str:
        return shlex.join(self.command)

    @property
    def baseline(self) -> Variant:
        return self.variants[0]

    @cached_property
    def whole(self) -> frozenset[int]:
        """The timed blocks in which every arm ran."""
        ran = Counter(run.block for run in self.runs if not run.warmup)
        return frozenset(block for block, arms in ran.items() if arms == len(self.arms))

    @property
    def blocks(self) -> int:
        return len(self.whole)

    @property
    def warmups(self) -> int:
        return len({run.block for run in self.runs if run.warmup})

    @property
    def facts(self) -> str:
        """The amount of measurement, in one line."""
        ended = f", {self.stopped.sentence}" if self.stopped else ""
        return (
            f"{plural(self.blocks, 'block')} of {len(self.arms)} runs in random order, "
            f"{plural(self.warmups, 'warm-up block')} dropped, seed {self.seed}, "
            f"{duration(self.elapsed)} in all{ended}"
        )

    def series(self, arm: Arm, metric: Metric | None = None) -> Array:
        """One arm's figures of the judged metric, in block order, complete blocks only."""
        own = (run for run in self.runs if run.arm == arm.key and run.block in self.whole)
        ordered = sorted(own, key=lambda run: run.block)
        if (metric or self.metric) == "cpu":
            return np.array([run.user + run.system for run in ordered])
        return np.array([run.seconds for run in ordered])

    def median(self, index: int, metric: Metric | None = None) -> float:
        """A variant's median; for the baseline, over both of its arms."""
        parts = [self.series(arm, metric) for arm in self.arms if arm.variant == index]
        return float(np.median(np.concatenate(parts)))

    @cached_property
    def judged(self) -> Judgement:
        """The judgement of the chosen metric."""
        return self._judge(self.metric)

    @cached_property
    def cpu(self) -> Judgement | None:
        """The judgement of CPU time, besides elapsed time; None if its clock is too coarse."""
        if self.metric == "cpu" or any(np.any(self.series(arm, "cpu") <= 0) for arm in self.arms):
            return None
        return self._judge("cpu")

    def _judge(self, metric: Metric) -> Judgement:
        first, again, *others = self.arms
        if np.any(self.series(first, metric) <= 0):
            raise Problem(
                "the command is too short for its CPU time to be measured",
                "Give it more work, or judge elapsed time: leave --metric cpu out.",
                1,
            )
        return inference.judge(
            first.label,
            self.series(first, metric),
            self.series(again, metric),
            {arm.label: self.series(arm, metric) for arm in others},
            self.seed,
            "CPU time" if metric == "cpu" else "time",
        )

    def sidecar(self, index: int, key: str) -> Spread | None:
        values = self.sidecars[index].values.get(key)
        if not values:
            return None
        return Spread(float(np.median(values)), min(values), max(values), len(values))

    def summary(self) -> str:
        """The outcome in one sentence."""
        words = [comparison.sentence for comparison in self.judged.comparisons.values()]
        return "; ".join(words) + "."

    def to_json(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "tool": __version__,
            "command": self.command,
            "seed": self.seed,
            "hyperfine": self.hyperfine,
            "machine": self.machine,
            "notes": self.notes,
            "launch_floor_seconds": self.floor,
            "elapsed_seconds": self.elapsed,
            "method": inference.__doc__,
            "metric": self.metric_title,
            "stopped": self.stopped.sentence if self.stopped else None,
            "noise": asdict(self.judged.noise),
            "variants": [self._variant_json(index) for index in range(len(self.variants))],
            "runs": [asdict(run) for run in self.runs],
        }

    def _variant_json(self, index: int) -> dict[str, Any]:
        variant = self.variants[index]
        stats = self.stats[index]
        comparison = self.judged.comparisons.get(variant.label)
        cpu = self.cpu.comparisons.get(variant.label) if self.cpu else None
        beside = {metric.key: self.sidecar(index, metric.key) for metric in METRICS}
        return {
            "label": variant.label,
            "spec": variant.spec,
            "baseline": index == 0,
            "library": variant.library.path if variant.library else None,
            "build_id": variant.library.build_id if variant.library else None,
            "settings": dict(variant.settings),
            "environment": dict(variant.environment),
            "median_seconds": self.median(index, "seconds"),
            "median_cpu_seconds": self.median(index, "cpu"),
            "judgement": asdict(comparison) if comparison else None,
            "cpu": asdict(cpu) if cpu else None,
            "beside": {key: asdict(value) if value else None for key, value in beside.items()},
            "system_calls": self.sidecars[index].system_calls,
            "memory_over_time": self.sidecars[index].samples,
            "allocator": dict(stats.allocator) if stats else None,
            "os_calls": [asdict(row) for row in stats.os_calls] if stats else None,
            "retained": [asdict(row) for row in stats.retained] if stats else None,
        }


def write_json(value: dict[str, Any], path: Path) -> None:
    path.write_text(json.dumps(value, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


class RunLog:
    """The CSV file of raw runs: one line each, including warm-ups, written as soon as the run has ended."""

    def __init__(self, path: Path) -> None:
        self.stream = path.open("w", newline="", encoding="utf-8")
        self.writer = csv.writer(self.stream)
        self.writer.writerow(
            ["block", "place", "variant", "warmup", "seconds", "user", "system", "exit_code"]
        )

    def add(self, arm: Arm, run: Run) -> None:
        times = (f"{run.seconds:.9f}", f"{run.user:.6f}", f"{run.system:.6f}")
        self.writer.writerow(
            [run.block, run.place, arm.title, int(run.warmup), *times, run.exit_code]
        )
        self.stream.flush()

    def close(self) -> None:
        self.stream.close()


def write_csv(results: Results, path: Path) -> None:
    """The same from complete results."""
    arms = {arm.key: arm for arm in results.arms}
    log = RunLog(path)
    for run in results.runs:
        log.add(arms[run.arm], run)
    log.close()
