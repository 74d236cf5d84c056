# SPDX-License-Identifier: MIT
"""Times one run of one command with hyperfine, which is called for a single run at a time, so that variants can be
interleaved. env(1) sets the variant's environment, in the same way for every variant, so that hyperfine itself never
runs under a tested allocator.
"""

from __future__ import annotations

import json
import shlex
import shutil
import statistics
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import children
from .errors import TOOL_FAILED, Problem
from .text import said


@dataclass(frozen=True)
class Timing:
    """One run, in seconds."""

    seconds: float
    user: float
    system: float
    exit_code: int


def timing(result: dict[str, Any]) -> Timing:
    """The run of an exported result; hyperfine 2 lists runs, with units."""
    run, names = result, ("times", "user", "system", "exit_codes")
    if "measurements" in result:
        run, names = result["measurements"][0], ("time_wall_clock", "time_user", "time_system", "exit_code")

    def number(name: str) -> float:
        value = run.get(name) or 0
        if isinstance(value, dict):
            value = value["value"]
        return (value[0] if isinstance(value, list) else value) or 0

    wall, user, system, code = map(number, names)
    return Timing(float(wall), float(user), float(system), int(code))


class Hyperfine:
    """The stopwatch, with the arguments common to all runs."""

    def __init__(
        self,
        environment: Mapping[str, str],
        *,
        ignore_failure: bool = False,
        show_output: bool = False,
        stdin: str | None = None,
        prepare: str | None = None,
    ) -> None:
        found = shutil.which("hyperfine")
        if not found:
            raise Problem(
                "hyperfine is not installed; it does the timing",
                "On Debian: apt install hyperfine.",
                code=TOOL_FAILED,
            )
        self.path = found
        self.environment = dict(environment)
        self.ignore_failure = ignore_failure
        self.show_output = show_output
        self.stdin = stdin
        self.prepare = prepare

    @property
    def version(self) -> str:
        done = subprocess.run([self.path, "--version"], capture_output=True, text=True, check=False)
        return done.stdout.strip()

    def once(self, command: Sequence[str], assigned: Mapping[str, str]) -> Timing:
        """One timed run; the preparation before it is not timed."""
        self.run_prepare()
        words = ["env", *(f"{key}={value}" for key, value in assigned.items()), *command]
        if self.stdin:  # not by --input, which older versions of hyperfine lack
            words = ["sh", "-c", 'input=$1; shift; exec "$@" <"$input"', "sh", self.stdin, *words]
        with tempfile.TemporaryDirectory(prefix="hakmem-") as folder:
            target = Path(folder) / "time.json"
            arguments = [
                self.path,
                "--shell=none",
                "--warmup=0",
                "--runs=1",
                f"--style={'basic' if self.show_output else 'none'}",
                "--export-json",
                str(target),
            ]
            if self.ignore_failure:
                arguments.append("--ignore-failure")
            if self.show_output:
                arguments.append("--show-output")
            done = children.run(
                [*arguments, shlex.join(words)],
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=None if self.show_output else subprocess.DEVNULL,
                stderr=subprocess.PIPE,
            )
            if done.returncode or not target.exists():
                raise Problem(
                    f"{shlex.join(command)} failed while it was timed",
                    said(done.stderr, "-i accepts exit codes other than 0."),
                    1,
                )
            return timing(json.loads(target.read_text(encoding="utf-8"))["results"][0])

    def run_prepare(self) -> None:
        """The user's command before each run."""
        if not self.prepare:
            return
        done = children.run(
            ["/bin/sh", "-c", self.prepare],
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        if done.returncode:
            raise Problem(
                f"the preparation '{self.prepare}' failed with exit code {done.returncode}",
                said(done.stderr, "Try it alone: it must succeed before every run."),
                1,
            )

    def floor(self) -> float:
        """The time of a program that does nothing: part of every figure."""
        nothing = shutil.which("true") or "/bin/true"
        quiet = Hyperfine(self.environment)
        return statistics.median(quiet.once([nothing], {}).seconds for _ in range(7))
