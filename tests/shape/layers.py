#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Checks which files may include and call which, and which may make memory-related system calls. layers.py SRC ARCHIVE
The folders of src/core are layers: a file includes, and calls, only files of its own layer or below. Files do not
include or call each other in a circle: the symbols that the objects of the archive define and use show the calls. core
knows no part by name, neither as a symbol nor as a string. Each part of src/frontends and src/backends includes core
and its own folder, never a sibling, and finds the table of parts in plugin.h alone; src/api includes core;
src/compat, which has libraries of their own, includes the api alone. Only src/core/os/os.c makes memory-related system
calls.
"""
import re
import sys
from collections import defaultdict
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

from common import code_of, finish, line_of, literals_of, output_of

# From the bottom up. options.def and plugin.h are core's two headers for outsiders, and have layers of their own.
FLOORS = ["base", "os", "pages", "parts", "heap", "process", "malloc"]
PAGES = {"options.def": "base", "plugin.h": "parts"}
DOOR = "core/os/os.c"
CORES_OWN = "core/parts/parts.h"  # fills the table of parts
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"([^"]+)"', re.MULTILINE)
KINDS = ["frontends", "backends"]
MEMORY_CALLS = ["mmap", "mmap64", "munmap", "mremap", "madvise", "posix_madvise", "mprotect",
                "process_madvise", "mincore", "mlock", "brk", "sbrk"]
# A call by name, not a member of a table; or the number given to syscall().
CALL = re.compile(r"(?<![\w.>])(?:%s)[ \t\n]*\(|\b(?:SYS|__NR)_(?:%s)\b"
                  % ("|".join(MEMORY_CALLS), "|".join(MEMORY_CALLS)))
# Libraries of their own, and what they include.
BESIDE = {"compat": {"api"}}
# Files that the build makes; core's own.
GENERATED = {"hak_config.h", "hak_settings.def", "sizeclass_table.h"}


def place_of(path, src):
    """The parts of the path in src; a file under hardened/on or off counts where it stands there."""
    parts = path.relative_to(src).parts
    return parts[2:] if parts[0] == "hardened" else parts


def floor_of(path, src):
    """The number of a core file's layer."""
    parts = place_of(path, src)[1:]
    return FLOORS.index(PAGES[parts[0]] if len(parts) == 1 else parts[0])


def layer_of(path, src):
    """core, api, or the part's folder as kind/name."""
    parts = place_of(path, src)
    return "/".join(parts[:2]) if parts[0] in KINDS else parts[0]


def resolve(name, path, src):
    """The file; of those that an option chooses between, the first."""
    for base in (path.parent, src, *sorted(src.glob("hardened/*")), *sorted(src.glob("core/heap/caches/*"))):
        target = (base / name).resolve()
        if target.is_file() and src in target.parents:
            return target
    return None


def includes_of(path, src):
    """(where, name, file or None) of each include."""
    text = path.read_text()
    for match in INCLUDE.finditer(text):
        yield f"{path.relative_to(src)}:{line_of(text, match.start())}", match[1], resolve(match[1], path, src)


def include_problems(path, src):
    own = layer_of(path, src)
    for where, name, target in includes_of(path, src):
        if target is None:
            if name not in GENERATED:
                yield f'{where}: "{name}" is neither in src nor generated'
            elif own != "core":
                yield f'{where}: "{name}" is generated for core; include a header of core'
            continue
        layer = layer_of(target, src)
        if "/" in own and target == src / CORES_OWN:
            yield f'{where}: "{name}" is core\'s own; what a part needs of it stands in core/plugin.h'
        allowed = {own} | BESIDE.get(own, {"core"})
        if layer not in allowed:
            yield f'{where}: {own} includes "{name}" of {layer}; allowed: {" and ".join(sorted(allowed))}'
        elif own == "core" and floor_of(target, src) > floor_of(path, src):
            yield f'{where}: {FLOORS[floor_of(path, src)]} includes "{name}" of a floor above'


def name_problems(path, src, parts):
    """core names no part."""
    code = code_of(path)
    for match in re.finditer(r"\bhak_(?:frontend|backend|release)_(\w+)", code):
        if match[1] in parts:
            yield (f"{path.relative_to(src)}:{line_of(code, match.start())}: core names the part "
                   f'"{match[1]}"; go through the table of parts')
    if path.suffix in {".c", ".h"}:  # options.def tells users which parts there are
        yield from (f'{path.relative_to(src)}:{line}: core has the name of the part "{text}" as a string; '
                    "what a part needs is a slot of its contract" for text, line in literals_of(path) if text in parts)


def call_problems(path, src):
    code = code_of(path)
    for match in CALL.finditer(code):
        yield (f"{path.relative_to(src)}:{line_of(code, match.start())}: {match[0].strip(' (')} outside "
               f"src/{DOOR}; use the door of core/os/os.h")


# --- circles -------------------------------------------------------------------------------------------

def module_of(path, src):
    """A .c file and its header count as one, and so do files that an option chooses between."""
    return str(Path(*place_of(path, src)).with_suffix(""))


def include_edges(files, src):
    for path in files:
        for _, _, target in includes_of(path, src):
            if target:
                yield module_of(path, src), module_of(target, src)


def symbol_edges(archive, src):
    """The symbols that each object of the archive uses and another defines. Functions in tables do not count as calls.
    """
    objects = {f"{'_'.join(p.relative_to(src).parts)}.o": module_of(p, src) for p in src.rglob("*.c")}
    defined, used, module = {}, defaultdict(set), None
    for line in output_of(["nm", "--format=posix", archive]).splitlines():
        member = re.search(r"\[(?:.*/)?(.+)\]:$", line)
        if member:
            module = objects.get(member[1])
            continue
        name, kind = line.split()[:2]
        if module and kind == "U":
            used[module].add(name)
        elif module and kind.isupper():
            defined[name] = module
    for user, names in used.items():
        yield from ((user, defined[name]) for name in names if name in defined)


def circle(edges):
    """A sentence on a circle among the edges, or None."""
    graph = defaultdict(set)
    for user, target in edges:
        if user != target:
            graph[user].add(target)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return " <- ".join(error.args[1])
    return None


def circle_problems(files, archive, src):
    includes, symbols = list(include_edges(files, src)), list(symbol_edges(archive, src))
    if not symbols:
        yield f"{archive}: no object of it uses another one's symbols; is it the right archive?"
    for kind, edges in (("include", includes), ("call", symbols)):
        found = circle(edges)
        if found:
            yield f"files that {kind} each other in a circle: {found}"
    for user, target in symbols:
        ends = [src / f"{user}.c", src / f"{target}.c"]
        if all(layer_of(p, src) == "core" for p in ends) and floor_of(ends[1], src) > floor_of(ends[0], src):
            yield f"{user} calls {target}, which stands on a floor above"


def main():
    src, archive = Path(sys.argv[1]).resolve(), sys.argv[2]
    files = sorted([*src.rglob("*.c"), *src.rglob("*.h"), *src.rglob("*.def")])
    parts = {folder.name for kind in KINDS for folder in (src / kind).iterdir() if folder.is_dir()}
    problems = list(circle_problems(files, archive, src))
    doors = len(CALL.findall(code_of(src / DOOR)))
    for path in files:
        problems += include_problems(path, src)
        if layer_of(path, src) == "core":
            problems += name_problems(path, src, parts)
        if path != src / DOOR:
            problems += call_problems(path, src)
    if not doors:
        problems.append(f"no memory call found in src/{DOOR}: has the door moved?")
    finish(problems, f"{len(files)} files on {len(FLOORS)} floors, {len(parts)} parts, "
                     f"{doors} memory calls in src/{DOOR}")


if __name__ == "__main__":
    main()
