#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Inline malloc and free (hakmem/inline.h) in programs that link the archive.

  inline.py count PROGRAM LIMIT
      By callgrind: so many instructions of the program itself for a pair of 64 B, the loop not counted, and what the
      library adds to them, a pair.
  inline.py hosts ARCHIVE SHARED INCLUDE...
Each installed compiler builds a host in C and in C++; the first one without optimization, as position-independent
      code, and static, too. They run. One for another version, and one that takes the shared library, are refused by
      the linker.
"""
import json
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from common import finish, skip

FEW, MANY = 20_000, 120_000
HOST = Path(__file__).with_name("inline.c")
MORE_WAYS = ["-O0"], ["-O2", "-fPIC"], ["-O2", "-static"]
LANGUAGES = {"c": ("gcc", "clang"), "c++": ("g++", "clang++")}
LIBRARY = re.compile(r"hakmem_inline_(check|refill)")


def costs(program, count, folder):
    """Instructions of in_line(), of bare(), and of what in_line() calls."""
    out = Path(folder) / "out"
    run = subprocess.run(["valgrind", "--tool=callgrind", "--compress-strings=no", "--compress-pos=no",
                          f"--callgrind-out-file={out}", program, str(count)], capture_output=True, text=True)
    if run.returncode:
        sys.exit(f"callgrind: {run.returncode}\n{run.stderr}")
    found, function, called = {"in_line": 0, "bare": 0, "library": 0}, None, None
    for line in out.read_text().splitlines():
        if line.startswith("fn="):
            function = line[3:].split(".")[0]
        elif line.startswith("cfn="):
            called = line[4:]
        elif re.match(r"\d+ \d+$", line):
            if called is None:
                found[function] = found.get(function, 0) + int(line.split()[1])
            elif function == "in_line" and LIBRARY.match(called):
                found["library"] += int(line.split()[1])
            called = None
    return found


def check_count(program, limit):
    if not shutil.which("valgrind"):
        skip("no valgrind")
    with tempfile.TemporaryDirectory() as folder:
        few, many = (costs(program, count, folder) for count in (FEW, MANY))
    pair = {name: (many[name] - few[name]) / (MANY - FEW) for name in ("in_line", "bare", "library")}
    own = pair["in_line"] - pair["bare"]
    problems = [f"a pair of 64 B takes {own:.2f} instructions in line, more than {limit}"] if own > limit else []
    finish(problems, f"a pair of 64 B: {own:.2f} instructions in line, {pair['library']:.2f} of the library")


def build(compiler, language, flags, libraries, includes, out):
    return subprocess.run([compiler, "-Wall", "-Wextra", "-Werror", *flags, *("-I" + i for i in includes),
                           "-x", language, str(HOST), "-x", "none", "-o", str(out), *libraries, "-pthread"],
                          capture_output=True, text=True)


def check_hosts(archive, shared, *includes):
    problems, done = [], 0
    layout = next(Path(i) / "hakmem/layout.h" for i in includes if (Path(i) / "hakmem/layout.h").is_file())
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "host"
        for language, compilers in LANGUAGES.items():
            for compiler in filter(shutil.which, compilers):
                for flags in [["-O2"], *(MORE_WAYS if compiler == "gcc" else [])]:
                    what = " ".join([compiler, *flags])
                    built = build(compiler, language, flags, [archive], includes, out)
                    if built.returncode and "-static" in flags and "cannot find" in built.stderr:
                        continue  # no static C library
                    run = None if built.returncode else subprocess.run([out, "check"], capture_output=True, text=True)
                    done += 1
                    if run is None or run.returncode:
                        problems.append(f"{what}:\n{built.stderr if run is None else run}")
                    elif json.loads(run.stdout)["conservation"]["violations"]:
                        problems.append(f"{what}: blocks are lost, or there twice")
        text = layout.read_text()
        name = re.search(r"HAKMEM_INLINE_NAME (\w+)", text)[1]
        other = re.sub(r"_\d+_\d+_\d+_", "_99_0_0_", name)
        (Path(folder) / "hakmem").mkdir()
        (Path(folder) / "hakmem/layout.h").write_text(text.replace(name, other))
        compiler = next(filter(shutil.which, LANGUAGES["c"]))
        for library, first, said in (archive, [folder], other), (shared, [], name):
            run = build(compiler, "c", ["-O2"], [library], [*first, *includes], out)
            if not run.returncode or f"undefined reference to `{said}'" not in run.stderr:
                problems.append(f"{Path(library).name} was not refused by the name {said}:\n{run.stderr}")
    finish(problems, f"{done} hosts have blocks in line; another version and the shared library are refused")


if __name__ == "__main__":
    if sys.argv[1] == "count":
        check_count(sys.argv[2], float(sys.argv[3]))
    else:
        check_hosts(*sys.argv[2:])
