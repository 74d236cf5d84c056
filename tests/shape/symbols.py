#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What the shared library exports and needs, and where the archive keeps malloc.

  symbols.py LIBRARY ARCHIVE HEADER SOURCES --override BOOL --cxx BOOL --hardened BOOL

Exported: the functions that hakmem.h declares, glibc's registration of fork handlers, with --override the malloc family
and dlopen, with --cxx operator new and delete, with
--hardened sized delete, and nothing else. Needed: the C library, with --cxx that of C++, and of
glibc no function that is newer than 2.28; docs/reference.md, beside the folder SOURCES, says of each which locks it
takes. Its own functions it calls directly: each reference that the dynamic linker resolves costs a start 600
instructions. In the archive one object defines the whole malloc family and no other object a part of it, so that static
linking takes all of it or nothing; and only programs with heaps take their objects. The fields that free()
loads do not lie at the beginning of pages (core/pages/tags.h).
"""
import argparse
import re
from pathlib import Path

from common import finish, output_of

FAMILY = {"malloc", "free", "calloc", "realloc", "reallocarray", "posix_memalign", "aligned_alloc",
          "memalign", "valloc", "pvalloc", "malloc_usable_size", "free_sized", "free_aligned_sized",
          "malloc_trim", "mallinfo2", "malloc_info", "malloc_stats", "mallopt"}
# Interposes the C library's; see src/api/dlopen.c.
OPENING = {"dlopen"}
# jemalloc's; see src/api/mallocx.c.
FLAGGED = {"mallocx", "rallocx", "xallocx", "sallocx", "dallocx", "sdallocx", "nallocx"}
# Symbols that sys/sdt.h adds to each object with probes, hidden and once per program.
PROBES = {"_.stapsdt.base"}
# glibc's older form of mallinfo2, and other names of its own, for programs that still ask for them.
OLDER = {"mallinfo", "cfree", "__posix_memalign",
         *("__libc_" + name for name in ("malloc", "free", "calloc", "realloc", "memalign", "valloc", "pvalloc"))}
# Fork handlers of other libraries pass through it (core/process/fork.c); other C libraries have no such name.
FORK = {"__register_atfork"}
# Twins that hakmem.h must not lack.
TWINS = {"hakmem_" + name for name in FAMILY - {"mallinfo2", "malloc_info", "malloc_stats", "mallopt"}}
# Before 2.34, glibc consists of several.
LIBRARIES = re.compile(r"(lib(c\.so\.6|dl\.so\.2|pthread\.so\.0|c\.musl-\w+\.so\.1)|ld-linux[-\w]*\.so\.\d+|"
                       r"ld-musl-\w+\.so\.1)")
CXX_LIBRARIES = re.compile(r"lib(stdc\+\+\.so\.6|c\+\+\.so\.1|c\+\+abi\.so\.1|gcc_s\.so\.1|m\.so\.6)")
CXX_VERSIONS = re.compile(r"@(CXXABI|GLIBCXX|GCC)_")
# The oldest glibc that has all functions which the library calls. That version has some of them in libpthread, in libdl
# or as a macro; newer versions of glibc have their own symbol versions for these, which a library that is built with
# 2.28 does not need.
OLDEST = (2, 28)
MOVED = {"dlsym", "fstat64", "pthread_key_create", "pthread_setspecific"}
VERSION = re.compile(r"@GLIBC_(\d+)\.(\d+)")
DECLARED = re.compile(r"^[\w ]+?\**(hakmem_\w+)\(", re.MULTILINE)
TAGS_OFFSET = 192  # in struct hak_tags, of the fields that free() loads
# Symbols that the compiler's start files need, and its replacement of memcmp.
COMPILERS = {"bcmp", "ITM_deregisterTMCloneTable", "ITM_registerTMCloneTable", "gmon_start", "cxa_finalize",
             "deregister_frame_info", "register_frame_info"}
# Sized delete, which hardened builds check (src/api/sized.c).
SIZED = {f"_Zd{of}Pvm{aligned}" for of in "la" for aligned in ("", "St11align_val_t")}
OPERATORS = re.compile(r"_Z(n|d)[wal]")


def boolean(text):
    return {"true": True, "false": False}[text]


def exported(library):
    for line in output_of(["nm", "-D", "--defined-only", library]).splitlines():
        _, kind, name = line.split()[-3:]
        if kind != "A":  # a version's own name
            yield name.split("@")[0]


def check_exports(library, header, override, cxx, hardened):
    declared = set(DECLARED.findall(Path(header).read_text()))
    names = set(exported(library))
    if not cxx:
        allowed = SIZED if override and hardened else set()
        yield from (f"not exported: {n}" for n in sorted(allowed - names))
        yield from (f"operator exported without -Dcxx=true: {n}" for n in names - allowed if OPERATORS.match(n))
    elif not any(OPERATORS.match(name) for name in names):
        yield "-Dcxx=true, but no operator new or delete is exported"
    names = {name for name in names if not OPERATORS.match(name)}
    wanted = declared | (FAMILY | OLDER | OPENING | FLAGGED if override else set())
    yield from (f"not exported: {name}" for name in sorted(wanted - names))
    yield from (f"exported, but neither in hakmem.h nor of the malloc family: {name}"
                for name in sorted(names - wanted - FORK))
    yield from (f"hakmem.h lacks {name}" for name in sorted(TWINS - declared))


def check_needs(library, cxx):
    dynamic = output_of(["readelf", "-d", "-W", library])
    needed = re.findall(r"\(NEEDED\).*\[(.+?)\]", dynamic)
    yield from (f"needs {name}; only the C library is allowed" for name in needed
                if not LIBRARIES.fullmatch(name) and not (cxx and CXX_LIBRARIES.fullmatch(name)))
    if not needed:
        yield "needs nothing, not even the C library: is it the right file?"
    if "libhakmem.so.0" not in "".join(re.findall(r"\(SONAME\).*", dynamic)):
        yield "SONAME is not libhakmem.so.0"
    if not re.search(r"\bNODELETE\b", dynamic):
        yield "not linked with -z nodelete"
    undefined = [line.split()[-2:] for line in output_of(["nm", "-D", "--undefined-only", library]).splitlines()]
    versioned = any("@GLIBC" in name for _, name in undefined)  # musl has no versions
    for kind, name in undefined:
        if versioned and kind == "U" and "@GLIBC_" not in name and not (cxx and CXX_VERSIONS.search(name)):
            yield f"undefined and not from the C library: {name}"
        version = VERSION.search(name)
        if kind == "U" and version and tuple(map(int, version.groups())) > OLDEST and name.split("@")[0] not in MOVED:
            yield f"needs {name}, which glibc {OLDEST[0]}.{OLDEST[1]} lacks; call it by a weak reference, or not at all"
        if name.split("@")[0] in FAMILY:
            yield f"asks another allocator for {name}"


def check_calls(library):
    names = set(exported(library))
    for name in re.findall(r"(?:JU?MP_SLO\w*|GLOB_DAT)\s+\w+\s+(\w+)", output_of(["readelf", "-r", "-W", library])):
        if name in names - FORK:
            yield f"the dynamic linker resolves the library's own {name}"


def plain(name):
    """The name in the sources: without the versions that headers or a fortified build choose."""
    return re.sub(r"_chk$|64$", "", name.split("@")[0].strip("_"))


def check_locks(library, sources):
    text = (sources.parent / "docs" / "reference.md").read_text()
    section = re.search(r"^## Locks of the C library$(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    rows = re.findall(r"^\| (`.*?) \|", section[1] if section else "", re.MULTILINE)
    told = {plain(name) for row in rows for name in re.findall(r"`(\w+)`", row)}
    undefined = [line.split()[-1] for line in output_of(["nm", "-D", "--undefined-only", library]).splitlines()]
    from_libc = [name for name in undefined if "@GLIBC_" in name] or undefined  # musl has no versions
    called = {plain(name) for name in from_libc}
    words = {plain(word) for p in sources.rglob("*.[ch]") for word in re.findall(r"\w+", p.read_text())}
    yield from (f"{name}: docs/reference.md (Locks of the C library) does not say which locks libc takes there, "
                "and which it may hold then" for name in sorted(called - told - COMPILERS))
    yield from (f"docs/reference.md describes locks in {name}, which nothing calls"
                for name in sorted(told - called - words))


def check_archive(archive, override):
    members, member = {}, None
    for line in output_of(["nm", "--defined-only", archive]).splitlines():
        if line.endswith(":"):
            member = line[:-1]
        elif line.split()[1:2] and line.split()[-2] in "TWVi":
            members.setdefault(member, set()).add(line.split()[-1])
    for name in sorted(set().union(*members.values()) - FAMILY - OLDER - FORK - PROBES):
        if not re.match(r"hak_|hakmem_|_Z|DW\.ref\.", name):  # a program may have a function of that name
            yield f"the archive defines {name}, a name without prefix"
    family = FAMILY | OLDER
    holders = {m: names & family for m, names in members.items() if names & family}
    if not override:
        yield from (f"{m} defines {sorted(names)} although override is off" for m, names in holders.items())
    elif len(holders) != 1:
        yield f"the malloc family is spread over {len(holders)} objects of the archive: {holders}"
    else:
        yield from (f"the archive lacks {name}" for name in sorted(family - next(iter(holders.values()))))


def check_heaps(archive):
    """A static program that has no heaps does not take their objects."""
    defined, needed, member = {}, {}, None
    for line in output_of(["nm", archive]).splitlines():
        if line.endswith(":"):
            member = line[:-1]
        elif line.split()[-2:-1] == ["U"]:
            needed.setdefault(member, set()).add(line.split()[-1])
        elif line.split()[-2:-1] == ["T"]:
            defined[line.split()[-1]] = member
    own = {defined.get(name) for name in ("hakmem_heap_new", "hak_arena_new", "hak_arena_alloc")}
    yield from (f"{m} needs {name} of {defined[name]}" for m, names in needed.items() if m not in own
                for name in sorted(names) if defined.get(name) in own)


def check_place(library):
    for line in output_of(["nm", library]).splitlines():
        if line.endswith(" hak_tags") and (int(line.split()[0], 16) + TAGS_OFFSET) % 4096 < 128:
            yield f"what free() loads lies at the beginning of a page: {line}"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("library")
    parser.add_argument("archive")
    parser.add_argument("header")
    parser.add_argument("sources", type=Path)
    parser.add_argument("--override", type=boolean, required=True)
    parser.add_argument("--cxx", type=boolean, default=False)
    parser.add_argument("--hardened", type=boolean, default=False)
    args = parser.parse_args()
    problems = [*check_exports(args.library, args.header, args.override, args.cxx, args.hardened),
                *check_needs(args.library, args.cxx), *check_locks(args.library, args.sources),
                *check_archive(args.archive, args.override), *check_heaps(args.archive), *check_calls(args.library),
                *check_place(args.library)]
    finish(problems, f"{len(set(exported(args.library)))} symbols exported, as declared; malloc in one object")


if __name__ == "__main__":
    main()
