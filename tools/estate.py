#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What somebody who takes this tree over has to read, counted over the files that git tracks: files and lines of each
area, words of documents, and of src the conditionals and the longest files. A word contains a letter or a digit;
`wc -w` also counts the bars of tables.
"""
import argparse
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "shape"))
import names  # noqa: E402

CODE = {".c", ".h", ".cc", ".def", ".py", ".sh", ".rs", ".build", ".in", ".map", ".css", ".html"}
# The first that fits.
AREAS = {"src": "src/", "workbench, tests": "tools/hakmem/tests/", "workbench": "tools/hakmem/", "tools": "tools/",
         "tests": "tests/", "bench": "bench/", "bindings, example parts": ("bindings/", "subprojects/"),
         "docs, CI, root": ""}


def main():
    argparse.ArgumentParser(usage=argparse.SUPPRESS, description=__doc__).parse_args()
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    text = {name: (ROOT / name).read_text(errors="replace") for name in tracked
            if Path(name).suffix in CODE | {".md"} or name.startswith(".ci/")}
    lines = {name: content.count("\n") for name, content in text.items() if not name.endswith(".md")}
    areas = {area: [] for area in AREAS}
    for name in lines:
        areas[next(area for area, prefix in AREAS.items() if name.startswith(prefix))].append(name)
    print(f"{'':24}{'files':>8}{'lines':>8}")
    for area, files in areas.items():
        print(f"{area:24}{len(files):8}{sum(lines[name] for name in files):8}")
    pages = [name for name in text if name.endswith((".md", ".7.in"))]
    words = [word for page in pages for word in text[page].split()]
    print(f"{'documents':24}{len(pages):8}{sum(any(map(str.isalnum, word)) for word in words):8} words"
          f" ({len(words)} by wc -w)")
    conditionals = sum(not names.GUARD.search(line) for name in areas["src"] if name.endswith((".c", ".h"))
                       for line in names.CONDITIONAL.findall(text[name]))
    print(f"src: {conditionals} conditionals; {sum(lines[name] > 500 for name in areas['src'])} files over 500 lines")
    for name in sorted(areas["src"], key=lines.get, reverse=True)[:8]:
        print(f"{lines[name]:8} {name}")


if __name__ == "__main__":
    main()
