#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Who may include whom, and who may ask the kernel for memory.

  layers.py SRC

src/core includes only core and knows no part by name; each part of src/frontends and src/backends
includes core and its own folder, never a sibling; src/api includes core. Memory calls are made in
src/core/os* alone.
"""
import re
import sys
from pathlib import Path

from common import code_of, finish, line_of

INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"([^"]+)"', re.MULTILINE)
KINDS = ["frontends", "backends"]
MEMORY_CALLS = ["mmap", "mmap64", "munmap", "mremap", "madvise", "posix_madvise", "mprotect",
                "process_madvise", "mincore", "mlock", "brk", "sbrk"]
# A call by name, not a member of a table; or the number given to syscall().
CALL = re.compile(r"(?<![\w.>])(?:%s)[ \t\n]*\(|\b(?:SYS|__NR)_(?:%s)\b"
                  % ("|".join(MEMORY_CALLS), "|".join(MEMORY_CALLS)))
# Files that the build makes; core's own.
GENERATED = {"hak_config.h", "sizeclass_table.h"}


def layer_of(path, src):
    """core, api, or the part's folder as kind/name."""
    parts = path.relative_to(src).parts
    return "/".join(parts[:2]) if parts[0] in KINDS else parts[0]


def resolve(name, path, src):
    for base in (path.parent, src):
        target = (base / name).resolve()
        if target.is_file() and src in target.parents:
            return target
    return None


def include_problems(path, src):
    own = layer_of(path, src)
    for match in INCLUDE.finditer(path.read_text()):
        where = f"{path.relative_to(src)}:{line_of(path.read_text(), match.start())}"
        target = resolve(match[1], path, src)
        if target is None:
            if match[1] not in GENERATED:
                yield f'{where}: "{match[1]}" is neither in src nor generated'
            elif own != "core":
                yield f'{where}: "{match[1]}" is generated for core; include a header of core'
            continue
        layer = layer_of(target, src)
        allowed = {own, "core"}
        if layer not in allowed:
            yield f'{where}: {own} includes "{match[1]}" of {layer}; allowed: {" and ".join(sorted(allowed))}'


def name_problems(path, src, parts):
    """core names no part's symbols."""
    code = code_of(path)
    for match in re.finditer(r"\bhak_(?:frontend|backend|release)_(\w+)", code):
        if match[1] in parts:
            yield (f"{path.relative_to(src)}:{line_of(code, match.start())}: core names the part "
                   f'"{match[1]}"; go through the dispatch table')


def call_problems(path, src):
    code = code_of(path)
    for match in CALL.finditer(code):
        yield (f"{path.relative_to(src)}:{line_of(code, match.start())}: {match[0].strip(' (')} outside "
               f"src/core/os*; use the door of core/os.h")


def main():
    src = Path(sys.argv[1]).resolve()
    files = sorted([*src.rglob("*.c"), *src.rglob("*.h"), *src.rglob("*.def")])
    parts = {folder.name for kind in KINDS for folder in (src / kind).iterdir() if folder.is_dir()}
    problems = []
    doors = 0
    for path in files:
        problems += include_problems(path, src)
        if layer_of(path, src) == "core":
            problems += name_problems(path, src, parts)
        if path.parent == src / "core" and path.name.startswith("os"):
            doors += len(CALL.findall(code_of(path)))
        else:
            problems += call_problems(path, src)
    if not doors:
        problems.append("no memory call found in src/core/os*: has the door moved?")
    finish(problems, f"{len(files)} files, {len(parts)} parts, {doors} memory calls, all in src/core/os*")


if __name__ == "__main__":
    main()
