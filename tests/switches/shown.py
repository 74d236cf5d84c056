#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Each row of the tables of settings, core's and those of parts, appears wherever settings are shown.

  PYTHONPATH=tests:docs shown.py LIBRARY HAKMEM MAN_PAGE TABLE...

HAKMEM is the workbench's command; MAN_PAGE is - if none is built. The statistics must have each setting with the
counter that it moves, the man page with its meaning, `hakmem options` with both, and none may have another setting.
"""
import json
import re
import sys
from pathlib import Path

import tracing
from common import finish, output_of
from settings import capital, read_groups, roff


def compare(where, shown, wanted):
    """Problems with what a place shows: {name: facts}."""
    yield from (f"{name}: in a table, but not in {where}" for name in wanted.keys() - shown.keys())
    yield from (f"{name}: in {where}, but in no table" for name in shown.keys() - wanted.keys())
    yield from (f"{name}: {where} has {shown[name]}, the table {facts}" for name, facts in wanted.items()
                if name in shown and shown[name] != facts)


def in_statistics(library):
    stats, _ = tracing.run_with_stats(library, ["true"])
    return {row["name"]: row["moves"] for row in stats["settings"]}


def in_options(library, tool):
    rows = json.loads(output_of([sys.executable, tool, "options", "--json", "--library", library]))
    return {row["name"]: (row["sentence"] or f"-> {row['maps_to']}", row["moves"]) for row in rows}


def in_man_page(page):
    text = page.read_text()
    return re.findall(r"^\.B (HAKMEM_\w+)\n(.*)\.$", text, re.MULTILINE)


def main():
    library, tool, page = sys.argv[1:4]
    settings = [s for table in sys.argv[4:] for group in read_groups(Path(table)) for s in group.settings]
    problems = list(compare("the statistics", in_statistics(library), {s.name: s.moves for s in settings}))
    problems += compare("hakmem options", in_options(library, tool), {s.name: (s.sentence, s.moves) for s in settings})
    if page != "-":
        problems += compare("the man page", dict(in_man_page(Path(page))),
                            {s.name: roff(capital(s.sentence)) for s in settings})
    finish(problems, f"{len(settings)} settings of {len(sys.argv) - 4} tables")


if __name__ == "__main__":
    main()
