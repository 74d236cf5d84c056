#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The statistics at exit arrive also from programs that close stderr, or all descriptors, and the descriptor that is
kept for them does not reach what a program executes.

  closed.py LIBRARY
"""
import os
import subprocess
import sys
import tempfile

from common import finish

# All of coreutils close stderr at their end.
COMMANDS = [["ls", "/"], ["cat", "/dev/null"], ["sort", "/dev/null"], ["grep", "-c", "x", "/dev/null"],
            ["find", "/", "-maxdepth", "0"]]
CLOSE_ALL = "import os; os.closerange(0, 4096)"
OPEN_ELSEWHERE = """
import os, sys
os.closerange(3, 4096)
for _ in range(1100):
    os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
"""


def report_of(library, command, stderr):
    subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=stderr, check=False,
                   env=os.environ | {"LD_PRELOAD": library, "HAKMEM_STATS": "1"})
    stderr.seek(0)
    return stderr.read()


def problems(library):
    for command in [*COMMANDS, ["/usr/bin/python3", "-c", CLOSE_ALL]]:
        with tempfile.NamedTemporaryFile("w+") as stderr:
            if "conservation:" not in report_of(library, command, stderr):
                yield f"no statistics from: {' '.join(command)}"
    with tempfile.NamedTemporaryFile("w+") as stderr, tempfile.NamedTemporaryFile("r") as other:
        report_of(library, ["/usr/bin/python3", "-c", OPEN_ELSEWHERE, other.name], stderr)
        if other.read():
            yield "statistics in a file of the program's own, which took the number of the kept descriptor"
    with tempfile.NamedTemporaryFile("w+") as stderr:
        report_of(library, ["/bin/sh", "-c", "unset LD_PRELOAD; exec /bin/ls /proc/self/fd >&2"], stderr)
        stderr.seek(0)
        if "1023" in stderr.read().split():
            yield "the kept descriptor reached a program that was executed"


if __name__ == "__main__":
    finish(list(problems(os.path.abspath(sys.argv[1]))), f"statistics arrive from {len(COMMANDS) + 1} programs")
