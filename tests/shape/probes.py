#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The static probes are in the libraries, each with its arguments.

  probes.py LIBRARY PROFILE_LIBRARY

If bpftrace may attach, a program's probes fire, too.
"""
import os
import re
import shutil
import subprocess
import sys

from common import finish, output_of

WANTED = {
    "library": {"hakmem:malloc_slow": 2, "hakmem:free_slow": 1, "hakmem:stage": 3, "hakmem:os_call": 4},
    "profile": {"otel_memory:alloc": 3, "otel_memory:free": 1},
}
NOTE = re.compile(r"Provider: (\w+)\s+Name: (\w+)\s+Location:[^\n]*\s+Arguments: ([^\n]*)")


def check(what, path):
    found = {f"{provider}:{name}": len(arguments.split())
             for provider, name, arguments in NOTE.findall(output_of(["readelf", "-n", "-W", path]))}
    yield from (f"{what}: {name} has {found.get(name)} arguments, not {count}"
                for name, count in WANTED[what].items() if found.get(name) != count)
    yield from (f"{what}: {name} is in no list" for name in found if name not in WANTED[what])


def fires(library):
    """The counts of bpftrace in a small program, or None if it cannot attach."""
    if os.geteuid() or not shutil.which("bpftrace"):
        return None
    script = f"usdt:{library}:hakmem:malloc_slow {{ @n = count(); }}"
    run = subprocess.run(["bpftrace", "-e", script, "-c", f"/usr/bin/env LD_PRELOAD={library} /bin/ls /"],
                         capture_output=True, text=True, timeout=60)
    return run.stdout if run.returncode == 0 else None


def main():
    library, profile = sys.argv[1:]
    problems = [*check("library", library), *check("profile", profile)]
    counted = fires(library)
    if counted is not None and not re.search(r"@n: [1-9]", counted):
        problems.append(f"bpftrace saw no slow malloc: {counted[:200]!r}")
    finish(problems, "all probes with their arguments" + ("" if counted else "; bpftrace cannot look here"))


if __name__ == "__main__":
    main()
