#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The table of SECURITY.md against what the programs do.

  table.py PAGE COLUMN FOLDER            exit 1 if a row does not say what happens in this build
  table.py PAGE COLUMN FOLDER --write    correct the column
  table.py PAGE COLUMN FOLDER --peer LIBRARY [--write]    the same for another allocator, or for glibc without LIBRARY;
      FOLDER has the programs as misuse_plain_NAME. An outcome that differs between five runs is "by chance"; at least
      one of the five must be as the page says. Exits with 77 if the versions of the page are not installed.

A row is `| words | program and arguments | column... |`. FOLDER has the programs, as misuse_NAME. A cell says
  at once: WORDS     before the call returns, SIGABRT and one line that begins with WORDS
  later: WORDS       the same, at the next drain of the thread's bins
  by chance: WORDS   any of these, or nothing: it depends on the random order of blocks, or on the backend
  SIGNAL             the process dies of it, without a line
  SIGNAL: WORDS      the same, with one
  no                 nothing happens
  gained             the program got what it should not (attack.c)
For another allocator, a cell has no WORDS, since its messages are its own.
"""
import os
import platform
import re
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROW = re.compile(r"^\| [^|]+ \| `([\w+-]+(?: [\w+-]+)*)` \|(.*)\|$")
ADDRESS = re.compile(r"\b0x[0-9a-f]+")
SKIPPED = 77
GAINED = 1
PEERS_OF = "2.36"  # glibc of Debian 12, whose packages the others are
RUNS = 5


def happened(folder, command):
    """What a cell says of it; None where the program cannot do it here."""
    program, *arguments = command.split()
    try:
        run = subprocess.run([f"{folder}/misuse_{program}", *arguments], capture_output=True, text=True, timeout=120)
    except subprocess.TimeoutExpired:
        return "hangs"
    lines = run.stderr.splitlines()
    words = " ".join(lines).removeprefix("hakmem: ")
    if run.returncode == SKIPPED:
        return None
    if run.returncode in (0, GAINED) and not lines:
        return "gained" if run.returncode else "no"
    if len(lines) > 1 or run.returncode >= 0 or (lines and not ADDRESS.search(words)):
        return f"exit status {run.returncode}, {words}"
    name = signal.Signals(-run.returncode).name
    if not lines:
        return name
    when = "later" if "passed" in run.stdout.split() else "at once"
    return f"{when if name == 'SIGABRT' else name}: {words}"


def once_with_peer(folder, command, library):
    program, *arguments = command.split()
    settings = {name: value for name, value in os.environ.items() if not name.startswith(("HAKMEM_", "MALLOC_"))}
    settings |= {"LD_PRELOAD": library} if library else {}
    try:
        run = subprocess.run([f"{folder}/misuse_plain_{program}", *arguments], capture_output=True, env=settings,
                             timeout=30)
    except subprocess.TimeoutExpired:
        return "hangs"
    if run.returncode >= 0:
        return {0: "no", GAINED: "gained"}.get(run.returncode)
    name = signal.Signals(-run.returncode).name
    return name if name != "SIGABRT" else "later" if b"passed" in run.stdout else "at once"


def happened_with_peer(folder, command, library, said):
    """What the page says, if it can be."""
    events = []
    while len(events) < RUNS and said not in (*events, "by chance"):
        events.append(once_with_peer(folder, command, library))
    return said if said in (*events, "by chance") else events[0] if len(set(events)) == 1 else "by chance"


def agrees(cell, event):
    if cell == "by chance":
        return True
    if cell.startswith("by chance: "):
        return event in (None, "no") or cell.removeprefix("by chance: ") in event
    return event is None or (event.startswith(cell) if ": " in cell else event == cell)


def short(event, cell):
    """A cell for an event: the kind of fault, as far as its colon goes."""
    return cell if event is None else ": ".join(event.split(": ")[:2])


def main():
    page, column, folder = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
    look = lambda folder, command, _: happened(folder, command)
    write = "--write" in sys.argv
    if "--peer" in sys.argv:
        library = (sys.argv[sys.argv.index("--peer") + 1:] or [""])[0].removeprefix("--write")
        if platform.libc_ver() != ("glibc", PEERS_OF) or (library and not Path(library).exists()):
            sys.exit(SKIPPED)
        look = lambda folder, command, cell: happened_with_peer(folder, command, library, None if write else cell)
    lines = page.read_text().splitlines()
    header = next(line for line in lines if line.startswith("| Misuse |"))
    place = [cell.strip() for cell in header.strip("|").split("|")][2:].index(column)
    rows = [(i, row) for i, line in enumerate(lines) if (row := ROW.match(line))]
    with ThreadPoolExecutor(2) as pool:
        events = list(pool.map(lambda row: look(folder, row[1][1], row[1][2].split("|")[place].strip()), rows))
    problems = []
    for (i, row), event in zip(rows, events):
        cells = [cell.strip() for cell in row[2].split("|")]
        if not agrees(cells[place], event):
            problems.append(f"{row[1]}: the table says {cells[place]!r}; what happens: {event!r}")
            cells[place] = short(event, cells[place])
            lines[i] = f"{lines[i][:row.start(2)]} {' | '.join(cells)} |"
    if not rows:
        problems.append(f"{page}: no row of the table was found")
    if write:
        page.write_text("\n".join(lines) + "\n")
    elif problems:
        sys.exit("\n".join(problems))
    print(f"{len(rows)} rows")


if __name__ == "__main__":
    main()
