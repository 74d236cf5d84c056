#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The library's messages about settings: one line for a wrong one, nothing otherwise.

  settings.py PROGRAM ARCHIVE_PROGRAM BACKEND,...

Both programs are probe.c, on the shared library and on the archive; then the span backends built.
"""
import json
import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

from common import finish

NAME = re.compile(r"HAKMEM_[A-Z0-9_]+")


class Prober:
    def __init__(self, program):
        self.program = program
        self.problems, self.runs = [], 0

    def run(self, **settings):
        self.runs += 1
        env = {name: value for name, value in os.environ.items() if not name.startswith("HAKMEM_")}
        return subprocess.run([self.program], env=env | settings, capture_output=True, text=True)

    def stats(self, **settings):
        """The statistics of one run, and the run."""
        with tempfile.TemporaryDirectory() as folder:
            run = self.run(HAKMEM_STATS="json", HAKMEM_STATS_FILE=f"{folder}/stats.%p", **settings)
            files = list(Path(folder).iterdir())
            if len(files) != 1 or not re.fullmatch(r"stats\.\d+", files[0].name):
                self.problems.append(f"HAKMEM_STATS_FILE gave {[f.name for f in files]}, not stats.PID")
                return {}, run
            return json.loads(files[0].read_text()), run

    def expect(self, what, holds, run):
        if not holds:
            self.problems.append(f"{what}: exit status {run.returncode}, stderr {run.stderr!r}")

    def silent(self, what, **settings):
        run = self.run(**settings)
        self.expect(what, run.returncode == 0 and run.stderr == "", run)

    def one_line(self, what, mentions, **settings):
        run = self.run(**settings)
        lines = run.stderr.splitlines()
        good = (run.returncode == 0 and len(lines) == 1 and lines[0].startswith("hakmem: ")
                and all(word in lines[0] for word in mentions))
        self.expect(f"{what}: one line with {mentions}", good, run)
        return run

    def fatal(self, what, **settings):
        run = self.run(**settings)
        self.expect(f"{what}: fatal, one line", run.returncode != 0 and len(run.stderr.splitlines()) == 1, run)


def check_unknown(p):
    run = p.one_line("unknown name", ["HAKMEM_FOO"], HAKMEM_FOO="1")
    names = set(NAME.findall(run.stderr)) - {"HAKMEM_FOO", "HAKMEM_STRICT"}
    p.expect("unknown name: the closest known one", len(names) == 1, run)
    p.one_line("misspelt", ["HAKMEM_BACKEN=", "HAKMEM_BACKEND"], HAKMEM_BACKEN="legacy")
    p.one_line("misspelt", ["HAKMEM_SS_EMPTY_SCAN_LIMITS=", "HAKMEM_SS_EMPTY_SCAN_LIMIT"],
               HAKMEM_SS_EMPTY_SCAN_LIMITS="3")
    p.one_line("a name of 2000 letters", ["HAKMEM_QQQ"], **{"HAKMEM_" + "Q" * 2000: "1"})
    p.one_line("no value", ["HAKMEM_STATS"], HAKMEM_STATS="")
    p.fatal("unknown name and strict", HAKMEM_FOO="1", HAKMEM_STRICT="1")
    p.fatal("bad value and strict", HAKMEM_SS_EMPTY_SCAN_LIMIT="many", HAKMEM_STRICT="1")
    p.silent("quiet", HAKMEM_FOO="1", HAKMEM_SS_EMPTY_SCAN_LIMIT="many", HAKMEM_QUIET="1")
    p.silent("other prefixes", HAKME_FOO="1", HAKMEMFOO="1", MY_HAKMEM_FOO="1")


def check_backends(p, backends):
    stats, run = p.stats()
    p.expect("what README names", {"program", "version", "backend", "tiny_header"} <= stats["allocator"].keys() and
             all({"call", "cause", "calls", "bytes", "ns"} <= row.keys() for row in stats["os_calls"]), run)
    default = stats["allocator"].get("backend")
    if default not in backends:
        p.problems.append(f"the default backend is {default!r}, not one of {backends}")
    for backend in backends:
        stats, run = p.stats(HAKMEM_BACKEND=backend)
        p.expect("the program's name", stats["allocator"]["program"] == os.path.basename(p.program), run)
        p.expect(f"backend {backend}", run.stderr == "" and stats["allocator"]["backend"] == backend, run)
    p.one_line("unknown backend", ["HAKMEM_BACKEND", "nonsense"], HAKMEM_BACKEND="nonsense")
    stats, run = p.stats(HAKMEM_BACKEND="nonsense")
    p.expect("unknown backend: the default is used", stats["allocator"]["backend"] == default, run)
    if "legacy" in backends and "shared_pool" in backends:
        stats, run = p.stats(HAKMEM_TINY_USE_SUPERSLAB="0")
        p.expect("HAKMEM_TINY_USE_SUPERSLAB=0", stats["allocator"]["backend"] == "legacy", run)
        stats, run = p.stats(HAKMEM_TINY_USE_SUPERSLAB="0", HAKMEM_BACKEND="shared_pool")
        p.expect("HAKMEM_BACKEND wins", stats["allocator"]["backend"] == "shared_pool", run)


def check_every_setting(p, backends):
    """Each setting silently accepts its default and reads it back; numbers stay within their ranges."""
    settings = {row["name"]: row for row in p.stats()[0].get("settings", [])}
    if len(settings) < 10:
        p.problems.append(f"only {len(settings)} settings in the statistics")
    defaults = {name: str(row["default"]) for name, row in settings.items() if "default" in row}
    for name in "HAKMEM_STATS", "HAKMEM_STRICT", "HAKMEM_QUIET":
        defaults.pop(name, None)
    if "shared_pool" not in backends:
        defaults.pop("HAKMEM_TINY_USE_SUPERSLAB")  # its default names a part that is not built
    stats, run = p.stats(**defaults)
    p.expect("every setting at its default", run.returncode == 0 and run.stderr == "", run)
    for row in stats.get("settings", []):
        if row["name"] in defaults and row["source"] != "environment":
            p.problems.append(f"{row['name']} was set, but its source is {row['source']}")
    for i, (name, row) in enumerate(settings.items()):
        if row.get("source") != ("environment" if name in ("HAKMEM_STATS", "HAKMEM_STATS_FILE") else "default"):
            p.problems.append(f"{name} was not set, but its source is {row.get('source')}")
        if row.get("type") == "int" and "max" in row:
            for value in str(row["max"] + 1), ("-1", "1x", "99999999999999999999", "0x10", " 1")[i % 5]:
                p.one_line(f"{name}={value}", [name], **{name: value})


def check_secure(p, archive_program):
    """A program with more privileges than its user ignores the settings in the environment."""
    if os.geteuid() != 0:
        print("not root: nothing said about AT_SECURE")
        return
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        copy = Path(folder) / "probe"
        shutil.copyfile(archive_program, copy)
        os.chown(copy, 65534, 65534)
        os.chmod(copy, 0o755 | stat.S_ISUID)
        run = subprocess.run([copy, "secure"], capture_output=True, text=True,
                             env={"HAKMEM_FOO": "1", "HAKMEM_STATS": "1", "HAKMEM_STRICT": "1"})
        if run.returncode == 77:
            print("set-user-id has no effect here: nothing said about AT_SECURE")
            return
        p.expect("set-user-id: settings are ignored", run.returncode == 0 and run.stderr == "", run)


def main():
    program, archive_program, backends = sys.argv[1], sys.argv[2], sys.argv[3].split(",")
    p = Prober(program)
    p.silent("nothing set")
    check_unknown(p)
    check_backends(p, backends)
    check_every_setting(p, backends)
    check_secure(p, archive_program)
    stats, run = p.stats()
    p.expect("statistics to a file: nothing on stderr", run.stderr == "", run)
    if stats.get("conservation", {}).get("violations", 0) != 0:
        p.problems.append(f"conservation: {stats['conservation']}")
    finish(p.problems, f"{p.runs} runs: one line for each wrong setting, none otherwise")


if __name__ == "__main__":
    main()
