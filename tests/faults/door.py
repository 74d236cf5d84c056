#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Whole programs on a kernel that refuses, delays or partially serves calls (door.c).

  PYTHONPATH=tests door.py DOOR HOW WORK           tests/faults/work.c; it judges itself
  PYTHONPATH=tests door.py DOOR HOW sqlite|python  a program of the system; its result is known

For every kind of call and each n up to EVERY_ONE, and a sample beyond, there are three runs: HOW is the answer to the
n-th call alone, to five calls from the n-th on, and to all calls from there on. STRESS_LONG=1 runs more of them. A run
ends with the right result, or reports that memory is missing; it does not hang; the conservation laws hold.
"""
import concurrent.futures
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import tracing
from common import finish, skip

CALLS = {"part": ("process_madvise",), "locked": ("madvise", "process_madvise")}
ALL, SECONDS, ENOUGH = 1 << 30, 120, 5
LONG = os.environ.get("STRESS_LONG") == "1"
EVERY_ONE = 50 if LONG else 5
SQL = """create table t(a integer primary key, b text);
with recursive n(i) as (select 1 union all select i + 1 from n where i < 4000)
insert into t select i, printf('%0300d', i * 7919 % 4001) from n;
create index by_b on t(b);
delete from t where a % 3 = 0;
select count(*), sum(cast(b as integer)) from t; select group_concat(a) from (select a from t order by b limit 5);"""
PYTHON = """d = {i: 'x' * (i % 5000) for i in range(4000)}
e = [bytearray(i * 97 % 300000) for i in range(400)]
for i in range(0, 4000, 3): del d[i]
print(sum(map(len, d.values())), sum(map(len, e)), len(sorted(d.values())))"""
SETTINGS = {"HAKMEM_PURGE_DELAY_MS": 1}


def command_of(what):
    """The command, and its standard input."""
    if what == "sqlite":
        program, words, text = "sqlite3", [":memory:"], SQL
    elif what == "python":
        program, words, text = "/usr/bin/python3", ["-S", "-c", PYTHON], ""
    else:
        return [what], ""
    if not shutil.which(program):
        skip(f"no {program}")
    return [program, *words], text


class Runs:
    def __init__(self, door, what):
        self.door = door
        self.command, self.input = command_of(what)
        self.own = what not in ("sqlite", "python")
        self.expected = None

    def run(self, folder, faults):
        """(exit status, stdout, stderr, statistics or None, counts) of one run; faults as CALL:FROM:COUNT:HOW."""
        files = {"HAKMEM_STATS_FILE": f"{folder}/stats", "FAULTS_COUNTS": f"{folder}/counts"}
        env = tracing.settings_only(SETTINGS | {"HAKMEM_STATS": "json"} | files)
        env.pop("FAULTS", None)
        words = ["env", f"LD_PRELOAD={self.door}", *([f"FAULTS={faults}"] if faults else []), *self.command]
        try:
            ended = subprocess.run(words, input=self.input, capture_output=True, text=True, errors="replace", env=env,
                                   timeout=SECONDS)
        except subprocess.TimeoutExpired:
            return "hangs", "", "", None, {}
        stats, counts = Path(folder) / "stats", Path(folder) / "counts"
        return (ended.returncode, ended.stdout, ended.stderr,
                stats.read_text() if stats.exists() else None,
                dict(line.split() for line in counts.read_text().splitlines()) if counts.exists() else {})

    def problem(self, faults):
        """What is wrong with one run, or None."""
        with tempfile.TemporaryDirectory() as folder:
            status, out, err, stats, _ = self.run(folder, faults)
        if status == 0 and out == self.expected:
            if not stats:
                return None  # refused, too
            laws = json.loads(stats)["conservation"]
            return f"{laws['violations']} violations" if laws["violations"] else None
        if status not in (0, 124, "hangs") and "memory" in err.lower() and not (self.own and status == 1):
            return None  # the loader, or a program that says so
        return f"status {status}, {'another result' if out != self.expected else ''}\n{err[-2000:]}"


def places(count):
    """Each n up to EVERY_ONE, then increasing steps."""
    n, step = 1, 1
    while n <= count:
        yield n
        step = 1 if n < EVERY_ONE else step + step // 2 + 1
        n += step


def all_faults(counts, how):
    for call in CALLS.get(how, (*tracing.CALLS, "any")):
        for i, n in enumerate(places(int(counts.get(call, 0)))):
            yield f"{call}:{n}:1:{how}"
            if i % 3 == 0:
                yield f"{call}:{n}:5:{how}"
            if i % 5 == 0:
                yield f"{call}:{n}:{ALL}:{how}"


def main():
    door, how, what = sys.argv[1:]
    runs = Runs(door, what)
    with tempfile.TemporaryDirectory() as folder:
        status, runs.expected, err, stats, counts = runs.run(folder, None)
    if status or not stats or not int(counts.get("mmap", 0)):
        sys.exit(f"without faults: status {status}, calls {counts}\n{err}")
    faults = list(all_faults(counts, how))
    if what in ("sqlite", "python"):
        faults = faults[::3]
    elif not LONG and how not in ("ENOMEM", *CALLS):
        faults = faults[::8]  # variants of ENOMEM: another error, or a delay
    problems = []
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for fault, problem in zip(
                faults, pool.map(lambda fault: len(problems) < ENOUGH and runs.problem(fault), faults)):
            if problem:
                problems.append(f"{fault}: {problem}")
    seen = ", ".join(f"{n} {call}" for call, n in counts.items())
    finish(problems, f"{len(faults)} runs; calls: {seen}")


if __name__ == "__main__":
    main()
