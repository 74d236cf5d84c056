# SPDX-License-Identifier: MIT
"""The ELF reader, compared with the options given to the compiler."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from hakmem_workbench import elf


def test_dynamic_program(compiled: Callable[..., Path]) -> None:
    facts = elf.read(str(compiled("allocates")))
    assert not facts.static
    assert facts.bits == 64
    assert any(name.startswith("libc.so") for name in facts.needed)
    assert {"malloc", "free"} <= facts.wanted
    assert "malloc" not in facts.defined


def test_static_program(compiled: Callable[..., Path]) -> None:
    assert elf.read(str(compiled("allocates", "-static"))).static


def test_library(library: Path) -> None:
    facts = elf.read(str(library))
    assert facts.soname == "libhakmem.so.0"
    assert facts.build_id and len(facts.build_id) == 40
    assert {"malloc", "free", "hakmem_malloc"} <= facts.defined
    assert "hakmem" in facts.private


@pytest.mark.parametrize("hash_style", ["gnu", "sysv"])
def test_without_section_headers(
    compiled: Callable[..., Path], tmp_path: Path, hash_style: str
) -> None:
    """Symbols are found through the dynamic segment, by either kind of hash."""
    flags = ("-shared", "-fPIC", f"-Wl,--hash-style={hash_style}")
    data = bytearray(compiled("fake_hakmem", *flags).read_bytes())
    data[40:48] = bytes(8)  # e_shoff
    data[60:62] = bytes(2)  # e_shnum
    bare = tmp_path / "bare.so"
    bare.write_bytes(data)
    facts = elf.read(str(bare))
    assert {"malloc", "free"} <= facts.defined
    assert "__libc_malloc" in facts.wanted


def test_not_elf(tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text("#!/bin/sh\n" * 20)
    short = tmp_path / "short"
    short.write_bytes(b"\x7fELF")
    broken = tmp_path / "broken"
    broken.write_bytes(b"\x7fELF\x02\x01" + b"\xff" * 100)
    for path in (script, short, broken, tmp_path / "missing", tmp_path):
        with pytest.raises(elf.NotElf):
            elf.read(str(path))


def test_agrees_with_readelf(compiled: Callable[..., Path]) -> None:
    path = compiled("second_thread", "-pthread")
    listing = subprocess.run(
        ["readelf", "--dyn-syms", "-W", path], capture_output=True, text=True, check=True
    ).stdout
    undefined = {
        line.split()[7].partition("@")[0]
        for line in listing.splitlines()
        if " UND " in line and len(line.split()) > 7
    }
    assert elf.read(str(path)).wanted == undefined
