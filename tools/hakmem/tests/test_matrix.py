# SPDX-License-Identifier: MIT
"""`hakmem matrix` on a tiny project that has the options and builds the stand-in library."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from browser import Browser
from conftest import HERE, Hakmem
from test_page import explained_in, look_at

pytest.importorskip("numpy")
pytest.importorskip("matplotlib")
pytest.importorskip("rich")
for program in ("hyperfine", "meson", "ninja", "cc"):
    if not shutil.which(program):
        pytest.skip(f"{program} is not installed", allow_module_level=True)
MESON = shutil.which("meson") or ""

OPTIONS = """\
option('backends', type: 'array', choices: ['shared_pool', 'legacy', 'batch'],
  value: ['shared_pool', 'legacy', 'batch'])
option('default_backend', type: 'string', value: 'auto')
option('tiny_header', type: 'combo', choices: ['true', 'false', 'small'], value: 'true')
option('superslab_lg', type: 'integer', min: 19, max: 22, value: 21)
option('tests', type: 'boolean', value: true)
"""

BUILD = """\
project('hakmem', 'c')
assert(not get_option('tests'), 'tests were to be switched off')
subdir('src')
"""

LIBRARY = """\
shared_library('hakmem', 'fake_hakmem.c', soversion: '0')
"""


@pytest.fixture(autouse=True)
def known_options(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Meson takes half a second to list the options of a project."""
    meson = tmp_path / "bin" / "meson"
    meson.parent.mkdir()
    meson.write_text(f'#!/bin/sh\n[ "$1" = introspect ] && exec cat {source}/options.json\nexec {MESON} "$@"\n')
    meson.chmod(0o755)
    monkeypatch.setenv("PATH", str(meson.parent), prepend=os.pathsep)


@pytest.fixture(scope="session")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("source")
    (root / "src").mkdir()
    (root / "meson.build").write_text(BUILD)
    (root / "meson_options.txt").write_text(OPTIONS)
    (root / "src" / "meson.build").write_text(LIBRARY)
    shutil.copy(HERE / "programs" / "fake_hakmem.c", root / "src")
    words = [MESON, "introspect", "--buildoptions", root / "meson.build"]
    (root / "options.json").write_bytes(subprocess.run(words, capture_output=True, check=True).stdout)
    return root


def test_plan(hakmem: Hakmem, source: Path) -> None:
    done = hakmem("matrix", "--source", source, "--build-root", "/x", "--dry-run")
    assert done.code == 0, done.text
    assert "12 combinations from 12 builds in /x" in done.out
    assert "header=small backend=legacy release=direct:" in done.out
    assert "-Dtiny_header=small -Ddefault_backend=legacy -Dbackends=shared_pool,legacy" in done.out


def test_settings_need_no_build(hakmem: Hakmem, source: Path) -> None:
    words = ("-f", "header=true,false", "-f", "HAKMEM_BACKEND=shared_pool,legacy")
    done = hakmem("matrix", "--source", source, "--dry-run", *words)
    assert "4 combinations from 2 builds" in done.out


@pytest.mark.parametrize(
    ("factor", "said"),
    [
        ("headr=true,false", "did you mean header?"),
        ("header=true,flase", "It can be: true, false, small."),
        ("release=batch,drect", "It can be: batch, direct."),
        ("header=true", "is not NAME=VALUE,VALUE"),
    ],
)
def test_mistakes(hakmem: Hakmem, source: Path, factor: str, said: str) -> None:
    done = hakmem("matrix", "--source", source, "--dry-run", "-f", factor)
    assert done.code == 2 and said in done.err


def test_a_factor_twice(hakmem: Hakmem, source: Path) -> None:
    words = ("-f", "header=true,false", "-f", "tiny_header=true,small")
    assert "named twice" in hakmem("matrix", "--source", source, "--dry-run", *words).err


def test_no_sources(hakmem: Hakmem, tmp_path: Path) -> None:
    assert "no meson.build" in hakmem("matrix", "--source", tmp_path, "--", "ls").err.replace(
        "is not a source tree with a", "no"
    )


def test_from_builds_to_page(  # type: ignore[no-untyped-def]
        hakmem: Hakmem, source: Path, tmp_path: Path, compiled, browser: Browser) -> None:
    factors = ("-f", "header=true,false", "-f", "HAKMEM_BACKEND=shared_pool,legacy")
    words = ("--source", source, "--build-root", tmp_path / "builds", "-o", tmp_path, "--runs", "8")
    more = ("--metric", "cpu", "--memory-runs", "1", "--no-syscalls", "--seed", "3")
    done = hakmem("matrix", *words, *factors, *more, "--", compiled("spin"), "5")
    assert done.code == 0, done.text
    for title in (
        "Main effects",
        "Interactions",
        "header: false instead of true",
        "against itself",
        "interaction  what two values do together beyond what each of them does alone",
    ):
        assert title in done.out
    builds = [path for path in (tmp_path / "builds").iterdir() if (path / "src").is_dir()]
    assert len(builds) == 2
    found = json.loads((tmp_path / "matrix.json").read_text())
    assert found["format"] == "hakmem-matrix/1"
    assert [cell["header"] for cell in found["cells"]] == ["true", "true", "false", "false"]
    assert len(found["analysis"]["main"]) == 2 and len(found["analysis"]["interactions"]) == 1
    seen = look_at(browser, tmp_path / "matrix.html")
    assert seen["title"] == "hakmem matrix: header × HAKMEM_BACKEND"
    assert len(seen["rows"]["cells"]) == 4
    assert {box["name"] for box in seen["boxes"]} == {"main", "interactions", "cells"}
    assert seen["doubleIds"] == []
    for columns, explained in explained_in((tmp_path / "matrix.html").read_text()):
        assert columns - {"", "header", "HAKMEM_BACKEND", "state"} <= explained


def test_the_folder_comes_before_the_builds(hakmem: Hakmem, source: Path, tmp_path: Path) -> None:
    words = ("--source", source, "--build-root", tmp_path / "builds", "-f", "header=true,false")
    done = hakmem("matrix", *words, "-o", "/proc/none", "--runs", "3", "--", "ls")
    assert done.code == 1 and "/proc/none can't be written to" in done.err
    assert done.err.startswith("hakmem: --runs 3 is too few")
    assert not (tmp_path / "builds").exists()
    done = hakmem("matrix", *words, "--", "no-such-command")
    assert done.code == 127 and not (tmp_path / "builds").exists()


def test_a_broken_build_is_told(hakmem: Hakmem, source: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    shutil.copytree(source, broken)
    (broken / "src" / "fake_hakmem.c").write_text("int x = ;\n")
    words = ("--source", broken, "--build-root", tmp_path / "b", "-f", "header=true,false")
    done = hakmem("matrix", *words, "--", "ls")
    assert done.code == 125 and "meson compile" in done.err and "error" in done.err
