# SPDX-License-Identifier: MIT
"""`hakmem options`: the library's own table, with present values and their source."""

import json
from pathlib import Path

from conftest import Hakmem


def test_every_setting_is_listed(hakmem: Hakmem, library: Path) -> None:
    done = hakmem("options", "--library", library)
    assert done.code == 0
    assert done.out.count("  from ") == 10
    for words in (
        "HAKMEM_TINY_SS_PARTIAL = 1  from default",
        "int, 0 – 65536, default 256",
        "enum, batch | direct, default batch",
        "Gives the pages of an EMPTY superslab back.",
        "watch: os_calls.partial_release",
    ):
        assert words in done.out


def test_source_of_values(hakmem: Hakmem, library: Path) -> None:
    environment = {"HAKMEM_SS_PREFAULT": "1", "HAKMEM_STATS": "1"}
    words = ("options", "--library", library, "--changed", "--set", "RELEASE=direct")
    done = hakmem(*words, env=environment)
    changed = [line.split("  from")[0] for line in done.out.splitlines() if "  from " in line]
    assert changed == ["HAKMEM_RELEASE = direct", "HAKMEM_SS_PREFAULT = 1", "HAKMEM_STATS = 1"]


def test_words_choose(hakmem: Hakmem, library: Path) -> None:
    done = hakmem("options", "--library", library, "prefault")
    assert done.out.count("  from ") == 1
    done = hakmem("options", "--library", library, "prefult")
    assert done.code == 1 and "did you mean HAKMEM_SS_PREFAULT?" in done.err


def test_json(hakmem: Hakmem, library: Path) -> None:
    rows = json.loads(hakmem("options", "--library", library, "--json").out)
    names = [row["name"] for row in rows]
    assert "HAKMEM_BACKEND" in names and len(names) == len(set(names)) == 10
    assert {"type", "default", "value", "source", "sentence", "moves"} <= rows[0].keys()


def test_misspelt_setting_in_the_environment(hakmem: Hakmem, library: Path) -> None:
    done = hakmem("options", "--library", library, env={"HAKMEM_BACKND": "legacy"})
    assert done.code == 1 and "did you mean HAKMEM_BACKEND?" in done.err


def test_no_hakmem(hakmem: Hakmem, compiled) -> None:  # type: ignore[no-untyped-def]
    other = compiled("plugin", "-shared", "-fPIC", "-Wl,-soname,libplug.so")
    done = hakmem("options", "--library", other)
    assert done.code == 2 and "did not answer" in done.err
