# SPDX-License-Identifier: MIT
"""`meson compile ab` (bench/headline.py): builds against others, in its quick mode."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from browser import Browser
from conftest import clean_environment
from test_page import look_at

ROOT = Path(__file__).resolve().parents[3]
HEADLINE = ROOT / "bench" / "headline.py"

pytestmark = pytest.mark.library
if not HEADLINE.is_file():
    pytest.skip("not in the source tree", allow_module_level=True)


def headline(*words: object) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-B", str(HEADLINE), *map(str, words)],
        env=clean_environment(),
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )


@pytest.fixture(scope="module")
def build(real_library: Path) -> Path:
    folder = real_library.parent.parent
    if not (folder / "bench" / "bench_fixed_size").is_file():
        pytest.skip("the benchmarks were not built")
    return folder


def test_quick(build: Path, browser: Browser) -> None:
    output = build / "ab-quick"  # its builds are used again by the next run
    words = ("--quick", "--workloads", "^fixed_64$", "--programs", build / "bench", "--output", output)
    done = headline(*words)
    assert done.returncode == 0, done.stderr
    found = json.loads((output / "headline.json").read_text())
    variants = found["workloads"]["fixed_64"]["variants"]
    builds = ["header=false", "header=true", "header=small", "cache=list"]
    assert list(variants)[:5] == [*builds, "system"]
    assert found["baseline"] == "header=false" and variants["header=false"]["ratio"] == 1
    assert all(row["ratio"] > 0 for row in variants.values())
    assert f"{variants['header=true']['ratio']:.3f}" in done.stdout
    served = json.loads((output / "fixed_64" / "ab.json").read_text())["variants"]
    said = {row["label"]: (row["allocator"]["tiny_header"], row["allocator"]["cache"]) for row in served[:4]}
    assert said == {f"header={value}": (value, "array") for value in ("false", "true", "small")} | {
        f"cache={value}": ("false", value) for value in ("list",)
    }
    seen = look_at(browser, output / "headline.html")
    (row,) = seen["rows"]["headline"]
    assert row[0] == "fixed_64" and len(row) == len(variants) + 3


def test_mistakes(build: Path, tmp_path: Path) -> None:
    done = headline("--workloads", "nosuch", "--output", tmp_path)
    assert done.returncode == 2 and "There are: random_mixed_400" in done.stderr
    done = headline("--workloads", "^fixed_64$", "--programs", tmp_path, "--output", tmp_path)
    assert done.returncode == 2 and "has no bench_fixed_size" in done.stderr
