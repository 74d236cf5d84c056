# SPDX-License-Identifier: MIT
"""Programs other than CPython's tests: a compiler, git, a server, a database, node.

Each class does visible work in a given world and returns the results that must be the same in every world. Results that
may differ between runs (speed, process ids, the size of a pack) are checked here or left out.
"""

import glob
import os
import shlex
import subprocess
import time

from world import Broken, digest, tail

HERE = os.path.dirname(os.path.abspath(__file__))
SOURCE = os.path.dirname(os.path.dirname(HERE))


class Program:
    weight = 1.0
    timeout = 120


class Gcc(Program):
    """gcc builds this project's library; every object file must be identical."""
    name = "gcc"
    program = "/usr/bin/gcc"
    weight = 2.0
    timeout = 300

    def run(self, world):
        build = world.path("build")
        env = {"CC": self.wrapper(world), "CXX": "/bin/false"}
        setup = ["meson", "setup", "-Dtests=false", "-Dbench=false", "-Dbuildtype=release", build, SOURCE]
        world.run(setup, tested=False, env=env)
        done = world.run(["ninja", "-j2", "-C", build, "src/libhakmem_parts.a"], tested=False, env=env)
        world.refuse_unasked(done.out)
        found = glob.glob(f"{build}/**/*.o", recursive=True)
        made = sorted(path for path in found if os.path.isfile(path))
        if not made:
            raise Broken("nothing was built\n" + tail(done.out))
        return {os.path.relpath(path, build): hash_file(path) for path in made}

    def wrapper(self, world):
        """Preloads into gcc and all it starts, but not into meson and ninja."""
        path = world.path("cc")
        with open(path, "w", encoding="utf-8") as file:
            file.write("#!/bin/sh\n")
            for name, value in world.preload().items():
                file.write(f"export {name}={shlex.quote(value)}\n")
            file.write('exec gcc "$@"\n')
        os.chmod(path, 0o755)
        return path


class Git(Program):
    """A history of 100 commits, packed and checked."""
    name = "git"
    program = "/usr/bin/git"
    commits = 100

    def run(self, world):
        self.world = world
        self.repository = world.path("repository")
        self.errors = ""
        self.git("init", "-q", "-b", "main", self.repository, cwd=world.scratch)
        for number in range(self.commits):
            self.write(number)
            self.git("add", "-A")
            self.git("commit", "-q", "-m", f"commit {number}", when=number)
        self.git("gc", "-q")
        return {
            "fsck": self.git("fsck", "--full", "--strict"),
            "head": self.git("rev-parse", "HEAD"),
            "commits": self.git("rev-list", "--count", "HEAD"),
            "objects": digest(self.git("rev-list", "--objects", "--all")),
            "log": digest(self.git("log", "--stat", "-p")),
            "stderr": self.errors,
        }

    def git(self, *words, when=0, cwd=None):
        date = f"{1700000000 + 60 * when} +0000"
        env = {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": "/dev/null",
               "GIT_AUTHOR_NAME": "A", "GIT_AUTHOR_EMAIL": "a@example.org", "GIT_AUTHOR_DATE": date,
               "GIT_COMMITTER_NAME": "A", "GIT_COMMITTER_EMAIL": "a@example.org", "GIT_COMMITTER_DATE": date}
        done = self.world.run(["git", "-c", "gc.auto=0", *words], env=env, main=True, cwd=cwd or self.repository)
        self.errors += done.err
        return done.out

    def write(self, number):
        """One file changed, one grown, a new one every fourth time."""
        lines = [f"{line} {(line * 7919 + number * 104729) % 65521}\n" for line in range(400)]
        self.put("changed", "".join(lines))
        self.put("grown", f"line {number}\n" * 20, "a")
        if number % 4 == 0:
            self.put(f"folder{number % 12}/file{number}", "".join(lines[:50]))

    def put(self, name, text, mode="w"):
        path = os.path.join(self.repository, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, mode, encoding="utf-8") as file:
            file.write(text)


class Redis(Program):
    """A server serves 400 000 pipelined requests, reports its state and shuts down."""
    name = "redis"
    program = "/usr/bin/redis-server"
    weight = 2.0
    # (tests of redis-benchmark, requests for each)
    loads = [("set,get,lpush", 120000), ("lrange_100", 25000), ("lrange_300,lrange_500,lrange_600", 5000)]

    def run(self, world):
        socket = world.path("socket")
        with open(world.path("log"), "w+", encoding="utf-8") as log:
            server = world.start(["redis-server", "--port", "0", "--unixsocket", socket, "--save", "",
                                  "--appendonly", "no", "--dir", world.scratch],
                                 main=True, stdout=log, stderr=subprocess.STDOUT)
            try:
                self.wait_for(world, server, socket)
                self.check_mapped(world, server)
                outcome = self.load(world, socket)
                self.ask(world, socket, "shutdown", "nosave", check=False)
                outcome["exit"] = server.wait(timeout=world.left())
            except subprocess.TimeoutExpired:
                raise Broken("redis-server did not shut down") from None
            finally:
                world.stop(server)
            log.seek(0)
            world.refuse_unasked(log.read())
        return outcome

    def ask(self, world, socket, *words, check=True):
        return world.run(["redis-cli", "-s", socket, *words], tested=False, check=check).out

    def wait_for(self, world, server, socket):
        while self.ask(world, socket, "ping", check=False).strip() != "PONG":
            if server.poll() is not None or world.left() < 1:
                raise Broken("redis-server did not start")
            time.sleep(0.05)

    def check_mapped(self, world, server):
        if world.library is None:
            return
        with open(f"/proc/{server.pid}/maps", encoding="utf-8") as maps:
            if world.library not in maps.read():
                raise Broken("the library is not mapped into redis-server")

    def load(self, world, socket):
        served = []
        for tests, requests in self.loads:
            done = world.run(["redis-benchmark", "-s", socket, "-P", "16", "-d", "64", "-r", "100000",
                              "--csv", "-t", tests, "-n", str(requests)])
            if done.err:
                raise Broken("redis-benchmark: " + tail(done.err))
            served += [(line.split('"')[1], requests) for line in done.out.splitlines()[1:] if line]
        values = self.ask(world, socket, "lrange", "mylist", "0", "-1").splitlines()
        info = self.ask(world, socket, "info")
        if "mem_allocator:" not in info or len(values) < 120000:
            raise Broken("INFO or the list is not as it should be\n" + tail(info))
        return {"served": served, "distinct": len(set(values)), "length": len(values[0]),
                "sections": [line for line in info.splitlines() if line.startswith("#")]}


class Sqlite(Program):
    """400 000 rows: insert, index, join, check."""
    name = "sqlite3"
    program = "/usr/bin/sqlite3"

    def run(self, world):
        with open(os.path.join(HERE, "sqlite_workload.sql"), "rb") as script:
            done = world.run(["sqlite3", "-batch", ":memory:"], feed=script.read(), main=True)
        lines = done.out.splitlines()
        if "integrity ok" not in lines or "rows 400000" not in lines:
            raise Broken("unexpected result\n" + tail(done.out))
        return {"lines": len(lines), "result": digest(done.out), "stderr": done.err}


class Node(Program):
    """Objects to JSON and back, and a Map that churns."""
    name = "node"
    program = "/usr/bin/node"

    def run(self, world):
        done = world.run(["node", os.path.join(HERE, "node_workload.js")], main=True)
        return {"result": done.out, "stderr": done.err}


class Php(Program):
    """PHP: arrays, strings and regular expressions; PHP opens its extensions with RTLD_DEEPBIND."""
    name = "php"
    program = "/usr/bin/php"

    def run(self, world):
        done = world.run(["php", os.path.join(HERE, "php_workload.php")], main=True)
        return {"result": done.out, "stderr": done.err}


class TooMuch(Program):
    """A program is told when it requests more than the machine has."""
    name = "memory_error"
    program = "/usr/bin/python3"
    script = """
import os
memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
swap = sum(int(line.split()[2]) for line in open("/proc/swaps").readlines()[1:]) << 10
for size in (3 * (memory + swap) // 2, 30 * (memory + swap)):
    try:
        bytes(size)  # from calloc: nothing fills it, should it be granted
        print("granted")
    except MemoryError:
        print("MemoryError")
"""

    def run(self, world):
        done = world.run([self.program, "-c", self.script], main=True)
        return {"result": done.out, "stderr": done.err}


def hash_file(path):
    with open(path, "rb") as file:
        return digest(file.read())


PROGRAMS = [Gcc(), Git(), Redis(), Sqlite(), Node(), Php(), TooMuch()]
