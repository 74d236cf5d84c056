#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""stress-ng's stressors of malloc and of the system calls that malloc uses, under the library.

  PYTHONPATH=tests stressors.py LIBRARY NAME [SECONDS]

Each runs alone for a few seconds, with its checks of what it finds in memory, in processes that fork, die and are
killed. It must end without failure, by itself and in time, and the library must have served it.
"""
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import tracing
from common import finish, skip

SECONDS, PATIENCE = 3 if os.environ.get("STRESS_LONG") == "1" else 1, 60
OPTIONS = {
    "malloc": ["--malloc-bytes", "64M", "--malloc-max", "20000", "--malloc-pthreads", "4"],
    "malloc-touch": ["--malloc-bytes", "4M", "--malloc-max", "500", "--malloc-touch", "--malloc-zerofree"],
    "fork": ["--fork-max", "8", "--fork-vm"],
    "clone": ["--clone-max", "32"],
    "vfork": [],
    "vm": ["--vm-bytes", "64M"],
    "brk": ["--brk-notouch"],
    "mlock": [],
    "mremap": ["--mremap-bytes", "32M"],
    "tree": [],
}


def main():
    library, name = Path(sys.argv[1]).resolve(), sys.argv[2]
    seconds = int(sys.argv[3]) if len(sys.argv) > 3 else SECONDS
    if not shutil.which("stress-ng"):
        skip("no stress-ng")
    stressor = name.split("-")[0]
    with tempfile.TemporaryDirectory() as folder:
        command = ["stress-ng", f"--{stressor}", "2", *OPTIONS[name], "--timeout", f"{seconds}s", "--verify",
                   "--metrics-brief", "--temp-path", folder]
        env = tracing.settings_only({"LD_PRELOAD": str(library), "HAKMEM_STATS": "json",
                                     "HAKMEM_BACKEND": os.environ.get("HAKMEM_BACKEND", ""),
                                     "HAKMEM_STATS_FILE": f"{folder}/stats"})
        try:
            ended = subprocess.run(command, capture_output=True, text=True, env=env, cwd=folder,
                                   timeout=seconds + PATIENCE)
        except subprocess.TimeoutExpired as late:
            finish([f"stress-ng --{name} does not end:\n{(late.stderr or b'').decode(errors='replace')[-2000:]}"], "")
        served = Path(folder, "stats").exists()
    problems = []
    if ended.returncode or "error: [" in ended.stderr or "fail:" in ended.stderr:
        problems.append(f"stress-ng --{name}: {ended.returncode}\n{ended.stdout}{ended.stderr[-3000:]}")
    if not served:
        problems.append("the library did not serve it")
    finish(problems, f"stress-ng --{name}: {seconds} s")


if __name__ == "__main__":
    main()
