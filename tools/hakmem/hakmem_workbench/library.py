# SPDX-License-Identifier: MIT
"""Finds the libraries: hakmem itself, and the allocators with which it is compared. The order for hakmem: the one
requested, the Meson environment, the installation of this tool, the source tree (the tool's, then the current one),
pkg-config, the linker's cache. The first that exists is used, and named.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from . import elf
from .errors import Problem
from .text import listing

SONAME = "libhakmem.so.0"
IN_BUILD = Path("src") / SONAME

JEMALLOC = "libhakmem-jemalloc.so"

PEERS = {
    "mimalloc": (("libmimalloc.so",), "libmimalloc2.0"),
    "jemalloc": (("libjemalloc.so",), "libjemalloc2"),
    "tcmalloc": (("libtcmalloc_minimal.so", "libtcmalloc.so"), "libtcmalloc-minimal4"),
    "snmalloc": (("libsnmallocshim.so", "libsnmalloc.so"), ""),
    "rpmalloc": (("librpmallocwrap.so", "librpmalloc.so"), ""),
}


@dataclass(frozen=True)
class Library:
    """A shared object that can be preloaded."""

    path: str
    origin: str
    build_id: str | None

    @property
    def real(self) -> str:
        return os.path.realpath(self.path)


def at(path: str | Path, origin: str) -> Library:
    """The library at a path, after checking that LD_PRELOAD can carry it."""
    absolute = os.path.abspath(path)
    try:
        facts = elf.read(absolute)
    except elf.NotElf as error:
        missing = not os.path.exists(absolute)
        raise Problem(
            f"there is no library {path}" if missing else str(error),
            "Name a shared library (….so).",
        ) from error
    if facts.interpreter is not None and facts.soname is None:
        raise Problem(
            f"{path} is a program, not a shared library", "Name a shared library (….so)."
        )
    if re.search(r"[\s:]", absolute):
        raise Problem(
            f"{absolute} has a space or a colon in its path, which LD_PRELOAD takes for two names",
            "Move or link it to a path without them.",
        )
    return Library(absolute, origin, facts.build_id)


def find(asked: str | None = None) -> Library:
    """The hakmem library; `asked` is a file, a build directory, or None."""
    if asked:
        return from_build(asked) if os.path.isdir(asked) else at(asked, "asked for")
    tried = []
    for path, origin in _places():
        if path.exists():
            return at(path, origin)
        tried.append(str(path))
    raise Problem(
        f"{SONAME} was not found: not in a build directory, not through pkg-config, not installed",
        "Build it with 'meson setup build && meson compile -C build', or name it with --library.",
    )


def from_build(directory: str) -> Library:
    """The library of one Meson build directory."""
    root = Path(directory)
    if not root.is_dir():
        raise Problem(
            f"there is no directory {directory}", "Make one: meson setup DIR, meson compile -C DIR."
        )
    for path in (root / IN_BUILD, root / SONAME):
        if path.exists():
            return at(path, f"build directory {directory}")
    if (root / "meson-private").is_dir():
        raise Problem(
            f"{directory} is a Meson build directory without {IN_BUILD}",
            f"Build it first: meson compile -C {directory}",
        )
    raise Problem(
        f"{directory} is not a Meson build directory of hakmem: it has no {IN_BUILD}",
        "Make one: meson setup DIR && meson compile -C DIR.",
    )


def beside(library: Library, name: str) -> str:
    """A file that comes with the library."""
    folder = Path(library.real).parent
    tools = folder.parent / "tools"
    for place in (folder / "hakmem", folder, tools / "trace", tools / "profile", tools / "libraries"):
        if (place / name).is_file():
            return str(place / name)
    if found := shutil.which(name):
        return found
    raise Problem(
        f"{name} was not found beside {library.path}",
        f"Build it there: meson compile -C DIR {name.removeprefix('lib').removesuffix('.so')}.",
    )


def parts(library: Library, kind: str) -> list[str]:
    """The names of its parts of a kind: from symbols, or, if they are stripped, from the .pc file."""
    if names := elf.objects(library.path, f"hak_{kind}_"):
        return names
    for folder in ("pkgconfig", "../meson-private"):
        path = Path(library.real).parent / folder / "hakmem.pc"
        text = path.read_text(encoding="utf-8") if path.is_file() else ""
        if match := re.search(rf"^{kind}s=(.*)$", text, re.MULTILINE):
            return match[1].replace("\\ ", " ").split()
    return []


def source_tree() -> Path | None:
    """The checkout that holds this tool, or the one around the current directory."""
    for start in (Path(__file__).resolve().parent, Path.cwd()):
        for directory in (start, *start.parents):
            project = directory / "meson.build"
            if (directory / "src" / "core").is_dir() and project.is_file():
                return directory
    return None


def of_wheel() -> Path:
    """Where the library lies if a wheel brought this tool; its folder exists there alone."""
    return Path(__file__).parent / "lib" / SONAME


def _places() -> Iterator[tuple[Path, str]]:
    if build := os.environ.get("MESON_BUILD_ROOT"):
        yield Path(build) / IN_BUILD, "Meson's build"
    yield Path.cwd() / IN_BUILD, "this build directory"
    yield of_wheel(), "the one of this wheel"
    tool = Path(sys.argv[0]).resolve()
    prefix = tool.parents[2 if tool.parts[-3:-1] == ("share", "hakmem") else 1]
    for folder in sorted({*prefix.glob("lib/*-linux-*"), prefix / "lib64", prefix / "lib"}):
        yield folder / SONAME, "installed beside this tool"
    if tree := source_tree():
        builds = sorted(tree.glob(f"*/{IN_BUILD}"), key=lambda path: -path.stat().st_mtime)
        for path in (tree / "build" / IN_BUILD, *builds):
            yield path, "build tree"
    if configured := _pkg_config():
        yield configured / SONAME, "pkg-config"
    for name, cached in linker_cache():
        if name == SONAME:
            yield Path(cached), "installed"


def _pkg_config() -> Path | None:
    if not shutil.which("pkg-config"):
        return None
    done = subprocess.run(
        ["pkg-config", "--variable=libdir", "hakmem"], capture_output=True, text=True, check=False
    )
    return Path(done.stdout.strip()) if done.returncode == 0 and done.stdout.strip() else None


def linker_cache() -> list[tuple[str, str]]:
    """(soname, path) of every installed library, also in musl's fixed folders."""
    program = shutil.which("ldconfig", path=os.environ.get("PATH", "") + ":/sbin:/usr/sbin")
    found: list[tuple[str, str]] = []
    if program:
        done = subprocess.run([program, "-p"], capture_output=True, text=True, check=False)
        for line in done.stdout.splitlines():
            match = re.match(r"\s+(\S+) \((.*)\) => (\S+)", line)
            if match and ("64" in match[2]) == (sys.maxsize > 2**32):
                found.append((match[1], match[3]))
    for folder in ("/usr/local/lib", "/usr/lib", "/lib"):
        if os.path.isdir(folder):
            found += [
                (name, f"{folder}/{name}") for name in sorted(os.listdir(folder)) if ".so" in name
            ]
    return found


def find_peer(name: str) -> Library:
    """Another allocator by its plain name; the highest installed version."""
    stems, package = PEERS[name]
    candidates = [
        (soname, path)
        for soname, path in linker_cache()
        if any(soname == stem or soname.startswith(stem + ".") for stem in stems)
    ]
    if not candidates:
        raise Problem(
            f"{name} is not installed ({listing(list(stems), 'or')})",
            f"On Debian: apt install {package}." if package else "Name its file with lib:PATH.",
        )
    stem_order = {stem: -number for number, stem in enumerate(stems)}

    def rank(item: tuple[str, str]) -> tuple[int, list[int]]:
        stem = next(stem for stem in stems if item[0].startswith(stem))
        return stem_order[stem], [int(part) for part in re.findall(r"\d+", item[0][len(stem) :])]

    return at(max(candidates, key=rank)[1], f"installed {name}")


def serves_jemalloc(facts: elf.Elf) -> bool:
    """Whether it is libhakmem-jemalloc.so, which passes all calls to hakmem; its soname is that of jemalloc's own."""
    return SONAME in facts.needed and "mallctl" in facts.defined


def is_hakmem(facts: elf.Elf) -> bool:
    """Whether hakmem is linked in, dynamically or statically: its own names show it."""
    return (facts.soname or "").startswith("libhakmem.") or any(
        name.startswith("hakmem_") for name in facts.defined
    )
