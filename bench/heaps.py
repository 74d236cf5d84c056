#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Heaps of hakmem beside those of mimalloc and arenas of jemalloc, as far as they are installed.

  heaps.py LIBRARY [-n TIMES]

LIBRARY: libhakmem.so.0. Each run is a process; those of one round come in turn. The table has medians of user time.
Instructions are callgrind's.
"""
import argparse
import os
import re
import statistics
import subprocess
import tempfile
from pathlib import Path

SOURCE = Path(__file__).with_name("heaps.c")
PEERS = {"mimalloc": "libmimalloc.so.2", "jemalloc": "libjemalloc.so.2"}
WORKS = {"pair": ("10000000", "ns"), "request": ("50000", "ns"), "end": (str(1 << 24), "ns"), "bytes": ("2000", "B")}


def preloaded(library):
    """jemalloc cannot be opened later."""
    return {"PATH": os.environ["PATH"], "LD_PRELOAD": library}


def measure(program, library, work, count):
    run = subprocess.run([program, library, work, count], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                         env=preloaded(library))
    return float(run.stdout.split()[0]) if run.returncode == 0 else None


def instructions(program, library):
    """Of a pair."""
    counts = []
    for pairs in 2000, 22000:
        command = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", program, library, "pair",
                   str(pairs)]
        run = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=True,
                             env=preloaded(library))
        counts.append(int(re.search(r"Collected : (\d+)", run.stderr)[1]))
    return (counts[1] - counts[0]) / 20000


def main():
    parser = argparse.ArgumentParser(usage=argparse.SUPPRESS, description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("library", type=Path, metavar="LIBRARY")
    parser.add_argument("-n", type=int, default=5, metavar="TIMES")
    args = parser.parse_args()
    libraries = {"hakmem": str(args.library.resolve())} | PEERS
    with tempfile.TemporaryDirectory() as folder:
        program = str(Path(folder) / "heaps")
        subprocess.run(["cc", "-O2", "-fno-builtin", "-o", program, SOURCE, "-ldl"], check=True)
        found = {name: path for name, path in libraries.items() if measure(program, path, "pair", "10") is not None}
        values = {(work, name): [] for work in WORKS for name in found}
        for _ in range(args.n):
            for work, (count, _) in WORKS.items():
                for name, path in found.items():
                    values[work, name].append(measure(program, path, work, count))
        print(f"{'':10}" + "".join(f"{name:>14}" for name in found))
        for work, (_, unit) in WORKS.items():
            row = (statistics.median(filter(None.__ne__, values[work, name])) for name in found)
            print(f"{work:10}" + "".join(f"{value:>11.0f} {unit}" for value in row))
        print(f"{'pair':10}" + "".join(f"{instructions(program, path):>8.0f} instr" for path in found.values()))


if __name__ == "__main__":
    main()
