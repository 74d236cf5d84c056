#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""HAKMEM_STATS_SIGNAL: a report at the signal, and then the signal's previous action. HAKMEM_LOG_FILE: the last lines
on stderr before the program aborts, with the same exit status as without it.

  PYTHONPATH=tests signals.py LIBRARY
"""
import os
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
    """(exit code, stderr) of a busy program that receives the signal, and then a line, on which it ends."""
    environment = tracing.settings_only({"LD_PRELOAD": library, "HAKMEM_STATS_SIGNAL": number,
                                         "PYTHONMALLOC": "malloc"})
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


# How the program aborts, its exit code, and whether it shows the ring.
ABORTS = {
    "itself": ("os.abort()", -6, True),
    "from outside": ("os.kill(os.getpid(), signal.SIGABRT); time.sleep(60)", -6, True),
    "with a handler": ("signal.signal(signal.SIGABRT, lambda *a: os._exit(3)); os.kill(os.getpid(), signal.SIGABRT)",
                       3, False),
    "ignored": ("signal.signal(signal.SIGABRT, signal.SIG_IGN); os.kill(os.getpid(), signal.SIGABRT)", 0, False),
}


def aborts(library):
    """Programs whose log goes to a file: the errors in how they end."""
    for name, (words, code, shown) in ABORTS.items():
        for setting in ({"HAKMEM_LOG_FILE": os.devnull}, {}):
            environment = {"LD_PRELOAD": library, "PYTHONMALLOC": "malloc", "HAKMEM_VERBOSE": "1", **setting}
            ended = subprocess.run([sys.executable, "-c", f"import os, signal, time; {words}"], text=True,
                                   env=tracing.settings_only(environment), capture_output=True)
            lines = ended.stderr.count("hakmem: version ")
            if ended.returncode != code or lines != (shown if setting else 1):
                yield f"abort {name}, {setting}: {ended.returncode}, not {code}; it said {ended.stderr[:300]!r}"


def main():
    library, problems = sys.argv[1], []
    problems += aborts(library)
    for number, sent, line, code, pattern in (
            (15, signal.SIGTERM, "", -15, "memory: "), (10, signal.SIGUSR1, "\n", 0, "memory: "),
            (11, None, "\n", 0, "HAKMEM_STATS_SIGNAL=11: not with"),
            (9, None, "\n", 0, "HAKMEM_STATS_SIGNAL=9: not with")):
        ended, said = run(library, number, sent, line)
        if ended != code or pattern not in said:
            problems.append(f"signal {number}: ended with {ended}, not {code}; it said {said[:200]!r}")
    finish(problems, "a report at SIGTERM and SIGUSR1; SIGSEGV and SIGKILL are refused; the log's end at SIGABRT")


if __name__ == "__main__":
    main()
