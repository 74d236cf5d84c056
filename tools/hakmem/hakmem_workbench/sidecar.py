# SPDX-License-Identifier: MIT
"""Measures everything except time, in separate runs, which are not timed.

Memory, faults and switches come from `observe`, system calls from strace.
These runs cannot disturb timings: they come before or after the timed blocks.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from . import children
from .observe import Observation

MEMORY_CALLS = ("mmap", "munmap", "mremap", "brk", "madvise", "process_madvise", "mprotect")


@dataclass(frozen=True)
class Metric:
    """One quantity other than time: where it is found, and how it is shown."""

    key: str
    title: str
    unit: str  # "bytes" or "count"


METRICS = (
    Metric("peak", "peak memory", "bytes"),
    Metric("final", "final memory", "bytes"),
    Metric("minor_faults", "page faults, minor", "count"),
    Metric("major_faults", "page faults, major", "count"),
    Metric("voluntary_switches", "context switches, voluntary", "count"),
    Metric("involuntary_switches", "context switches, involuntary", "count"),
)


@dataclass
class Sidecar:
    """All quantities other than time, for one variant."""

    values: dict[str, list[float]] = field(default_factory=dict)
    samples: list[tuple[float, int]] = field(default_factory=list)
    system_calls: dict[str, int] | None = None

    def add(self, seen: Observation) -> None:
        for metric in METRICS:
            value = getattr(seen, metric.key)
            if metric.key == "final" and not value:
                continue
            self.values.setdefault(metric.key, []).append(float(value))
        if len(seen.samples) > len(self.samples):
            self.samples = thin(seen.samples)

    @property
    def system_call_total(self) -> int | None:
        return None if self.system_calls is None else sum(self.system_calls.values())


def thin(samples: Sequence[tuple[float, int]], keep: int = 240) -> list[tuple[float, int]]:
    """At most `keep` points: the highest of each group, since peaks matter."""
    if len(samples) <= keep:
        return list(samples)
    size = len(samples) / keep
    groups = [samples[int(i * size) : int((i + 1) * size)] for i in range(keep)]
    return [max(group, key=lambda point: point[1]) for group in groups if group]


def count_system_calls(
    command: Sequence[str],
    assigned: Mapping[str, str],
    environment: Mapping[str, str],
    stdin: str | None,
) -> tuple[dict[str, int] | None, str]:
    """Calls by name, of the command and its children; or None and the reason."""
    strace = shutil.which("strace")
    if not strace:
        return None, "strace is not installed"
    with (
        tempfile.TemporaryDirectory(prefix="hakmem-") as folder,
        open(stdin or os.devnull, "rb") as source,
    ):
        target = Path(folder) / "calls"
        # -E sets a variable for the command only, so strace stays outside of the preload.
        settings = [word for key, value in assigned.items() for word in ("-E", f"{key}={value}")]
        done = children.run(
            [strace, "-f", "-c", "-o", str(target), *settings, "--", *command],
            env=dict(environment),
            stdin=source,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        if not target.exists() or not (text := target.read_text(encoding="utf-8")).strip():
            said = done.stderr.strip().splitlines()
            return None, said[-1] if said else "strace said nothing"
    return parse_summary(text), ""


def parse_summary(text: str) -> dict[str, int]:
    """The table that strace -c writes: calls by name."""
    calls: dict[str, int] = {}
    for line in text.splitlines():
        fields = line.split()
        if len(fields) >= 5 and fields[3].isdigit() and fields[-1] != "total":
            calls[fields[-1]] = calls.get(fields[-1], 0) + int(fields[3])
    return calls
