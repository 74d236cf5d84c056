#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""Compares allocators: workloads (workloads.py) times allocators, interleaved at random. One block is one workload
under every allocator in random order; a repetition is a block of every workload. Each ratio is taken inside its block,
so slow drift of the machine cancels out, and the medians of those are printed. The system allocator runs twice in every
block: the second column, "system2", shows the noise. From 8 blocks on, the rule of `hakmem ab` (tools/hakmem/
hakmem_workbench/inference.py) judges each ratio: "~" marks those that show no difference.

An allocator is one of the words system, hakmem, mimalloc, jemalloc, tcmalloc, or NAME=LIBRARY,
where LIBRARY is such a word or a file, and may be followed by settings:
    run.py --allocators hakmem legacy=hakmem,HAKMEM_BACKEND=legacy mi3=./libmimalloc.so.3
HAKMEM_* settings of the caller's environment are not passed on.
"""
import argparse
import csv
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import tables
import workloads

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tools" / "hakmem"))

from hakmem_workbench.blocks import interleaved, shuffled  # noqa: E402

PEERS = {
    "mimalloc": r"libmimalloc\.so",
    "jemalloc": r"libjemalloc\.so",
    "tcmalloc": r"libtcmalloc(_minimal)?\.so",
}
BASE, NOISE = "system", "system2"
SERVED = re.compile(r" allocator=(\S+) version=(\S+) object=(.+)")
MEASURED = re.compile(r"^measured wall_ns=(\d+) user_us=(\d+) system_us=(\d+) "
                      r"peak_kib=(\d+) code=(\d+) faults=(\d+)$", re.M)
BINDING = re.compile(r"binding file .* to (\S+) \[\d+\]: normal symbol `malloc'")


class BenchError(Exception):
    """A message for the user; the run cannot continue."""


@dataclass
class Allocator:
    name: str
    library: Path | None = None     # None: the program's own malloc
    env: dict = field(default_factory=dict)


@dataclass
class Setup:
    bench_dir: Path
    scratch: Path
    libc: Path
    scale: str      # of workloads.SCALES
    timeout: float


def installed_libraries():
    """The file name and path of each library that the dynamic linker knows."""
    ldconfig = shutil.which("ldconfig") or "/sbin/ldconfig"
    try:
        listing = subprocess.run([ldconfig, "-p"], capture_output=True, text=True).stdout
    except OSError:
        return {}
    return dict(re.findall(r"^\s*(\S+) \(.*\) => (\S+)$", listing, re.M))


def known_libraries(build):
    """The library of each word that --allocators accepts; only of those that exist."""
    known = {}
    for name, path in sorted(installed_libraries().items()):
        for word, pattern in PEERS.items():
            if re.match(pattern, name) and os.path.exists(path):
                known.setdefault(word, Path(path).resolve())
    ours = list(build.rglob("libhakmem.so")) if build else []
    if ours:  # other builds may lie below this one: meson compile ab makes some
        known["hakmem"] = min(ours, key=lambda path: (len(path.parts), path)).resolve()
    return known


def parse_allocator(text, known):
    name, _, rest = text.partition("=")
    library, *settings = (rest or name).split(",")
    if not rest:
        name = library
    if any("=" not in setting for setting in settings):
        raise BenchError(f'allocator "{text}": a setting is not VARIABLE=VALUE; '
                         "write NAME=LIBRARY,VARIABLE=VALUE")
    env = dict(setting.split("=", 1) for setting in settings)
    if library == BASE:
        return Allocator(name, None, env)
    if library in known:
        return Allocator(name, known[library], env)
    if "/" in library and Path(library).is_file():
        return Allocator(name, Path(library).resolve(), env)
    raise BenchError(f'allocator "{text}": "{library}" is no file (a path needs a "/") and none '
                     f"of those found here: {', '.join([BASE, *sorted(known)])}")


def choose_allocators(texts, known):
    """The base, the base again for the noise, then the requested allocators, or all that exist."""
    chosen = [Allocator(BASE), Allocator(NOISE)]
    for text in texts or ["hakmem", *PEERS]:
        if not texts and text not in known:
            print(f"{text}: not found, left out", file=sys.stderr)
            continue
        allocator = parse_allocator(text, known)
        if allocator.name in [other.name for other in chosen]:
            if allocator.name != BASE:
                raise BenchError(f'allocator "{text}": that name is taken; give another')
            continue
        chosen.append(allocator)
    return chosen


def find_build(given):
    root = Path(__file__).resolve().parent.parent
    if given:
        if not (given / "bench" / "bench_measure").is_file():
            raise BenchError(f"{given}: no bench/bench_measure in it; "
                             "build with -Dbench=true or name another directory")
        return given.resolve()
    found = sorted(root.glob("*/bench/bench_measure"), key=lambda path: path.stat().st_mtime)
    if not found:
        raise BenchError("no build directory found; run meson setup build && ninja -C build, "
                         "or name one with --build")
    return found[-1].parent.parent


def environment(workload, allocator, preload=None):
    env = {key: value for key, value in os.environ.items()
           if key != "LD_PRELOAD" and not key.startswith("HAKMEM_")}
    env.update(workload.env)
    env.update(allocator.env)
    if preload:
        env["LD_PRELOAD"] = str(preload)
    return env


def preload_of(workload, allocator, setup):
    """The library to preload: also the system's malloc, if a program brings another allocator."""
    if allocator.library is None and workload.links_allocator:
        return setup.libc
    if re.search(r"[\s:]", str(allocator.library)):
        raise BenchError(f"{allocator.library}: LD_PRELOAD splits names at spaces and colons; "
                         "copy it to a path without them")
    return allocator.library


def execute(command, env, timeout):
    """The output of a command; it and its children are killed when the time is up."""
    with subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, errors="replace",
                          start_new_session=True) as process:
        try:
            out, err = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            return "", f"no end after {timeout:.0f} s"
        return out, err


def check_object(path, workload, allocator, setup):
    """Checks that `path`, which defines malloc in the process, is the requested file."""
    expected = preload_of(workload, allocator, setup) or setup.libc
    if Path(path).resolve() != expected:
        raise BenchError(f"{workload.name} under {allocator.name}: malloc came from {path}, "
                         f"not from {expected}; the comparison would be void")


def check_program(workload, command, allocator, setup):
    """Asks the dynamic linker to which malloc a program without a result line is bound."""
    expected = preload_of(workload, allocator, setup) or setup.libc
    if "musl" in setup.libc.name:
        return  # its dynamic linker does not say
    bindings = setup.scratch / "bindings"
    bindings.mkdir()
    env = environment(workload, allocator, preload_of(workload, allocator, setup))
    env |= {"LD_DEBUG": "bindings", "LD_DEBUG_OUTPUT": str(bindings / "ld")}
    execute(command, env, setup.timeout)
    bound = {Path(found).resolve() for path in bindings.iterdir()
             for found in BINDING.findall(path.read_text(errors="replace"))}
    shutil.rmtree(bindings)
    if expected not in bound:
        raise BenchError(f"{workload.name} under {allocator.name}: no process of it bound malloc to "
                         f"{expected}; leave the workload out with --workloads")


def figures_of(workload, out, row):
    """The workload's figures: printed by its program, else measured from outside."""
    said = row | dict(re.findall(r" (\w+)=(\d+(?:\.\d+)?)(?= )", out))
    missing = [name for name in workload.figures if name not in said]
    if missing:
        raise BenchError(f"{workload.name} printed no {', '.join(missing)}: {out.strip()}")
    return {name: float(said[name]) for name in workload.figures}


def measure(workload, command, allocator, setup):
    """One sample as a row of the raw table."""
    preload = preload_of(workload, allocator, setup)
    line = [str(setup.bench_dir / "bench_measure"), str(workload.repeat), str(preload or "-"),
            *command]
    out, err = execute(line, environment(workload, allocator), setup.timeout)
    row = {"workload": workload.name, "allocator": allocator.name, "status": "ok"}
    measured = MEASURED.search(out)
    if not measured or measured[5] != "0":
        reason = f"exit code {measured[5]}" if measured else "no result"
        return row | {"status": f"{reason}: {err.strip().splitlines()[-1] if err.strip() else '-'}"}
    served = SERVED.search(out)
    if served:
        check_object(served[3], workload, allocator, setup)
        row["served"] = f"{served[1]} {served[2]}"
    wall, user, system, peak, _, faults = map(int, measured.groups())
    row |= {"wall_s": wall / 1e9, "cpu_s": (user + system) / 1e6, "peak_kib": peak, "faults": faults}
    if workload.own_time:
        row["wall_s"] = float(re.search(r" seconds=(\S+)", out)[1])
    held = re.search(r" rss_after_kib=(\d+)", out)
    if held:
        row["held_kib"] = int(held[1])
    return row | {"figures": figures_of(workload, out, row)}


def count_calls(workload, command, allocator, setup):
    """System calls of one process of the workload, by strace."""
    result = setup.scratch / "strace"
    preload = preload_of(workload, allocator, setup)
    line = ["strace", "-c", "-f", "-o", str(result)]
    line += ["-E", f"LD_PRELOAD={preload}"] if preload else []
    _, err = execute([*line, *command], environment(workload, allocator), setup.timeout)
    text = result.read_text() if result.exists() else ""
    calls = {name: int(count) for count, name in
             re.findall(r"^\s*[\d.]+\s+[\d.]+\s+\d+\s+(\d+)(?:\s+\d+)?\s+(\w+)$", text, re.M)}
    if not calls:
        raise BenchError(f"strace of {workload.name} under {allocator.name} failed: {err.strip()}")
    return {"calls": calls.pop("total", sum(calls.values())),
            **{name: calls.get(name, 0) for name in ("mmap", "munmap", "mremap", "madvise", "brk")}}


def run_blocks(chosen, allocators, setup, repetitions, rng):
    """All samples; blocks, and the runs within each block, are in random order."""
    rows = []
    for repetition in range(repetitions):
        for workload, command in shuffled(chosen, rng):
            if sys.stderr.isatty():
                print(f"\r{repetition + 1}/{repetitions} {workload.name:<24}", end="",
                      file=sys.stderr)
            for _, position, allocator in interleaved(allocators, 1, rng):
                row = measure(workload, command, allocator, setup)
                rows.append({"repetition": repetition, "position": position} | row)
    if sys.stderr.isatty():
        print("\r" + " " * 40 + "\r", end="", file=sys.stderr)
    return rows


def write_csv(path, rows):
    columns = ["repetition", "position", "workload", "allocator", "status", "wall_s", "cpu_s",
               "peak_kib", "held_kib", "idle_kib", "faults", "served"]
    with open(path, "w", newline="") as file:
        writer = csv.DictWriter(file, columns, extrasaction="ignore")
        writer.writeheader()
        writer.writerows(rows)


def read_csv(path):
    with open(path, newline="") as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        for column in ("wall_s", "cpu_s", "peak_kib", "held_kib", "idle_kib", "faults"):
            row[column] = float(row[column]) if row.get(column) else None
    return rows


def libc_of(bench_dir):
    """The file that provides malloc to a program without preload."""
    out, err = execute([str(bench_dir / "bench_random_mixed"), "1", "1", "1"],
                       {key: value for key, value in os.environ.items() if key != "LD_PRELOAD"},
                       60)
    served = SERVED.search(out)
    if not served:
        raise BenchError(f"bench_random_mixed does not run: {err.strip()}")
    return Path(served[3]).resolve()


def choose_workloads(group, pattern, setup):
    chosen = []
    for workload in workloads.group(group):
        if not re.search(pattern, workload.name):
            continue
        command = workloads.command_line(workload, setup.bench_dir, setup.scratch, setup.scale)
        if command is None:
            print(f"{workload.name}: not installed, left out", file=sys.stderr)
            continue
        chosen.append((workload, command))
    if not chosen:
        raise BenchError(f'--workloads "{pattern}" matches no workload; see --list')
    return chosen


def check_all(chosen, allocators, setup):
    """Runs each program once that cannot report which allocator served it."""
    for workload, command in chosen:
        if Path(command[0]).parent != setup.bench_dir:
            for allocator in allocators:
                check_program(workload, command, allocator, setup)


def run(args, scratch):
    build = find_build(args.build)
    bench_dir = build / "bench"
    setup = Setup(bench_dir, scratch, libc_of(bench_dir), args.scale, args.timeout)
    allocators = choose_allocators(args.allocators, known_libraries(build))
    workloads.write_inputs(scratch)
    chosen = choose_workloads(args.group, args.workloads, setup)
    check_all(chosen, allocators, setup)
    if args.syscalls:
        counts = {(workload.name, allocator.name): count_calls(workload, command, allocator, setup)
                  for workload, command in chosen for allocator in allocators
                  if allocator.name != NOISE}
        print(tables.call_table(counts))
        return []
    return run_blocks(chosen, allocators, setup, args.repetitions, random.Random(args.seed))


def read_arguments():
    parser = argparse.ArgumentParser(usage=argparse.SUPPRESS, description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true", help="print the workloads and end")
    parser.add_argument("--group", choices=["all", "calls", "service"], default="all",
                        help="which workloads: all (default), the calls beside malloc and free, or those of service.py")
    parser.add_argument("--workloads", "--works", metavar="REGEX", default="", help="only workloads so named")
    parser.add_argument("--allocators", metavar="A", nargs="+",
                        help="besides system (default: hakmem and all peers that are installed)")
    parser.add_argument("--repetitions", "-n", type=int, metavar="N",
                        help="blocks of each workload (default 11, with --quick 3)")
    parser.add_argument("--quick", action="store_const", dest="scale", const="quick", default="full",
                        help="a quarter of the work")
    parser.add_argument("--cpu", action="store_true",
                        help="compare user and system time, not wall time (busy machines)")
    parser.add_argument("--syscalls", action="store_true",
                        help="count system calls by strace instead of measuring")
    parser.add_argument("--csv", metavar="FILE", type=Path, help="write all samples")
    parser.add_argument("--png", metavar="FILE", type=Path, help="draw the ratios (matplotlib)")
    parser.add_argument("--from", metavar="FILE", type=Path, dest="source",
                        help="print the tables of samples written by --csv")
    parser.add_argument("--build", metavar="DIR", type=Path, help="Meson build directory")
    parser.add_argument("--seed", type=int, help="of the order of runs (default: random)")
    parser.add_argument("--timeout", type=float, default=300, help="seconds for one sample")
    args = parser.parse_args()
    if args.repetitions is None:
        args.repetitions = 3 if args.scale == "quick" else 11
    if args.repetitions < 1:
        parser.error(f"--repetitions {args.repetitions}: give 1 or more")
    try:
        re.compile(args.workloads)
    except re.error as error:
        parser.error(f'--workloads "{args.workloads}": {error}')
    return args


def show(rows, args):
    """Prints all tables; returns the number of failed samples."""
    metric = "cpu_s" if args.cpu else "wall_s"
    print(tables.ratio_table(rows, metric, BASE, "ms", 1000))
    print(tables.ratio_table(rows, "peak_kib", BASE, "MiB", 1 / 1024))
    if any(row.get("held_kib") for row in rows):
        print(tables.ratio_table(rows, "held_kib", BASE, "MiB", 1 / 1024))
    if args.png:
        tables.draw(rows, metric, BASE, args.png)
    failures = sorted({(row["workload"], row["allocator"], row["status"])
                       for row in rows if row["status"] != "ok"})
    for workload, allocator, status in failures:
        print(f"{workload} under {allocator} failed: {status}", file=sys.stderr)
    return len(failures)


def main():
    args = read_arguments()
    if args.list:
        for workload in workloads.group(args.group):
            times = f" ({workload.repeat} processes)" if workload.repeat > 1 else ""
            print(f"{workload.name:<24}{' '.join(workload.command.split())[:100]}{times}")
        return 0
    try:
        if args.source:
            rows = read_csv(args.source)
        else:
            with tempfile.TemporaryDirectory(prefix="hakmem-bench-") as scratch:
                rows = run(args, Path(scratch))
        if args.csv and rows:
            write_csv(args.csv, rows)
        return 1 if rows and show(rows, args) else 0
    except (BenchError, tables.TableError, OSError) as error:
        print(f"run.py: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
