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
    source = tmp_path / "stats.json"
    source.write_text(json.dumps(STATS | {"heaps": [*HEAPS, HEAPS[0]], "allocator": {"pid": 7}}))
    lines = hakmem("export", source).out.splitlines()
    rows = [line.partition('heap="')[2] for line in lines if line.startswith("hakmem_heap_")]
    assert rows == [
        '"} 10', 'small"} 2080000', '"} 8388608', 'small"} 2097152', '"} 0', 'small"} 2097152',
    ]  # fmt: skip


def test_promtool(text: str) -> None:
    if not shutil.which("promtool"):
        pytest.skip("no promtool")
    done = subprocess.run(
        ["promtool", "check", "metrics"], input=text, capture_output=True, text=True, check=False
    )
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
    children = [subprocess.Popen([program], env=environment, **pipes) for _ in range(2)]  # type: ignore[call-overload]
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
    words = [sys.executable, str(TOOL), "export", *pids, "--every", "0.1", "-o", str(out)]
    with subprocess.Popen(words) as exporter:
        while not out.exists():
            assert exporter.poll() is None
            time.sleep(0.02)
        children[1].communicate()
        assert exporter.wait(60) == 0
    assert "serves no process of ten-of-them" in hakmem("export", "ten-of-them").err


def test_mistakes(hakmem: Hakmem) -> None:
    assert "--every needs" in hakmem("export", "x.json", "--every", "1").err
    for text in ("0", "nan", "inf", "soon"):
        assert "is not a number of seconds from 0.1" in hakmem("export", "4194999", "--every", text, "-o", "x").err
    assert "No such file" in hakmem("export", "/nowhere.json").err
