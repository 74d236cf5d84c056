#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Each setting moves its own counter, and only counters that depend on that.

  PYTHONPATH=tests switches.py LIBRARY PROGRAM [SETTING]...

PROGRAM is work.c. A setting's own description names the counter that it moves. A setting with a row in ROWS is tested
strictly: a value, a workload on which it acts, the direction in which the counter moves, and which others may move. The
workload runs with and without the setting; all counters are compared. For a setting without a row other values are
tried, on one workload after the other and with each backend, until its counter moves. Settings that are texts, or that
only print, need a row, since only their author knows a value or the output. Without arguments all settings are tested.
"""
import fnmatch
import itertools
import re
import shutil
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import tracing
from common import finish, skip

NEVER = tracing.NEVER
AT_ONCE = {"HAKMEM_PURGE_DELAY_MS": "0"}
TIMES = 8  # runs of a workload that must all give the same counters
TRIES = 3  # a delayed thread may act later: a setting is wrong if it fails each time
# Gauges: they show a state at the end, not events.
STATE = ("memory.*", "os_latency.*", "stage_latency.*", "allocator.*", "space.*", "conservation.*", "pages.*",
         "threads.*", "*.lock_taken", "*.dirty_bytes", "*.held_bytes", "*.peak_bytes", "*.partial_slabs",
         "memory.*", "huge_pages.*", "os_calls.huge_page")  # and how fast the kernel makes them
# Different slabs are found, so different stages serve and different transitions are made.
SLABS = ("slabs.*", "stages.*", "*.empties")
# A slab is carved at once as far as it had blocks before, so refills take more or fewer blocks.
OTHER_SLABS = SLABS + ("bins.*",)
# guard: closed pages, in hardened builds
RELEASES = ("os_calls.*_release", "os_calls.guard", "os_calls.purge", "os_calls.lru_evict", "lru.*", "release.*")


# The heap grows otherwise; each step of a larger one has a name. guard: fences, in hardened builds
GROWTH = ("os_calls.superslab_map", "page_heap.superslabs_mapped", "os_calls.name", "os_calls.guard")
# Spans are found elsewhere, so other superslabs come and go.
SPANS = ("large.*", "lru.*") + GROWTH


@dataclass
class Row:
    """`way`: "+" or "-" for the counter, "other" for a text, or how stderr reads with the setting."""
    value: str
    workload: str
    way: str
    follows: tuple = ()
    base: dict = None
    elsewhere: tuple = ()   # workloads on which the setting must change nothing
    prefix: tuple = ()      # a command in front of the program's


def cap(size, *other_sizes):
    return Row("16", f"churn {size}", "+", ("bins.*",) + SLABS, elsewhere=tuple(f"churn {n}" for n in other_sizes))


def output(workload, pattern, value="1"):
    return Row(value, workload, pattern)


# Simulates a kernel that cannot populate pages.
NO_POPULATE = ("strace", "-f", "-qq", "-o", "/dev/null", "-e", "trace=madvise", "-e", "inject=madvise:error=EINVAL")

ROWS = {
    "HAKMEM_BACKEND": Row("legacy", "shrink", "other", ("*",)),
    "HAKMEM_TINY_USE_SUPERSLAB": Row("0", "shrink", "other", ("*",)),
    "HAKMEM_RELEASE": Row("direct", "large", "other", RELEASES + SPANS + ("shared_pool.*",)),
    "HAKMEM_DISABLE_BATCH": Row("1", "large", "other", RELEASES + SPANS + ("shared_pool.*",)),
    "HAKMEM_VERBOSE": output("shrink", r"^hakmem: version \S+, backend shared_pool"),
    "HAKMEM_STATS_SIGNAL": output("shrink", r"^hakmem: HAKMEM_STATS_SIGNAL=11: not with this signal", "11"),

    "HAKMEM_TINY_P0_ENABLE": Row("0", "churn 48", "-", ("bins.*",) + SLABS),
    "HAKMEM_TINY_P0_DISABLE": Row("1", "churn 48", "-", ("bins.*",) + SLABS),
    "HAKMEM_TINY_P0_NO_DRAIN": Row("1", "remote", "-", ("bins.refills", "bins.remote_low_water", "bins.remote_saved"),
                                   elsewhere=("shrink",)),
    "HAKMEM_TINY_P0_DRAIN_THRESH": Row("65535", "remote", "-", ("bins.refills", "bins.remote_low_water"),
                                       elsewhere=("shrink",)),
    "HAKMEM_TINY_P0_LOG": output("churn 48", r"^hakmem: P0 refill: slab 0x\w+, 48-byte blocks, taken \d+, active \d+"),
    "HAKMEM_TINY_P0_DIRECT_FC": Row("0", "churn 200", "+", ("bins.*",) + SLABS, elsewhere=("churn 100", "churn 300")),
    "HAKMEM_TINY_P0_DIRECT_FC_C7": Row("0", "churn 700", "+", ("bins.*",) + SLABS,
                                       elsewhere=("churn 400", "churn 1100")),
    "HAKMEM_TINY_FAST_CAP_C0": cap(8, 24),
    "HAKMEM_TINY_FAST_CAP_C1": cap(16, 24),
    "HAKMEM_TINY_FAST_CAP_C2": cap(24, 8, 48),
    "HAKMEM_TINY_FAST_CAP_C3": cap(48, 24, 100),
    "HAKMEM_TINY_FAST_CAP_C4": cap(100, 48, 200),
    "HAKMEM_TINY_FAST_CAP_C5": cap(200, 100, 400),
    "HAKMEM_TINY_FAST_CAP_C6": cap(400, 200, 700),
    "HAKMEM_TINY_FAST_CAP_C7": cap(700, 400, 1100),
    "HAKMEM_TINY_FAST_STATS": output("churn 48", r"^ *refills: \d+"),
    "HAKMEM_TINY_PREWARM": Row("1", "churn 48", "+", ("bins.*",) + SLABS),

    "HAKMEM_SS_EMPTY_SCAN_LIMIT": Row("0", "shrink", "-", OTHER_SLABS + ("lru.*",),
                                      base=NEVER | {"HAKMEM_SS_HOT_SLABS": "16"}),
    "HAKMEM_SS_HOT_SLABS": Row("1", "shrink", "-", OTHER_SLABS + ("lru.*",)),
    "HAKMEM_TINY_SS_PARTIAL": Row("0", "idle", "-", OTHER_SLABS + RELEASES, base=AT_ONCE),
    "HAKMEM_TINY_SS_PARTIAL_INTERVAL": Row("1", "whole", "+", OTHER_SLABS + RELEASES,
                                           base=AT_ONCE | {"HAKMEM_SS_HOT_SLABS": "1"}),
    "HAKMEM_SS_PREFAULT": Row("1", "shrink", "+", ("os_calls.superslab_map",)),
    "HAKMEM_NO_FALLBACK_PREFAULT": Row("1", "shrink", "-", base=NEVER | {"HAKMEM_SS_PREFAULT": "1"},
                                       prefix=NO_POPULATE),
    "HAKMEM_SUPERSLAB_MAX_CACHED": Row("0", "whole", "+", OTHER_SLABS + RELEASES),
    "HAKMEM_SUPERSLAB_MAX_MEMORY_MB": Row("0", "whole", "+", OTHER_SLABS + RELEASES),
    "HAKMEM_SUPERSLAB_TTL_SEC": Row("0", "whole-idle", "+", OTHER_SLABS + RELEASES),
    "HAKMEM_SS_LRU_DEBUG": output("whole", r"(?s)^hakmem: LRU_POP miss.*^hakmem: LRU_PUSH.*^hakmem: LRU_POP hit"),
    "HAKMEM_SS_FREE_DEBUG": output("whole", r"(?s)^hakmem: EMPTY slab .*^hakmem: SS_FREE superslab "),
    "HAKMEM_SS_ACQUIRE_DEBUG": output("shrink", r"(?s)^hakmem: SS_ACQUIRE \d+-byte blocks, stage map: .*stage hot: "),
    "HAKMEM_SUPER_REG_DEBUG": output("shrink", r"^hakmem: SUPER_REG register 0x"),
    "HAKMEM_SHARED_POOL_STAGE_STATS": output("shrink", r"(?s)^ *unused: \d+.*stage=map +p50_ns=\d+"),

    "HAKMEM_POOL_TLS": Row("0", "pool", "-", ("pool.*", "stages.*", "lru.*") + GROWTH,
                           elsewhere=("shrink",)),
    "HAKMEM_POOL_TLS_ARENA_MB_INIT": Row("8", "pool", "+", ("pool.*", "lru.*", "stages.*") + GROWTH,
                                         elsewhere=("shrink",)),
    "HAKMEM_POOL_TLS_ARENA_MB_MAX": Row("1", "pool", "-", ("pool.*", "lru.*", "stages.*") + GROWTH,
                                        elsewhere=("shrink",)),
    "HAKMEM_POOL_TLS_ARENA_GROWTH_LEVELS": Row("0", "pool", "-", ("pool.*", "lru.*", "stages.*") + GROWTH,
                                               elsewhere=("shrink",)),
    "HAKMEM_POOL_TLS_PREWARM": Row("fixed", "pool", "+", ("pool.*", "lru.*", "bins.*", "slabs.*", "stages.*") + GROWTH),

    "HAKMEM_ACE_TRACE": output("large", r"^hakmem: ACE (Threshold|Exhaustion|MapFail)\b.*\d+"),
    "HAKMEM_ACE_WASTE_PCT": Row("12", "large", "+", SPANS),
    "HAKMEM_ACE_CACHE_MB": Row("64", "large", "+", SPANS),
    "HAKMEM_BATCH_MAX_MB": Row("8", "large", "+", SPANS + RELEASES),
    "HAKMEM_BATCH_MAX_RANGES": Row("1", "large", "+", SPANS + RELEASES),
    "HAKMEM_MADV": Row("free", "large", "+", SPANS + RELEASES, base=NEVER | {"HAKMEM_BATCH_MAX_MB": "8"}),
    "HAKMEM_LIMIT_MB": Row("16", "large", "+", SPANS + RELEASES + ("budget.*", "os_calls.trim", "shared_pool.*")),
    "HAKMEM_BACKGROUND": Row("1", "helped", "+", RELEASES + SLABS + ("background.*", "bins.*", "os_calls.metadata"),
                             base=AT_ONCE),
    "HAKMEM_GUARD_RATE": Row("100", "churn 48", "+", ("os_calls.guard", "bins.*") + SLABS),
    "HAKMEM_DEEPBIND": Row("1", "open", "-"),
    "HAKMEM_PURGE_DELAY_MS": Row("0", "large", "+", SPANS + RELEASES),
    "HAKMEM_THP": Row("never", "churn 48", "+", ("os_calls.superslab_map",)),
}


def differences(before, after):
    """{counter: (before, after)} of all that are not the same."""
    return {key: (before.get(key, 0), after.get(key, 0)) for key in before.keys() | after.keys()
            if before.get(key, 0) != after.get(key, 0)}


class Tester:
    def __init__(self, library, program):
        self.library, self.program = library, program
        self.problems, self.baselines = [], {}

    def run(self, workload, settings, prefix=()):
        """({counter: number or text}, stderr, statistics)."""
        stats, stderr = tracing.run_with_stats(self.library, [self.program, *workload.split()], settings, prefix)
        counters = {f"{group}.{name}": value for group, members in stats.items() if isinstance(members, dict)
                    for name, value in members.items() if isinstance(value, (int, str))}
        counters |= {f"os_calls.{cause}": n for cause, n in tracing.ledger_by_cause(stats).items()}
        return counters, stderr, stats

    def baseline(self, workload, settings, prefix=()):
        key = workload, tuple(sorted(settings.items())), prefix
        if key not in self.baselines:
            self.baselines[key] = self.run(workload, settings, prefix)
        return self.baselines[key]

    def changed(self, workload, base, name, value, prefix=()):
        """({counter: (without, with)} of all that differ, stderr without, stderr with)."""
        without, quiet, _ = self.baseline(workload, base, prefix)
        with_it, said, _ = self.run(workload, base | {name: value}, prefix)
        return differences(without, with_it), quiet, said

    def unexpected(self, differing, allowed):
        return {key: values for key, values in sorted(differing.items())
                if not any(fnmatch.fnmatchcase(key, pattern) for pattern in STATE + tuple(allowed))}

    def test_output(self, name, row):
        differing, quiet, said = self.changed(row.workload, NEVER, name, row.value)
        if not re.search(row.way, said, re.M):
            self.problems.append(f"{name}={row.value} on {row.workload}: no output like {row.way!r}, "
                                 f"but {said[:300]!r}")
        if re.search(row.way, quiet, re.M):
            self.problems.append(f"{row.workload} prints what {name} is to print without it: {quiet[:300]!r}")
        return self.unexpected(differing, ())

    def test_counter(self, name, row, counter):
        base = NEVER if row.base is None else row.base
        differing, _, said = self.changed(row.workload, base, name, row.value, row.prefix)
        before, after = differing.get(counter, (0, 0))
        moved = {"+": before < after, "-": before > after, "other": before != after}[row.way] if counter in differing \
            else False
        if not moved:
            self.problems.append(f"{name}={row.value} on {row.workload}: {counter} does not move ({row.way}): "
                                 f"{self.baseline(row.workload, base, row.prefix)[0].get(counter, 0)} without, "
                                 f"{after} with it")
        if said:
            self.problems.append(f"{name}={row.value} on {row.workload}: stderr {said[:300]!r}")
        return self.unexpected(differing, row.follows + (counter,))

    def test(self, name, row, counter):
        if row.prefix and not shutil.which(row.prefix[0]):
            print(f"{name}: not tested without {row.prefix[0]}")
            return
        problems = self.problems
        for _ in range(TRIES):
            self.problems = []
            self.test_once(name, row, counter)
            if not self.problems:
                break
            self.baselines.clear()
        self.problems = problems + self.problems

    def test_once(self, name, row, counter):
        output_only = counter.startswith("none")
        stray = self.test_output(name, row) if output_only else self.test_counter(name, row, counter)
        for workload in row.elsewhere:
            differing, _, _ = self.changed(workload, NEVER, name, row.value)
            stray |= {f"{key} on {workload}": values for key, values in self.unexpected(differing, ()).items()}
        if stray:
            self.problems.append(f"{name}={row.value} on {row.workload} also moves {stray}")

    def test_repeatable(self):
        """Otherwise no comparison is valid."""
        for (workload, settings, prefix), (counters, _, _) in list(self.baselines.items()):
            if dict(settings) != NEVER or prefix:
                continue
            strays = []
            for _ in range(TIMES):
                again, _, _ = self.run(workload, dict(settings))
                strays += [stray] if (stray := self.unexpected(differences(counters, again), ())) else []
            if len(strays) > 1:
                self.problems.append(f"{workload} is not always the same: {strays}")


# --- settings without a row ------------------------------------------------------------------------------

WORKLOADS = "shrink", "whole", "remote", "pool", "large", "churn 48", "churn 700", "pool-idle"


def other_values(setting):
    """The values to try instead of the default."""
    kind, default = setting["type"], setting.get("default")
    if kind == "bool":
        values = [1 - default]
    elif kind == "int":
        values = [setting["min"], setting["max"], default * 2, default // 2, default + 1]
    else:
        values = setting.get("choices", "").split("|")
    in_range = (v for v in values if kind != "int" or setting["min"] <= v <= setting["max"])
    return [str(v) for v in dict.fromkeys(in_range) if v not in (default, "")]


def test_unlisted(t, setting, backends):
    """Its counter moves somewhere, and nothing is printed."""
    name, counter, values = setting["name"], setting["moves"], other_values(setting)
    if not values or counter.startswith("none"):
        t.problems.append(f"{name}: needs a row in the table, with a value and with what it moves or prints")
        return
    own_first = sorted(backends, key=lambda backend: not counter.startswith(f"{backend}."))
    for backend, workload, value in itertools.product(own_first, WORKLOADS, values):
        differing, _, said = t.changed(workload, NEVER | {"HAKMEM_BACKEND": backend}, name, value)
        if said:
            t.problems.append(f"{name}={value} on {workload}: stderr {said[:300]!r}")
        if counter in differing:
            before, after = differing[counter]
            print(f"{name}={value} on {workload}, backend {backend}: {counter} {before} -> {after}")
            return
    t.problems.append(f"{name}: {counter} does not move, on {', '.join(WORKLOADS)} with {', '.join(values)}; "
                      f"a row in the table may name a workload and a value on which it does")


# --- settings that have no counter --------------------------------------------------------------------


def plain(t, **settings):
    return tracing.run(t.library, [t.program, "churn", "48"], settings)


def test_stats(t):
    text, quiet = plain(t, HAKMEM_STATS=1), plain(t)
    if quiet.stderr or "os_calls" not in text.stderr or not plain(t, HAKMEM_STATS="json").stderr.startswith("{"):
        t.problems.append(f"HAKMEM_STATS: {quiet.stderr[:200]!r} without, {text.stderr[:200]!r} with it")


def test_stats_file(t):
    with tempfile.TemporaryDirectory() as folder:
        ended = plain(t, HAKMEM_STATS=1, HAKMEM_STATS_FILE=f"{folder}/stats.%p")
        names = [file.name for file in Path(folder).iterdir()]
        if ended.stderr or len(names) != 1 or not re.fullmatch(r"stats\.\d+", names[0]):
            t.problems.append(f"HAKMEM_STATS_FILE: files {names}, stderr {ended.stderr[:200]!r}")


def test_strict(t):
    if plain(t, HAKMEM_NONSENSE=1).returncode or not plain(t, HAKMEM_NONSENSE=1, HAKMEM_STRICT=1).returncode:
        t.problems.append("HAKMEM_STRICT=1: a wrong setting does not stop the process")


def test_quiet(t):
    loud, quiet = plain(t, HAKMEM_NONSENSE=1), plain(t, HAKMEM_NONSENSE=1, HAKMEM_QUIET=1)
    if len(loud.stderr.splitlines()) != 1 or quiet.stderr:
        t.problems.append(f"HAKMEM_QUIET=1: {loud.stderr!r} without, {quiet.stderr!r} with it")


def test_cgroup(t):
    with tempfile.TemporaryDirectory() as folder:
        for name, text in ("memory.high", "4000000000\n"), ("memory.max", "max\n"), ("memory.current", "1000000\n"):
            Path(folder, name).write_text(text)
        _, _, stats = t.baseline("large", AT_ONCE | {"HAKMEM_CGROUP": folder})
    if stats["container"]["limit_bytes"] != 4000000000:
        t.problems.append(f"HAKMEM_CGROUP: {stats['container']}")


def test_log_file(t):
    with tempfile.TemporaryDirectory() as folder:
        ended = plain(t, HAKMEM_TINY_P0_LOG=1, HAKMEM_LOG_FILE=f"{folder}/log.%p")
        files = list(Path(folder).iterdir())
        if ended.stderr or not files or not all(re.fullmatch(r"log\.\d+", f.name) for f in files) or not any(
                "hakmem: P0 refill" in f.read_text() for f in files):
            t.problems.append(f"HAKMEM_LOG_FILE: stderr {ended.stderr[:200]!r}, or no line in a file of {files}")


def test_trace(t):
    loud, quiet = plain(t, HAKMEM_TRACE="/nowhere"), plain(t, HAKMEM_TRACE="/nowhere", HAKMEM_QUIET=1)
    if "HAKMEM_TRACE has no effect" not in loud.stderr or len(loud.stderr.splitlines()) != 1 or quiet.stderr:
        t.problems.append(f"HAKMEM_TRACE: {loud.stderr!r}, {quiet.stderr!r} with HAKMEM_QUIET=1")


def test_profile(t):
    said = plain(t, HAKMEM_PROFILE=1000).stderr
    if not re.fullmatch("hakmem: HAKMEM_PROFILE has no effect: its library is not loaded.*\n", said):
        t.problems.append(f"HAKMEM_PROFILE without its library: {said[:200]!r}")


def test_profile_file(t):
    """A process of its own has samples in it, whichever way stacks are walked."""
    both = f"{t.library.parents[1] / 'tools' / 'profile' / 'libhakmem-profile.so'}:{t.library}"
    for unwind in "tables", "frames":
        with tempfile.TemporaryDirectory() as folder:
            settings = {"HAKMEM_PROFILE": 1000, "HAKMEM_PROFILE_FILE": f"{folder}/%p", "HAKMEM_PROFILE_UNWIND": unwind}
            said = tracing.run(both, [t.program, "churn", "48"], settings).stderr
            heads = [file.read_bytes()[:8] for file in Path(folder).iterdir()]
            if said or heads != [b"HAKPROF1"]:
                t.problems.append(f"HAKMEM_PROFILE_FILE, HAKMEM_PROFILE_UNWIND={unwind}: {heads}, "
                                  f"stderr {said[:200]!r}")


OTHERS = {
    "HAKMEM_PROFILE": test_profile,
    "HAKMEM_PROFILE_FILE": test_profile_file,
    "HAKMEM_PROFILE_UNWIND": test_profile_file,
    "HAKMEM_CGROUP": test_cgroup,
    "HAKMEM_STATS": test_stats,
    "HAKMEM_STATS_FILE": test_stats_file,
    "HAKMEM_LOG_FILE": test_log_file,
    "HAKMEM_STRICT": test_strict,
    "HAKMEM_TRACE": test_trace,
    "HAKMEM_QUIET": test_quiet,
}


def main():
    t = Tester(Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve())
    _, _, stats = t.baseline("churn 48", NEVER)
    settings = {row["name"]: row for row in stats["settings"]}
    built = stats["allocator"]
    chosen = sys.argv[3:] or settings.keys()
    if built["backend"] != "shared_pool" or built["release"] != "batch" or built["frontends"] != "tiny pool large":
        # The table covers the default parts; settings of other parts are tried.
        chosen = [name for name in chosen if name not in ROWS | OTHERS]
        if not chosen:
            skip("the default parts are not the ones that the table is about, and others have no settings")
    t.problems += [f"{name}: a row, but no such setting"
                   for name in ROWS.keys() | OTHERS.keys() if name not in settings]
    for name in chosen:
        if name not in settings:
            t.problems.append(f"{name}: no such setting")
        elif name in ROWS:
            t.test(name, ROWS[name], settings[name]["moves"])
        elif name in OTHERS:
            OTHERS[name](t)
        else:
            test_unlisted(t, settings[name], stats["allocator"]["backends"].split())
    t.test_repeatable()
    finish(t.problems, f"{len(chosen)} settings, each with its own counter")


if __name__ == "__main__":
    main()
