#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""HAKMEM_STATS=prometheus: the file exists while the program runs, is replaced as a whole, and has the format that
Prometheus reads.

  PYTHONPATH=tests prometheus.py LIBRARY

The text format's grammar is checked here, and by the package prometheus_client and by promtool where they are
installed.
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import tracing
from common import finish

SAMPLE = re.compile(r'([a-zA-Z_:][a-zA-Z0-9_:]*)\{pid="(\d+)"\} (\d+)')
HINT = re.compile(" no help text$| metric names should not contain abbreviated units$|^$")
WORK = "kept = [bytes(n % 900) for n in range(20000)]; print(flush=True); input()"
LEAST = {"hakmem_memory_live_bytes": 1, "hakmem_memory_resident_bytes": 1 << 20, "hakmem_memory_threads": 1,
         "hakmem_bins_refills": 100, "hakmem_os_calls_superslab_map_mmap_calls": 1}


def faults(text, pid):
    """What is wrong with the text of a process."""
    found = {}
    if not text.endswith("\n"):
        yield f"it ends with {text[-40:]!r}"
    for line in text.splitlines():
        match = SAMPLE.fullmatch(line)
        if not match or int(match[2]) != pid or match[1] in found:
            yield f"{line!r} is no sample of {pid}, or a second one of its name"
        else:
            found[match[1]] = int(match[3])
    try:
        from prometheus_client.parser import text_string_to_metric_families
        parsed = {sample.name: sample.value for family in text_string_to_metric_families(text)
                  for sample in family.samples}
        if parsed != found:
            yield f"prometheus_client finds other samples: {parsed.items() ^ found.items()}"
    except ImportError:
        pass
    if shutil.which("promtool"):  # 3: it has hints; a name is a path of the statistics, in their units, without a help
        check = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, text=True)
        said = [line for line in check.stderr.splitlines() if not HINT.search(line)]
        if said or check.returncode not in (0, 3):
            yield f"promtool: {check.returncode}, {said}"
    for name, least in LEAST.items():
        if found.get(name, 0) < least:
            yield f"{name} is {found.get(name)}"


def main():
    library, problems = sys.argv[1], []
    with tempfile.TemporaryDirectory() as folder:
        settings = {"LD_PRELOAD": library, "HAKMEM_STATS": "prometheus", "HAKMEM_STATS_FILE": f"{folder}/h-%p.prom",
                    "PYTHONMALLOC": "malloc"}
        with subprocess.Popen([sys.executable, "-c", WORK], env=tracing.settings_only(settings), text=True,
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            file = Path(folder, f"h-{process.pid}.prom")
            process.stdout.readline()
            with file.open() as before:
                _, said = process.communicate("\n")
                problems += faults(file.read_text(), process.pid)
                if os.fstat(before.fileno()).st_ino == file.stat().st_ino or not before.read().endswith("\n"):
                    problems.append("the file is not replaced as a whole")
        if said or process.returncode or [f.name for f in Path(folder).iterdir()] != [file.name]:
            problems.append(f"{process.returncode}, {said!r}, files {os.listdir(folder)}")
        settings["HAKMEM_STATS_FILE"] = f"{folder}/none/file"
        ended = subprocess.run([sys.executable, "-c", WORK], env=tracing.settings_only(settings), text=True, input="\n",
                               capture_output=True)
        if ended.returncode or not re.fullmatch(r"(hakmem: HAKMEM_STATS_FILE=.*: cannot be written .*\n)+",
                                                ended.stderr):
            problems.append(f"a file that cannot be written: {ended.returncode}, {ended.stderr!r}")
    finish(problems, "the file is what Prometheus reads, and is replaced as a whole")


if __name__ == "__main__":
    main()
