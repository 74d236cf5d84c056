#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The fast path of malloc and free: no call, no locked instruction, no division, and how many instructions.

  fast_path.py body LIBRARY
      By disassembly: in the bodies of malloc and free a path leads from the entry to a return, makes no
      call and runs nothing forbidden; it falls through wherever it can.
  fast_path.py run LIBRARY PROGRAM [PRELOAD]
      By callgrind: PROGRAM (pair.c) repeats a pair of calls. At every size each instruction that runs for most of the
      pairs is looked up in the disassembly and is none of the forbidden ones. PRELOAD: a library that comes after
      LIBRARY. calls.py counts.
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import tracing
from common import finish, output_of, skip

SIZES = [16, 64, 256, 1000, 4000, 20000]
COUNT, SLOTS = 20_000, 256
LINE = re.compile(r"^\s*([0-9a-f]+):\s+(?:[0-9a-f]{2} )*(?:[0-9a-f]{8} )?\s*(\S.*)$")

# x86-64 and aarch64. xchg with memory locks without a lock prefix.
CALLS = re.compile(r"(call|bl\b|blr\b|syscall|svc)")
FORBIDDEN = re.compile(r"(lock\b|xchg\s.*\(|i?div|mfence|cpuid|rep\b"
                       r"|ld[a-z]*xr|st[a-z]*xr|cas|swp|ldadd|ldset|ldclr|ldeor|dmb|dsb|[su]div)")
RETURNS = re.compile(r"(repz? )?ret")
JUMP = re.compile(r"(?:bnd )?(j[a-z]+|b|b\.[a-z]+|cbn?z|tbn?z)(?:,pt|,pn)?\s+(?:\S+,\s*)*(?:0x)?([0-9a-f]+)\b")
ALWAYS = ("jmp", "b")


class Code:
    """The instructions of a library, by address, and where its functions begin and end."""

    def __init__(self, library):
        self.at, self.order = {}, []
        for line in output_of(["objdump", "-d", "--no-show-raw-insn", library]).splitlines():
            match = LINE.match(line)
            if match:
                address = int(match[1], 16)
                self.at[address] = match[2].split("<")[0].split("#")[0].strip()
                self.order.append(address)
        self.next = dict(zip(self.order, self.order[1:]))
        self.functions = {}
        for line in output_of(["readelf", "-sW", library]).splitlines():
            words = line.split()
            if len(words) >= 8 and words[3] == "FUNC" and words[6].isdigit():
                size = int(words[2], 0)
                self.functions[words[7].split("@")[0]] = (int(words[1], 16), int(words[1], 16) + size)

    def function(self, name):
        return self.functions.get(name) or self.functions["hakmem_" + name]


def forbidden(instruction):
    if CALLS.match(instruction):
        return "a call"
    return "forbidden" if FORBIDDEN.match(instruction) else None


def straight_path(code, name):
    """The instructions from entry to return; a branch is taken only if the path that falls through has no return."""
    start, end = code.function(name)

    def walk(address, seen):
        path = []
        while True:
            if not start <= address < end or address in seen:
                return None  # the path leaves for the slow path, or is a loop
            seen = seen | {address}
            instruction = code.at[address]
            if forbidden(instruction):
                return None
            path.append(f"{address:x}: {instruction}")
            if RETURNS.match(instruction):
                return path
            jump = JUMP.match(instruction)
            if jump and jump[1] in ALWAYS:
                address = int(jump[2], 16)
                continue
            if jump:
                rest = walk(code.next[address], seen) or walk(int(jump[2], 16), seen)
                return path + rest if rest else None
            if instruction.startswith(("jmp", "br ")):
                return None  # through a register or memory
            address = code.next[address]

    return walk(start, frozenset())


def check_body(library):
    code, problems, lengths = Code(library), [], []
    for name in "malloc", "free", "malloc_usable_size":
        path = straight_path(code, name)
        if not path:
            problems.append(f"{name}: every way from its entry to a return makes a call or runs a locked "
                            f"instruction or a division")
            continue
        print(f"{name}:\n  " + "\n  ".join(path))
        lengths.append(f"{name} {len(path)}")
        if len(path) < 5:
            problems.append(f"{name}: the way without calls is {len(path)} instructions long; that cannot be "
                            f"where blocks are served")
    finish(problems, "instructions on the straight path: " + ", ".join(lengths))


def callgrind(library, program, count, size, out):
    env = {"PATH": os.environ["PATH"], "LD_PRELOAD": str(library), **tracing.NEVER}
    run = subprocess.run(["valgrind", "--tool=callgrind", "--dump-instr=yes", "--compress-strings=no",
                          "--compress-pos=no", f"--callgrind-out-file={out}", str(program), str(count),
                          str(size), str(SLOTS)], env=env, capture_output=True, text=True)
    if run.returncode:
        sys.exit(f"callgrind: {run.returncode}\n{run.stderr}")
    return costs(out)


def costs(path):
    """{object: {address: instructions executed}} from a callgrind file."""
    objects, current, called = {}, None, False
    for line in path.read_text().splitlines():
        if line.startswith("ob="):
            current = objects.setdefault(line[3:], {})
        elif line.startswith("calls="):
            called = True  # the next line is what the callee cost
        elif line.startswith("0x"):
            if not called:
                address, _, cost = line.split()[:3]
                current[int(address, 16)] = current.get(int(address, 16), 0) + int(cost)
            called = False
    return objects


def library_costs(objects, library):
    name = Path(library).resolve().name
    own = [costs_ for object_, costs_ in objects.items() if Path(object_).name == name]
    if not own:
        sys.exit(f"{library} executed nothing: it was not preloaded")
    return own[0]


def check_run(library, program):
    if not shutil.which("valgrind"):
        skip("no valgrind")
    code, problems = Code(library), []
    with tempfile.TemporaryDirectory() as folder:
        for size in SIZES:
            executed = callgrind(library, program, COUNT, size, Path(folder) / "out")
            hot = {a for a, n in library_costs(executed, library).items() if n > COUNT / 2}
            if not hot:
                problems.append(f"{size} B: no instruction of the library runs once a pair")
            for address in sorted(hot):
                what = forbidden(code.at[address])
                if what:
                    problems.append(f"{size} B: {what} on the fast path, {address:x}: {code.at[address]}")
    finish(problems, f"a pair of {', '.join(map(str, SIZES))} bytes runs no forbidden instruction")


def main():
    if not shutil.which("objdump"):
        skip("no objdump")
    if sys.argv[1] == "body":
        check_body(sys.argv[2])
    else:
        check_run(Path(sys.argv[2]).resolve(), Path(sys.argv[3]).resolve())


if __name__ == "__main__":
    main()
