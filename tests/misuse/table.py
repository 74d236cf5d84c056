#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The table of docs/misuse.md against what the programs do.

  table.py PAGE COLUMN FOLDER            exit 1 if a row does not say what happens in this build
  table.py PAGE COLUMN FOLDER --write    correct the column
  table.py PAGE COLUMN FOLDER --peer LIBRARY [--write]    the same for another allocator, or for glibc without LIBRARY;
      FOLDER has the programs as misuse_plain_NAME. An outcome that differs between five runs is "?"; at least one of
      the five must be as the page says. Exits with 77 if the versions of the page are not installed.

A row is `| words | programs |cell|cell|...|`; each program stands in backquotes, with its arguments. FOLDER has the
programs, as misuse_NAME. A cell says
  a capital of WORDS   before the call returns, SIGABRT and one line that begins with these words
  a small letter       the same, at the next drain of the thread's bins
  S                    the process dies of SIGSEGV
  -                    nothing happens
  G                    the program got what it should not (attack.c)
  a letter and ?       by chance this, or nothing
  ?                    any of these: it depends on the random order of blocks, or on the backend
For another allocator A stands for all words, since its messages are its own. If the programs of a row differ, --write
makes rows of it.
"""
import os
import platform
import re
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROW = re.compile(r"^\| ([^|]+) \| ((?:`[\w+-]+(?: [\w+-]+)*` ?)+) ?\|(.*)\|$")
WORDS = {"D": "double free", "I": "invalid ", "O": "overflow", "W": "written after free", "C": "corrupted header"}
COMMAND = re.compile(r"`([^`]+)`")
ADDRESS = re.compile(r"\b0x[0-9a-f]+")
SKIPPED = 77
GAINED = 1
PEERS_OF = "2.36"  # glibc of Debian 12, whose packages the others are
RUNS = 5


def happened(folder, command):
    """The cell that says it, or what no cell says; None where the program cannot do it here."""
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
        return "G" if run.returncode else "-"
    if -run.returncode == signal.SIGSEGV and len(lines) <= 1:
        return "S"
    letters = [letter for letter, begin in WORDS.items() if words.startswith(begin)]
    if len(lines) != 1 or -run.returncode != signal.SIGABRT or not ADDRESS.search(words) or not letters:
        return f"exit status {run.returncode}, {words}"
    return letters[0].lower() if "passed" in run.stdout.split() else letters[0]


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
        return {0: "-", GAINED: "G"}.get(run.returncode)
    name = signal.Signals(-run.returncode).name
    return {"SIGSEGV": "S", "SIGABRT": "a" if b"passed" in run.stdout else "A"}.get(name, name)


def happened_with_peer(folder, command, library, said):
    """What the page says, if it can be."""
    events = []
    while len(events) < RUNS and said not in (*events, "?"):
        events.append(once_with_peer(folder, command, library))
    return said if said in (*events, "?") else events[0] if len(set(events)) == 1 else "?"


def agrees(cell, event):
    if cell.endswith("?"):
        return cell == "?" or event in (None, "-") or cell[0] == event.upper()
    return event in (None, cell)


def corrected(row, place, cells):
    """The lines for a row whose programs, the keys, have these cells."""
    for cell in dict.fromkeys(cells.values()):
        columns = row[3].split("|")
        columns[place] = cell
        names = " ".join(f"`{command}`" for command, its in cells.items() if its == cell)
        yield f"| {row[1]} | {names} |{'|'.join(columns)}|"


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
    place = header.strip("|").split("|")[2:].index(column)
    rows = {i: row for i, line in enumerate(lines) if (row := ROW.match(line))}
    said = {command: row[3].split("|")[place] for row in rows.values() for command in COMMAND.findall(row[2])}
    with ThreadPoolExecutor(2) as pool:
        events = dict(zip(said, pool.map(lambda command: look(folder, command, said[command]), said)))
    wrong = {command for command, cell in said.items() if not agrees(cell, events[command])}
    problems = [f"{command}: the table says {said[command]!r}; what happens: {events[command]!r}" for command in wrong]
    if not rows:
        problems.append(f"{page}: no row of the table was found")
    if write:
        cells = said | {command: events[command] for command in wrong}
        page.write_text("".join(f"{new}\n" for i, line in enumerate(lines) for new in (
            corrected(rows[i], place, {command: cells[command] for command in COMMAND.findall(rows[i][2])})
            if i in rows else [line])))
    elif problems:
        sys.exit("\n".join(problems))
    print(f"{len(said)} misuses in {len(rows)} rows")


if __name__ == "__main__":
    main()
