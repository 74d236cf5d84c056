#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The headline comparison: hakmem with tiny_header true, false and small, and with the cache `list`, against the
system's malloc, mimalloc and jemalloc, on the original's benchmarks.

`meson compile -C build ab` runs it. The builds are configured here; the measuring and the verdicts are those of `hakmem
ab` (tools/hakmem), one experiment for each workload. The baseline is the first build. Written into the output folder:
headline.html, headline.json, and ab.html, ab.json, ab.csv of each workload in a folder of its name.
"""
import argparse
import json
import re
import subprocess
import sys
from html import escape
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "tools" / "hakmem"))

import workloads  # noqa: E402
from hakmem_workbench import cli, variants  # noqa: E402
from hakmem_workbench.commands.common import need  # noqa: E402
from hakmem_workbench.errors import Problem  # noqa: E402
from hakmem_workbench.mesonbuild import Project  # noqa: E402

# label: build options; the first is the baseline
BUILDS = {
    "header=false": {"tiny_header": "false"},
    "header=true": {"tiny_header": "true"},
    "header=small": {"tiny_header": "small"},
    "cache=list": {"cache": "list"},
}
PEERS = ("system", "mimalloc", "jemalloc")
SIDE_RUNS = 5  # proof, memory, system calls
# The original's six: its own sizes and working sets, as amounts of work instead of seconds.
WORKLOADS = ("random_mixed_400", "random_mixed_8192", "fixed_64", "fixed_256", "fixed_1024", "larson_exit_1",
             "larson_exit_4", "mid_large_1", "mid_large_2", "pool_tls_1", "pool_tls_4", "cache_active", "cache_passive")


def arguments():
    parser = argparse.ArgumentParser(usage=argparse.SUPPRESS, description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", type=Path, default=Path("build/bench"), help="folder of the bench_* programs")
    parser.add_argument("--output", type=Path, default=Path("build/ab"), help="folder for the results")
    parser.add_argument("--builds", default="", metavar="REGEX", help=f"of {', '.join(BUILDS)}")
    parser.add_argument("--workloads", "--works", default="", metavar="REGEX", help=f"of {', '.join(WORKLOADS)}")
    parser.add_argument("--runs", type=int, default=15, help="timed runs of each variant and workload (15)")
    parser.add_argument("--quick", action="store_true", help="a quarter of the work, 8 runs: shows that it runs")
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


def contestants(folder, wanted):
    """The builds, made here if they are missing or outdated, and the installed peers."""
    project = Project(str(HERE.parent))
    found = []
    for label, options in ((label, options) for label, options in BUILDS.items() if re.search(wanted, label)):
        directory = project.directory(folder, options)
        project.build(directory, options, lambda words: print(words, flush=True))
        found.append(variants.parse(f"build:{directory},as:{label}"))
    for name in PEERS:
        try:
            found.append(variants.parse(name))
        except Problem as problem:
            print(f"left out: {problem.sentence}. {problem.hint}")
    return found


def command_of(workload, folder, args):
    command = workloads.command_line(workload, args.programs.resolve(), folder, "quick" if args.quick else "full")
    if command is None:
        raise Problem(f"{args.programs} has no bench_{workload.command.split()[0]}",
                      "Build it: meson compile -C build.")
    return command


def measure(workload, command, field, args):
    from hakmem_workbench.experiment import Experiment, Plan
    from hakmem_workbench.live import Display

    print(f"\n{workload.name}: {workload.command.replace('{', '').replace('}', '')}", flush=True)
    plan = Plan(command=command, variants=field, runs=8 if args.quick else args.runs, seed=args.seed,
                memory_runs=1 if args.quick else 3, system_calls=not args.quick)
    with Display() as display:
        results = Experiment(plan, display).carry_out()
    if results.stopped:
        raise Problem(f"{workload.name}: {results.stopped.sentence}", "Run it again.", results.stopped.code)
    return results


def cell(results, index):
    """(ratio to the baseline, verdict) of one variant."""
    comparison = results.judged.comparisons.get(results.variants[index].label)
    return (comparison.ratio.value, comparison.verdict) if comparison else (1.0, "")


def show(found, field):
    from hakmem_workbench.screen import console
    from rich.table import Table
    from rich.text import Text

    colours = {"faster": "green", "slower": "red", "same": "dim", "few": "yellow", "": "dim"}
    table = Table(box=None, pad_edge=False, header_style="dim", title=f"Time relative to {field[0].label}; below 1 is "
                  "faster. Grey: no difference above the noise.", title_justify="left")
    table.add_column("workload")
    for variant in field:
        table.add_column(variant.label, justify="right")
    table.add_column("noise", justify="right")
    for name, results in found.items():
        cells = [cell(results, i) for i in range(len(field))]
        table.add_row(name, *(Text(f"{ratio:.3f}", colours[verdict]) for ratio, verdict in cells),
                      Text(f"{results.judged.noise.ratio.value:.3f}", "dim"))
    console().print("\n", table)


def page(found, field, folder):
    from hakmem_workbench import page as html
    from hakmem_workbench.text import duration

    rows = []
    for name, results in found.items():
        cells = [cell(results, i) for i in range(len(field))]
        words = [html.tag(verdict, f"{ratio:.3f}") if verdict else "1" for ratio, verdict in cells]
        rows.append([f'<a href="{escape(name)}/ab.html">{escape(name)}</a>', duration(results.median(0)), *words,
                     f"{results.judged.noise.ratio.value:.3f}"])
    heading = ("workload", f"time of {field[0].label}", *(variant.label for variant in field), "noise")
    legend = (f"Ratios of time to {field[0].label}, below 1 is faster. Green and red are differences above the noise, "
              "grey is none. Noise is the baseline against itself.")
    last = next(reversed(found.values()))
    parts = [html.header("hakmem headline", "meson compile ab", legend, "Who is ahead on the original's benchmarks?"),
             html.section("Time", html.table(heading, rows, "headline")),
             *html.machine_sections(last.machine, last.notes, last.hyperfine)]
    data = {"format": "hakmem-headline/2", "baseline": field[0].label, "machine": last.machine, "workloads": {
        name: {"command": results.command, "noise": results.judged.noise.ratio.value, "variants": {
            variant.label: dict(zip(("ratio", "verdict"), cell(results, i)))
            for i, variant in enumerate(field)}} for name, results in found.items()}}
    (folder / "headline.html").write_text(html.page("hakmem headline", parts, data), encoding="utf-8")
    (folder / "headline.json").write_text(json.dumps(data, indent=1) + "\n")


def duration_of(commands, runs):
    """The expected total duration in seconds: runs each command once, and multiplies by its number of runs."""
    import time

    began = time.monotonic()
    for command in commands:
        subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    arms = 1 + len(BUILDS) + len(PEERS)
    return (time.monotonic() - began) * (runs + 1 + SIDE_RUNS) * arms


def main():
    args = arguments()
    need("numpy", "matplotlib", "rich")
    from hakmem_workbench.commands.ab import write
    from hakmem_workbench.text import duration

    chosen = [workload for workload in workloads.OWN
              if workload.name in WORKLOADS and re.search(args.workloads, workload.name)]
    if not chosen:
        raise Problem(f"--workloads {args.workloads} matches no workload", f"There are: {', '.join(WORKLOADS)}.")
    folder = args.output.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    commands = [command_of(workload, folder, args) for workload in chosen]
    took = duration_of(commands, 8 if args.quick else args.runs)
    print(f"ab: {len(chosen)} workloads, about {duration(took)} after the builds; results in {folder}", flush=True)
    field = contestants(folder / "builds", args.builds)
    found = {}
    for workload, command in zip(chosen, commands):
        found[workload.name] = measure(workload, command, field, args)
        (folder / workload.name).mkdir(exist_ok=True)
        write(found[workload.name], folder / workload.name)
    show(found, field)
    page(found, field, folder)
    print(f"\nWritten: {folder}/headline.html, headline.json")
    return 0


if __name__ == "__main__":
    sys.exit(cli.guarded(main))
