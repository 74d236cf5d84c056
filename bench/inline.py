#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A pair of 64 B where the compiler sees into the allocator: hakmem/inline.h beside the shared library, and others with
LTO.

  inline.py BUILD [--mimalloc SOURCES] [--snmalloc SOURCES] [--slots N] [-n TIMES]

BUILD: a build folder of hakmem. SOURCES: an unpacked release. Each program runs TIMES times, in turn; the best time
counts, minus the loop. Instructions are callgrind's.
"""
import argparse
import re
import subprocess
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAIRS, FEW, MANY = 5_000_000, 20_000, 120_000
CC = ["gcc", "-O3", "-DNDEBUG", "-std=gnu11", "-fno-builtin", "-ftls-model=initial-exec"]


def read_arguments():
    parser = argparse.ArgumentParser(usage=argparse.SUPPRESS, description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=Path, metavar="BUILD")
    parser.add_argument("--mimalloc", type=Path)
    parser.add_argument("--snmalloc", type=Path)
    parser.add_argument("--slots", type=int, default=256, metavar="N",
                        help="blocks in use, the oldest of which is freed")
    parser.add_argument("-n", type=int, default=5, metavar="TIMES")
    return parser.parse_args()


def commands(args):
    """{name: the words that build its program, without -o}"""
    source, src = ROOT / "bench/inline.c", args.build.resolve() / "src"
    host = [*CC, source]
    ways = {
        "list, no checks": [*host, "-DLIST"],
        "hakmem, in line": [*CC, "-DINLINE", f"-I{ROOT}/src/api", f"-I{src}/api", source, src / "libhakmem.a"],
        "hakmem, archive": [*host, src / "libhakmem.a"],
        "hakmem, shared": [*host, src / "libhakmem.so.0", f"-Wl,-rpath,{src}"],
    }
    if args.mimalloc:
        ways["mimalloc, LTO"] = [*CC, "-flto=auto", "-w", "-DMI_MALLOC_OVERRIDE", f"-I{args.mimalloc}/include", source,
                                 args.mimalloc / "src/static.c"]
    if args.snmalloc:
        ways["snmalloc, LTO"] = ["g++", "-O3", "-DNDEBUG", "-std=c++20", "-mcx16", "-flto=auto", "-w",
                                 "-fno-builtin", "-DSNMALLOC_HAS_LINUX_FUTEX_H", "-DSNMALLOC_HAS_LINUX_RANDOM_H",
                                 "-DSNMALLOC_USE_WAIT_ON_ADDRESS=1", f"-I{args.snmalloc}/src", source,
                                 args.snmalloc / "src/snmalloc/override/malloc.cc", "-latomic"]
    return ways


def instructions(program, *words):
    """Instructions of a pair; NaN if the program does not run under Valgrind, like snmalloc."""
    totals = []
    for count in FEW, MANY:
        run = subprocess.run(["valgrind", "--tool=callgrind", f"--callgrind-out-file={program}.out", program,
                              str(count), *words],
                             capture_output=True, text=True)
        found = None if run.returncode else re.search(r"Collected\s*:\s*(\d+)", run.stderr)
        totals.append(int(found[1]) if found else float("nan"))
    return (totals[1] - totals[0]) / (MANY - FEW) / 5  # the program repeats


def nanoseconds(program, *words):
    return float(subprocess.run([program, str(PAIRS), *words], capture_output=True, text=True, check=True).stdout)


def main():
    args = read_arguments()
    with tempfile.TemporaryDirectory() as folder:
        programs = {}
        for i, (name, words) in enumerate(commands(args).items()):
            programs[name] = Path(folder) / str(i)
            subprocess.run([str(w) for w in [*words, f"-DSLOTS={args.slots}", "-pthread", "-o", programs[name]]],
                           check=True)
        loop = min(nanoseconds(program, "bare") for program in programs.values())
        times = {name: [] for name in programs}
        for _ in range(args.n):
            for name, program in programs.items():
                times[name].append(nanoseconds(program))
        best = {name: min(t) for name, t in times.items()}
        print(f"{'64 B':<18}{'instructions':>13}{'ns':>7}{'pairs a second, shared = 1':>29}")
        for name, program in programs.items():
            count = instructions(program) - instructions(program, "bare")
            pair = max(best[name] - loop, 0)
            print(f"{name:<18}{count:>13.1f}{pair:>7.2f}{best['hakmem, shared'] / best[name]:>29.2f}")
        print(f"The loop takes {loop:.2f} ns, which the last column does not take off.")


if __name__ == "__main__":
    main()
