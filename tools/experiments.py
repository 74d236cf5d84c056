#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The experiments of the original system, run again: writes docs/experiments.md.

  tools/experiments.py [--build DIR] [-n N] >docs/experiments.md
  tools/experiments.py [--build DIR] --check docs/experiments.md

Calls are counted (strace, the library's statistics); speeds are medians of N interleaved runs beside the
system's malloc and what is installed of mimalloc, jemalloc and tcmalloc. --check counts only: every bar on
a count must hold, and the page must be what this script writes, apart from the figures measured.
"""
import argparse
import platform
import random
import re
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "bench"), str(ROOT / "tests")]

import run as bench_run  # noqa: E402
import tracing  # noqa: E402

MAPPING = ("mmap", "munmap", "mremap", "mprotect", "madvise", "process_madvise")
MAPS = ("mmap", "mremap", "mprotect")

HEADER = """# The original's experiments, run here

The system that hakmem re-creates left reports of its experiments: commands, results and expectations.
This page has for each of them the command, the figure *there* (on other machines, so only ratios carry over), the
figure *here*, and the bar set for it. `random_mixed …` runs as

```
LD_PRELOAD=build/src/libhakmem.so build/bench/bench_random_mixed …
```

`tools/experiments.py >docs/experiments.md` writes the page anew. The test `experiments` counts all that can be counted,
and fails if a bar on a count does not hold.

Machine: {machine}.
Speeds in M ops/s: medians of {runs} interleaved runs, each allocator preloaded into the same program.
"Calls" are the library's own: mmap, munmap, mremap, mprotect, madvise, process_madvise.
"""


@dataclass
class Row:
    what: str
    there: str
    here: str
    bar: str = ""
    met: bool | None = None     # None: no bar, or not known from counting


@dataclass
class Section:
    title: str
    rows: list = field(default_factory=list)
    note: str = ""


class Lab:
    """Runs programs of bench/ under the library, and under the other allocators."""

    def __init__(self, build, runs, counts_only):
        self.build, self.runs, self.counts_only = build.resolve(), runs, counts_only
        self.known = bench_run.known_libraries(self.build)
        self.library = self.known["hakmem"]
        self.traced, self.headers = {}, None

    def words(self, command):
        name, *arguments = command.split()
        return [str(self.build / "bench" / f"bench_{name}"), *arguments]

    def calls(self, command, **settings):
        key = command, tuple(settings.items())
        if key not in self.traced:
            self.traced[key] = tracing.trace(self.library, self.words(command), settings)[0]
        return self.traced[key]

    def stats(self, command, **settings):
        return tracing.run_with_stats(self.library, self.words(command), settings)

    def sample(self, command, library, settings):
        """(M ops/s, share of kernel time, peak KiB) of one run."""
        line = [self.build / "bench" / "bench_measure", "1", library or "-", *self.words(command)]
        ran = subprocess.run([str(word) for word in line], capture_output=True, text=True,
                             env=tracing.settings_only(settings))
        measured = bench_run.MEASURED.search(ran.stdout)
        served = bench_run.SERVED.search(ran.stdout)
        if not measured or measured[5] != "0" or (library and Path(served[3]).resolve() != library):
            sys.exit(f"{command} under {library}: {ran.stdout}{ran.stderr}")
        user, system, peak = (int(value) for value in measured.groups()[1:4])
        return float(re.search(r" mops=(\S+)", ran.stdout)[1]), system / max(1, user + system), peak

    def measure(self, command, variants=None):
        """{name: (M ops/s, kernel share, peak KiB)}, medians; nothing where only counts are wanted."""
        if self.counts_only:
            return {}
        chosen = {"hakmem": (self.library, {}), **(variants or {}), "system": (None, {}),
                  **{name: (self.known[name], {}) for name in bench_run.PEERS if name in self.known}}
        samples = {name: [] for name in chosen}
        for _, _, name in bench_run.interleaved(chosen, self.runs, random.Random()):
            samples[name].append(self.sample(command, *chosen[name]))
        return {name: tuple(map(statistics.median, zip(*found))) for name, found in samples.items()}

    def header_library(self):
        """The library of a build with tiny_header=true, made for this."""
        if self.headers is None:
            self.headers = tempfile.TemporaryDirectory(prefix="hakmem-experiments-")
            setup = ["meson", "setup", self.headers.name, ROOT, "-Dtiny_header=true", "-Dtests=false", "-Dbench=false"]
            for command in setup, ["ninja", "-C", self.headers.name]:
                subprocess.run([str(word) for word in command], check=True, capture_output=True)
        return (Path(self.headers.name) / "src" / "libhakmem.so").resolve()


# --- cells of the tables ------------------------------------------------------------------------------


def made(process):
    """The library's system calls, as text, and their number."""
    counts = {name: process.own[name] for name in MAPPING if process.own[name]}
    return ", ".join(f"{n} {name}" for name, n in counts.items()), sum(counts.values())


def call_row(lab, command, there, limit=12, **settings):
    text, n = made(lab.calls(command, **settings))
    command = " ".join([*(f"{name}={value}" for name, value in settings.items()), command])
    return Row(f"calls of `{command}`", there, text, f"≤ {limit} calls", n <= limit)


def speed_text(found):
    return ", ".join(f"{name} {values[0]:.0f}" if values[0] >= 100 else f"{name} {values[0]:.3g}"
                     for name, values in found.items()) or "–"


def speed_row(lab, command, there, rivals=("mimalloc",), variants=None):
    found = lab.measure(command, variants)
    rivals_there = [name for name in rivals if name in found]
    met = all(found["hakmem"][0] > found[name][0] for name in rivals_there) if rivals_there else None
    return Row(f"M ops/s of `{command}`", there, speed_text(found), f"ahead of {' and '.join(rivals)}", met)


def switch_row(lab, setting, command, cause, there, **base):
    """The setting must move its own cause in the ledger."""
    before, after = (tracing.ledger_by_cause(lab.stats(command, **settings)[0])[cause]
                     for settings in (base, base | dict([setting.split("=")])))
    around = "".join(f"{name}={value} " for name, value in base.items())
    return Row(f"`{setting}` on `{around}{command}`", there, f"{cause}: {before} → {after} calls",
               "its own counter moves", before != after)


def reuse_row(lab, command, **settings):
    stages = lab.stats(command, **settings)[0]["stages"]
    command = " ".join([*(f"{name}={value}" for name, value in settings.items()), command])
    acquires = sum(n for stage, n in stages.items() if stage != "failed")
    new = sum(stages[stage] for stage in ("unused", "lru", "map"))
    share = 1 - new / acquires
    # If threads are scheduled differently, few slabs are requested beyond those in use at once.
    return Row(f"slabs reused, `{command}`", "EMPTY and PARTIAL never", f"{share:.0%} of {acquires} acquires",
               "≥ 80 %, or at most 100 new ones", share >= 0.8 or new <= 100)


# --- the experiments, in the order of the reports -----------------------------------------------------


def mixed_400(lab):
    command = "random_mixed 1000000 400 1"
    stats, _ = lab.stats(command)
    populated = tracing.ledger_by_cause(stats)["prefault"]
    total = sum(lab.calls(command).all.values())  # most are the C library's, whose version decides
    return Section("Who makes the system calls?", [
        call_row(lab, command, "1113 mmap, 1091 munmap, 1081 madvise"),
        Row("populate calls", "1081, and no switch reached them", str(populated), "0", populated == 0),
        Row("system calls of the whole process", "> 3285", str(total), "≤ 100", total <= 100),
        speed_row(lab, command, "hakmem 4.74"),
    ])


def switches(lab):
    quiet = {"HAKMEM_TINY_SS_PARTIAL": 0, "HAKMEM_DISABLE_BATCH": 1, "HAKMEM_SS_PREFAULT": 0}
    command = "random_mixed 1000000 400 1"
    same, plain = made(lab.calls(command, **quiet))[0], made(lab.calls(command))[0]
    return Section("Which switch does what?", [
        Row("`HAKMEM_TINY_SS_PARTIAL=0 HAKMEM_DISABLE_BATCH=1 HAKMEM_SS_PREFAULT=0` on `random_mixed 1000000 400 1`",
            "the same 1081 calls", f"{same}, as without", "nothing: this workload releases nothing", same == plain),
        switch_row(lab, "HAKMEM_SS_PREFAULT=1", "random_mixed 1000000 400 1", "prefault", "no effect"),
        switch_row(lab, "HAKMEM_TINY_SS_PARTIAL=0", "grow_shrink 50000 5 42", "partial_release", "+2.5 %, noise",
                   HAKMEM_PURGE_DELAY_MS="0"),
        switch_row(lab, "HAKMEM_DISABLE_BATCH=1", "large 200 64 42", "direct_release", "no effect"),
    ], note="The test `switches` does this for every setting, and checks that nothing else moves.")


def longer_and_larger(lab):
    return Section("The same, longer and with a larger set", [
        call_row(lab, "random_mixed 10000000 400 1", "proposed, never run"),
        call_row(lab, "random_mixed 1000000 4000 1", "proposed, never run"),
    ])


def short_mixed(lab):
    commands = ["random_mixed 100000 256 42", "random_mixed 100000 1024 42"]
    variants = {} if lab.counts_only else {
        "with header": (lab.header_library(), {}),
        "without batch refill": (lab.library, {"HAKMEM_TINY_P0_ENABLE": "0"}),
    }
    return Section("256 live blocks", [
        call_row(lab, commands[0], "400+ mmap, hoped for < 50"),
        call_row(lab, commands[1], "–"),
        speed_row(lab, commands[0], "hakmem 9.12, with header 8.16; 2.76 with and 2.73 without batch refill; "
                                    "mimalloc 98–110", variants=variants),
        speed_row(lab, commands[1], "–"),
    ])


EVENTS = {"EMPTY": "EMPTY slab", "SS_FREE": "SS_FREE", "LRU_PUSH": "LRU_PUSH", "LRU_POP hit": "LRU_POP hit"}


def event_row(lab, command, names, **settings):
    _, said = lab.stats(command, HAKMEM_SS_LRU_DEBUG="1", HAKMEM_SS_FREE_DEBUG="1", **settings)
    seen = {name: said.count(EVENTS[name]) for name in names}
    command = " ".join([*(f"{name}={value}" for name, value in settings.items()), command])
    return Row(f"events of `{command}`", "none: the LRU was never filled",
               ", ".join(f"{n} {name}" for name, n in seen.items()), "each is seen", all(seen.values()))


def shrinking(lab):
    return Section("Events on workloads that shrink", [
        event_row(lab, "burst_idle small 64 same 300 42", ("EMPTY", "SS_FREE", "LRU_PUSH")),
        event_row(lab, "bulk 1 100000 10 order 42", EVENTS, HAKMEM_SS_HOT_SLABS="1"),
    ], note="`HAKMEM_SS_LRU_DEBUG=1 HAKMEM_SS_FREE_DEBUG=1` show them.")


def mixed_8192(lab):
    command, longer = "random_mixed 10000000 8192 42", "random_mixed 20000000 8192 42"
    stats, _ = lab.stats(command)
    waits = {"HAKMEM_PURGE_DELAY_MS": "3600000"}  # purges, whose time is chance, would have some pages mapped anew
    once, twice = (sum(lab.calls(words, **waits).own[name] for name in MAPS) for words in (command, longer))
    found = lab.measure(command, {"legacy backend": (lab.library, {"HAKMEM_BACKEND": "legacy"})})
    kernel = Row("share of the kernel in the time", "55 %, hoped for < 15 %", "–", "< 2 %")
    memory = Row("peak memory, shared pool against legacy", "–", "–", "shared pool ahead")
    speed = Row(f"M ops/s of `{command}`", "hakmem 16.2 with superslabs on or off, hoped for 25–30", speed_text(found),
                "ahead of mimalloc, shared pool not behind legacy")
    if found:
        kernel.here, kernel.met = f"{found['hakmem'][1]:.1%}", found["hakmem"][1] < 0.02
        ours, legacy = found["hakmem"][2], found["legacy backend"][2]
        memory.here, memory.met = f"{ours / 1024:.1f} MiB against {legacy / 1024:.1f} MiB", ours < legacy
        speed.met = all(found["hakmem"][0] > found[name][0] * factor
                        for name, factor in (("mimalloc", 1), ("legacy backend", 0.95)) if name in found)
    return Section("A working set of 8192", [
        Row("fallbacks", "4 × shared_fail→legacy", str(stats["stages"]["failed"]), "0", stats["stages"]["failed"] == 0),
        Row("mmap, mremap and mprotect without purges, and at twice the cycles", "not known", f"{once}, {twice}",
            "no new map in steady state", twice <= once),
        kernel, memory, speed,
    ])


def recycling(lab):
    commands = ["grow_shrink 50000 60 42", "bulk 1 20000 60 random 42", "prodcons 1 2000000 4096 42",
                "larson --ops 8000000 8 128 1024 1 12345 4"]
    return Section("Workloads that grow and shrink", [reuse_row(lab, command) for command in commands])


def larson(lab):
    rows = []
    for threads, there in (4, "hakmem 3.62, 21.6 % of system and of mimalloc"), (2, "–"), (1, "hakmem 2.59, 18.1 %"):
        rows.append(speed_row(lab, f"larson 2 8 128 1024 1 12345 {threads}", there, ("system", "mimalloc")))
    return Section("larson", rows)


def fixed_size(lab):
    rows = []
    for arguments, there in (("100000 256 42", "with header 3.86, without 4.00; 4.49–4.54 after tuning of the caps"),
                             ("100000 1024 42", "crash"), ("200000 256 42", "–")):
        variants = {} if lab.counts_only else {"with header": (lab.header_library(), {})}
        rows.append(speed_row(lab, f"fixed_size {arguments}", there, variants=variants))
    return Section("One size", rows)


def pool(lab):
    there = "hakmem 1.79, hoped for 5–15"
    commands = ["pool_tls 1 100000 256 42", "pool_tls 4 50000 256 42", "mid_large_mt 1 100000 256 42",
                "mid_large_mt 4 100000 256 42", "mid_large_mt 1 100000 1024 42"]
    prewarm = "HAKMEM_POOL_TLS_PREWARM=fixed build/tests/pool/pool_prewarm warm"
    section = Section("8–52 KiB and 8–32 KiB", note=f"`{prewarm}` prewarms.")
    section.rows = [speed_row(lab, command, there, tuple(bench_run.PEERS)) for command in commands]
    # How often freed pages are purged depends on timing, so here they wait.
    section.rows += [call_row(lab, command, "asked for, never counted", 20, HAKMEM_PURGE_DELAY_MS="3600000")
                     for command in (commands[0], commands[2])]
    program = lab.build / "tests" / "pool" / "pool_prewarm"
    warm = Row("first block of each class after prewarming", "1000+ cycles", "–", "no system call, no page fault")
    cost = Row("what prewarming adds to a thread", "~1.6 MiB planned", "–", "≤ 2 MiB")
    if program.exists():
        ran = subprocess.run([program, "warm"], capture_output=True, text=True,
                             env=tracing.settings_only({"HAKMEM_POOL_TLS_PREWARM": "fixed"}))
        kib = int(re.search(r"added (\d+) KiB", ran.stderr)[1])
        warm.met, warm.here = ran.returncode == 0, "neither" if ran.returncode == 0 else ran.stderr.strip()
        cost.met, cost.here = kib <= 2048, f"{kib / 1024:.2f} MiB"
    section.rows += [warm, cost]
    return section


def false_sharing(lab):
    commands = ["cache_thrash active 2 60000 8 2000", "cache_thrash passive 2 60000 8 2000"]
    return Section("False sharing", [speed_row(lab, command, "named, no figures", ("system",)) for command in commands])


EXPERIMENTS = (mixed_400, switches, longer_and_larger, short_mixed, shrinking, mixed_8192, recycling, larson,
               fixed_size, pool, false_sharing)


# --- the page ---------------------------------------------------------------------------------------------


def section_text(section):
    lines = [f"## {section.title}", "", "||there|here|bar|met|", "|---|---|---|---|---|"]
    for row in section.rows:
        met = {True: "yes", False: "**no**", None: "–"}[row.met]
        lines.append(f"|{row.what}|{row.there}|{row.here}|{row.bar or '–'}|{met}|")
    return "\n".join(lines + ([""] + [section.note] if section.note else []) + [""])


def structure(text):
    """The page without the measured figures."""
    lines = []
    for line in text.splitlines():
        if line.startswith("|") and line.count("|") == 6:
            _, what, there, _, bar, *_ = line.split("|")
            lines.append((what, there, bar))
        elif not line.startswith(("Machine:", "Speeds in ")):
            lines.append(line)
    return lines


def machine():
    text = Path("/proc/cpuinfo").read_text()
    name = re.search(r"model name\s*: (.*)", text)
    libc = " ".join(platform.libc_ver())
    return f"{len(tracing.os.sched_getaffinity(0))} cores ({name[1] if name else platform.machine()}), " \
           f"Linux {platform.release().split('-')[0]}, {libc}"


def check(page, sections, text):
    problems = [f"{section.title}: {row.what}: {row.here}, the bar is {row.bar}"
                for section in sections for row in section.rows if row.met is False]
    expected, found = structure(text), structure(page.read_text())
    if expected != found:
        differing = next((pair for pair in zip(expected, found) if pair[0] != pair[1]), (len(expected), len(found)))
        problems.append(f"{page} is not what tools/experiments.py writes; first difference: {differing}")
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


def carried_out(experiment, lab):
    """With --check up to three times: a busy machine purges pages that a quiet one reuses."""
    section = experiment(lab)
    for _ in range(2 if lab.counts_only else 0):
        if all(row.met is not False for row in section.rows):
            break
        section = experiment(lab)
    return section


def main():
    parser = argparse.ArgumentParser(usage=argparse.SUPPRESS, description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path, help="Meson build directory")
    parser.add_argument("-n", dest="runs", type=int, default=5)
    parser.add_argument("--check", type=Path, metavar="PAGE")
    args = parser.parse_args()
    lab = Lab(bench_run.find_build(args.build), args.runs, args.check is not None)
    sections = [carried_out(experiment, lab) for experiment in EXPERIMENTS]
    text = "\n".join([HEADER.format(machine=machine(), runs=args.runs), *map(section_text, sections)])
    if args.check:
        return check(args.check, sections, text)
    print(text, end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
