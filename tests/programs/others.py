# SPDX-License-Identifier: MIT
"""The test suites of other projects, file by file: CPython, Perl's core, redis, git (run.py --suites).

The outcome of a file is its exit status and the number of tests passed, so a suite that fails without the library must
fail with it in the same way. tools/setup.sh suites fetches the sources of the releases that are installed.
"""

import glob
import os
import re

import cpython
from world import Broken, how

SOURCES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../build-test/suites")


class Files:
    """A suite whose tests are files, each a program that prints its results, one test per line."""
    weight = 1.0
    timeout = 5400
    patterns = ()
    left_out = frozenset()
    passed, failed = r"^ok\b", r"^not ok\b"

    def files(self):
        found = sorted({path for pattern in self.patterns for path in glob.glob(pattern, root_dir=self.root)}
                       - self.left_out)
        if not found:
            raise Broken(f"no tests in {self.root}: run tools/setup.sh suites")
        return found

    def run(self, world):
        return self.run_files(world, self.files())

    def run_files(self, world, files):
        return {"cases": {file: self.became(world, file) for file in files}}

    repeat = run_files

    def differing(self, one, other):
        one, other = one["cases"], other["cases"]
        return sorted(file for file in one.keys() | other.keys() if one.get(file) != other.get(file))

    def became(self, world, file):
        command, env = self.command(world, file)
        done = world.run(command, env=env, cwd=self.root, check=False)
        count = [len(re.findall(pattern, done.out, re.M)) for pattern in (self.passed, self.failed)]
        return f"{how(done.status)}, {count[0]} passed, {count[1]} failed"

    @property
    def root(self):
        return os.path.realpath(os.path.join(SOURCES, self.folder))


class Perl(Files):
    name = "perl-core"
    program = "/usr/bin/perl"
    folder = "perl/t"
    patterns = [f"{part}/*.t" for part in ("base", "bigmem", "cmd", "comp", "io", "lib", "mro", "op", "opbasic", "re",
                                           "uni")]

    def command(self, world, file):
        return ["./perl", file], {"PERL_CORE": "1", "LC_ALL": "C"}


class Redis(Files):
    name = "redis-tests"
    program = "/usr/bin/redis-server"
    folder = "redis"
    patterns = ["tests/unit/*.tcl", "tests/unit/type/*.tcl"]
    passed, failed = r"\[ok\]", r"\[(err|exception|TIMEOUT)\]"
    # Active defragmentation needs redis's own jemalloc, which Debian's does not have.
    left_out = {"tests/unit/memefficiency.tcl"}

    def command(self, world, file):
        name = file[len("tests/"):-len(".tcl")]
        return ["tclsh", "tests/test_helper.tcl", "--single", name, "--clients", "1",
                "--tags", "-needs:debug -large-memory"], {}


class Git(Files):
    """The installed git, tested by all of its scripts, in ten parts."""
    program = "/usr/bin/git"
    folder = "git/t"

    def __init__(self, part):
        self.name = f"git-tests-{part}"
        self.patterns = [f"{part}[0-9][0-9][0-9]-*.sh"]

    def command(self, world, file):
        return (["/bin/sh", file, f"--root={world.path('trash')}"],
                {"GIT_TEST_INSTALLED": "/usr/bin", "GIT_TEST_HTTPD": "false",
                 "TEST_NO_MALLOC_CHECK": "1"})  # otherwise it preloads glibc's own check instead of the library


class Module(cpython.Suite):
    """A machine may lack what a module of tests needs."""
    must_run = False


# Fails without the library too: if a virtual machine has such sockets, and its host does not answer, this waits
# forever.
LEFT_OUT = {"test_socket": ["ThreadedVSOCKSocketStreamTest"]}


def modules():
    found = glob.glob(f"{cpython.SUITE}/test_*.py") + glob.glob(f"{cpython.SUITE}/test_*/__init__.py")
    names = [re.search(r"/(test_\w+)", path[len(cpython.SUITE):])[1] for path in sorted(found)]
    return [Module(name, timeout=1800, left_out=LEFT_OUT.get(name, ())) for name in names]


SUITES = [Perl(), Redis(), *(Git(f"t{part}") for part in range(10)), *modules()]
