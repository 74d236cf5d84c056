#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Runs a libFuzzer target from its corpus for some seconds.

fuzz.py TARGET CORPUS SECONDS [--long]

New inputs go to a folder of this run; an input that fails is kept beside the target, and its name is the last line.
With --long it is skipped unless STRESS_LONG=1. `fuzz.py TARGET CORPUS merge FOLDER...` adds those inputs of the folders
to the corpus that increase coverage.
"""

import os
import subprocess
import sys
import tempfile

SKIPPED = 77
INPUT_MAX = 2048


def run(target, corpus, seconds):
    kept = os.path.dirname(target) + "/"
    with tempfile.TemporaryDirectory() as fresh:
        command = [target, fresh, corpus, f"-max_total_time={seconds}", f"-max_len={INPUT_MAX}", "-len_control=0",
                   "-timeout=60", "-rss_limit_mb=4096", "-print_final_stats=1", "-verbosity=0",
                   f"-artifact_prefix={kept}",
                   "-error_exitcode=1"]  # libFuzzer's own is 77, which meson takes for a skipped test
        return subprocess.run(command, timeout=int(seconds) + 120).returncode


def merge(target, corpus, folders):
    return subprocess.run([target, "-merge=1", f"-max_len={INPUT_MAX}", corpus, *folders]).returncode


def main(arguments):
    if len(arguments) < 3:
        sys.exit(__doc__)
    target, corpus, seconds, *more = arguments
    if "--long" in more and os.environ.get("STRESS_LONG") != "1":
        print("skipped: set STRESS_LONG=1 to run it")
        return SKIPPED
    return merge(target, corpus, more) if seconds == "merge" else run(target, corpus, seconds)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
