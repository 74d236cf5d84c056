#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The life of a process as a matrix: each way in which the library gets into a process, times each event there.

  PYTHONPATH=tests life.py LIBRARY PROGRAMS [--only WORLD/CASE...] [--list] [--long] [--jobs N]

A cell is named WORLD/CASE or WORLD/CASE/SETTING; --only takes patterns of such names. The watchdog ends a cell that
hangs, and prints where each of its threads is. --long repeats each cell with more rounds and under each backend; it is
skipped unless STRESS_LONG=1.
"""
import argparse
import concurrent.futures
import contextlib
import fnmatch
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from common import finish, skip
from tracing import settings_only

PATIENCE = 60  # seconds; a cell takes less than one, on an idle machine
LONG = 20      # times the rounds and the patience, under --long

# How the library gets into the process: the program, and what else is needed.
WORLDS = {
    "preloaded": ("life_plain", {"LD_PRELOAD": "{library}"}),
    "linked_first": ("life_first", {}),
    "linked_last": ("life_last", {}),
    "archive": ("life_archive", {}),
    "opened": ("life_plain", {"LIFE_LIBRARY": "{library}"}),
    "opened_late": ("life_plain", {"LIFE_LIBRARY": "{library}", "LIFE_LATE": "1"}),
}
SYSTEM = ("life_plain", {"LIFE_SYSTEM": "1"})  # under --long: cases that the C library's own malloc survives
SERVING = ("preloaded", "linked_first", "linked_last", "archive")
ONE = ("linked_first",)

# The actions of the other library in the process, by case.
OTHER = {
    "atfork_prepare": "prepare", "atfork_parent": "parent", "atfork_child": "child", "atfork_threads": "threads",
    "atfork_mutex": "mutex", "atfork_fork": "inner",
    "fork_in_constructor": "constructor", "fork_in_destructor": "destructor", "threads_of_constructor": "starter",
}

# A case, and the worlds in which it differs. If a program opens the library after another one registered its handlers,
# ours cannot run inside of them: POSIX specifies the order. Such a handler may not wait for a thread that allocates
# (docs/limits.md).
CASES = {
    "fork_among_threads": tuple(WORLDS), "fork_in_thread": tuple(WORLDS), "fork_in_child": tuple(WORLDS),
    "fork_in_ending_thread": tuple(WORLDS), "plain_fork": tuple(WORLDS),
    "fork_in_handler": tuple(WORLDS), "atfork_prepare": tuple(WORLDS), "atfork_parent": tuple(WORLDS),
    "atfork_child": tuple(WORLDS), "atfork_threads": tuple(WORLDS), "atfork_mutex": tuple(WORLDS)[:5],
    "atfork_fork": tuple(WORLDS),
    "fork_in_constructor": tuple(WORLDS),
    "fork_in_destructor": tuple(WORLDS), "vfork": tuple(WORLDS), "spawn": tuple(WORLDS),
    "streams_flushed": SERVING, "streams_written": SERVING, "exit_busy": tuple(WORLDS), "exit_ending": tuple(WORLDS),
    "threads_of_constructor": (*SERVING, "opened"), "first_call_frees": ("linked_first", "opened"),
    "cancelled": ("linked_first", "opened"), "told_cancelled": ONE,
    "exit_cancelled": ONE,
    "bare_fork": tuple(WORLDS), "bare_fork_after_rounds": tuple(WORLDS), "sleepers": SERVING,
    "in_stacks": SERVING, "in_loader": (*SERVING, "opened"), "in_tls": (*SERVING, "opened"), "in_streams": SERVING,
    "in_names": SERVING, "in_exit": (*SERVING, "opened"),
}
# Cases that hang because of a documented limit, and the line that says so.
LIMITS = {("opened_late", "atfork_threads"): "a thread has waited 10 s for a thread that forks"}
BACKGROUND = {"HAKMEM_BACKGROUND": "1"}
# Enables everything that a slow path can do.
OFTEN = BACKGROUND | {"HAKMEM_PURGE_DELAY_MS": "0"}
LOGS = OFTEN | {"HAKMEM_GUARD_RATE": "1", "HAKMEM_STATS": "1", "HAKMEM_VERBOSE": "1", "HAKMEM_SS_ACQUIRE_DEBUG": "1"}
SETTINGS_OF = {
    "bare_fork": BACKGROUND | {"HAKMEM_PURGE_DELAY_MS": "3600000"},
    "bare_fork_after_rounds": BACKGROUND | {"HAKMEM_PURGE_DELAY_MS": "1000"},
    "sleepers": BACKGROUND,
} | {case: OFTEN for case in ("in_stacks", "in_loader", "in_tls", "in_streams", "in_names", "in_exit")}


@dataclass
class Cell:
    world: str
    case: str
    settings: dict = field(default_factory=dict)
    times: int = 1  # the rounds of the case

    @property
    def name(self):
        return "/".join([self.world, self.case, *(f"{k}={v}" for k, v in self.settings.items())])


def switches(library):
    """Each boolean setting that is off by default, switched on, and the statistics at exit."""
    with tempfile.NamedTemporaryFile() as out:
        env = settings_only({"LD_PRELOAD": library, "HAKMEM_STATS": "json", "HAKMEM_STATS_FILE": out.name})
        subprocess.run(["/bin/true"], env=env, check=True)
        settings = json.load(open(out.name))["settings"]
    return [{"HAKMEM_STATS": "1"}] + [{s["name"]: "1"} for s in settings if s["type"] == "bool" and not s["default"]]


def cells(library, backends, long):
    everywhere = [Cell(world, case, SETTINGS_OF.get(case, {})) for case, worlds in CASES.items() for world in worlds]
    switched = [Cell(ONE[0], "cancelled", s) for s in switches(library)]
    told = [Cell(ONE[0], "exit_cancelled", {"HAKMEM_STATS": "json"})]
    logged = [Cell(ONE[0], case, LOGS) for case, settings in SETTINGS_OF.items() if settings is OFTEN]
    beside = [Cell(ONE[0], case, OFTEN) for case in ("exit_busy", "exit_ending", "fork_in_thread")]
    chosen = everywhere + switched + told + logged + beside
    if not long:
        return chosen
    control = [Cell("system", case, {}, LONG) for case, worlds in CASES.items() if worlds[:4] == SERVING]
    return control + [Cell(c.world, c.case, c.settings | {"HAKMEM_BACKEND": b}, LONG) for c in chosen for b in backends]


# --- the watchdog -----------------------------------------------------------------------------------------

def _in_session(session):
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            words = path.read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        if int(words[3]) == session and words[0] != "Z":
            found.append(int(path.parent.name))
    return sorted(found)


def _tasks_of(pid):
    lines = []
    for task in sorted(Path(f"/proc/{pid}/task").glob("*")):
        for name in "wchan", "syscall", "stack":
            try:
                lines.append(f"  {task.name} {name}: {(task / name).read_text().strip()}")
            except OSError:
                pass
    return lines


def where(session):
    """The position of each thread in the session's processes."""
    lines = []
    for pid in _in_session(session):
        lines.append(f"process {pid}:")
        if shutil.which("gdb"):
            told = subprocess.run(["gdb", "-p", str(pid), "-batch", "-ex", "thread apply all bt 14"],
                                  capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=60).stdout
            lines += [f"  {line[:150]}" for line in told.splitlines() if line.startswith(("Thread", "#"))]
        else:
            lines += _tasks_of(pid)
    return lines


def run(cell, library, programs, patience):
    """None, or an error."""
    program, world = WORLDS.get(cell.world, SYSTEM)
    env = settings_only({k: v.format(library=library) for k, v in world.items()} | cell.settings)
    if cell.case in OTHER:
        env["LIFE_OTHER"] = OTHER[cell.case]
    command = [programs / program, cell.case, str(cell.times)]
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report"
        if cell.settings.get("HAKMEM_STATS") == "json":
            env["HAKMEM_STATS_FILE"] = str(report)
        with open(Path(folder) / "said", "w+") as said:
            child = subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL, stdout=said, stderr=said,
                                     start_new_session=True)
            limit = LIMITS.get((cell.world, cell.case))
            wrong = _wait_for_line(child, said, limit) if limit else _wait(child, patience * cell.times)
            said.seek(0)
            if wrong:
                return wrong + "".join("\n  " + line for line in said.read().splitlines()[-6:])
        return _report_wrong(report, cell)


def _wait(child, patience):
    wrong = None
    try:
        status = child.wait(patience)
        if status:
            wrong = f"signal {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"
    except subprocess.TimeoutExpired:
        wrong = "\n".join([f"hangs, after {patience} s:", *where(child.pid)])
    _end(child)
    return wrong


def _wait_for_line(child, said, line):
    end = time.monotonic() + 60
    while not (told := line in Path(said.name).read_text()) and child.poll() is None and time.monotonic() < end:
        time.sleep(0.2)
    _end(child)
    return None if told else f"does not say: {line}"


def _end(child):
    for pid in _in_session(child.pid):
        with contextlib.suppress(ProcessLookupError):  # it ended by itself
            os.kill(pid, signal.SIGKILL)
    child.wait()


def _report_wrong(report, cell):
    if cell.settings.get("HAKMEM_STATS") == "json":
        try:
            json.loads(report.read_text())
        except (OSError, ValueError) as error:
            return f"the statistics at exit are not whole: {error}"
    return None


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("library")
    parser.add_argument("programs", type=Path)
    parser.add_argument("--backends", nargs="+", default=["shared_pool", "legacy"])
    parser.add_argument("--only", nargs="+", default=["*"])
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--long", action="store_true")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--patience", type=int, default=PATIENCE, help="seconds until a cell hangs")
    args = parser.parse_args()
    if args.long and os.environ.get("STRESS_LONG") != "1":
        skip("the long run; STRESS_LONG=1 asks for it")
    chosen = [c for c in cells(args.library, args.backends, args.long)
              if any(fnmatch.fnmatchcase(c.name, p) for p in args.only)]
    if args.list:
        finish([], "\n".join(c.name for c in chosen))
    if not chosen:
        finish(["no such cell"], "")
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        ended = pool.map(lambda c: (c, run(c, args.library, args.programs, args.patience)), chosen)
        problems = [f"{cell.name}: {wrong}" for cell, wrong in ended if wrong]
    finish(problems, f"{len(chosen)} cells")


if __name__ == "__main__":
    main()
