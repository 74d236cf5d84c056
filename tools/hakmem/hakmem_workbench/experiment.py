# SPDX-License-Identifier: MIT
"""Carries out an experiment: first the proof, then timed blocks, then the other measurements.

Every variant is proven to be in effect before anything is timed. In each block every arm runs once, in random order;
the baseline has two arms, so that A against A is always there. Warm-up blocks are kept in the raw data only. If a
signal or a failure ends the experiment early, the results so far are kept.
"""

from __future__ import annotations

import os
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from . import checks, machine, preload, statsfile
from .blocks import interleaved, shuffled
from .checks import Finding
from .errors import TOOL_FAILED, Problem, exit_code_of, name_of
from .observe import Observation, Request, observe
from .results import Arm, Metric, Results, Run, Stop
from .settings import own_settings
from .sidecar import Sidecar, count_system_calls
from .statsfile import Stats
from .text import listing, plural, said
from .timing import Hyperfine
from .variants import Variant

AUTO_SECONDS = 60.0
AUTO_BLOCKS = (15, 60)
_PREVENTS = ("static", "setuid", "env-cleared", "refused-preload", "own-malloc", "other-malloc")


class Watcher(Protocol):
    """Receives the progress of an experiment; see `live`."""

    def phase(self, title: str, steps: int) -> None: ...
    def step(self, what: str) -> None: ...
    def timed(self, arm: Arm, seconds: float, warmup: bool) -> None: ...
    def note(self, sentence: str) -> None: ...


@dataclass(frozen=True)
class Plan:
    """The request; None: decide by the duration of the command."""

    command: Sequence[str]
    variants: Sequence[Variant]
    runs: int | None = None
    warmup: int = 1
    seed: int = 0
    memory_runs: int | None = None
    system_calls: bool = True
    ignore_failure: bool = False
    show_output: bool = False
    unproven: bool = False
    prepare: str | None = None
    stdin: str | None = None
    metric: Metric = "seconds"


@dataclass
class _Proof:
    """The results of a variant's first run."""

    seen: Observation
    stats: Stats | None
    sidecar: Sidecar = field(default_factory=Sidecar)


class Experiment:
    """One execution of a plan; `record` receives each timed run as soon as it has ended."""

    def __init__(
        self, plan: Plan, watcher: Watcher, record: Callable[[Arm, Run], None] | None = None
    ) -> None:
        preload.resolve_command(plan.command)
        self.plan = plan
        self.watcher = watcher
        self.record = record or (lambda _arm, _run: None)
        self.environment = preload.neutral_environment()
        self.random = random.Random(plan.seed)
        self.stopwatch = Hyperfine(
            self.environment,
            ignore_failure=plan.ignore_failure,
            show_output=plan.show_output,
            stdin=plan.stdin,
            prepare=plan.prepare,
        )
        first = plan.variants[0]
        self.arms = [Arm(first.label, 0), Arm(first.label, 0, again=True)]
        self.arms += [Arm(v.label, i) for i, v in enumerate(plan.variants) if i]
        self.notes: list[str] = []
        self.runs: list[Run] = []

    def carry_out(self) -> Results:
        before = machine.record()
        if left := sorted(own_settings(os.environ)):
            self._note(f"{listing(left)} in the environment is ignored here; use set: instead.")
        started, neighbours = time.monotonic(), machine.Neighbours()
        proofs = self._prove()
        floor = self.stopwatch.floor()
        stopped = self._measure(proofs)
        others = neighbours.cpus()
        before |= {"load_after": list(os.getloadavg()), "cpus_busy_with_others": round(others, 2)}
        return Results(
            command=list(self.plan.command),
            variants=list(self.plan.variants),
            arms=self.arms,
            runs=self.runs,
            sidecars=[proof.sidecar for proof in proofs],
            stats=[proof.stats for proof in proofs],
            machine=before,
            seed=self.plan.seed,
            notes=[*self.notes, *machine.notes(before, others)],
            floor=floor,
            hyperfine=self.stopwatch.version,
            elapsed=time.monotonic() - started,
            metric=self.plan.metric,
            stopped=stopped,
        )

    def _measure(self, proofs: list[_Proof]) -> Stop | None:
        """All results, or the reason why it ended early, if anything was measured."""
        try:
            self._time_blocks()
            self._measure_memory(proofs)
            self._count_calls(proofs)
        except (KeyboardInterrupt, Problem, OSError) as reason:
            if not self.runs:
                raise
            for proof in proofs:
                if not proof.sidecar.values:
                    proof.sidecar.add(proof.seen)
            return self._stop(reason)
        return None

    def _stop(self, reason: BaseException) -> Stop:
        timed = sum(1 for run in self.runs if not run.warmup)
        at = f"after {plural(timed, 'timed run')}"
        if isinstance(reason, KeyboardInterrupt):
            return Stop(f"interrupted by {name_of(reason)} {at}", exit_code_of(reason))
        if isinstance(reason, Problem):
            return Stop(f"stopped {at}: {reason.line}", reason.code)
        return Stop(f"stopped {at}: {reason}", TOOL_FAILED)

    # -- proof ---------------------------------------------------------------

    def _prove(self) -> list[_Proof]:
        self.watcher.phase("Checking that each variant is in effect", len(self.plan.variants))
        proofs = []
        for variant in self.plan.variants:
            self.watcher.step(variant.label)
            proofs.append(self._prove_one(variant))
        return proofs

    def _prove_one(self, variant: Variant) -> _Proof:
        with tempfile.TemporaryDirectory(prefix="hakmem-") as name:
            folder = Path(name)
            folder.chmod(0o777)
            assigned = variant.assignments()
            if variant.hakmem:
                assigned |= {"HAKMEM_STATS": "json", "HAKMEM_STATS_FILE": f"{folder}/%p.json"}
            seen = self._observe(assigned)
            stats = statsfile.most_telling(folder, seen.images[0].pid if seen.images else 0)
        self._check_exit(variant, seen)
        self._check_effect(variant, seen)
        if variant.hakmem and stats is None:
            self._note(f"{variant.label} wrote no statistics: it was killed, or left by _exit.")
        if stats is not None and stats.violations:
            self._note(f"{variant.label}: conservation laws of the allocator are broken.")
        return _Proof(seen, stats)

    def _observe(self, assigned: dict[str, str]) -> Observation:
        self.stopwatch.run_prepare()
        path = preload.resolve_command(self.plan.command)
        return observe(
            Request(
                self.plan.command,
                assigned,
                self.environment,
                trace=checks.may_trace(path),
                stdin=self.plan.stdin or os.devnull,
                show_output=self.plan.show_output,
            )
        )

    def _check_exit(self, variant: Variant, seen: Observation) -> None:
        if not seen.exit_code:
            return
        sentence = f"the command failed with exit code {seen.exit_code} under {variant.label}"
        if self.plan.ignore_failure:
            self._note(sentence[0].upper() + sentence[1:] + ".")
            return
        hint = "-i ignores failures; --show-output lets the output through."
        raise Problem(sentence, said(seen.stderr, hint), code=1)

    def _check_effect(self, variant: Variant, seen: Observation) -> None:
        """The command's own last program must be served; others are only reported."""
        if not seen.images:
            self._note(f"{variant.label}: the command ended before it could be observed.")
            return
        judged = checks.judge(seen, variant.expected)
        own = [program for program in judged if program.image.pid == seen.images[0].pid]
        for finding in own[-1].findings:
            if finding.kind in _PREVENTS and not self.plan.unproven:
                raise Problem(
                    f"{variant.label} would not be in effect: {finding.sentence}",
                    finding.hint + " (--unproven measures nevertheless.)",
                    code=1,
                )
        found: dict[Finding, None] = {}
        for program in judged:
            for finding in program.findings:
                found.setdefault(finding)
        for finding in list(found)[:4]:
            self._note(f"{variant.label}: {finding.sentence}.")

    def _note(self, sentence: str) -> None:
        if sentence not in self.notes:
            self.notes.append(sentence)
            self.watcher.note(sentence)

    # -- time ----------------------------------------------------------------

    def _time_blocks(self) -> None:
        warmup = max(self.plan.warmup, 0)
        self.watcher.phase("Warming up", max(warmup, 1) * len(self.arms))
        for number in range(warmup):
            self._block(number - warmup, True)
        blocks = self.plan.runs or self._decide_blocks(warmup)
        self.watcher.phase("Timing", blocks * len(self.arms))
        for number in range(blocks):
            self._block(number, False)

    def _block(self, number: int, warmup: bool) -> None:
        for place, arm in enumerate(shuffled(self.arms, self.random)):
            self.watcher.step(arm.title)
            timing = self.stopwatch.once(
                self.plan.command, self.plan.variants[arm.variant].assignments()
            )
            run = Run(
                number,
                place,
                arm.key,
                warmup,
                timing.seconds,
                timing.user,
                timing.system,
                timing.exit_code,
            )
            self.runs.append(run)
            self.record(arm, run)
            self.watcher.timed(arm, timing.seconds, warmup)

    def _decide_blocks(self, warmup: int) -> int:
        """As many runs as fit into about a minute, within limits that the statistics require."""
        if not warmup:
            return AUTO_BLOCKS[0]
        block = sum(run.seconds for run in self.runs if run.block == -1) or 0.001
        return min(max(int(AUTO_SECONDS / block), AUTO_BLOCKS[0]), AUTO_BLOCKS[1])

    # -- beside time ---------------------------------------------------------

    def _measure_memory(self, proofs: list[_Proof]) -> None:
        rounds = self.plan.memory_runs
        if rounds is None:
            longest = statistics.median(run.seconds for run in self.runs)
            rounds = 5 if longest < 2 else 3 if longest < 20 else 1
        self.watcher.phase("Measuring memory", rounds * len(proofs))
        for _, _, index in interleaved(range(len(proofs)), rounds, self.random):
            self.watcher.step(self.plan.variants[index].label)
            seen = self._observe(self.plan.variants[index].assignments())
            proofs[index].sidecar.add(seen)

    def _count_calls(self, proofs: list[_Proof]) -> None:
        if not self.plan.system_calls:
            return
        self.watcher.phase("Counting system calls", len(proofs))
        for variant, proof in zip(self.plan.variants, proofs, strict=True):
            self.watcher.step(variant.label)
            self.stopwatch.run_prepare()
            proof.sidecar.system_calls, why = count_system_calls(
                self.plan.command, variant.assignments(), self.environment, self.plan.stdin
            )
            if proof.sidecar.system_calls is None:
                self._note(f"System calls were not counted: {why}.")
                return
