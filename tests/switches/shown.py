#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Each row of the tables of settings, core's and those that parts bring, is shown wherever settings are.

  PYTHONPATH=tests:docs shown.py LIBRARY HAKMEM MAN_PAGE TABLE...

HAKMEM is the workbench's command; MAN_PAGE is - where none is built. The statistics, `hakmem options` and the man page
must have each setting with its default, its meaning and the counter that it moves, and no other setting.
"""
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
    return {row["name"]: (row["sentence"], row["moves"]) for row in stats["settings"]}


def in_options(library, tool):
    text = output_of([sys.executable, tool, "options", "--long", "--library", library])
    return re.findall(r"^(HAKMEM_\w+) = ", text, re.MULTILINE), text


def in_man_page(page):
    text = page.read_text()
    return re.findall(r"^\.B (HAKMEM_\w+)\n(.*)\.$", text, re.MULTILINE)


def main():
    library, tool, page = sys.argv[1:4]
    settings = [s for table in sys.argv[4:] for group in read_groups(Path(table)) for s in group.settings]
    names = {s.name: None for s in settings}
    problems = list(compare("the statistics", in_statistics(library), {s.name: (s.sentence, s.moves) for s in settings}))
    listed, text = in_options(library, tool)
    problems += compare("hakmem options", dict.fromkeys(listed), names)
    problems += [f"{s.name}: hakmem options does not say {s.moves}" for s in settings
                 if not s.moves.startswith("none") and s.moves not in text]
    if page != "-":
        problems += compare("the man page", dict(in_man_page(Path(page))), {s.name: roff(capital(s.sentence)) for s in settings})
    finish(problems, f"{len(settings)} settings of {len(sys.argv) - 4} tables")


if __name__ == "__main__":
    main()
