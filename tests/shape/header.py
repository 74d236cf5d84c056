#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The public header compiles alone, in each C and C++ that users have.

  header.py HEADER COMPILER...        (COMPILER: the project's own C compiler, as words)
"""
import shutil
import subprocess
import sys
from pathlib import Path

from common import finish

C = ["-std=gnu11"], ["-std=c99", "-pedantic"], ["-std=c11", "-pedantic"]
CXX = ["-std=c++11", "-pedantic"], ["-std=c++17", "-pedantic"], ["-std=gnu++20"]
WARNINGS = ["-Wall", "-Wextra", "-Werror", "-Wundef", "-Wstrict-prototypes"]


def compiles(compiler, language, flags, header):
    """Includes it twice, with nothing before it, and uses it once."""
    warnings = WARNINGS[:-1] if language == "c++" else WARNINGS
    source = (f'#include "{header.name}"\n#include "{header.name}"\n'
              "int main(void) { hakmem_free(hakmem_malloc(1)); return 0; }\n")
    command = [*compiler, *flags, *warnings, "-x", language, "-fsyntax-only", "-I", str(header.parent), "-"]
    return subprocess.run(command, input=source, capture_output=True, text=True)


def main():
    header, own = Path(sys.argv[1]).resolve(), sys.argv[2:]
    c_compilers = {" ".join(own): own}
    c_compilers |= {name: [name] for name in ("gcc", "clang") if shutil.which(name)}
    cxx_compilers = {name: [name] for name in ("c++", "g++", "clang++") if shutil.which(name)}
    problems, done = [], 0
    for compilers, language, standards in (c_compilers, "c", C), (cxx_compilers, "c++", CXX):
        for name, compiler in compilers.items():
            for flags in standards:
                run = compiles(compiler, language, flags, header)
                done += 1
                if run.returncode:
                    problems.append(f"{name} {' '.join(flags)}:\n{run.stderr}")
    if not cxx_compilers:
        print("no C++ compiler found; only C was tried")
    finish(problems, f"{header.name} compiles alone in {done} ways")


if __name__ == "__main__":
    main()
