#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""Indexes the words of Python's own library: which file uses which, and where.

Many small objects of many sizes live at once; what is printed is the same
under every allocator.
"""

import glob
import os
import re
import sysconfig


def index(paths):
    places = {}
    for path in paths:
        with open(path, encoding="utf-8", errors="replace") as file:
            for number, line in enumerate(file, 1):
                for word in re.findall(r"[A-Za-z_]{2,}", line):
                    places.setdefault(word, []).append((os.path.basename(path), number))
    return places


def main():
    paths = sorted(glob.glob(sysconfig.get_path("stdlib") + "/*.py"))
    places = index(paths)
    total = sum(map(len, places.values()))
    print(f"{len(paths)} files, {total} words, {len(places)} different")
    for word in sorted(places, key=lambda word: (-len(places[word]), word))[:5]:
        first = places[word][0]
        print(f"  {word:8}{len(places[word]):6} times, first in {first[0]}:{first[1]}")


if __name__ == "__main__":
    main()
