#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""HAKMEM_STATS_SIGNAL: a report at the signal, and then what the signal had been for.

  PYTHONPATH=tests signals.py LIBRARY
"""
import signal
import subprocess
import sys

import tracing
from common import finish

WORK = """
import sys, threading
def churn():
    while True:
        blocks = [bytes(n) for n in range(1, 3000)]
for _ in range(2):
    threading.Thread(target=churn, daemon=True).start()
print("ready", flush=True)
sys.stdin.readline()
"""


def run(library, number, sent, line=""):
    """(exit code, stderr) of a busy program that gets the signal, and then a line, at which it ends."""
    environment = tracing.settings_only({"LD_PRELOAD": library, "HAKMEM_STATS_SIGNAL": number, "PYTHONMALLOC": "malloc"})
    with subprocess.Popen([sys.executable, "-c", WORK], env=environment, text=True, stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.readline()
        if sent:
            process.send_signal(sent)
            said = process.stderr.readline() + process.stderr.readline()
        else:
            said = ""
        _, rest = process.communicate(line)
    return process.returncode, said + rest


def main():
    library, problems = sys.argv[1], []
    for number, sent, line, code, pattern in (
            (15, signal.SIGTERM, "", -15, "memory: "), (10, signal.SIGUSR1, "\n", 0, "memory: "),
            (11, None, "\n", 0, "HAKMEM_STATS_SIGNAL=11: not with"), (9, None, "\n", 0, "HAKMEM_STATS_SIGNAL=9: not with")):
        ended, said = run(library, number, sent, line)
        if ended != code or pattern not in said:
            problems.append(f"signal {number}: ended with {ended}, not {code}; it said {said[:200]!r}")
    finish(problems, "a report at SIGTERM and SIGUSR1; SIGSEGV and SIGKILL are refused")


if __name__ == "__main__":
    main()
