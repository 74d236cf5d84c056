# SPDX-License-Identifier: MIT
"""`hakmem options`: the library's own table, with present values and their source."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import Hakmem


def test_every_setting_is_listed(hakmem: Hakmem, library: Path) -> None:
    done = hakmem("options", "--long", "--library", library)
    assert done.code == 0
    assert done.out.count("  from ") == 9
    for words in (
        "HAKMEM_TINY_SS_PARTIAL = 1  from default",
        "int, 0 – 65536, default 256",
        "enum, batch | direct, default batch",
        "Gives the pages of an EMPTY superslab back.",
        "watch: os_calls.partial_release, in the report of HAKMEM_STATS",
    ):
        assert words in done.out


def test_source_of_values(hakmem: Hakmem, library: Path) -> None:
    environment = {"HAKMEM_SS_PREFAULT": "1", "HAKMEM_STATS": "1"}
    words = ("options", "--library", library, "--changed", "--long", "--set", "RELEASE=direct")
    done = hakmem(*words, env=environment)
    changed = [line.split("  from")[0] for line in done.out.splitlines() if "  from " in line]
    assert changed == ["HAKMEM_RELEASE = direct", "HAKMEM_SS_PREFAULT = 1", "HAKMEM_STATS = 1"]


def test_the_short_view_has_one_line_each(hakmem: Hakmem, library: Path) -> None:
    done = hakmem("options", "--library", library, env={"HAKMEM_SS_PREFAULT": "1"})
    lines = [line for line in done.out.splitlines() if line.startswith("HAKMEM_")]
    assert len(lines) == 9
    assert "HAKMEM_BACKEND               shared_pool  What supplies spans." in lines
    (changed,) = (line for line in lines if line.startswith("HAKMEM_SS_PREFAULT "))
    assert changed.split()[1:4] == ["1", "from", "environment:"]
    assert max(map(len, done.out.splitlines()[3:])) <= 100
    assert "--long" in done.out


@pytest.fixture(scope="session")
def named(compiled: Callable[..., Path]) -> Path:
    """A library whose backends are names, as in a build with external parts."""
    flags = ("-shared", "-fPIC", "-DPARTS_BY_NAME", "-Wl,-soname,libhakmem.so.0")
    return compiled("fake_hakmem", *flags, name="libparts.so")


def test_the_backend_that_is_in_effect(hakmem: Hakmem, named: Path) -> None:
    done = hakmem("options", "--library", named, "backend")
    assert "HAKMEM_BACKEND = shared_pool  from default" in done.out
    assert "string, shared_pool | theirs, default the build's own" in done.out
    (row,) = json.loads(hakmem("options", "--library", named, "--json", "backend").out)
    assert row["value"] == "shared_pool" and row["choices"] == ["shared_pool", "theirs"]
    done = hakmem("options", "--library", named, "backend", env={"HAKMEM_BACKEND": "mine"})
    assert "HAKMEM_BACKEND = shared_pool  from default, as mine was refused" in done.out


def test_a_wrong_part_is_answered_with_those_that_are_there(hakmem: Hakmem, named: Path) -> None:
    for words in (("options", "--backend", "thiers"), ("run", "--backend", "thiers", "--", "ls")):
        done = hakmem(words[0], "--library", named, *words[1:])
        assert done.code == 2 and done.out == ""
        assert "HAKMEM_BACKEND=thiers was refused" in done.err
        assert "There are: shared_pool and theirs." in done.err
    assert hakmem("run", "--library", named, "--backend", "theirs", "--", "true").code == 0


def test_the_parts_of_a_stripped_library(hakmem: Hakmem, named: Path, tmp_path: Path) -> None:
    """Its file names none; the installed .pc file may."""
    stripped = tmp_path / "libparts.so"
    subprocess.run(["strip", "-o", stripped, named], check=True)
    words = ("options", "--library", stripped, "--backend", "thiers")
    assert "does not list its parts" in hakmem(*words).err
    (tmp_path / "pkgconfig").mkdir()
    (tmp_path / "pkgconfig" / "hakmem.pc").write_text("x=1\nbackends=theirs\\ gone\n")
    assert "There are: theirs." in hakmem(*words).err


@pytest.mark.library
def test_the_parts_of_the_real_library(hakmem: Hakmem, real_library: Path) -> None:
    rows = json.loads(hakmem("options", "--library", real_library, "--json").out)
    found = {row["name"]: row for row in rows}
    for name in ("HAKMEM_BACKEND", "HAKMEM_RELEASE"):
        assert found[name]["value"] in found[name]["choices"]
    done = hakmem("options", "--library", real_library, "--set", "BACKEND=nonsense")
    assert done.code == 2
    assert all(part in done.err for part in found["HAKMEM_BACKEND"]["choices"])


def test_words_choose(hakmem: Hakmem, library: Path) -> None:
    done = hakmem("options", "--library", library, "prefault")
    assert done.out.count("  from ") == 1
    done = hakmem("options", "--library", library, "prefult")
    assert done.code == 1 and "did you mean HAKMEM_SS_PREFAULT?" in done.err
    assert "did you mean" not in hakmem("options", "--library", library, "NOSUCHWORD").err


def test_json(hakmem: Hakmem, library: Path) -> None:
    rows = json.loads(hakmem("options", "--library", library, "--json").out)
    names = [row["name"] for row in rows]
    assert "HAKMEM_BACKEND" in names and len(names) == len(set(names)) == 9
    assert {"type", "default", "value", "source", "sentence", "moves"} <= rows[0].keys()


def test_misspelt_setting_in_the_environment(hakmem: Hakmem, library: Path) -> None:
    done = hakmem("options", "--library", library, env={"HAKMEM_BACKND": "legacy"})
    assert done.code == 1 and "did you mean HAKMEM_BACKEND?" in done.err


def test_no_hakmem(hakmem: Hakmem, compiled) -> None:  # type: ignore[no-untyped-def]
    other = compiled("plugin", "-shared", "-fPIC", "-Wl,-soname,libplug.so")
    done = hakmem("options", "--library", other)
    assert done.code == 2 and "did not answer" in done.err
