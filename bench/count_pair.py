#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Instructions for one malloc/free pair, the calling loop subtracted, counted by callgrind.

Four runs of bench_pair: with the allocator and with two empty functions, each with two numbers of pairs. The difference
between the numbers removes the start-up, the difference between allocator and empty functions removes the loop, the
calls and the PLT.

  count_pair.py LIB            the three rows: 64 B and 1024 B at 256 slots, mixed at 400
  count_pair.py LIB SIZE WS    one row; SIZE "mixed" is 16 to 1039 bytes at random
  LIB is a shared library, or "system" for the libc's own malloc.
"""
import argparse
import os
import re
import subprocess
import sys
from pathlib import Path

ROWS = [("64", 256), ("1024", 256), ("mixed", 400)]
FEW, MANY = 20_000, 120_000
OBJECT = re.compile(r" allocator=(\S+) version=(\S+) object=(.+)")
COLLECTED = re.compile(r"Collected\s*:\s*(\d+)")


def fail(message):
    sys.exit(f"count_pair.py: {message}")


def read_arguments():
    parser = argparse.ArgumentParser(usage=argparse.SUPPRESS, description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lib", metavar="LIB")
    parser.add_argument("size", metavar="SIZE", nargs="?")
    parser.add_argument("ws", metavar="WS", nargs="?", type=int)
    parser.add_argument("--program", type=Path, help="bench_pair to run (default: searched for)")
    parser.add_argument("--max", type=float,
                        help="exit with 1 if a row needs more instructions than this")
    args = parser.parse_args()
    if args.size is not None and args.size != "mixed" and not args.size.isdigit():
        parser.error(f'SIZE "{args.size}": neither a number of bytes nor "mixed"')
    if (args.size is None) != (args.ws is None):
        parser.error("SIZE without WS: give both or neither")
    return args


def find_program(given):
    """bench_pair as named, else in the newest build directory beside this folder, else in $PATH."""
    if given:
        if not os.access(given, os.X_OK):
            fail(f"{given}: not an executable file; build it with -Dbench=true")
        return given
    root = Path(__file__).resolve().parent.parent
    found = sorted([*root.glob("*/bench/bench_pair"), *Path.cwd().glob("bench/bench_pair"),
                    *Path.cwd().glob("bench_pair")], key=lambda path: path.stat().st_mtime)
    if not found:
        fail("bench_pair not found; build it with -Dbench=true or name it with --program")
    return found[-1]


def instructions(program, lib, size, ws, count, bare):
    """Instructions of one whole run. The allocator that served must be `lib`."""
    command = ["valgrind", "--tool=callgrind", "--trace-children=no",
               "--callgrind-out-file=/dev/null", str(program)]
    command += ["--bare"] if bare else []
    command += ["0" if size == "mixed" else size, str(count), str(ws)]
    env = dict(os.environ)
    env.pop("LD_PRELOAD", None)
    if lib and not bare:
        env["LD_PRELOAD"] = str(lib)
    try:
        run = subprocess.run(command, env=env, capture_output=True, text=True)
    except FileNotFoundError:
        fail("valgrind not found; install it")
    total = COLLECTED.search(run.stderr)
    served = OBJECT.search(run.stdout)
    if run.returncode or not total or not served:
        fail(f"{' '.join(command)} failed with {run.returncode}:\n{run.stderr}")
    if lib and not bare and Path(served[3]).resolve() != lib:
        fail(f"{lib} did not serve malloc, {served[3]} did; see LD_PRELOAD errors:\n{run.stderr}")
    return int(total[1]), f"{served[1]} {served[2]}"


def per_pair(program, lib, size, ws):
    real_many, name = instructions(program, lib, size, ws, MANY, bare=False)
    real_few, _ = instructions(program, lib, size, ws, FEW, bare=False)
    bare_many, _ = instructions(program, lib, size, ws, MANY, bare=True)
    bare_few, _ = instructions(program, lib, size, ws, FEW, bare=True)
    return ((real_many - real_few) - (bare_many - bare_few)) / (MANY - FEW), name


def main():
    args = read_arguments()
    program = find_program(args.program)
    lib = None
    if args.lib != "system":
        lib = Path(args.lib).resolve()
        if not lib.is_file():
            fail(f'{args.lib}: no such file; give a shared library or "system"')
        if re.search(r"[\s:]", str(lib)):
            fail(f"{lib}: LD_PRELOAD splits names at spaces and colons; copy it to a path without them")
    too_many = False
    for size, ws in [(args.size, args.ws)] if args.size else ROWS:
        figure, name = per_pair(program, lib, size, ws)
        print(f"{name}: size {size}, working set {ws}: {figure:.2f} instructions per pair",
              flush=True)
        too_many |= args.max is not None and figure > args.max
    sys.exit(1 if too_many else 0)


if __name__ == "__main__":
    main()
