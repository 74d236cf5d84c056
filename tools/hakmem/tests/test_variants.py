# SPDX-License-Identifier: MIT
"""The grammar of variants, and every mistake in it."""

from pathlib import Path

import pytest

from hakmem_workbench import library as finder
from hakmem_workbench import variants
from hakmem_workbench.errors import Problem


def parse(spec: str, library: Path) -> variants.Variant:
    return variants.parse(spec, str(library))


def test_policies(library: Path) -> None:
    variant = parse("backend=legacy,set:HAKMEM_TINY_SS_PARTIAL=0", library)
    assert variant.label == "backend=legacy,TINY_SS_PARTIAL=0"
    assert variant.settings == {"HAKMEM_BACKEND": "legacy", "HAKMEM_TINY_SS_PARTIAL": "0"}
    assert variant.assignments()["LD_PRELOAD"].startswith(str(library))
    assert variant.stats is not None and variant.stats.allocator["backend"] == "legacy"
    assert parse("release=direct", library).settings == {"HAKMEM_RELEASE": "direct"}
    assert parse("set:tiny_ss_partial=0,as:quiet", library).label == "quiet"


def test_builds(library: Path, tmp_path: Path) -> None:
    folder = tmp_path / "build-x" / "src"
    folder.mkdir(parents=True)
    (folder / "libhakmem.so.0").write_bytes(library.read_bytes())
    variant = parse(f"build:{tmp_path}/build-x,backend=legacy", library)
    assert variant.label == "build-x,backend=legacy"
    assert variant.library is not None and variant.library.path == str(folder / "libhakmem.so.0")
    (tmp_path / "empty" / "meson-private").mkdir(parents=True)
    with pytest.raises(Problem, match=r"without src/libhakmem\.so\.0"):
        parse(f"build:{tmp_path}/empty", library)


def test_system_and_files(library: Path, compiled) -> None:  # type: ignore[no-untyped-def]
    assert parse("system", library).assignments() == {}
    other = compiled("plugin", "-shared", "-fPIC", "-Wl,-soname,libother.so")
    variant = parse(f"lib:{other}", library)
    assert not variant.hakmem
    assert parse(f"lib:{library},backend=legacy", library).hakmem


def test_peers(library: Path) -> None:
    for name in ("mimalloc", "jemalloc", "tcmalloc"):
        try:
            found = finder.find_peer(name)
        except Problem as problem:
            assert f"{name} is not installed" in problem.sentence and "apt install" in problem.hint
        else:
            assert name in found.path and parse(name, library).library == found


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("mimaloc", "did you mean mimalloc?"),
        ("bakend=legacy", "did you mean backend=?"),
        ("biuld:x", "did you mean build:?"),
        ("set:HAKMEM_BACKND=legacy", "did you mean HAKMEM_BACKEND?"),
        ("set:HAKMEM_TINY_SS_PARTIAL", "is not KEY=VALUE"),
        ("backend=legcy", "was refused"),
        ("system,backend=legacy", "has none of its settings"),
        ("system,hakmem", "names two allocators"),
        ("lib:/nowhere/lib.so", "there is no library"),
        ("build:/nowhere", "there is no directory"),
        ("system,env:X", "is not env:NAME=VALUE"),
        ("hakmem,env:HAKMEM_BACKEND=legacy", "set:KEY=VALUE"),
        ("env:LD_PRELOAD=x.so", "lib:PATH"),
        ("", "is no variant"),
    ],
)
def test_mistakes(library: Path, spec: str, said: str) -> None:
    with pytest.raises(Problem) as caught:
        parse(spec, library)
    assert said in caught.value.sentence + caught.value.hint


def test_variables_of_the_environment(library: Path) -> None:
    variant = parse("system,env:PYTHONMALLOC=malloc,env:X=", None)
    assert variant.assignments() == {"PYTHONMALLOC": "malloc", "X": ""}
    assert variant.label == "system,PYTHONMALLOC=malloc,X="
    variant = parse("env:PYTHONMALLOC=malloc,backend=legacy,as:both", library)
    assert variant.assignments()["PYTHONMALLOC"] == "malloc"
    assert variant.assignments()["HAKMEM_BACKEND"] == "legacy"
    assert variant.settings == {"HAKMEM_BACKEND": "legacy"}


def test_who_is_compared_with_whom(library: Path) -> None:
    def labels(*specs: str, baseline: str | None = None) -> list[str]:
        return [v.label for v in variants.lineup(specs, baseline, str(library))]

    assert labels() == ["system", "hakmem"]
    assert labels("hakmem") == ["system", "hakmem"]
    assert labels("backend=legacy") == ["hakmem", "backend=legacy"]
    assert labels("system") == ["hakmem", "system"]
    assert labels("system", "hakmem", baseline="hakmem") == ["hakmem", "system"]
    with pytest.raises(Problem, match="two variants are called"):
        labels("hakmem", "hakmem")
    with pytest.raises(Problem, match="only one variant"):
        labels("hakmem", baseline="hakmem")
