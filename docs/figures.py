#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The figures in prose that follow from something else in this tree, the links between documents, and the files
and names of the library that they mention.

  figures.py            exit 1 if a figure, a link or a name is wrong
  figures.py --write    put the figures right
"""
import re
import sys
from pathlib import Path

import applications
import performance
import settings

ROOT = Path(__file__).resolve().parent.parent
PAGES = [page for folder in (".", "docs", "bench", "tools/hakmem")
         for page in sorted((ROOT / folder).glob("*.md"))]
FOLDERS = ["bench", "docs", "src", "subprojects", "tests", "tools"]
NAMED = re.compile(r"`([\w./-]+\.(?:c|h|cc|py|sh|ini|def|build))`")
SYMBOL = re.compile(r"`(hak_\w+|HAK_\w+)(?:\(\w*\))?`")
PLACEHOLDER = re.compile(r"\bNAME\b|_NAME\b|_NAME_|\bHAK_X$")
MADE = {"parts.c", "sizeclass_table.h", "hak_settings.def"}  # by the build
LINK = re.compile(r"\]\((?!https?:|#)([^)#\s]+)")


def count_settings():
    return [sum(len(group.settings) for group in settings.all_groups())]


def example_lines():
    example = ROOT / "subprojects" / "example_backend" / "example_backend.c"
    return [round(len(example.read_text().splitlines()), -1)]


def misuses():
    """Misuses of the table; of those found at once and later by default, and at once and by a signal by hardened
    builds."""
    lines = (ROOT / "docs" / "misuse.md").read_text().splitlines()
    rows = [(row[1].count("`") // 2, row[2].split("|")) for line in lines
            if (row := re.match(r"\| [^|]+ \| (`\w+ [^|]+)\|(.*)\|$", line))]
    count = lambda column, letters: sum(n for n, cells in rows if cells[column] in list(letters))
    return [sum(n for n, _ in rows), count(0, "DIOWC"), count(0, "diowc"),
            *(count(column, letters) for column in (2, 3) for letters in ("DIOWC", "S"))]


def unit_cases():
    """Round figures: the exact ones change with each commit."""
    programs = list(ROOT.glob("tests/unit/test_*.c"))
    cases = sum(len(re.findall(r"^TEST(?:_EACH)?\(", program.read_text(), re.MULTILINE)) for program in programs)
    return [cases // 400 * 400, len(programs) // 10 * 10]


def corpus():
    return [len(list(ROOT.glob("tests/fuzz/corpus/*/*"))) // 10 * 10]


def models():
    text = (ROOT / "tests/models/meson.build").read_text()
    litmus = re.search(r"foreach name : (\[[^]]*\])", text)[1]
    return [len(re.findall(r"^ +'(?!litmus)\w+': \[", text, re.MULTILINE)), litmus.count("'") // 2]


def waiting():
    return [re.search(r"HAK_DIRTY_UNWANTED_PER_MS \((\d+) \* HAK_KIB\)",
                      (ROOT / "src/core/pages/dirty.h").read_text())[1]]


def promised(pattern):
    return [re.search(pattern, (ROOT / "tests/shape/meson.build").read_text())[1]]


def oldest():
    """The oldest kernel and C library for which there is a test."""
    told, symbols = ((ROOT / "tests" / name).read_text() for name in ("limits/told.c", "shape/symbols.py"))
    return [re.search(r"all that Linux ([\d.]+) lacks", told)[1],
            ".".join(re.search(r"^OLDEST = \((\d+), (\d+)\)", symbols, re.MULTILINE).groups())]


# document, words around the figures, where the figures come from
FIGURES = [
    ("README.md", r"Over (\d+) real programs it takes ([\d.]+)× the CPU time of glibc's malloc and ([\d.]+)× its peak "
     r"memory; of (\d+) other allocators the fastest takes ([\d.]+)×, the leanest ([\d.]+)×",
     lambda: [applications.headline()[i] for i in (0, 2, 3, 1, 4, 5)]),
    ("README.md", r"Over (\d+) benchmarks it takes ([\d.]+)× the time and ([\d.]+)× the memory; of (\d+) other "
     r"allocators the fastest takes ([\d.]+)×, the leanest ([\d.]+)×",
     lambda: [performance.headline()[i] for i in (0, 2, 4, 1, 3, 5)]),
    ("docs/should-i-use-it.md", r"([\d.]+)× of glibc's time over (\d+) workloads(?s:.*?)([\d.]+)× of glibc's peak",
     lambda: [performance.headline()[i] for i in (2, 0, 4)]),
    ("docs/should-i-use-it.md", r"more than (\d+)\|", lambda: unit_cases()[:1]),
    ("docs/should-i-use-it.md", r"schedules and values\|(\d+)\|", lambda: models()[:1]),
    ("docs/should-i-use-it.md", r"and jemalloc\|(\d+)\|", lambda: misuses()[:1]),
    ("docs/should-i-use-it.md", r"older than Linux ([\d.]+\d) and glibc ([\d.]+\d)", oldest),
    *((name, r"needs 64-bit Linux ([\d.]+\d) or newer, and glibc ([\d.]+\d) or newer", oldest)
      for name in ("NEWS.md", "docs/limits.md")),
    ("docs/testing.md", r"what Linux ([\d.]+\d) lacks, and of glibc no function newer than ([\d.]+\d)", oldest),
    ("docs/memory.md", r"dirty bytes exceed (\d+) KiB for each millisecond of the delay", waiting),
    ("SECURITY.md", r"Of (\d+) misuses the default build finds (\d+) at once and (\d+) later; `-Dhardened=checks` "
     r"finds (\d+) at once and (\d+) by a signal, `full` (\d+) and (\d+)", misuses),
    ("docs/testing.md", r"more than (\d+) cases in (\d+) programs", unit_cases),
    ("docs/testing.md", r"a corpus of over (\d+) inputs", corpus),
    ("docs/testing.md", r"(\d+) models: a checker runs the library's own files through all schedules; (\d+) small",
     models),
    ("docs/testing.md", r"(\d+) misuses in seven builds", lambda: misuses()[:1]),
    ("docs/testing.md", r"at most (\d+) instructions by callgrind", lambda: promised(r"shape_limit = '(\d+)'")),
    ("docs/testing.md", r"at most (\d+) for a program", lambda: promised(r"shape_calls = shape_default \? '(\d+)'")),
    ("docs/testing.md", r"each of (\d+) settings moves", count_settings),
    ("docs/write-your-own-part.md", r"has about (\d+) lines", example_lines),
]


def put(text, pattern, values):
    """The text with the figures of the only place that the pattern fits."""
    found = list(re.finditer(pattern, text))
    if len(found) != 1:
        sys.exit(f"figures.py: {len(found)} places say: {pattern}")
    for group in range(len(values), 0, -1):
        low, high = found[0].span(group)
        text = text[:low] + str(values[group - 1]) + text[high:]
    return text


def check_figures(write):
    for name, pattern, source in FIGURES:
        path, values = ROOT / name, source()
        text = path.read_text()
        right = put(text, pattern, values)
        if right != text and write:
            path.write_text(right)
        elif right != text:
            yield f"{name}: should say {re.search(pattern, right)[0]!r}; meson compile -C build docs puts it right"


def check_links():
    for page in PAGES:
        for target in LINK.findall(page.read_text()):
            if not (page.parent / target).exists():
                yield f"{page.relative_to(ROOT)}: links to {target}, which does not exist"


def check_names():
    """A page names files by the end of their path."""
    files = [f"/{path.relative_to(ROOT)}" for path in ROOT.glob("*") if path.is_file()]
    files += [f"/{path.relative_to(ROOT)}" for folder in FOLDERS for path in (ROOT / folder).rglob("*")]
    for page in PAGES:
        for name in NAMED.findall(page.read_text()):
            if not (PLACEHOLDER.search(name) or name in MADE or any(file.endswith(f"/{name}") for file in files)):
                yield f"{page.relative_to(ROOT)}: names {name}, which does not exist"


def check_symbols():
    """Each name with the library's prefix that a page mentions must be in the sources."""
    code = "\n".join(path.read_text() for folder in ("src", "subprojects", "tests")
                     for path in (ROOT / folder).rglob("*")
                     if path.suffix in (".c", ".h", ".def", ".in", ".build", ".py"))
    words = set(re.findall(r"\w+", code))
    for page in PAGES:
        for name in SYMBOL.findall(page.read_text()):
            if not PLACEHOLDER.search(name) and name not in words:
                yield f"{page.relative_to(ROOT)}: names {name}, which is nowhere in the sources"


def main():
    problems = [*check_figures("--write" in sys.argv), *check_links(), *check_names(), *check_symbols()]
    if problems:
        sys.exit("\n".join(problems))


if __name__ == "__main__":
    main()
