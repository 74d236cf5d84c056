#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Each script of tools/ and bench/ prints its usage for --help, and one line for an unknown option; it does no more.

  usage.py CHECKOUT
"""
import os
import subprocess
import sys
from pathlib import Path

from common import finish

UNKNOWN = "--no-such-option"
PYTHON = {".py": [sys.executable, "-B"]}


def scripts(checkout):
    return sorted(path for folder in ("tools", "bench") for path in (checkout / folder).glob("*.*")
                  if path.suffix in (".py", ".sh") and path.read_text().startswith("#!"))


def said(path, option):
    """(status, lines on stdout, lines on stderr)"""
    run = subprocess.run([*PYTHON.get(path.suffix, ["bash"]), path, option], capture_output=True, text=True, timeout=60,
                         stdin=subprocess.DEVNULL, env={"PATH": os.environ["PATH"], "HOME": "/nonexistent"})
    return run.returncode, run.stdout.splitlines(), run.stderr.splitlines()


def main():
    problems, all_scripts = [], scripts(Path(sys.argv[1]))
    for path in all_scripts:
        status, out, err = said(path, "--help")
        if status or len(out) < 3 or err:
            problems.append(f"{path.name} --help: {status}, {len(out)} lines, {err}")
        status, out, err = said(path, UNKNOWN)
        if status != 2 or out or len(err) != 1:
            problems.append(f"{path.name} {UNKNOWN}: {status}, {len(out)} lines, {err}")
    finish(problems, f"{len(all_scripts)} scripts")


if __name__ == "__main__":
    main()
