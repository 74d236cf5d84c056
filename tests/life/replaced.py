#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Each function of the C library that the library needs is replaced, for the whole process, by one that allocates.

  PYTHONPATH=tests replaced.py LIBRARY WORK CC...

The list of functions is the library's own, so a new one is tested as soon as it is needed. Each alone, and all at once;
by a library that is loaded before ours, and by one that is loaded after it. So is each program of Debian that replaces
functions, if it is installed. Left out is the place of errno, which this very library needs.
"""
import concurrent.futures
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from common import finish, output_of
from tracing import settings_only

HERE = Path(__file__).resolve().parent
SECONDS = 60
OMITTED = re.compile(r"__errno_location|_ITM_\w+|__gmon_start__|__cxa_finalize|hak_\w+")
BUSY = {"HAKMEM_BACKGROUND": 1, "HAKMEM_PURGE_DELAY_MS": 0, "HAKMEM_GUARD_RATE": 100, "HAKMEM_STATS": 1,
        "HAKMEM_VERBOSE": 1, "HAKMEM_SS_ACQUIRE_DEBUG": 1, "HAKMEM_STATS_SIGNAL": 10, "HAKMEM_LOG_FILE": "/dev/null"}
COMMON = """
common: pushq %rbp; movq %rsp, %rbp; andq $-16, %rsp; subq $192, %rsp
{saves}
movl 8(%rbp), %edi; call replaced_call; movq %rax, %r11
{restores}
movq %rbp, %rsp; popq %rbp; addq $8, %rsp; jmp *%r11
"""
WORDS = ["rdi", "rsi", "rdx", "rcx", "r8", "r9", "rax", "r10"]
# name: the library's file, settings, and a command that shows that it is at work
LIBRARIES = {
    "libfaketime": ("faketime/libfaketime.so.1", {"FAKETIME": "2001-02-03 04:05:06"}, ["date", "+%Y"], "2001"),
    "fakeroot": ("libfakeroot/libfakeroot-sysv.so", {}, ["id", "-u"], ""),
    "fakechroot": ("fakechroot/libfakechroot.so", {"FAKECHROOT_BASE": "/"}, ["cat", "/proc/version"], "Linux"),
    "libeatmydata": ("libeatmydata.so.1", {}, ["sqlite3", ":memory:", "select 40 + 2"], "42"),
    "jemalloc": ("libjemalloc.so.2", {}, ["sqlite3", ":memory:", "select 40 + 2"], "42"),
    "gperftools": ("libtcmalloc_minimal.so.4", {}, ["sqlite3", ":memory:", "select 40 + 2"], "42"),
}


def functions_of(library):
    """[name, version] of each function that the library needs of the C library."""
    libc = re.search(r"libc\.so\.6 => (\S+)", output_of(["ldd", library]))[1]
    kinds = {line.split()[-1].split("@")[0]: line.split()[-2]
             for line in output_of(["nm", "-D", "--defined-only", libc]).splitlines()}
    needed = [line.split()[-1].split("@") for line in output_of(["nm", "-D", "--undefined-only", library]).splitlines()]
    return [n for n in needed if len(n) == 2 and kinds.get(n[0], "") in "TWi" and not OMITTED.fullmatch(n[0])]


def entries_of(functions):
    places = [(f"%{name}", f"{8 * i}(%rsp)", "movq") for i, name in enumerate(WORDS)]
    places += [(f"%xmm{i}", f"{64 + 16 * i}(%rsp)", "movaps") for i in range(8)]
    text = ".text\n" + COMMON.format(saves="\n".join(f"{move} {r}, {at}" for r, at, move in places),
                                     restores="\n".join(f"{move} {at}, {r}" for r, at, move in places))
    for i, (name, _) in enumerate(functions):
        text += f".globl {name}\n.type {name}, @function\n{name}: pushq ${i}; jmp common\n"
    strings = [word for function in functions for word in function]
    text += ".section .data.rel.ro, \"aw\"\n.globl replaced_names\n.hidden replaced_names\nreplaced_names:\n"
    text += "".join(f".quad word{i}\n" for i in range(len(strings))) + ".quad 0\n.section .rodata\n"
    return text + "".join(f"word{i}: .string \"{word}\"\n" for i, word in enumerate(strings)) + \
        ".section .note.GNU-stack, \"\", @progbits\n"


def run(preload, settings, command):
    """(calls or text, None), or (None, what went wrong)."""
    env = settings_only({"LD_PRELOAD": " ".join(preload)} | settings)
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, env=env)
    except subprocess.TimeoutExpired:
        return None, "hangs"
    if ended.returncode:
        return None, f"status {ended.returncode}: {ended.stderr[-500:]}"
    return ended.stdout.strip(), None


def main():
    library, work, *cc = sys.argv[1:]
    library = os.path.abspath(library)
    functions, problems, called = functions_of(library), [], set()
    with tempfile.TemporaryDirectory() as name, concurrent.futures.ThreadPoolExecutor(2) as pool:
        entries, other = Path(name) / "entries.s", f"{name}/replaced.so"
        entries.write_text(entries_of(functions))
        output_of([*cc, "-O1", "-fno-builtin", "-D_GNU_SOURCE", "-shared", "-fPIC", "-Wl,-z,now", "-o", other,
                   HERE / "replaced.c", entries, "-ldl"])
        runs = []
        for chosen in ["all", *(name for name, _ in functions)]:
            for order in ([other, library], [library, other]):
                for settings in [{}, BUSY] if chosen == "all" else [BUSY]:
                    runs.append((chosen, order, pool.submit(run, order, settings | {"REPLACED": chosen}, [work])))
        for what, (file, settings, command, wanted) in LIBRARIES.items():
            path = next(Path("/usr/lib").glob(f"*/{file}"), None)
            for order in ([str(path), library], [library, str(path)]) if path else ():
                runs.append((what, order, pool.submit(run, order, settings, command)))
        for what, order, ended in runs:
            said, wrong = ended.result()
            if wrong or (what in LIBRARIES and LIBRARIES[what][3] not in said):
                problems.append(f"{what} by {order[0]} before {order[1]}: {wrong or said}")
            elif what not in LIBRARIES and int(said):
                called.add(what)
    if len(called) < 4:
        problems.append(f"only {sorted(called)} were called: are they replaced?")
    finish(problems, f"{len(runs)} runs; replaced and called: {' '.join(sorted(called))}")


if __name__ == "__main__":
    main()
