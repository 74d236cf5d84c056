# SPDX-License-Identifier: MIT
"""Runs a program under the library: with its statistics, and with every memory call that strace saw.

A call is the library's own if the function that made it lies in the library: the first frame of its stack, or the
second if the first is the C library's wrapper. So the loader's calls and those for thread stacks do not count,
whichever thread made them.
"""
import collections
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from common import skip

# No page is purged because of its age, so that nothing depends on time.
NEVER = {"HAKMEM_PURGE_DELAY_MS": "3600000"}
CALLS = ("mmap", "munmap", "mprotect", "mremap", "madvise", "process_madvise", "mincore", "prctl")
_CALL = re.compile(r"^(\w+)\((.*?)(?:= (-?\w+|\?)( E\w+)?.*)?$")
_FRAME = re.compile(r"^ > ([^(\[]+)")


@dataclass
class Process:
    """What one process did: the library's own calls, and all of them, by name."""
    pid: int
    parent: int | None = None
    own: collections.Counter = field(default_factory=collections.Counter)
    own_failed: collections.Counter = field(default_factory=collections.Counter)
    all: collections.Counter = field(default_factory=collections.Counter)
    stats: dict | None = None


def settings_only(settings):
    """The environment of a test, without the caller's own settings."""
    env = {key: value for key, value in os.environ.items()
           if not key.startswith("HAKMEM_") and key not in ("LD_PRELOAD", "MALLOC_PERTURB_")}
    return env | {key: str(value) for key, value in settings.items()}


def run(library, command, settings, prefix=()):
    """One run under the library; `prefix` is a program that runs it, such as strace."""
    env = settings_only(settings)
    words = [*prefix, "env", f"LD_PRELOAD={library}", *map(str, command)]
    return subprocess.run(words, capture_output=True, text=True, env=env, stdin=subprocess.DEVNULL)


def run_with_stats(library, command, settings=None, prefix=()):
    """(statistics, stderr) of one run under the library, which must succeed."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "stats"
        with_stats = {"HAKMEM_STATS": "json", "HAKMEM_STATS_FILE": file, **(settings or {})}
        ended = run(library, command, with_stats, prefix)
        if ended.returncode or not file.exists():
            sys.exit(f"{' '.join(map(str, command))} with {settings}: {ended.returncode}\n"
                     f"{ended.stdout}{ended.stderr}")
        return json.loads(file.read_text()), ended.stderr


def _events(path):
    """(name, arguments, result, error, frames) of each call in a file of strace -ff -k."""
    events = []
    for line in path.read_text(errors="replace").splitlines():
        frame = _FRAME.match(line)
        call = None if frame else _CALL.match(line)
        if frame and events:
            events[-1][4].append(frame[1])
        elif call:
            events.append((call[1], call[2], call[3], call[4], []))
    return events


def _is_own(frames, library):
    if not frames:
        return False
    if frames[0] == library:
        return True
    return (len(frames) > 1 and frames[1] == library and
            os.path.basename(frames[0]).startswith(("libc.so", "libc-", "ld-musl")))


def _threads_and_children(events):
    """([threads], [children]) that a thread started, each with the index in its events."""
    threads, children = [], []
    for place, (name, arguments, result, _, _) in enumerate(events):
        if name in ("clone", "clone3", "fork", "vfork") and result and result.isdigit() and int(result) > 0:
            (threads if "CLONE_THREAD" in arguments else children).append((int(result), place))
    return threads, children


class _Trace:
    """All files of one strace -ff."""

    def __init__(self, folder, library, stats_prefix):
        self.library, self.stats_prefix = library, stats_prefix
        self.events = {int(file.suffix[1:]): _events(file) for file in folder.glob("trace.*")}
        self.processes = []

    def count(self, process, events):
        for name, arguments, _, error, frames in events:
            if name == "openat" and self.stats_prefix in arguments:
                return  # the ledger was written at this time
            process.all[name] += 1
            if name in CALLS and _is_own(frames, self.library):
                process.own[name] += 1
                process.own_failed[name] += error is not None

    def follow(self, pid, process, until=None):
        """Counts a thread and the threads that it started; until: the index at which a child was forked."""
        events = self.events.get(pid, [])[:until]
        threads, children = _threads_and_children(events)
        self.count(process, events)
        for thread, _ in threads:
            self.follow(thread, process)
        return children

    def first(self):
        """The thread that none of the others started; ids may have wrapped around in between."""
        started = {pid for events in self.events.values() for group in _threads_and_children(events)
                   for pid, _ in group}
        return next(pid for pid in self.events if pid not in started)

    def process(self, pid, inherited):
        """A child begins with its parent's ledger as it was at the fork."""
        process = Process(pid)
        process.own += inherited.own
        process.own_failed += inherited.own_failed
        children = self.follow(pid, process)
        self.processes.append(process)
        for child, place in children:
            at_fork = Process(pid)
            at_fork.own += inherited.own
            at_fork.own_failed += inherited.own_failed
            self.follow(pid, at_fork, place)
            self.process(child, at_fork)


def trace(library, command, settings=None):
    """Every process of one run under the library, the first one first. Skips where strace cannot trace."""
    if not shutil.which("strace"):
        skip("no strace")
    library = str(Path(library).resolve())
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        set_there = {"LD_PRELOAD": library, "HAKMEM_STATS": "json", "HAKMEM_STATS_FILE": f"{folder}/stats.%p",
                     **(settings or {})}
        words = [word for key, value in set_there.items() for word in ("-E", f"{key}={value}")]
        run = subprocess.run(["strace", "-ff", "-k", "-o", f"{folder}/trace", "-e", "signal=none",
                              *words, *map(str, command)],
                             capture_output=True, text=True, stdin=subprocess.DEVNULL, env=settings_only({}))
        files = list(folder.glob("trace.*"))
        if run.returncode and ("ptrace" in run.stderr.lower() or "-k" in run.stderr or not files):
            skip(f"strace cannot trace here: {run.stderr.strip()}")
        if run.returncode:
            sys.exit(f"{' '.join(map(str, command))}: {run.returncode}\n{run.stdout}{run.stderr}")
        traced = _Trace(folder, library, f"{folder}/stats.")
        traced.process(traced.first(), Process(0))
        for process in traced.processes:
            file = folder / f"stats.{process.pid}"
            process.stats = json.loads(file.read_text()) if file.exists() else None
        return traced.processes


def ledger_by_call(stats, what="calls"):
    """{call: number} over all causes of the statistics."""
    sums = collections.Counter()
    for row in stats["os_calls"]:
        sums[row["call"]] += row[what]
    return +sums


def ledger_by_cause(stats, what="calls"):
    """{cause: number} over all calls of the statistics."""
    sums = collections.Counter()
    for row in stats["os_calls"]:
        sums[row["cause"]] += row[what]
    return +sums
