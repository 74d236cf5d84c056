# SPDX-License-Identifier: MIT
"""How a program is run: with the library preloaded, or bare.

A World owns one scratch directory for each test, the environment a tested
program sees, the limit on its time, and the proof that the library served it.
Only this module starts tested processes. Invariant: the environment is built from nothing, so that two worlds differ
only in the preload and the requested settings, not in the environment of the driver.
"""

import hashlib
import json
import os
import re
import signal
import subprocess
import time

# Printed by the library itself, or by the loader if it could not be loaded.
UNASKED = re.compile(r"^(hakmem: .*|.*LD_PRELOAD.*cannot be preloaded.*)$", re.MULTILINE)


class Broken(Exception):
    """The test cannot continue; the text says why."""


class Finished:
    """The results of a process that has ended."""

    def __init__(self, pid, status, out, err):
        self.pid, self.status, self.out, self.err = pid, status, out, err


def how(status):
    """A status of wait, in words."""
    return "died of " + signal.Signals(-status).name if status < 0 else f"exit status {status}"


def digest(data):
    return hashlib.sha256(data.encode() if isinstance(data, str) else data).hexdigest()


class World:
    def __init__(self, name, scratch, library=None, settings=None, expect=None, proof=True):
        self.name = name
        self.scratch = scratch
        self.library = library
        self.settings = settings or {}
        self.expect = expect or {}
        self.proof = proof and library is not None
        self.deadline = None
        self.main_pids = []
        for folder in (self.path("tmp"), self.path("stats")):
            os.makedirs(folder)
            os.chmod(folder, 0o1777)  # a tested program may change its user

    def path(self, *parts):
        return os.path.join(self.scratch, *parts)

    def start_clock(self, seconds):
        self.deadline = time.monotonic() + seconds

    def left(self):
        return max(0.1, self.deadline - time.monotonic())

    def bare_environment(self):
        return {
            "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "HOME": self.scratch,
            "TMPDIR": self.path("tmp"),
            "LANG": "C.UTF-8",
            "TERM": "dumb",
        }

    def preload(self):
        """The variables for a tested process; none in the bare world."""
        if self.library is None:
            return {}
        env = {"LD_PRELOAD": self.library, **self.settings}
        if self.proof:
            env["HAKMEM_STATS"] = "json"
            env["HAKMEM_STATS_FILE"] = self.path("stats", "%p.json")
        return env

    def start(self, command, tested=True, env=None, main=False, **options):
        whole = self.bare_environment()
        if tested:
            whole.update(self.preload())
        whole.update(env or {})
        process = subprocess.Popen(command, env=whole, start_new_session=True,
                                   **{"stdin": subprocess.DEVNULL, "cwd": self.scratch, **options})
        if main:
            self.main_pids.append(process.pid)
        return process

    def stop(self, process):
        """Ends a process and all its children, whatever state it is in."""
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.wait()

    def run(self, command, tested=True, env=None, main=False, check=True, feed=None, cwd=None):
        """Runs to the end. main: this process itself must prove which allocator served it."""
        what = os.path.basename(command[0])
        process = self.start(command, tested, env, main, cwd=cwd or self.scratch,
                             stdin=subprocess.DEVNULL if feed is None else subprocess.PIPE,
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        try:
            out, err = process.communicate(feed, timeout=self.left())
        except subprocess.TimeoutExpired:
            raise Broken(f"{what} did not end in time") from None
        finally:
            if process.returncode is None:
                self.stop(process)
        done = Finished(process.pid, process.returncode, out.decode(errors="replace"),
                        err.decode(errors="replace"))
        self.refuse_unasked(done.err)
        if check and done.status != 0:
            raise Broken(f"{what}: {how(done.status)}\n{tail(done.err or done.out)}")
        return done

    def refuse_unasked(self, text):
        said = UNASKED.search(text)
        if said and self.library is not None:
            raise Broken(f"a message nobody asked for: {said.group(0)}")

    def prove(self, program):
        """Raises unless the library, with the right settings, served the program of that name and all others that
        report.
        """
        if not self.proof:
            return
        folder = self.path("stats")
        # A process that was killed as it began its report leaves an empty file, which proves nothing.
        reports = [name for name in os.listdir(folder) if os.path.getsize(os.path.join(folder, name))]
        served = {name: self.served_program(folder, name) for name in reports}
        for pid in self.main_pids:
            if f"{pid}.json" not in served:
                raise Broken(f"process {pid} ran without the library, or died before its report")
        if program not in served.values():
            raise Broken(f"no process of {program} wrote a report: the library did not serve it")

    def served_program(self, folder, name):
        """The program that wrote the report."""
        stats = read_stats(os.path.join(folder, name))
        allocator = stats.get("allocator", {})
        if allocator.get("name") != "hakmem" or not stats.get("os_calls"):
            raise Broken(f"{name} does not say that the library served: {allocator}")
        for key, value in self.expect.items():
            if as_text(allocator.get(key)) != value:
                raise Broken(f"{name}: {key} is {as_text(allocator.get(key))}, expected {value}")
        return allocator["program"]


def as_text(value):
    return str(value).lower() if isinstance(value, bool) else str(value)


def read_stats(path):
    with open(path, encoding="utf-8", errors="replace") as file:
        text = file.read()
    try:
        return json.loads(text)
    except ValueError as error:
        raise Broken(f"{os.path.basename(path)} is not JSON ({error}): {text[:200]!r}") from None


def tail(text, lines=15):
    return "\n".join(text.rstrip().splitlines()[-lines:])
