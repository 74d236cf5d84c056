#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Limits of the kernel, swept from below what a program has mapped at its start to plenty.

  PYTHONPATH=tests rlimits.py LIBRARY PROGRAM as|data|memlock|commit early|late
  PYTHONPATH=tests rlimits.py LIBRARY PROGRAM bounds
  PYTHONPATH=tests rlimits.py LIBRARY PROGRAM lockall

A limit is there before exec (early) or set by the program (late); STRESS_LONG=1 tries more of them. No process hangs
or dies of a signal that does not kill it without the library, and with a few MiB more than it needs by itself it runs.
bounds: a late limit of N leaves N usable, less a quarter, and no more. lockall: what may be locked without the library
may be locked with it. commit needs root, and changes a setting of the whole machine for moments: overcommit_memory is
2, with so much more to be committed.
"""
import ctypes
import os
import resource
import subprocess
import sys
from pathlib import Path

import tracing
from common import finish, skip


STEP = 1 if os.environ.get("STRESS_LONG") == "1" else 4
KIB = [64, 256, *range(1024, 12289, 512 * STEP), *range(13 << 10, 64 << 10, (3 << 10) * STEP),
       *(1 << n for n in range(16, 31, STEP))]
# Other programs of the machine are refused memory in the meantime; the least limits are for a machine without other
# users.
COMMIT_KIB = [256, *(1 << n for n in range(10, 21))] if STEP == 1 else [64 << 10, 256 << 10, 1 << 20]
BY_NAME = {"as": resource.RLIMIT_AS, "data": resource.RLIMIT_DATA, "memlock": resource.RLIMIT_MEMLOCK, "commit": None}
OVERCOMMIT = [Path("/proc/sys/vm") / name for name in ("overcommit_ratio", "overcommit_kbytes", "overcommit_memory")]
SECONDS, ENOUGH, LOADER = 120, 2, 127
MORE_KIB = 16 << 10  # what the library may need beyond the program's own, to start
LIBC = ctypes.CDLL(None)
PR_CAPBSET_DROP, CAP_IPC_LOCK = 24, 14


def run(words, library=None, before=None):
    """(status or "hangs", stdout, stderr); `before` runs in the child before exec."""
    env = tracing.settings_only({"HAKMEM_BACKEND": os.environ.get("HAKMEM_BACKEND", "")})
    if library:
        env["LD_PRELOAD"] = library
    try:
        ended = subprocess.run(list(map(str, words)), capture_output=True, text=True, env=env, preexec_fn=before,
                               timeout=SECONDS)
    except subprocess.TimeoutExpired:
        return "hangs", "", ""
    except subprocess.SubprocessError:
        return "not allowed", "", ""
    finally:
        if "commit" in words:
            limit_commit(None)
    return ended.returncode, ended.stdout, ended.stderr


def hard_limit(name, kib):
    """The current limit, or, if it is lower and may be raised, the requested one."""
    most = resource.getrlimit(BY_NAME[name])[1]
    return most if most == resource.RLIM_INFINITY else max(most, kib << 10)


def put_commit_back():
    """Done by a separate process, which waits until this one has ended, however it ends."""
    if "TEST_MACHINE" not in os.environ:
        skip("changes a setting of the whole machine: tools/test.sh machine")
    if os.geteuid() or not os.access(OVERCOMMIT[0], os.W_OK):
        skip("needs root and vm.overcommit_memory")
    before = [file.read_text() for file in OVERCOMMIT]
    end, alive = os.pipe()
    if os.fork() == 0:
        os.setsid()
        os.close(alive)
        os.read(end, 1)
        for file, value in zip(OVERCOMMIT, before):
            if file.name != "overcommit_kbytes" or int(value):  # 0 is what a ratio makes of it
                file.write_text(value)
        os._exit(0)
    os.close(end)


def limit_commit(kib):
    """None: unlimited."""
    if kib:
        text = Path("/proc/meminfo").read_text()
        committed = int(text.split("Committed_AS:")[1].split()[0])
        OVERCOMMIT[1].write_text(str(committed + kib))
    OVERCOMMIT[2].write_text("2" if kib else "0")


def may_have(name, kib):
    """Tried in a child, since not every user can raise a lowered limit again."""
    return run(["true"], None, lambda: resource.setrlimit(BY_NAME[name], (kib << 10, hard_limit(name, kib))))[0] == 0


def with_limit(name, kib):
    """A soft limit, so that the program can raise it; root gives up its right to lock any amount."""
    def before():
        if name == "memlock" and os.geteuid() == 0 and LIBC.prctl(PR_CAPBSET_DROP, CAP_IPC_LOCK, 0, 0, 0):
            os._exit(1)
        if kib and name == "commit":
            limit_commit(kib)
        elif kib:
            resource.setrlimit(BY_NAME[name], (kib << 10, hard_limit(name, kib)))
    return before


def sweep(library, program, name, late):
    problems, needs, worst = [], None, 0
    limits = COMMIT_KIB if name == "commit" else [kib for kib in KIB if may_have(name, kib)]
    for kib in limits:
        if len(problems) == ENOUGH:
            break
        before, words = with_limit(name, 0 if late else kib), [program, name, kib if late else 0]
        status, _, err = run(words, library, before)
        alone = 0
        if needs is None or status:
            alone, _, _ = run(words, None, before)
        needs = kib if needs is None and alone == 0 else needs
        started = "shared object" not in err and "TLS" not in err and "libc.so" not in err
        if status == 0:
            continue
        worst = kib
        if status == LOADER and not started and (needs is None or kib < needs + MORE_KIB):
            continue
        if status != "hangs" and status < 0 and alone == status:
            continue
        problems.append(f"{name} {kib} KiB: {status}, alone {alone}\n{err[-1500:]}")
    finish(problems, f"{len(limits)} limits; alone the program starts with {needs} KiB, and runs with {worst} and more")


def bounds(library, program):
    problems, seen = [], []
    for kib in (512 << 10, 1 << 20):
        for size in (1000, 20000, 300000, 3 << 20):
            status, out, err = run([program, "bounds", kib, size], library)
            if status:
                problems.append(f"{kib >> 10} MiB, {size}-byte blocks: {status}\n{err}")
                continue
            usable = int(out)
            seen.append(f"{usable >> 10} of {kib >> 10} MiB in {size}-byte blocks")
            if not kib * 3 // 4 <= usable <= kib:
                problems.append(seen[-1])
    finish(problems, "; ".join(seen))


def lockall(library, program):
    problems = []
    limits = [kib for kib in (320 << 10, 1 << 20, 8 << 20) if may_have("memlock", kib)]
    if not limits:
        skip("no process may lock more here")
    for kib in limits:
        alone, _, _ = run([program, "lockall"], None, with_limit("memlock", kib))
        status, _, err = run([program, "lockall"], library, with_limit("memlock", kib))
        if status != alone:
            problems.append(f"mlockall(MCL_CURRENT) with {kib >> 10} MiB: {status}, alone {alone} {err}")
    finish(problems, "mlockall(MCL_CURRENT) as without the library")


if __name__ == "__main__":
    if sys.argv[3] == "commit":
        put_commit_back()
    if sys.argv[3] in BY_NAME:
        sweep(*sys.argv[1:4], sys.argv[4] == "late")
    {"bounds": bounds, "lockall": lockall}[sys.argv[3]](*sys.argv[1:3])
