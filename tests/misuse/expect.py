#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Runs a program that misuses malloc: it has to die of SIGABRT, or of another signal, with one line on stderr.

  expect.py PROGRAM REGEX [SIGNAL [ARGUMENT...]]

In REGEX, {ptr} stands for the pointer that the program printed last on stdout.
"""
import re
import signal
import subprocess
import sys


def main():
    program, pattern, *rest = sys.argv[1:]
    wanted, arguments = signal.Signals[rest[0] if rest else "SIGABRT"], rest[1:]
    try:
        run = subprocess.run([program, *arguments], capture_output=True, text=True, timeout=120)
    except subprocess.TimeoutExpired:
        sys.exit(f"{program} hung")
    announced = run.stdout.split()
    if announced:
        pattern = pattern.replace("{ptr}", re.escape(announced[-1]))
    lines = run.stderr.splitlines()
    problems = []
    if run.returncode != -wanted:
        how = f"signal {-run.returncode}" if run.returncode < 0 else f"exit status {run.returncode}"
        problems.append(f"ended with {how}, not with {wanted.name}")
    if len(lines) != 1:
        problems.append(f"{len(lines)} lines on stderr, not 1")
    elif not re.fullmatch(pattern, lines[0]):
        problems.append(f"the line does not match {pattern}")
    print(run.stderr, end="")
    if problems:
        sys.exit(f"{program}: " + "; ".join(problems))


if __name__ == "__main__":
    main()
