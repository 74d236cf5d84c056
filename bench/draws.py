#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""Workloads that nobody chose: fifty programs (draw.c) whose sizes, lifetimes, threads, order of frees, share of remote
frees, ends of threads, phases, reallocs and alignments are drawn at random, by a seed that changes with each release.
The first allocator is compared with each other one, in time and peak memory: how many of the draws it loses, and which.
A change for speed is accepted by draws, not by single workloads that we wrote.

A draw is lost if the median of the ratios, each taken inside one interleaved block, exceeds LOST. A library may be
given twice, as in `--allocators hakmem again=hakmem`: that shows the noise.
"""
import argparse
import random
import re
import statistics
import sys
import tempfile
import zlib
from pathlib import Path

import run
import tables
import workloads

LOST = 1.02
BUDGET_NS = 250e6       # of one sample, about
MOST_LIVE = 128 << 20   # bytes
METRICS = {"wall_s": "time", "cpu_s": "CPU time", "peak_kib": "peak memory"}
# How often each is drawn. Half of all programs have one thread; most never see a remote free.
SIZES = ["calls"] * 4 + ["doublings"] * 3 + ["few", "powers", "one"]
THREADS = [1] * 9 + [2] * 4 + [3, 4, 4, 8, 16, 64]
LIVES = ["random", "random", "queue", "young", "young", "stack"]
ORDERS = ["none", "none", "forwards", "backwards", "shuffled"]


def release_seed():
    """A number that the version determines."""
    text = (Path(__file__).resolve().parent.parent / "meson.build").read_text()
    return zlib.crc32(re.search(r"version: '([^']+)'", text)[1].encode())


def log_uniform(rng, low, high):
    return round(low * (high / low) ** rng.random())


def seldom(rng, chance, most):
    """A percentage: 0, but for a chance."""
    return rng.randint(1, most) if rng.random() < chance else 0


def mean_size(sizes, largest):
    """Roughly."""
    return {"calls": 2100, "one": largest}.get(sizes, largest / 5)


def draw(rng):
    """The arguments of one draw.c."""
    sizes = rng.choice(SIZES)
    largest = 16384 if sizes == "calls" else log_uniform(rng, 32, 65536 if rng.random() < 0.8 else 4 << 20)
    threads = rng.choice(THREADS)
    mean = mean_size(sizes, largest)
    live = min(log_uniform(rng, 10, 200000), max(10, int(MOST_LIVE / mean / threads)))
    steps = max(2 * live, int(BUDGET_NS / (60 + mean / 25) / threads))
    phases = log_uniform(rng, 1, 50) if rng.random() < 0.5 else 1
    exits = "exits" if rng.random() < 0.25 else "no"
    remote = seldom(rng, 0.5, 90) if threads > 1 else 0
    return (sizes, largest, threads, f"{{{steps}}}", live, rng.choice(LIVES), rng.choice(ORDERS), phases, exits, remote,
            seldom(rng, 0.3, 50), seldom(rng, 0.3, 40), seldom(rng, 0.3, 40), rng.randint(1, 1 << 30))


def all_draws(seed, count):
    rng = random.Random(seed)
    return [workloads.Workload(f"draw_{i:02}", " ".join(["draw", *map(str, draw(rng))])) for i in range(count)]


def take_samples(args, scratch):
    build = run.find_build(args.build)
    setup = run.Setup(build / "bench", scratch, run.libc_of(build / "bench"), args.scale, args.timeout)
    known = run.known_libraries(build)
    texts = args.allocators or [word for word in ["hakmem", run.BASE, *run.PEERS] if word == run.BASE or word in known]
    allocators = [run.parse_allocator(text, known) for text in texts]
    chosen = [(one, workloads.command_line(one, setup.bench_dir, scratch, args.scale))
              for one in all_draws(args.seed, args.count) if re.search(args.draws, one.name)]
    if not chosen:
        raise run.BenchError(f'--draws "{args.draws}" matches none of {args.count} draws; see --list')
    return allocators[0].name, run.run_blocks(chosen, allocators, setup, args.repetitions, random.Random(args.seed))


def compare(rows, ours, peer, metric):
    """{draw: the median of our ratios to the peer}."""
    found = tables.ratios([row for row in rows if row["allocator"] in (ours, peer)], metric, peer)
    return {workload: statistics.median(values) for (workload, _), values in found.items()}


def table(rows, ours, metrics):
    peers = [name for name in dict.fromkeys(row["allocator"] for row in rows) if name != ours]
    lines = [f"{'':<14}{'against':<14}{'lost':>9}{'mean':>8}  the worst"]
    for metric in metrics:
        for peer in sorted(peers):
            ratios = compare(rows, ours, peer, metric)
            lost = sorted((name for name in ratios if ratios[name] > LOST), key=ratios.get, reverse=True)
            worst = ", ".join(f"{name.removeprefix('draw_')} {ratios[name]:.2f}×" for name in lost[:5])
            mean = f"{tables.geometric_mean(ratios.values()):.2f}×" if ratios else "-"
            row = f"{METRICS[metric]:<14}{peer:<14}{len(lost):>3} of {len(ratios):<3}{mean:>7}  {worst}"
            lines.append(row.rstrip())
    return "\n".join(lines)


def read_arguments():
    parser = argparse.ArgumentParser(usage=argparse.SUPPRESS, description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true", help="print the draws and end")
    parser.add_argument("--allocators", nargs="+", metavar="A",
                        help="the first is compared with the rest (default: hakmem, system and all installed peers)")
    parser.add_argument("--seed", type=int, default=release_seed(), help="of the draws (default: of this release)")
    parser.add_argument("--count", type=int, default=50, metavar="N", help="how many are drawn (default 50)")
    parser.add_argument("--draws", default="", metavar="REGEX", help="only draws so named")
    parser.add_argument("-n", dest="repetitions", type=int, default=3, help="blocks of each draw (default 3)")
    parser.add_argument("--quick", action="store_const", dest="scale", const="quick", default="full",
                        help="a quarter of the work")
    parser.add_argument("--smoke", action="store_const", dest="scale", const="smoke", help="hardly any work")
    parser.add_argument("--cpu", action="store_true", help="compare user and system time (busy machines)")
    parser.add_argument("--csv", metavar="FILE", type=Path, help="write all samples")
    parser.add_argument("--build", metavar="DIR", type=Path, help="Meson build directory")
    parser.add_argument("--timeout", type=float, default=120, help="seconds for one sample")
    return parser.parse_args()


def main():
    args = read_arguments()
    if args.list:
        for one in all_draws(args.seed, args.count):
            print(f"{one.name}  {one.command}")
        return 0
    try:
        with tempfile.TemporaryDirectory(prefix="hakmem-bench-") as scratch:
            ours, rows = take_samples(args, Path(scratch))
        if args.csv:
            run.write_csv(args.csv, rows)
    except (run.BenchError, OSError) as error:
        print(f"draws.py: {error}", file=sys.stderr)
        return 2
    print(f"seed {args.seed}, {args.repetitions} blocks; lost: more than {LOST}×\n")
    print(table(rows, ours, ["cpu_s" if args.cpu else "wall_s", "peak_kib"]))
    failures = sorted({(row["workload"], row["allocator"], row["status"]) for row in rows if row["status"] != "ok"})
    for workload, allocator, status in failures:
        print(f"{workload} under {allocator} failed: {status}", file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
