#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The ledger's totals equal strace's counts: for each process and each call, made and failed.

  PYTHONPATH=tests ledger.py LIBRARY PROGRAM [ARGUMENT]... [-- SETTING=VALUE... [+CAUSE]... [PROCESSES]]

After "--": settings of the library, causes that the run must show, and how many processes must have
written their statistics (1).
"""
import sys

import tracing
from common import finish


def read_arguments():
    words = sys.argv[1:]
    split = words.index("--") if "--" in words else len(words)
    library, *command = words[:split]
    rest = words[split + 1:]
    settings = dict(word.split("=", 1) for word in rest if "=" in word)
    causes = [word[1:] for word in rest if word.startswith("+")]
    processes = next((int(word) for word in rest if word.isdigit()), 1)
    return library, command, settings, causes, processes


def differences(process):
    for what, seen in ("calls", process.own), ("failed", process.own_failed):
        entered = tracing.ledger_by_call(process.stats, what)
        for name in sorted(set(entered) | set(+seen)):
            if entered[name] != seen[name]:
                yield f"process {process.pid}: {name} {what}: {entered[name]} in the ledger, {seen[name]} by strace"


def main():
    library, command, settings, causes, wanted = read_arguments()
    processes = tracing.trace(library, command, settings)
    reporting = [process for process in processes if process.stats]
    problems = [line for process in reporting for line in differences(process)]
    if len(reporting) != wanted:
        problems.append(f"{len(reporting)} processes wrote statistics, not {wanted}")
    shown = set().union(*(tracing.ledger_by_cause(process.stats) for process in reporting))
    problems += [f"no call for {cause}, which this run is to show" for cause in causes if cause not in shown]
    if reporting and not sum(reporting[0].own.values()):
        problems.append("strace saw no call of the library: are there stack frames in its output?")
    finish(problems, "; ".join(", ".join(f"{name} {n}" for name, n in sorted(process.own.items()) if n)
                               for process in reporting))


if __name__ == "__main__":
    main()
