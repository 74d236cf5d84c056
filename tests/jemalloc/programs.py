#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Programs that use jemalloc's interface, under libhakmem-jemalloc.so.

  PYTHONPATH=tests programs.py redis|named|varnish|crate|suite LIBRARY HAKMEM

HAKMEM is the command of the workbench. A program that is not installed is skipped; so is what tools/setup.sh suites has
not fetched.
"""
import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

from common import finish, output_of, skip
from tracing import settings_only

SUITES = Path(__file__).resolve().parent.parent.parent / "build-test" / "suites"
PAGE = os.sysconf("SC_PAGESIZE")
MIB = 1 << 20
SECONDS = 30
# jemalloc's tests of this interface: program, and the cases that test how jemalloc does it.
OWN_TESTS = {
    "integration": ["MALLOCX_ARENA", "aligned_alloc", "allocated", "malloc", "mallocx", "overflow", "posix_memalign",
                    "rallocx", "sdallocx", "thread_arena", "thread_tcache_enabled", "xallocx"],
    "unit": ["stats_print"],
}
OWN_CASES = {"test_grow_and_shrink"}  # a block that shrinks has exactly the size of a new one
HARNESS = ["test/src/btalloc.c", "test/src/btalloc_0.c", "test/src/btalloc_1.c", "test/src/math.c", "test/src/mtx.c",
           "test/src/sleep.c", "test/src/SFMT.c", "test/src/test.c", "test/src/thd.c", "test/src/timer.c",
           "src/nstime.c", "src/malloc_io.c", "src/ticker.c"]


def need(*programs):
    for program in programs:
        if not shutil.which(program, path=os.environ["PATH"] + ":/usr/sbin"):
            skip(f"{program} is not installed")


def wait_for(what, ready, process):
    """Calls ready() until it gives something."""
    end = time.monotonic() + SECONDS
    while time.monotonic() < end and process.poll() is None:
        with contextlib.suppress(OSError):
            if found := ready():
                return found
        time.sleep(0.05)
    sys.exit(f"{what}: not ready after {SECONDS} s, or ended ({process.poll()})")


@contextlib.contextmanager
def server(library, command, folder, settings=None):
    """A server that runs under the library; its messages go to `log` in the folder."""
    environment = settings_only(settings or {}) | {"LD_PRELOAD": library}
    with open(folder / "log", "wb") as log:
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log, stdin=subprocess.DEVNULL,
                                   cwd=folder)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def mapped(pid, name):
    return name in Path(f"/proc/{pid}/maps").read_text()


def wrong_library(pid):
    """jemalloc's own library must not be loaded beside ours."""
    if not mapped(pid, "libhakmem-jemalloc.so") or mapped(pid, "/libjemalloc.so"):
        return ["the program has not loaded libhakmem-jemalloc.so, or libjemalloc.so.2, too"]
    return []


# --- redis ------------------------------------------------------------------------------------------------

class Redis:
    """One connection, which stays: a new one would allocate."""

    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(SECONDS)
        self.socket.connect(str(path))
        self.input = self.socket.makefile("rb")

    def __call__(self, *words):
        parts = [word.encode() for word in words]
        text = b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%s\r\n" % (len(part), part) for part in parts)
        self.socket.sendall(text)
        return self.reply()

    def reply(self):
        line = self.input.readline().decode().rstrip()
        kind, rest = line[:1], line[1:]
        if kind == "*":
            return [self.reply() for _ in range(int(rest))]
        if kind == "$" and rest != "-1":
            return self.input.read(int(rest) + 2)[:-2].decode()
        return line

    def memory(self, wanted=lambda figures: True):
        """The figures of INFO once they are as wanted, or the last ones: redis reads them from time to time."""
        end = time.monotonic() + SECONDS
        while True:
            text = self("INFO", "memory")
            figures = {key: int(value) for key, value in re.findall(r"^(\w+):(\d+)\r?$", text, re.MULTILINE)}
            if wanted(figures) or time.monotonic() > end:
                return figures
            time.sleep(0.05)


def redis(library, tool):
    need("redis-server")
    if "libjemalloc" not in output_of(["ldd", shutil.which("redis-server")]):
        skip("redis-server does not use jemalloc")
    problems = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        command = ["redis-server", "--port", "0", "--unixsocket", "socket", "--save", "", "--jemalloc-bg-thread", "no"]
        settings = {"HAKMEM_PURGE_DELAY_MS": 3600000, "HAKMEM_STATS": "json", "HAKMEM_STATS_FILE": folder / "stats",
                    "HAKMEM_STATS_SIGNAL": int(signal.SIGUSR1)}
        with server(library, command, folder, settings) as process:
            ask = wait_for("redis", lambda: Redis(folder / "socket"), process)
            problems += wrong_library(process.pid)
            ask("EVAL", "for i = 1, 20000 do redis.call('set', i, string.rep('x', 3000)) end", "0")

            def live_bytes():
                (folder / "stats").unlink(missing_ok=True)
                process.send_signal(signal.SIGUSR1)
                wait_for("statistics", lambda: (folder / "stats").read_text().endswith("}\n"), process)
                return json.loads(output_of([tool, "causes", "--json", folder / "stats"]))["live_bytes"]

            # Redis changes the size of its buffers at leisure, so both are read until they agree.
            live = 0

            def agrees(now):
                nonlocal live
                live = live_bytes()
                return abs(now["allocator_allocated"] - live) <= PAGE

            full = ask.memory(agrees)["allocator_allocated"]
            if abs(full - live) > PAGE:
                problems.append(f"INFO says allocated {full}, hakmem causes {live}")
            ask("EVAL", "for i = 1, 20000 do redis.call('del', i) end", "0")  # FLUSHALL would purge itself
            before = ask.memory(lambda now: now["allocator_allocated"] < full - 50 * MIB)
            if (reply := ask("MEMORY", "PURGE")) != "+OK":
                problems.append(f"MEMORY PURGE: {reply}")
            purged = ("allocator_resident", "used_memory_rss")
            after = ask.memory(lambda now: all(before[key] - now[key] >= 30 * MIB for key in purged))
            for key in purged:
                if before[key] - after[key] < 30 * MIB:
                    problems.append(f"MEMORY PURGE: {key} was {before[key]}, is {after[key]}")
            stats = ask("MEMORY", "STATS")
            if stats[stats.index("allocator.allocated") + 1][0] != ":":
                problems.append("MEMORY STATS has no number for allocator.allocated")
            if "Begin jemalloc statistics" not in ask("MEMORY", "MALLOC-STATS"):
                problems.append("MEMORY MALLOC-STATS has no statistics")
            reply = ask("CONFIG", "SET", "activedefrag", "yes")
            if reply != "+OK" and "modified Jemalloc" not in reply:
                problems.append(f"activedefrag: {reply}")
            if running := ask.memory(lambda now: now["active_defrag_running"] == 0)["active_defrag_running"]:
                problems.append(f"activedefrag does not end: {running}")
    finish(problems, f"allocated {live}; resident {before['allocator_resident']}, purged "
                     f"{after['allocator_resident']}")


# --- BIND and Varnish ---------------------------------------------------------------------------------------

ZONE = """$TTL 300
@ IN SOA ns hostmaster 1 3600 900 604800 300
@ IN NS ns
ns IN A 127.0.0.1
www IN A 192.0.2.7
"""


def named(library, _):
    need("named", "dig")
    port = free_port()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "zone").write_text(ZONE)
        (folder / "named.conf").write_text(
            f'options {{ directory "{folder}"; listen-on port {port} {{ 127.0.0.1; }}; listen-on-v6 {{ none; }}; '
            f'pid-file "{folder}/pid"; recursion no; dnssec-validation no; session-keyfile none; }};\n'
            'controls { };\nzone "example.test" { type primary; file "zone"; };\n')
        command = [shutil.which("named", path="/usr/sbin:/usr/bin"), "-g", "-c", folder / "named.conf", "-u", "root"]
        dig = ["dig", "@127.0.0.1", "-p", str(port), "+tries=1", "+time=2", "+short"]
        ask = lambda *words: subprocess.run([*dig, *words], capture_output=True, text=True).stdout
        with server(library, command, folder) as process:
            answer = wait_for("named", lambda: ask("www.example.test") if (folder / "pid").exists() else "", process)
            problems = wrong_library(process.pid)
            lines = len(ask("-t", "axfr", "example.test").splitlines())
        text = (folder / "log").read_text()
        if answer.strip() != "192.0.2.7" or lines != 5:
            problems.append(f"www.example.test is {answer!r}, and the zone has {lines} lines")
        if process.returncode or "exiting" not in text:
            problems.append(f"named ended with {process.returncode}:\n{text[-500:]}")
    finish(problems, "a zone, an answer, a transfer, and the end with all of BIND's own checks")


class Behind(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", "5")
        self.end_headers()
        self.wfile.write(b"hello")

    def log_message(self, *_):
        pass


def varnish(library, _):
    need("varnishd")
    behind = HTTPServer(("127.0.0.1", 0), Behind)
    Thread(target=behind.serve_forever, daemon=True).start()
    port = free_port()
    fetch = lambda: urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=SECONDS)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        command = [shutil.which("varnishd", path="/usr/sbin:/usr/bin"), "-F", "-n", folder / "work", "-j", "none",
                   "-a", f"127.0.0.1:{port}", "-b", f"127.0.0.1:{behind.server_port}"]
        with server(library, command, folder) as process:
            first = wait_for("varnishd", lambda: fetch().read(), process)
            second = fetch()
            problems = wrong_library(process.pid)
            if first != b"hello" or second.read() != b"hello" or len(second.headers["X-Varnish"].split()) != 2:
                problems.append(f"not the page, or not from the cache: {first!r}, {second.headers['X-Varnish']!r}")
    finish(problems, "a page, and the same from the cache")


# --- the tests of others ------------------------------------------------------------------------------------

def crate(library, _):
    """tikv-jemalloc-ctl's own tests and examples, linked with the library in place of the jemalloc that it contains."""
    need("cargo")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "src").mkdir()
        (folder / "src" / "lib.rs").write_text("")
        (folder / "Cargo.toml").write_text('[package]\nname = "fetch"\nversion = "0.0.0"\nedition = "2021"\n'
                                           '[dependencies]\ntikv-jemalloc-ctl = "=0.6.1"\n')
        if subprocess.run(["cargo", "fetch"], cwd=folder, capture_output=True).returncode:
            skip("cargo cannot fetch tikv-jemalloc-ctl")
        home = Path(os.environ.get("CARGO_HOME", Path.home() / ".cargo"))
        shutil.copytree(next(home.glob("registry/src/*/tikv-jemalloc-ctl-0.6.1")), folder / "ctl")
        (folder / "ctl" / "Cargo.toml").write_text((folder / "ctl" / "Cargo.toml").read_text() + "\n[workspace]\n")
        for link in ("libjemalloc.so", "libjemalloc.so.2"):
            (folder / link).symlink_to(library)
        (folder / "libhakmem.so.0").symlink_to(Path(library).parent / "libhakmem.so.0")
        environment = settings_only({"JEMALLOC_OVERRIDE": folder / "libjemalloc.so", "LD_LIBRARY_PATH": folder,
                                     "CARGO_TARGET_DIR": folder / "target"})
        command = ["cargo", "test", "--features", "stats,tikv-jemallocator/unprefixed_malloc_on_supported_platforms"]
        run = subprocess.run(command, cwd=folder / "ctl", env=environment, capture_output=True, text=True)
        linked = output_of(["readelf", "-d", next((folder / "target/debug/deps").glob("tikv_jemalloc_ctl-*[!d]"))])
    passed = sum(int(number) for number in re.findall(r"(\d+) passed", run.stdout))
    problems = [] if run.returncode == 0 and passed >= 60 else [run.stdout[-3000:] + run.stderr[-1000:]]
    if "libjemalloc.so.2" not in linked:
        problems.append("the tests are not linked with the library")
    finish(problems, f"{passed} tests and examples")


def suite(library, _):
    """jemalloc's own tests of the interface. They are compiled with its headers, which its configure makes."""
    source = SUITES / "jemalloc"
    if not (source / "configure").exists():
        skip("tools/setup.sh suites has not fetched jemalloc")
    problems, passed = [], 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        shutil.copytree(source, folder, dirs_exist_ok=True)
        output_of(["./configure", "--disable-cxx", "--disable-doc"], cwd=folder)
        (folder / "include/jemalloc/internal/private_namespace.h").write_text("")
        (folder / "hooks.c").write_text("void (*test_hooks_arena_new_hook)(void), (*test_hooks_libc_hook)(void);\n")
        compile = ["cc", "-O1", "-w", "-D_GNU_SOURCE", "-DJEMALLOC_INTEGRATION_TEST", "-fno-builtin", "-Itest/include",
                   "-Iinclude"]
        output_of([*compile, "-c", "hooks.c", *HARNESS], cwd=folder)
        objects = ["hooks.o", *(Path(file).with_suffix(".o").name for file in HARNESS)]
        for kind, names in OWN_TESTS.items():
            for test in names:
                output_of([*compile, f"test/{kind}/{test}.c", *objects, "-o", test, library,
                           f"-Wl,-rpath-link,{Path(library).parent}", "-lm", "-pthread"], cwd=folder)
                run = subprocess.run([f"./{test}"], cwd=folder, capture_output=True, text=True,
                                     env=settings_only({"LD_PRELOAD": library}))
                cases = re.findall(r"^(\w+) \([\w-]+\): (pass|fail|skip)", run.stdout + run.stderr, re.MULTILINE)
                problems += [f"{test}: {case}: {how}" for case, how in cases if how != "pass" and case not in OWN_CASES]
                passed += sum(how == "pass" for _, how in cases)
                if run.returncode < 0 or not cases:
                    problems.append(f"{test}: {run.returncode}\n{run.stderr[-2000:]}")
    finish(problems, f"{passed} cases pass")


if __name__ == "__main__":
    which, library, command = sys.argv[1:]
    {f.__name__: f for f in (redis, named, varnish, crate, suite)}[which](os.path.abspath(library), command)
