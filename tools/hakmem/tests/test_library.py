# SPDX-License-Identifier: MIT
"""Where the library is found, and the real one where it was built."""

import json
from pathlib import Path

import pytest
from conftest import Hakmem

from hakmem_workbench import library as finder

pytestmark = pytest.mark.library


def test_in_the_current_build_directory(hakmem: Hakmem, library: Path, tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "libhakmem.so.0").write_bytes(library.read_bytes())
    done = hakmem("run", "-v", "--", "true", cwd=tmp_path)
    assert f"{tmp_path}/src/libhakmem.so.0 (this build directory)" in done.err


def test_through_meson(hakmem: Hakmem, library: Path, tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "libhakmem.so.0").write_bytes(library.read_bytes())
    done = hakmem("run", "-v", "--", "true", cwd="/", env={"MESON_BUILD_ROOT": str(tmp_path)})
    assert "(Meson's build)" in done.err


def test_through_pkg_config(library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "hakmem.pc").write_text(
        f"libdir={library.parent}\nName: hakmem\nDescription: x\nVersion: 1\nLibs: -L${{libdir}}\n"
    )
    monkeypatch.setenv("PKG_CONFIG_PATH", str(tmp_path))
    assert finder._pkg_config() == library.parent


def test_real_library_serves_and_explains(hakmem: Hakmem, real_library: Path) -> None:
    words = ("--library", real_library)
    done = hakmem("verify", *words, "--json", "--", "ls", "/")
    assert done.code == 0, done.text
    names = [setting["name"] for setting in json.loads(done.out)["settings"]]
    assert "HAKMEM_BACKEND" in names
    assert hakmem("options", *words).code == 0
    done = hakmem("causes", *words, "--", "ls", "/")
    assert done.code == 0 and "system call" in done.out


def test_real_library_refuses(hakmem: Hakmem, real_library: Path) -> None:
    for words in (("--set", "TINY_SS_PARTAIL=0"), ("--backend", "legcy")):
        assert hakmem("run", "--library", real_library, *words, "--", "true").code == 2
