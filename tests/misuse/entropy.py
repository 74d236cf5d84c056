#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""usage: entropy.py PAGE PROGRAM

Runs the program 200 times: the address of a small block, and its distance from the lowest of the library's tables, vary
in as many bits as the page says.
"""
import re
import subprocess
import sys
from functools import reduce
from operator import or_
from pathlib import Path

RUNS = 200
CLAIM = re.compile(r"a small block's address varies in (\d+) bits, and its distance from the tables in (\d+)")
TABLE = re.compile(r"^([0-9a-f]+)-\S+ rw-p 0+ 00:00 0\s*(?:\[anon:.*)?$", re.M)  # private, of no file


def look(program):
    out = subprocess.run([program], capture_output=True, text=True, check=True).stdout
    block = int(out.split("\n", 1)[0], 16)
    return block, block - min(int(start, 16) for start in TABLE.findall(out))


def varying(numbers):
    return reduce(or_, (n ^ numbers[0] for n in numbers)).bit_count()


def main():
    page, program = Path(sys.argv[1]), sys.argv[2]
    claim = CLAIM.search(page.read_text())
    if not claim:
        sys.exit(f"{page}: no sentence '{CLAIM.pattern}'")
    found = [varying(numbers) for numbers in zip(*(look(program) for _ in range(RUNS)))]
    print("block {}, distance {} bits".format(*found))
    if any(have < int(said) for have, said in zip(found, claim.groups())):
        sys.exit(f"{page} says {claim[1]} and {claim[2]}")


if __name__ == "__main__":
    main()
