#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""One command under the system malloc and under hakmem, with the workbench's stopwatch and verdict.

  compare.py LIBRARY BLOCKS COMMAND [ARGUMENT]...

Called by tools/quickstart.sh, which cannot install everything that `hakmem ab` needs. In each block the system malloc
runs twice and hakmem once, in random order; tools/hakmem/hakmem_workbench/inference.py has the rule for claiming a
difference.
"""
import os
import random
import statistics
import sys
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parent / "hakmem"))

if "--help" in sys.argv[1:2]:
    sys.exit(print(__doc__))
if len(sys.argv) < 4 or sys.argv[1].startswith("-"):
    print("compare.py: LIBRARY BLOCKS COMMAND [ARGUMENT]...; --help says more", file=sys.stderr)
    sys.exit(2)

import numpy  # noqa: E402
from hakmem_workbench import inference, text  # noqa: E402
from hakmem_workbench.blocks import interleaved  # noqa: E402
from hakmem_workbench.errors import Problem  # noqa: E402
from hakmem_workbench.timing import Hyperfine  # noqa: E402

SEED = 1
ARMS = ("system", "system again", "hakmem")


def measure(library, blocks, command):
    """{arm: seconds of each block}"""
    stopwatch = Hyperfine({"PATH": os.environ["PATH"], "PYTHONMALLOC": "malloc"})
    times = {arm: [] for arm in ARMS}
    for _, _, arm in interleaved(ARMS, blocks, random.Random(SEED)):
        preload = {"LD_PRELOAD": library} if arm == "hakmem" else {}
        times[arm].append(stopwatch.once(command, preload).seconds)
    return times


def main():
    library, blocks, *command = sys.argv[1:]
    try:
        times = measure(library, int(blocks), command)
    except Problem as problem:
        sys.exit(f"compare.py: {problem.sentence}. {problem.hint}")
    for arm in "system", "hakmem":
        low, high = min(times[arm]), max(times[arm])
        print(f"  {arm}  median {text.duration(statistics.median(times[arm]))}"
              f"   ({text.duration(low)} to {text.duration(high)}, {blocks} runs)")
    first, again, ours = (numpy.array(times[arm]) for arm in ARMS)
    print("  " + inference.judge("system", first, again, {"hakmem": ours}, SEED).comparisons["hakmem"].sentence)


if __name__ == "__main__":
    main()
