# SPDX-License-Identifier: MIT
"""Traces of a program's calls, recorded under any allocator and replayed under any other. libhakmem-trace.so writes
them (docs/trace-format.md), one file for each process. hakmem-replay makes a plan from a trace, and executes it. Both
lie beside the library: in a build, in an installation and in a wheel.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from . import preload
from .errors import Problem
from .variants import Variant

RECORDER = "libhakmem-trace.so"
REPLAYER = "hakmem-replay"
_GZIP = b"\x1f\x8b"
_ZSTD = b"\x28\xb5\x2f\xfd"


@dataclass(frozen=True)
class Facts:
    """Facts about a trace; `live` is the live bytes after each tenth of its calls."""

    program: str
    pid: int
    parent: int
    events: int
    lost: int
    threads: int
    steps: int
    unknown: int
    implied: int
    seconds: float
    peak: int
    live: tuple[int, ...]


@dataclass(frozen=True)
class Outcome:
    """One replay; lists have a value for each tenth of the calls."""

    seconds: float
    cpu: float
    max_rss: int
    mean_resident: int
    recorded: tuple[int, ...]
    live: tuple[int, ...]
    resident: tuple[int, ...]


def recording(recorder: str, variant: Variant, pattern: str) -> dict[str, str]:
    """The variables to set for recording a command under a variant."""
    found = variant.assignments()
    found["LD_PRELOAD"] = preload.chain(recorder, found.get("LD_PRELOAD"))
    # Processes under other allocators have no table of settings that could contain it.
    return found | {"HAKMEM_TRACE": pattern}


def facts_of(replayer: str, trace: Path, plan: Path | None = None) -> Facts:
    """Reads an uncompressed trace; makes its plan, if requested."""
    done = subprocess.run(
        [replayer, "--plan", trace, *([plan] if plan else [])],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        said = done.stderr.strip().removeprefix("hakmem-replay: ")
        raise Problem(
            f"it can't be replayed: {said or f'exit code {done.returncode}'}",
            "'hakmem record -- CMD' writes a trace.",
        )
    found = json.loads(done.stdout)
    return Facts(**found | {"live": tuple(found["live"])})


def compress(trace: Path, target: Path) -> None:
    with trace.open("rb") as source, gzip.open(target, "wb", compresslevel=4) as sink:
        shutil.copyfileobj(source, sink, 1 << 20)


@contextlib.contextmanager
def expanded(path: Path, folder: Path) -> Iterator[Path]:
    """The uncompressed trace; if it is compressed, a copy in the folder."""
    try:
        with path.open("rb") as stream:
            head = stream.read(4)
    except OSError as error:
        raise Problem(
            f"{path} can't be read: {error.strerror}", "'hakmem record -- CMD' writes a trace."
        ) from error
    copy = folder / "trace"
    if head.startswith(_GZIP):
        try:
            with gzip.open(path, "rb") as source, copy.open("wb") as sink:
                shutil.copyfileobj(source, sink, 1 << 20)
        except (OSError, EOFError) as error:
            raise Problem(f"{path} is cut off or damaged", "Record it again.") from error
    elif head == _ZSTD:
        done = subprocess.run(
            ["zstd", "-dqf", path, "-o", copy], capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise Problem(f"{path}: {done.stderr.strip()}", "Record it again.")
    else:
        yield path
        return
    yield copy
    copy.unlink()


def carry_out(
    replayer: str, plan: Path, assigned: Mapping[str, str], options: Sequence[str] = ()
) -> Outcome:
    """One replay in a process of its own."""
    done = subprocess.run(
        [replayer, *options, plan],
        env=preload.neutral_environment() | dict(assigned),
        capture_output=True,
        text=True,
        check=False,
    )
    try:
        found = json.loads(done.stdout)
    except ValueError as error:
        said = done.stderr.strip().splitlines()
        raise Problem(
            f"the replay failed with exit code {done.returncode}",
            f"It said: {said[-1]}" if said else "Is the allocator in effect? 'hakmem verify' tells.",
            1,
        ) from error
    lists = {name: tuple(found[name]) for name in ("recorded", "live", "resident")}
    figures = (int(found[name]) for name in ("max_rss", "mean_resident"))
    return Outcome(found["seconds"], found["cpu"], *figures, **lists)


def written(folder: Path) -> list[Path]:
    """The traces of a run's processes, ordered by name."""
    return sorted(Path(folder, name) for name in os.listdir(folder))
