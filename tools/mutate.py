#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Changes the library in one place at a time, and reports whether a test detects it.

mutate.py [-n COUNT] [--seed SEED] [--kind KIND] [--only REGEX] [--again] [--option OPTION]... [--list] [--report]
          [--work FOLDER]

Each mutant flips a comparison, swaps && and ||, drops a store or a call, shifts a constant or weakens a memory order in
core, frontends or backends. It is built in a copy of the tree, with assertions; then the tests run, those named after
its file first, then the fast ones, until one fails: the mutant is killed. One that compiles to the same code is
equivalent. SEED orders all mutants, so that `-n 300` is a sample; mutants already judged, in FOLDER (build-mutate), are
skipped, and so a run may be stopped at any time. --again runs the tests near their file on the survivors once more,
since tests may have been added. --report lists the results of the sample. mutants.kept beside this file names survivors
that change nothing visible to a program, or an arbitrary size, with the reason. --option=-Dcache=list judges code that
only this build has; with --again, the survivors in another build: --option=-Db_sanitize=address,undefined
--option=-Db_lundef=false detects mutants that only access memory out of bounds.
"""

import argparse
import collections
import concurrent.futures
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("src/core", "src/frontends", "src/backends")
SUITES = ("unit", "models", "api", "stress")
OPTIONS = ["-Dbench=false", "-Dman=false", "-Db_ndebug=false"]
KEPT = Path(__file__).with_name("mutants.kept")
PARTS = "src/libhakmem_parts"
PATIENCE = (10, 8)  # seconds, and multiples of a test's time without a mutant

Mutant = collections.namedtuple("Mutant", "id kind file line start end text was")

FLIPS = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "=="}
# Names of base/words.h; tests/models/orders.py weakens each order by itself.
ORDERS = {"LOAD_ACQUIRE": "LOAD_RELAXED", "STORE_RELEASE": "STORE_RELAXED", "ADD_RELEASE": "ADD_RELAXED",
          "EXCHANGE_ACQUIRE": "EXCHANGE_RELAXED", "EXCHANGE_RELEASE": "EXCHANGE_RELAXED",
          "EXCHANGE_ACQ_REL": "EXCHANGE_ACQUIRE", "OR_RELEASE": "OR_RELAXED", "OR_ACQ_REL": "OR_RELAXED",
          "CAS_ACQUIRE": "CAS_RELAXED", "CAS_ACQ_REL": "CAS_RELAXED", "CAS_WEAK_ACQUIRE": "CAS_RELAXED",
          "CAS_WEAK_RELEASE": "CAS_RELAXED"}


def blank(match):
    return re.sub(r"[^\n]", " ", match.group())


def code_of(text):
    """The text with comments, literals and directives blanked at the same length; constants stay."""
    text = re.sub(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', blank, text, flags=re.S)
    text = re.sub(r"^([ \t]*#[ \t]*define[ \t]+\w+(?:\(.*?\))?)", blank, text, flags=re.M)
    return re.sub(r"^[ \t]*(#|_Static_assert)(?:\\\n|[^\n])*", blank, text, flags=re.M)


def places(code):
    """Kind, place and replacement of each mutant of a file."""
    for m in re.finditer(r" (<=|>=|==|!=|<|>) ", code):
        yield "compare", m.start(1), m.end(1), FLIPS[m.group(1)]
    for m in re.finditer(r" (&&|\|\|) ", code):
        yield "logic", m.start(1), m.end(1), "||" if m.group(1) == "&&" else "&&"
    for m in re.finditer(r"^[ ]+((?:\*|\+\+|--)?[\w.\->\[\]*()&]+ (?:[-+|&^]|<<|>>)?= [^;\n]*;|[^\s=]+(?:\+\+|--);"
                         r"|HAK_(?:STORE|ADD|SUB|OR|EXCHANGE)_\w+\([^;]*\);)[ ]*$", code, re.M):
        yield "store", m.start(1), m.end(1), "(void)0;"
    for m in re.finditer(r"^[ ]+((?!atomic_|return|sizeof)[a-z]\w*\([^;{}]*\);)[ ]*$", code, re.M):
        yield "call", m.start(1), m.end(1), "(void)0;"
    for m in re.finditer(r"(?<![\w.])(\d+)(?=[uUlL]*\b)(?![\w.]*\.)", code):
        yield "constant", m.start(1), m.end(1), str(int(m.group(1)) + 1)
    for m in re.finditer(r"\bHAK_(\w+_(?:ACQUIRE|RELEASE|ACQ_REL))\(", code):
        yield "order", m.start(1), m.end(1), ORDERS[m.group(1)]


def mutants_of(path):
    text = path.read_text()
    name = str(path.relative_to(ROOT))
    for kind, start, end, new in places(code_of(text)):
        line = text.count("\n", 0, start)
        was = text[start:end]
        nth = text[:start].count("\n" + text.split("\n")[line] + "\n")  # the same line elsewhere
        column = start - text.rfind("\n", 0, start)
        key = "\0".join((name, text.split("\n")[line], str(nth), str(column), kind, new))
        yield Mutant(hashlib.sha1(key.encode()).hexdigest()[:12], kind, name, line + 1, start, end, new, was)


def all_mutants():
    files = [p for folder in FOLDERS for p in sorted((ROOT / folder).rglob("*.[ch]"))]
    return [m for path in files for m in mutants_of(path)]


def describe(m):
    short = " ".join(m.was.split())
    return f"{m.file}:{m.line}: {m.kind}: {short} -> {'nothing' if m.text == '(void)0;' else m.text}"


class Tests:
    """The tests of one build, and their durations."""

    def __init__(self, build):
        self.build = build
        said = subprocess.run(["meson", "introspect", "--tests", build], capture_output=True, text=True, check=True)
        self.all = [t for t in json.loads(said.stdout) if "long" not in t["suite"][0] and
                    any(suite.endswith(":" + s) for suite in t["suite"] for s in SUITES)]
        self.all = [t for t in self.all if "long" not in t["name"].split()]
        self.seconds = {}

    def targets(self, tests):
        """The files that the commands name, relative to the build folder."""
        words = {os.path.relpath(a, self.build) if a.startswith("/") else a for t in tests for a in t["cmd"]}
        return sorted(word for word in words if word.startswith("tests/"))

    def passes(self, test, limit):
        env = os.environ | test["env"]
        began = time.monotonic()
        process = subprocess.Popen(test["cmd"], env=env, cwd=self.build, stdout=subprocess.DEVNULL,
                                   stderr=subprocess.DEVNULL, start_new_session=True)
        try:
            status = process.wait(limit)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            return False
        self.seconds.setdefault(test["name"], time.monotonic() - began)
        return status in (0, 77)

    def measure(self, files):
        """The tests near the files, or all."""
        wanted = [t["name"] for file in files for t in self.near(Path(file))]
        self.all = [t for t in self.all if not files or t["name"] in wanted]
        broken = [t["name"] for t in self.all if not self.passes(t, 300)]
        if broken:
            sys.exit("these fail without a mutant: " + ", ".join(broken))
        self.all.sort(key=lambda t: self.seconds[t["name"]])

    def near(self, file):
        """The tests named after a file; or after its folder, or that include files of it; or of the parent folder."""
        word = lambda test: test["name"].split()[1]
        def about(test, folder):
            source = ROOT / f"tests/unit/test_{word(test)}.c"
            includes = f'"{folder.relative_to("src")}/'
            return word(test) == folder.name or source.exists() and includes in source.read_text()
        found = [t for t in self.all if word(t) == file.stem]
        for folder in file.parents[:-2]:
            found = found or [t for t in self.all if about(t, folder)]
        return found

    def killer(self, tests, jobs):
        """The first test that fails, or None."""
        limit = lambda t: max(PATIENCE[0], PATIENCE[1] * self.seconds[t["name"]])
        with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
            for group in [tests[i:i + 2 * jobs] for i in range(0, len(tests), 2 * jobs)]:
                for test, passed in zip(group, pool.map(lambda t: self.passes(t, limit(t)), group)):
                    if not passed:
                        return test["name"]
        return None


class Bench:
    """A copy of the tree with a build of it."""

    def __init__(self, work, jobs, mutated, options=()):
        self.tree, self.build, self.jobs = work / "tree", work / ("build" + "".join(options)), jobs
        files = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
        for name in filter(None, files.split("\0")):
            copy = self.tree / name
            copy.parent.mkdir(parents=True, exist_ok=True)
            # A stopped run may have left a mutant here: so the file written now is newer than its object.
            if not copy.exists() or copy.read_bytes() != (ROOT / name).read_bytes():
                shutil.copy(ROOT / name, copy)
        if not (self.build / "build.ninja").exists():
            subprocess.run(["meson", "setup", self.build, self.tree, *OPTIONS, *options], check=True,
                           capture_output=True, env=os.environ | {"CC": "clang"})
        subprocess.run(["ninja", "-C", self.build, "build.ninja"], capture_output=True)  # the tree may have changed
        self.tests = Tests(self.build)
        if not self.make([]):  # all: some tests open files that no command names
            sys.exit(f"{self.tree} does not build: ninja -C {self.build}")
        self.tests.measure(mutated)
        self.code = self.hash_of_code()
        said = subprocess.run(["ninja", "-C", self.build, "-t", "deps"], capture_output=True, text=True,
                              check=True).stdout
        self.sources = {os.path.normpath(self.build / line.strip()) for line in said.splitlines()}

    def compile(self, tests):
        return self.make([PARTS + ".a", *self.tests.targets(tests)])

    def make(self, targets):
        return subprocess.run(["ninja", "-C", self.build, f"-j{self.jobs}", *targets],
                              capture_output=True).returncode == 0

    def hash_of_code(self):
        total = hashlib.sha1()
        for path in sorted(self.build.glob("src/*.a.p/*.o")):
            total.update(path.read_bytes())
        return total.hexdigest()

    def judge(self, m, near_alone):
        path = self.tree / m.file
        if str(path) not in self.sources:
            return "absent", None
        text = path.read_text()
        path.write_text(text[:m.start] + m.text + text[m.end:])
        try:
            near = self.tests.near(Path(m.file))
            for tests in [near] if near_alone else [near, self.tests.all]:
                if not self.compile(tests):
                    return "invalid", None
                if self.hash_of_code() == self.code:
                    return "equivalent", None
                by = self.tests.killer([t for t in tests if tests is near or t not in near], self.jobs)
                if by:
                    return "killed", by
            return "survived", None
        finally:
            path.write_text(text)


def report(sample, results):
    kept = {line.split()[0] for line in KEPT.read_text().splitlines() if not line.startswith("#")}
    verdicts = {m: results[m.id]["verdict"] for m in sample if m.id in results}
    for m, verdict in verdicts.items():
        if verdict == "survived" and m.id in kept:
            verdicts[m] = "equivalent"
    count = collections.Counter((kind, verdict) for m, verdict in verdicts.items() for kind in (m.kind, "all"))
    for kind in sorted({kind for kind, _ in count}):
        killed, survived = count[kind, "killed"], count[kind, "survived"]
        print(f"{kind:9} {killed:4} killed, {survived:4} survived, {count[kind, 'equivalent']:3} equivalent, "
              f"{count[kind, 'invalid']:3} do not build, {count[kind, 'absent']:3} absent: "
              f"{100 * killed / max(1, killed + survived):.0f} %")
    for m, verdict in verdicts.items():
        if verdict == "survived":
            print("survived", m.id, describe(m))


def main():
    parser = argparse.ArgumentParser(usage=argparse.SUPPRESS, description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-n", type=int, default=300, help="mutants in the sample (300)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kind", help="compare, logic, store, call, constant or order")
    parser.add_argument("--only", default="", help="those whose line in the list this matches")
    parser.add_argument("--again", action="store_true", help="judge the survivors again, by the tests near their file")
    parser.add_argument("--option", action="append", default=[], help="of Meson, for another build")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--list", action="store_true", help="show the sample, and build nothing")
    parser.add_argument("--report", action="store_true", help="show the results so far, and build nothing")
    parser.add_argument("--work", type=Path, default=ROOT / "build-mutate")
    args = parser.parse_args()
    pool = [m for m in all_mutants() if (not args.kind or m.kind == args.kind) and re.search(args.only, describe(m))]
    # Unchanged code keeps its key when other code changes.
    pool.sort(key=lambda m: hashlib.sha1(f"{args.seed} {m.id}".encode()).digest())
    sample = pool[:args.n]
    if args.list:
        print(*map(describe, sample), f"{len(sample)} of {len(pool)}", sep="\n")
        return
    args.work.mkdir(exist_ok=True)
    log = args.work.resolve() / "results.jsonl"
    results = {r["id"]: r for r in map(json.loads, log.read_text().splitlines())} if log.exists() else {}
    state = lambda m: results.get(m.id, {}).get("verdict")
    wanted = "survived" if args.again else "absent" if args.option else None
    left = [m for m in sample if state(m) == wanted] if not args.report else []
    near = {m.file for m in left} if args.again else ()
    bench = Bench(args.work.resolve(), args.jobs, near, args.option) if left else None
    for m in left:
        verdict, by = bench.judge(m, args.again)
        results[m.id] = {"id": m.id, "verdict": verdict, "by": by, "what": describe(m)}
        with open(log, "a") as file:
            print(json.dumps(results[m.id]), file=file)
        print(f"{verdict:10} {describe(m)}{f' ({by})' if by else ''}", flush=True)
    report(sample, results)


if __name__ == "__main__":
    main()
