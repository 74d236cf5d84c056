#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Do allocators have the same order on a replay as on the program? Writes a section of docs/trace-format.md, and
docs/data/replay.csv.

  tools/replay_ranks.py BUILD [--only NAME]... [-n BLOCKS]   measures: each program and its replay under each allocator
  tools/replay_ranks.py BUILD --quick                        one program, once, with what is installed; writes nothing
  tools/replay_ranks.py --page                               writes the section about what was measured
  tools/replay_ranks.py --check                              exit 1 if the page is not about it

CPU time is the least of some runs, in blocks of random order; peak memory is seen by the workbench. The rank
correlation is Spearman's. Allocators whose figures differ by less than a tenth may change places by chance.
"""
import argparse
import csv
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools" / "hakmem"))
sys.dont_write_bytecode = True

DATA, PAGE = ROOT / "docs" / "data" / "replay.csv", ROOT / "docs" / "trace-format.md"
MARKS = "<!-- by tools/replay_ranks.py: -->\n", "<!-- until here -->\n"
ALLOCATORS = ["system", "hakmem", "mimalloc", "jemalloc", "tcmalloc"]
PYTHON = shutil.which("python3", path="/usr/bin") or sys.executable
SQL = """PRAGMA temp_store = memory; CREATE TABLE t(a INTEGER PRIMARY KEY, b, c);
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 40000)
INSERT INTO t SELECT i, (i * 7919) % 5003, printf('%.*c', i % 300, 'x') FROM n;
CREATE INDEX by_b ON t(b, c); SELECT b, count(*), max(c) FROM t GROUP BY b ORDER BY 2; DELETE FROM t WHERE a % 3 = 0;"""
PERL = """my %h; for my $i (1..80000) { $h{"key $i"} = [$i, "v" x ($i % 90)]; delete $h{"key " . ($i >> 1)} if $i % 3; }
my @k = sort keys %h; print scalar(@k), "\\n";"""
JSON = """import json
for n in range(2):
    a = [{'name': f'n{i}', 'list': list(range(i % 20)), 'text': 'x' * (i % 200)} for i in range(12000)]
    b = json.loads(json.dumps(a))"""
WORDS = ["env", "PYTHONMALLOC=malloc", PYTHON]


def quick_program(folder):
    source = ROOT / "tools/hakmem/tests/programs/hand_over.c"
    subprocess.run(["cc", "-O2", "-pthread", "-o", folder / "hand", source], check=True)
    return {"two threads": [str(folder / "hand"), "5000"]}


def programs(folder):
    """name: command; each takes some tenths of a second, and only needs Debian's packages."""
    (folder / "in.json").write_text("[" + ",".join('{"a":%d,"b":["%s",%d]}' % (i, "y" * (i % 60), i)
                                                   for i in range(30000)) + "]")
    (folder / "tree.cc").write_text(TREE)
    subprocess.run(["c++", "-O2", "-pthread", "-o", folder / "tree", folder / "tree.cc"], check=True)
    subprocess.run(["gcc", "-E", "-D_GNU_SOURCE", "-o", folder / "in.i", ROOT / "tools/trace/plan.c"], check=True)
    cc1 = subprocess.run(["gcc", "-print-prog-name=cc1"], capture_output=True, text=True, check=True).stdout.strip()
    return {
        "python": [*WORDS, "-c", JSON],
        "sqlite": ["sqlite3", ":memory:", SQL],
        "perl": ["perl", "-e", PERL],
        "jq": ["jq", "-c", "map(.b | join(\"-\")) | group_by(length) | map(length)", str(folder / "in.json")],
        "C compiler": [cc1, "-quiet", "-O2", "-fpreprocessed", "-o", str(folder / "out.s"), str(folder / "in.i")],
        "C++, threads": [str(folder / "tree")],
        "two threads": [quick_program(folder)["two threads"][0], "100000"],
    }


TREE = """
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>
int main()
{
    std::vector<std::thread> all;
    for (unsigned t = 0; t < 4; t++)
        all.emplace_back([t] {
            std::map<unsigned, std::unique_ptr<std::string>> m;
            for (unsigned i = 0; i < 80000; i++) {
                m[(i * 2654435761u + t) % 30000] = std::make_unique<std::string>(i % 400, 'x');
                m.erase((i * 40503u) % 30000);
            }
        });
    for (auto &thread : all)
        thread.join();
}
"""


def spearman(first, second):
    """Pearson's correlation of the ranks; equal values share theirs."""
    def ranks(values):
        return [sum(v < w for v in values) + (sum(v == w for v in values) - 1) / 2 for w in values]

    try:
        return statistics.correlation(ranks(first), ranks(second))
    except statistics.StatisticsError:  # all are equal
        return 0.0


def cpu_of(command, environment):
    """Seconds in user mode and in the kernel; only of the program, without the time before its exec."""
    pid = os.posix_spawnp(command[0], command, environment, file_actions=[
        (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)])
    _, status, usage = os.wait4(pid, 0)
    if status:
        sys.exit(f"{command[0]} failed: {status}")
    return usage.ru_utime + usage.ru_stime


def measure(command, build, blocks):
    """{allocator: (CPU seconds, peak bytes)}: the least over the blocks, which run in random order; other programs only
    add to it."""
    from hakmem_workbench import preload, variants
    from hakmem_workbench.observe import Request, observe

    lineup = variants.lineup(ALLOCATORS, None, build)
    neutral = preload.neutral_environment()
    peaks = {v.label: observe(Request(command, v.assignments(), neutral, stdin=os.devnull)).peak for v in lineup}
    times = {v.label: [] for v in lineup}
    for _ in range(blocks):
        for variant in random.sample(lineup, len(lineup)):
            times[variant.label].append(cpu_of(command, neutral | variant.assignments()))
    return {label: (min(times[label]), peaks[label]) for label in peaks}


def record(command, build, folder):
    """The plan of the largest process."""
    from hakmem_workbench import trace
    from hakmem_workbench.library import beside, find

    trace_file, plan, library = folder / "t.trace", folder / "plan", find(build)
    subprocess.run([sys.executable, ROOT / "tools/hakmem/hakmem", "record", "-q", "--library", build,
                    "--under", "system", "-o", trace_file, "--", *command], check=True, stdout=subprocess.DEVNULL)
    replayer = beside(library, trace.REPLAYER)
    trace.facts_of(replayer, trace_file, plan)
    return [replayer, str(plan)]


def is_installed(name):
    from hakmem_workbench.errors import Problem
    from hakmem_workbench.library import PEERS, find_peer

    try:
        return name not in PEERS or bool(find_peer(name))
    except Problem:
        return False


def take(build, only, blocks, quick):
    rows = [row for row in read() if only and row[0] not in only]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for program, command in (quick_program if quick else programs)(folder).items():
            if only and program not in only:
                continue
            own, replayed = measure(command, build, blocks), measure(record(command, build, folder), build, blocks)
            for allocator in ALLOCATORS:
                cells = [*own[allocator], *replayed[allocator]]
                rows.append([program, allocator,
                             *(f"{cells[0]:.4f} {cells[1]:.0f} {cells[2]:.4f} {cells[3]:.0f}".split())])
            found = correlations([row for row in rows if row[0] == program])
            print(f"{program}: CPU time {found[0]:.2f}, peak memory {found[1]:.2f}", flush=True)
            if not quick:
                write(rows)


def write(rows):
    with DATA.open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(
            [["program", "allocator", "cpu", "peak", "replay_cpu", "replay_peak"], *rows])


def read():
    if not DATA.exists():
        return []
    with DATA.open() as file:
        return list(csv.reader(file))[1:]


def correlations(rows):
    """Of CPU time, and of peak memory."""
    columns = [[float(row[i]) for row in rows] for i in range(2, 6)]
    return spearman(columns[0], columns[2]), spearman(columns[1], columns[3])


def section():
    rows = read()
    names = list(dict.fromkeys(row[0] for row in rows))
    table, times, peaks = [], [], []
    for name in names:
        own = [row for row in rows if row[0] == name]
        time, peak = correlations(own)
        cpus = [float(row[2]) for row in own]
        spread = max(cpus) / min(cpus) - 1
        times.append((spread, time))
        peaks.append(peak)
        table.append(f"| {name} | {spread:.0%} | {time:.2f} | {peak:.2f} |")
    apart = [time for spread, time in times if spread >= 0.1]
    return f"""\
## How far a replay may be trusted

{len(names)} programs ran under {len(ALLOCATORS)} allocators, and their records were replayed under the same ones. \
The rank correlation (Spearman's) is 1 if the replay puts the allocators in the program's order, and -1 if it reverses \
it. *Spread* is how much more CPU time the slowest allocator takes than the fastest; where it is small, the order is \
chance. CPU time has {statistics.median(time for _, time in times):.2f} in the median, and \
{statistics.median(apart):.2f} over the {len(apart)} programs with a spread of a tenth or more, {min(apart):.2f} at \
least. Peak memory has {statistics.median(peaks):.2f} in the median, {min(peaks):.2f} at least.

| program | spread | CPU time | peak memory |
|---|--:|--:|--:|
{chr(10).join(table)}

A replay lacks the program's work between its calls, and with it most cache misses. It also lacks memory that does not \
come from malloc. So differences in time are larger on a replay, and a winner there is a candidate: \
`hakmem ab VARIANT... -- program` shows whether the program gains. `tools/replay_ranks.py` writes this section from \
[replay.csv](data/replay.csv), which `tools/replay_ranks.py build` measures.
"""


def page():
    """The page as it should be."""
    before, rest = PAGE.read_text().split(MARKS[0])
    return before + MARKS[0] + section() + MARKS[1] + rest.split(MARKS[1])[1]


def main():
    parser = argparse.ArgumentParser(usage=argparse.SUPPRESS, description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", nargs="?")
    parser.add_argument("--only", action="append", metavar="NAME")
    parser.add_argument("-n", "--blocks", type=int, default=5)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--page", action="store_true")
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args()
    if args.build:
        if args.quick:
            ALLOCATORS[:] = [name for name in ALLOCATORS if is_installed(name)]
        take(args.build, args.only, 1 if args.quick else args.blocks, args.quick)
    if args.quick:
        return
    if args.check:
        if PAGE.read_text() != page():
            sys.exit("docs/trace-format.md is not about docs/data/replay.csv: tools/replay_ranks.py --page")
    elif args.build or args.page:
        PAGE.write_text(page())
    else:
        parser.print_usage()


if __name__ == "__main__":
    main()
