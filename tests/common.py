# SPDX-License-Identifier: MIT
"""Shared by the tests of this folder: how they end, and C sources without comments and strings."""
import re
import subprocess
import sys

SKIPPED = 77


def skip(reason):
    print(f"skipped: {reason}")
    sys.exit(SKIPPED)


def finish(problems, summary):
    """Ends the test: with all problems, or with one line that says what holds."""
    for problem in problems:
        print(problem, file=sys.stderr)
    if problems:
        sys.exit(1)
    print(summary)
    sys.exit(0)


def output_of(command, **options):
    """stdout of a command that must succeed."""
    run = subprocess.run([str(word) for word in command], capture_output=True, text=True, **options)
    if run.returncode:
        sys.exit(f"{' '.join(map(str, command))}: {run.returncode}\n{run.stdout}{run.stderr}")
    return run.stdout


_BLANKED = re.compile(r"""/\*.*?\*/ | //[^\n]* | "(?:\\.|[^"\\\n])*" | '(?:\\.|[^'\\\n])*'""",
                      re.DOTALL | re.VERBOSE)


def code_of(path):
    """The text of a C file with comments and literals blanked; line numbers stay."""
    return _BLANKED.sub(lambda m: re.sub(r"[^\n]", " ", m[0]), path.read_text())


def literals_of(path):
    """(text, line number) of each string in a C file's code."""
    text = path.read_text()
    for match in _BLANKED.finditer(text):
        if match[0].startswith('"'):
            yield match[0][1:-1], line_of(text, match.start())


def line_of(text, position):
    return text.count("\n", 0, position) + 1
