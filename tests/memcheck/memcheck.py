#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""memcheck finds each fault of a program in hakmem's blocks, and nothing else.

memcheck.py VALGRIND PROGRAM FAULT SIZE
"""

import subprocess
import sys

# Without the last option memcheck would put its own malloc before the library's.
OPTIONS = ["--error-exitcode=1", "--leak-check=full", "--soname-synonyms=somalloc=nouserintercepts"]
SAYS = {
    "behind": ["Invalid read of size 1", "is 0 bytes after a block of size {size} alloc'd"],
    "before": ["Invalid write of size 1", "a block of size {size} alloc'd"],
    "after_free": ["Invalid read of size 1", "is 0 bytes inside a block of size {size} free'd"],
    "old_address": ["Invalid read of size 1", "is 0 bytes inside a block of size {size} free'd"],
    "undefined": ["Conditional jump or move depends on uninitialised value"],
    "leak": ["{size} bytes in 1 blocks are "],  # definitely lost, or possibly: the loader knows an address within
    "nothing": [],
}


def main():
    valgrind, program, fault, size = sys.argv[1:]
    done = subprocess.run([valgrind, *OPTIONS, program, fault, size], capture_output=True, text=True, timeout=250)
    wanted = [words.format(size=f"{int(size):,}") for words in SAYS[fault]]
    missing = [words for words in [*wanted, f"ERROR SUMMARY: {int(wanted != [])} errors"] if words not in done.stderr]
    # An access to unmapped pages also kills the program.
    if missing or (done.returncode == 0) != (wanted == []):
        sys.exit(f"{fault} of {size} bytes: not said: {missing}, exit status {done.returncode}\n{done.stderr}")


if __name__ == "__main__":
    main()
