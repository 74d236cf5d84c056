# SPDX-License-Identifier: MIT
"""CPython's own test suite, case by case.

The outcome of a test is the result of every case, from the JUnit report that regrtest writes. Suites that mostly sleep
are split into shards that run at the same time; the last shard takes all cases that the others did not name, so that
none is missed.
"""

import os
import re
import subprocess
import xml.etree.ElementTree

from world import Broken, how, tail

PYTHON = os.path.realpath("/usr/bin/python3")
SUITE = f"/usr/lib/{os.path.basename(PYTHON)}/test"


class Suite:
    must_run = True

    def __init__(self, module, weight=1.0, timeout=120, shards=(), raw_malloc=False, left_out=()):
        self.module = module
        self.name = module + (".malloc" if raw_malloc else "")
        self.weight = weight
        self.timeout = timeout
        self.shards = shards
        self.left_out = [word for pattern in left_out for word in ("-i", pattern)]
        # CPython takes blocks up to 512 bytes from its own arenas, unless PYTHONMALLOC says otherwise.
        self.env = {"PYTHONMALLOC": "malloc"} if raw_malloc else {}
        self.program = PYTHON

    def run(self, world):
        self.find()
        others = [["-i", shard] for shard in self.shards]
        selections = [["-m", shard, *self.left_out] for shard in self.shards] + [sum(others, self.left_out)]
        return self.run_selections(world, selections)

    def repeat(self, world, cases):
        """Runs the same cases alone: distinguishes a difference from an accident of timing."""
        return self.run_selections(world, [sum((["-m", case] for case in cases), [])])

    def differing(self, one, other):
        one, other = one["cases"], other["cases"]
        return sorted(case for case in one.keys() | other.keys() if one.get(case) != other.get(case))

    def find(self):
        if not os.path.exists(f"{SUITE}/regrtest.py"):
            raise Broken("the CPython test suite is missing: run tools/setup.sh test")

    def run_selections(self, world, selections):
        started = []
        try:
            for selection in selections:
                started.append(self.start_shard(world, self.env, selection, len(started)))
            return self.collect(world, started)
        finally:
            for process, _, log in started:
                world.stop(process)
                log.close()

    def start_shard(self, world, env, selection, number):
        folder = world.path(f"s{number}")
        os.makedirs(folder, exist_ok=True)
        report = os.path.join(folder, "report.xml")
        if os.path.exists(report):
            os.unlink(report)
        log = open(os.path.join(folder, "log"), "w+", encoding="utf-8", errors="replace")
        command = [PYTHON, "-m", "test", "--tempdir", folder, "--junit-xml", report, *selection, self.module]
        process = world.start(command, env=env, main=True, cwd=folder, stdout=log, stderr=subprocess.STDOUT)
        return process, report, log

    def collect(self, world, started):
        cases, failed = {}, False
        for process, report, log in started:
            try:
                status = process.wait(timeout=world.left())
            except subprocess.TimeoutExpired:
                raise Broken(f"{self.module} did not end in time\n{log_tail(log)}") from None
            text = whole_log(log)
            world.refuse_unasked(text)
            if status < 0 or not os.path.exists(report):
                raise Broken(f"{self.module} crashed, {how(status)}\n{crash_excerpt(text)}")
            failed = failed or status != 0
            for case, became in read_report(report):
                cases[case] = became
        if not cases and self.must_run:
            raise Broken(f"{self.module} ran no case")
        return {"cases": cases, "failed": failed}


def read_report(path):
    for case in xml.etree.ElementTree.parse(path).iter("testcase"):
        marks = {mark.tag for mark in case} & {"error", "failure", "skipped"}
        # Names of subtests may carry addresses and process ids.
        name = re.sub(r"0x[0-9a-f]+|\b\d{3,}\b", "N", case.get("name"))
        yield name, "+".join(sorted(marks)) or "pass"


def crash_excerpt(text):
    """faulthandler's report begins with the thread that crashed."""
    start = text.find("Fatal Python error")
    return tail(text) if start < 0 else "\n".join(text[start:].splitlines()[:15])


def whole_log(log):
    log.flush()
    log.seek(0)
    return log.read()


def log_tail(log):
    return tail(whole_log(log))


SUITES = [
    Suite("test_multiprocessing_fork", weight=0.6, timeout=240,
          shards=("WithProcessesTest[A-E]*", "WithProcessesTest[F-O]*", "WithProcessesTestP*",
                  "WithProcessesTest[Q-Z]*", "WithManager*", "WithThreadsTest[A-L]*", "WithThreadsTest[M-Z]*",
                  "TestWait", "TestResourceTracker")),
    # Since Python 3.14, tests of system calls skip themselves if LD_PRELOAD is set.
    Suite("test_subprocess", weight=0.6, timeout=180, shards=("POSIXProcessTestCase", "ProcessTestCase"),
          left_out=("test_vfork_used_when_expected",)),
    Suite("test_threading", weight=0.3, timeout=120),
    Suite("test_re"),
    Suite("test_dict", raw_malloc=True),
    Suite("test_list", raw_malloc=True),
    Suite("test_json", raw_malloc=True),
    Suite("test_gc", raw_malloc=True),
]
