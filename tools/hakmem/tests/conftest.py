# SPDX-License-Identifier: MIT
"""Shared by several tests: the tool as a user calls it, and small programs.

`hakmem` runs the command line in a process of its own. `library` is a stand-in
for the real library (programs/fake_hakmem.c), so that no build is needed.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from browser import Browser, found

HERE = Path(__file__).resolve().parent
TOOL = HERE.parent / "hakmem"
sys.path.insert(0, str(HERE.parent))

# Whoever runs the tests may ignore these (nohup, a script's "&"), and what is ignored is inherited.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)


@dataclass
class Done:
    """How one call of the tool ended."""

    code: int
    out: str
    err: str

    @property
    def text(self) -> str:
        return self.out + self.err


Hakmem = Callable[..., Done]


def clean_environment() -> dict[str, str]:
    return {
        key: value
        for key, value in os.environ.items()
        if not key.startswith("HAKMEM_") and key not in ("LD_PRELOAD", "MESON_BUILD_ROOT")
    }


@pytest.fixture(scope="session")
def hakmem() -> Hakmem:
    """Calls the tool: hakmem('run', '--', 'ls', env={…}, cwd=…, stdin='…')."""

    def call(
        *words: str,
        env: dict[str, str] | None = None,
        cwd: Path | None = None,
        stdin: str = "",
        python: str = sys.executable,
        options: tuple[str, ...] = (),
    ) -> Done:
        done = subprocess.run(
            [python, *options, str(TOOL), *map(str, words)],
            env=clean_environment() | (env or {}),
            cwd=cwd,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=900,
            check=False,
        )
        return Done(done.returncode, done.stdout, done.stderr)

    return call


@pytest.fixture(scope="session")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Compiles one of programs/*.c once: compiled('spin', '-O0')."""
    compiler = shutil.which("cc")
    if not compiler:
        pytest.skip("no C compiler")
    folder = tmp_path_factory.mktemp("programs")
    for parent in (folder, *folder.parents[:2]):
        parent.chmod(0o755)
    made: dict[tuple[str, ...], Path] = {}

    def make(source: str, *flags: str, name: str | None = None) -> Path:
        key = (source, *flags, name or "")
        if key not in made:
            target = folder / (name or f"{source}-{len(made)}")
            subprocess.run(
                [compiler, "-O0", "-o", target, HERE / "programs" / f"{source}.c", *flags],
                check=True,
            )
            made[key] = target
        return made[key]

    return make


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    if not found():
        pytest.skip("Chromium is not installed: the pages are not checked")
    with Browser(tmp_path_factory.mktemp("browser")) as browser:
        yield browser


@pytest.fixture(scope="session")
def library(compiled: Callable[..., Path]) -> Path:
    """The stand-in for libhakmem.so.0."""
    return compiled(
        "fake_hakmem",
        *("-shared", "-fPIC", "-Wl,-soname,libhakmem.so.0", "-Wl,--build-id"),
        name="libhakmem.so.0",
    )


@pytest.fixture(scope="session")
def real_library() -> Path:
    """The library of this source tree, if it was built."""
    from hakmem_workbench import library as finder
    from hakmem_workbench.errors import Problem

    try:
        return Path(finder.find(os.environ.get("TEST_HAKMEM_LIBRARY")).path)
    except Problem as problem:
        pytest.skip(problem.sentence)


@pytest.fixture(scope="session")
def experiment(
    hakmem: Hakmem,
    library: Path,
    compiled: Callable[..., Path],
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    """The files of one small experiment with three variants, in an environment that has a setting."""
    folder = tmp_path_factory.mktemp("ab")
    words = ("system", "hakmem", "backend=legacy", "--library", library, "--runs", "10")
    command = (compiled("second_thread", "-pthread"),)
    done = hakmem("ab", *words, "--seed", "1", "-o", folder, "--", *command, env={"HAKMEM_BACKEND": "legacy"})
    assert done.code == 0, done.text
    (folder / "out.txt").write_text(done.out)
    return folder
