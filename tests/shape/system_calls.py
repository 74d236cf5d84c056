#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""System calls of a whole process of bench_random_mixed under the library, counted by strace.

  system_calls.py LIBRARY BENCH LIMIT

At most LIMIT at 1000000 400 1, and no more at ten times the cycles.
"""
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import tracing
from common import finish, skip


def count(library, bench, cycles):
    """{system call: how often} of one run."""
    with tempfile.NamedTemporaryFile("r") as table:
        # A terminal or a library search path would add calls of their own.
        command = ["strace", "-f", "-c", "-o", table.name, "-E", f"LD_PRELOAD={library}", str(bench)]
        run = subprocess.run([*command, str(cycles), "400", "1"], capture_output=True, text=True,
                             stdin=subprocess.DEVNULL, env={"PATH": os.environ["PATH"], **tracing.NEVER})
        rows = [line.split() for line in table.read().splitlines()]
    calls = {row[-1]: int(row[3]) for row in rows
             if len(row) >= 5 and row[3].isdigit() and row[-1] not in ("total", "syscall")}
    if run.returncode and ("PTRACE" in run.stderr or "ptrace" in run.stderr or not calls):
        skip(f"strace cannot trace here: {run.stderr.strip()}")
    if run.returncode:
        sys.exit(f"{bench}: {run.returncode}\n{run.stdout}{run.stderr}")
    if "allocator=" in run.stdout and "allocator=hakmem" not in run.stdout:
        sys.exit(f"hakmem did not serve:\n{run.stdout}")
    return calls


def main():
    library, bench, limit = Path(sys.argv[1]).resolve(), Path(sys.argv[2]), int(sys.argv[3])
    if not shutil.which("strace"):
        skip("no strace")
    if not os.access(bench, os.X_OK):
        skip(f"{bench} is not built (-Dbench=true)")
    once, tenfold = count(library, bench, 1_000_000), count(library, bench, 10_000_000)
    table = ", ".join(f"{name} {n}" for name, n in sorted(once.items(), key=lambda item: -item[1]))
    problems = []
    if sum(once.values()) > limit:
        problems.append(f"{sum(once.values())} system calls, more than {limit}: {table}")
    if sum(tenfold.values()) > sum(once.values()):
        more = {name: n - once.get(name, 0) for name, n in tenfold.items() if n > once.get(name, 0)}
        problems.append(f"{sum(tenfold.values())} system calls at ten times the cycles, more by {more}")
    finish(problems, f"{sum(once.values())} system calls: {table}; {sum(tenfold.values())} at ten times the cycles")


if __name__ == "__main__":
    main()
