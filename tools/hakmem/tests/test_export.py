# SPDX-License-Identifier: MIT
"""`hakmem export`: what Prometheus reads."""

import json
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from conftest import TOOL, Hakmem, clean_environment
from test_causes import HEAPS, STATS
from test_top import grows  # noqa: F401

BOARD = Path(__file__).resolve().parents[3] / "docs" / "data" / "grafana.json"
SAMPLE = re.compile(r'([a-z_]+)\{((?:[a-z]+="(?:[^"\\\n]|\\.)*",?)+)\} [0-9.e+-]+$')


@pytest.fixture
def text(hakmem: Hakmem, tmp_path: Path) -> str:
    source, target = tmp_path / "stats.json", tmp_path / "out.prom"
    source.write_text(json.dumps(STATS | {"allocator": {"pid": 7, "program": 'a "b"\\'}}))
    done = hakmem("export", source, "-o", target)
    assert done.code == 0, done.err
    assert [path.name for path in tmp_path.iterdir() if path != source] == ["out.prom"]
    return target.read_text()


def test_format(text: str) -> None:
    """Each sample belongs to the family before it, which has a help and a type."""
    family = ""
    for line in text.splitlines():
        if line.startswith("# HELP "):
            family = line.split()[2]
        elif line.startswith("# TYPE "):
            kind = line.split()[3]
            assert line.split()[2] == family
            assert (kind == "counter") == family.endswith("_total")
        else:
            match = SAMPLE.match(line)
            assert match and match[1] == family, line
    assert 'hakmem_retained_bytes{pid="7",program="a \\"b\\"\\\\",reason="lru"} 2097152' in text
    assert re.search(r'hakmem_system_calls_total\{.*cause="lru_evict",call="munmap"\} 2', text)


def test_heaps_by_name(hakmem: Hakmem, tmp_path: Path) -> None:
    """The largest by live bytes, and the others as one series, whatever their number: a leak of heaps is one figure."""
    source = tmp_path / "stats.json"
    tiny = [HEAPS[1] | {"name": f"request {number}", "live_bytes": 1} for number in range(1000)]
    own = {"name": "other", "live_bytes": 5000000, "blocks": 1, "held_bytes": 5000000, "limit_bytes": 7}
    source.write_text(json.dumps(STATS | {"heaps": [*HEAPS, HEAPS[0], *tiny, own], "allocator": {"pid": 7}}))
    done = hakmem("export", source, "--heaps", "2")
    lines = [line for line in done.out.splitlines() if line.startswith("hakmem_heap")]
    assert lines.pop(0) == 'hakmem_heaps{pid="7",program=""} 1004'
    rows = [line.replace('{pid="7",program="",heap="', " ").removeprefix("hakmem_heap_") for line in lines]
    assert rows == [
        'live_bytes other"} 5001010', 'live_bytes small"} 2080000',
        'blocks other"} 1002', 'blocks small"} 14',
        'held_bytes other"} 8401996608', 'held_bytes small"} 2097152',
        'limit_bytes other"} 0', 'limit_bytes small"} 2097152',
    ]  # fmt: skip
    assert len(re.findall("hakmem_heap_live_bytes{", hakmem("export", source).out)) == 20
    check(done.out)
    assert "is not a number" in hakmem("export", source, "--heaps", "-1").err


@pytest.mark.library
def test_heaps_of_a_process(hakmem: Hakmem, grows: subprocess.Popen[str]) -> None:
    done = hakmem("export", str(grows.pid))
    found = dict(re.findall(r'^hakmem_heap_(\w+)\{.*heap="large"\} (\d+)$', done.out, re.MULTILINE))
    assert found == {"live_bytes": "8388608", "blocks": "1", "held_bytes": "8388608", "limit_bytes": "0",
                     "resident_bytes": "0"}  # fmt: skip
    check(done.out)


def test_promtool(text: str) -> None:
    if not shutil.which("promtool"):
        pytest.skip("no promtool")
    check(text)


def check(text: str) -> None:
    if shutil.which("promtool"):
        words = ["promtool", "check", "metrics"]
        done = subprocess.run(words, input=text, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr


def test_the_board_asks_for_what_is_there(text: str) -> None:
    from hakmem_workbench.commands.export import _FAMILIES

    asked = set(re.findall(r"hakmem_[a-z_]+", BOARD.read_text()))
    of_the_library = {name for name in asked if name.startswith("hakmem_memory_")}
    assert of_the_library and asked - of_the_library and asked - of_the_library <= set(_FAMILIES)


@pytest.mark.library
def test_processes_by_name(hakmem: Hakmem, real_library: Path, tmp_path: Path) -> None:
    """All in one text; with --every until the last has ended."""
    program, out = tmp_path / "ten-of-them", tmp_path / "out.prom"
    shutil.copy("/usr/bin/cat", program)
    environment = clean_environment() | {"LD_PRELOAD": str(real_library)}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    children = [
        subprocess.Popen([name], executable=program, env=environment, **pipes)  # type: ignore[call-overload]
        for name in ("ten: master", "ten: worker")
    ]
    for child in children:
        child.stdin.write(b"ready\n")
        child.stdin.flush()
        child.stdout.readline()
    pids = [str(child.pid) for child in children]
    done = hakmem("export", "ten-of-them", pids[0])
    assert done.code == 0, done.text
    assert done.out.count("# TYPE hakmem_live_bytes gauge\n") == 1
    lines = [line for line in done.out.splitlines() if line.startswith("hakmem_live_bytes{")]
    assert sorted(re.findall(r'pid="(\d+)",program="ten-of-them"', "\n".join(lines))) == sorted(pids)
    children[0].communicate()
    assert hakmem("export", *pids).out.count("hakmem_live_bytes{") == 1
    (tmp_path / pids[1]).touch()  # a file of that name is not what is meant
    program.unlink()
    assert 'program="ten-of-them"' in hakmem("export", *pids).out
    words = [sys.executable, str(TOOL), "export", *pids, "--every", "0.1", "-o", str(out)]
    with subprocess.Popen(words, cwd=tmp_path) as exporter:
        while not out.exists():
            assert exporter.poll() is None
            time.sleep(0.02)
        children[1].communicate()
        assert exporter.wait(60) == 0
    assert "serves no process of ten-of-them" in hakmem("export", "ten-of-them").err


def test_what_is_no_file_keeps_its_place(hakmem: Hakmem, tmp_path: Path) -> None:
    """A link, and so a device; and a source that is named twice counts once."""
    source, target, link = (tmp_path / name for name in ("stats.json", "real", "link"))
    source.write_text(json.dumps(STATS))
    link.symlink_to(target)
    assert hakmem("export", source, source, "-o", link).code == 0
    lines = target.read_text().splitlines()
    assert link.is_symlink() and len(lines) == len(set(lines)) > 10
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


def test_mistakes(hakmem: Hakmem) -> None:
    assert "--every needs" in hakmem("export", "x.json", "--every", "1").err
    for text in ("0", "nan", "inf", "soon"):
        assert "is not a number of seconds from 0.1" in hakmem("export", "4194999", "--every", text, "-o", "x").err
    assert "No such file" in hakmem("export", "/nowhere.json").err
