#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""CPython's own benchmarks, of the package pyperformance, under several allocators.

    python3 -m venv v && v/bin/pip install pyperformance
    bench/cpython.py --python v/bin/python --allocators hakmem mimalloc -n 3 chaos json_loads

A repetition runs every benchmark under every allocator, in random order; a sample is the least
of three values that pyperf takes in one process. PYTHONMALLOC=malloc, so that the allocator
serves the small objects too. Allocators are written as for run.py.
"""
import argparse
import json
import random
import subprocess
import sys
import tempfile
from pathlib import Path

import run
import tables
import workloads

# Benchmarks that only need Python, and that allocate.
DEFAULT = ("async_tree chaos comprehensions deepcopy deltablue float gc_collect generators go hexiom json_dumps "
           "json_loads logging nqueens pprint pyflate raytrace regex_compile richards sqlite_synth telco").split()
WORKLOAD = workloads.Workload("cpython", "", env=workloads.PLAIN_PYTHON)
WHERE = "import pathlib, pyperformance; print(pathlib.Path(pyperformance.__file__).parent / 'data-files/benchmarks')"


def find_benchmarks(python):
    found = subprocess.run([python, "-c", WHERE], capture_output=True, text=True)
    if found.returncode:
        raise run.BenchError(f"{python} has no package pyperformance: {python} -m pip install pyperformance")
    return Path(found.stdout.strip())


def values_of(result):
    """{benchmark: least seconds}; one script may hold several benchmarks."""
    known = result["metadata"]
    return {bench.get("metadata", {}).get("name", known.get("name")):
            min(value for one in bench["runs"] for value in one.get("values", [])) for bench in result["benchmarks"]}


def measure(python, script, allocator, scratch):
    output = scratch / "result.json"
    output.unlink(missing_ok=True)
    inherited = ",".join(["LD_PRELOAD", *workloads.PLAIN_PYTHON, *allocator.env])
    done = subprocess.run([python, str(script), "-p1", "-n3", "-w1", "-q", "--min-time", "0.05",
                           "--inherit-environ", inherited, "-o", str(output)],
                          env=run.environment(WORKLOAD, allocator, allocator.library), cwd=scratch,
                          capture_output=True, text=True)
    if done.returncode or not output.exists():
        raise run.BenchError(f"{script.parent.name} under {allocator.name}: {done.stderr.strip()[-200:]}")
    return values_of(json.loads(output.read_text()))


def samples(args, scratch):
    folder = find_benchmarks(args.python)
    allocators = run.choose_allocators(args.allocators, run.known_libraries(run.find_build(args.build)))
    rows, rng = [], random.Random()
    for repetition in range(args.repetitions):
        for name in args.benchmarks or DEFAULT:
            script = folder / f"bm_{name}" / "run_benchmark.py"
            if not script.is_file():
                raise run.BenchError(f'no benchmark "{name}"; see {args.python} -m pyperformance list')
            for allocator in run.shuffled(allocators, rng):
                rows += [{"repetition": repetition, "workload": workload, "allocator": allocator.name, "status": "ok",
                          "wall_s": seconds}
                         for workload, seconds in measure(args.python, script, allocator, scratch).items()]
    return rows


def read_arguments():
    parser = argparse.ArgumentParser(usage=argparse.SUPPRESS, description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("benchmarks", nargs="*", metavar="BENCHMARK", help=f"default: {' '.join(DEFAULT)}")
    parser.add_argument("--python", default=sys.executable, help="an interpreter that has pyperformance")
    parser.add_argument("--allocators", nargs="+", metavar="ALLOCATOR", help="besides system")
    parser.add_argument("-n", dest="repetitions", type=int, default=3)
    parser.add_argument("--build", metavar="DIR", type=Path, help="Meson build directory")
    return parser.parse_args()


def main():
    args = read_arguments()
    try:
        with tempfile.TemporaryDirectory(prefix="hakmem-bench-") as scratch:
            rows = samples(args, Path(scratch))
        print(tables.ratio_table(rows, "wall_s", run.BASE, "ms", 1000))
    except (run.BenchError, tables.TableError, OSError) as error:
        print(f"cpython.py: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
