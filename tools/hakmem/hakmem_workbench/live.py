# SPDX-License-Identifier: MIT
"""Shows the progress of an experiment on stderr: phase, bar, time left, medians so far. On a terminal it redraws in
place; elsewhere, as in a log, it prints a line for each phase and at intervals a line with the progress.
"""

from __future__ import annotations

import statistics
import time
from types import TracebackType

from rich.console import Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.text import Text

from .results import Arm
from .screen import Console
from .text import duration


EVERY = 15.0  # seconds between two lines if nothing can be redrawn


class Display:
    """A context manager that an experiment reports to."""

    def __init__(self, quiet: bool = False) -> None:
        self.console = Console(stderr=True, quiet=quiet)
        self.terminal = self.console.is_terminal and not quiet
        self.progress = Progress(
            TextColumn("{task.description}", justify="left"),
            BarColumn(bar_width=None),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            console=self.console,
            expand=True,
        )
        self.task = self.progress.add_task("", total=None)
        self.times: dict[str, list[float]] = {}
        self.first: str | None = None
        self.done = 0
        self.title = ""
        self.steps = 0
        self.began = self.told = time.monotonic()
        self.live = Live(self.progress, console=self.console, transient=True, refresh_per_second=4)

    def __enter__(self) -> Display:
        if self.terminal:
            self.live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.terminal:
            self.live.stop()

    def phase(self, title: str, steps: int) -> None:
        self.done, self.title, self.steps = 0, title, steps
        self.began = self.told = time.monotonic()
        self.progress.reset(self.task, total=steps, description=title)
        if not self.terminal:
            self._line(f"{title} ({steps} runs) …")

    def step(self, what: str) -> None:
        if self.terminal:
            self.progress.update(self.task, completed=self.done)
            self.live.update(
                Group(self.progress, Text(f"  now: {what}", style="dim"), *self._medians())
            )
        elif self.done and time.monotonic() - self.told >= EVERY:
            self._how_far()
        self.done += 1

    def _how_far(self) -> None:
        """At the pace of this phase so far."""
        self.told = time.monotonic()
        left = (self.told - self.began) / self.done * (self.steps - self.done)
        self._line(f"{self.title}: {self.done} of {self.steps} runs, {duration(left)} left")

    def _line(self, words: str) -> None:
        self.console.print(words, style="dim", highlight=False, soft_wrap=True)

    def timed(self, arm: Arm, seconds: float, warmup: bool) -> None:
        if warmup:
            return
        self.first = self.first or (arm.title if not arm.variant and not arm.again else None)
        self.times.setdefault(arm.title, []).append(seconds)

    def note(self, sentence: str) -> None:
        self.console.print(f"note: {sentence}", style="yellow", highlight=False, soft_wrap=True)

    def _medians(self) -> list[Text]:
        base = statistics.median(self.times[self.first]) if self.first in self.times else None
        lines = []
        for title in sorted(self.times, key=lambda title: title != self.first):
            middle = statistics.median(self.times[title])
            ratio = f"  {middle / base:.3f}" if base and title != self.first else ""
            lines.append(Text(f"  {title:<28} {duration(middle):>10}{ratio}"))
        return lines
