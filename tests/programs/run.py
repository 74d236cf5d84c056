#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""Real programs under the library, compared with the same programs without.

    tests/programs/run.py build/libhakmem.so [--only NAME...] [--env K=V...]

Every test runs in two worlds, bare and with LD_PRELOAD, and both must come to
the same result; the preloaded one must also prove which allocator served it.
This file owns the command line, the order and overlap of the tests, the
store of baselines and the report.
"""

import argparse
import fnmatch
import hashlib
import json
import os
import shutil
import sys
import tempfile
import threading
import time
import traceback

sys.dont_write_bytecode = True

import cpython   # noqa: E402
import others    # noqa: E402
import programs  # noqa: E402
from world import Broken, World  # noqa: E402

TESTS = cpython.SUITES + programs.PROGRAMS
PATIENCE = 3  # a busy machine takes longer than the tests' timeouts


class Driver:
    def __init__(self, options, scratch):
        self.options = options
        self.scratch = scratch
        self.settings = dict(pair.split("=", 1) for pair in options.env)
        self.expect = dict(pair.split("=", 1) for pair in options.expect)
        self.baselines = options.baseline_dir or os.path.join(scratch, "baselines")
        os.makedirs(self.baselines, exist_ok=True)
        self.room = threading.Condition()
        self.free = float(options.jobs)
        self.made = 0
        self.failed = []

    def world(self, test, preloaded):
        # Names of one length: a build's object files hold relative paths, which must not differ.
        with self.room:
            self.made += 1
            name = f"w{self.made:03}"
        scratch = os.path.join(self.scratch, name)
        os.makedirs(scratch)
        if preloaded:
            world = World("preloaded", scratch, self.options.library, self.settings, self.expect,
                          not self.options.no_proof)
        else:
            world = World("bare", scratch)
        world.start_clock(PATIENCE * test.timeout)
        return world

    def in_world(self, test, preloaded, work):
        world = self.world(test, preloaded)
        try:
            outcome = json.loads(json.dumps(work(world)))
            world.prove(os.path.basename(test.program))
            return outcome
        except Broken as error:
            if not preloaded:
                raise Broken(f"without the library: {error}") from None
            raise
        finally:
            if not self.options.keep:
                shutil.rmtree(world.scratch, ignore_errors=True)

    def baseline(self, test):
        """The program's result without the library, from the store if it is still valid."""
        path = os.path.join(self.baselines, test.name + ".json")
        key = baseline_key(test)
        try:
            with open(path, encoding="utf-8") as file:
                stored = json.load(file)
            if stored["key"] == key:
                return stored["outcome"]
        except (OSError, ValueError, KeyError):
            pass
        outcome = self.in_world(test, False, test.run)
        with open(path + ".new", "w", encoding="utf-8") as file:
            json.dump({"key": key, "outcome": outcome}, file, indent=1)
        os.rename(path + ".new", path)
        return outcome

    def compare(self, test):
        """Run one test; the text returned is a remark for the report."""
        expected = self.baseline(test)
        got = self.in_world(test, True, test.run)
        if got == expected:
            return ""
        if hasattr(test, "repeat"):
            return self.repeat(test, expected, got)
        raise Broken("not the result of the run without the library\n" + difference(expected, got))

    def repeat(self, test, expected, got):
        """Cases that depend on the clock may differ by accident; those that differ twice do not."""
        cases = test.differing(expected, got)
        if not cases or len(cases) > max(5, len(expected["cases"]) // 50):
            raise Broken("other cases pass or fail than without the library\n" + differing(cases, expected, got))
        again = [self.in_world(test, preloaded, lambda world: test.repeat(world, cases)) for preloaded in (False, True)]
        twice = test.differing(*again)
        if twice:
            raise Broken("other cases pass or fail than without the library, twice\n" + differing(twice, *again))
        return f"(differed once, agreed when repeated: {', '.join(cases)})"

    def run_one(self, test, weight):
        began = time.monotonic()
        verdict, remark = "ok", ""
        try:
            remark = self.compare(test)
        except Broken as error:
            verdict, remark = "FAILED", str(error)
        except Exception:  # a defect of the driver is a failed test, not a lost one
            verdict, remark = "FAILED", traceback.format_exc()
        with self.room:
            self.report(test, verdict, time.monotonic() - began, remark)
            self.free += weight
            self.room.notify_all()

    def report(self, test, verdict, seconds, remark):
        first, *more = (remark or "").splitlines() or [""]
        label = f"{self.options.label}: " if self.options.label else ""
        print(f"{verdict:7}{label}{test.name:28}{seconds:6.1f} s  {first}".rstrip(), flush=True)
        for line in more:
            print("        | " + line, flush=True)
        if verdict != "ok":
            self.failed.append(test.name)

    def run(self, tests):
        """Starts as many tests as fit; tests that mostly sleep weigh little."""
        waiting, threads = list(tests), []
        with self.room:
            while waiting:
                fitting = [test for test in waiting if min(test.weight, self.options.jobs) <= self.free + 1e-6]
                if not fitting:
                    self.room.wait()
                    continue
                test = fitting[0]
                weight = min(test.weight, self.options.jobs)
                waiting.remove(test)
                self.free -= weight
                threads.append(threading.Thread(target=self.run_one, args=(test, weight)))
                threads[-1].start()
        for thread in threads:
            thread.join()


def differing(cases, expected, got):
    return "\n".join(f"{case}: {expected['cases'].get(case)} without, {got['cases'].get(case)} with the library"
                     for case in cases[:15])


def difference(expected, got):
    lines = [f"{key}: {expected.get(key)!r:.200} without, {got.get(key)!r:.200} with the library"
             for key in sorted(expected.keys() | got.keys()) if expected.get(key) != got.get(key)]
    return "\n".join(lines[:15])


def baseline_key(test):
    """A key that changes with the tests, the program, or its input."""
    here = os.path.dirname(os.path.abspath(__file__))
    files = [os.path.join(here, name) for name in sorted(os.listdir(here))]
    if isinstance(test, programs.Gcc):
        for folder in ("src", "bench"):
            for path, folders, names in os.walk(os.path.join(programs.SOURCE, folder)):
                folders.sort()
                files += [os.path.join(path, name) for name in sorted(names)]
    total = hashlib.sha256()
    for path in files:
        if os.path.isfile(path):
            with open(path, "rb") as file:
                total.update(file.read())
    if not os.path.exists(test.program):
        raise Broken(f"{test.program} is missing: run tools/setup.sh test")
    info = os.stat(test.program)
    total.update(f"{info.st_size} {info.st_mtime_ns}".encode())
    return total.hexdigest()


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("library", nargs="?", help="the shared library to preload")
    parser.add_argument("--only", nargs="+", default=["*"], metavar="NAME", help="tests to run (patterns allowed)")
    parser.add_argument("--suites", action="store_true", help="instead, whole test suites of other projects: hours")
    parser.add_argument("--env", nargs="*", action="extend", default=[], metavar="K=V",
                        help="settings for the tested programs")
    parser.add_argument("--expect", nargs="*", action="extend", default=[], metavar="K=V",
                        help="what the library must say of itself, such as backend=legacy")
    parser.add_argument("--label", default="", help="shown in front of every test's name")
    parser.add_argument("--baseline-dir", metavar="DIR", help="where results without the library are kept")
    parser.add_argument("--jobs", type=int, default=1, help="processors to fill (default 1)")
    parser.add_argument("--no-proof", action="store_true", help="do not ask who served (for other allocators)")
    parser.add_argument("--keep", action="store_true", help="keep the scratch directory and print its path")
    parser.add_argument("--list", action="store_true", help="print the names of the tests")
    options = parser.parse_args(arguments)
    if not options.list and not (options.library and os.path.isfile(options.library)):
        parser.error(f"no such library: {options.library}")
    for pair in options.env + options.expect:
        if "=" not in pair:
            parser.error(f"not of the form K=V: {pair}")
    return options


def main():
    options = parse(sys.argv[1:])
    tests = [test for test in (others.SUITES if options.suites else TESTS)
             if any(fnmatch.fnmatch(test.name, only) for only in options.only)]
    if options.list:
        print("\n".join(test.name for test in tests))
        return 0
    if not tests:
        sys.exit(f"run.py: no test is called {' '.join(options.only)}")
    scratch = tempfile.mkdtemp(prefix="hakmem-")
    os.chmod(scratch, 0o755)
    # A tested program may change its user, who may have no access to the build.
    options.library = shutil.copy(os.path.realpath(options.library), os.path.realpath(scratch))
    try:
        driver = Driver(options, scratch)
        driver.run(tests)
    finally:
        if options.keep:
            print(f"kept: {scratch}")
        else:
            shutil.rmtree(scratch, ignore_errors=True)
    print(f"{len(tests) - len(driver.failed)} passed, {len(driver.failed)} failed")
    return 1 if driver.failed else 0


if __name__ == "__main__":
    sys.exit(main())
