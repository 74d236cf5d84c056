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

from hakmem_workbench.mesonbuild import Project

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
    """One build stands for all: each is a build of this project."""
    sys.path.insert(0, str(HEADLINE.parent))
    import headline as module

    project = Project(str(ROOT))
    assert all(project.assignments(*one) for options in module.BUILDS.values() for one in options.items())
    output = build / "ab-quick"  # its build is used again by the next run
    words = ("--quick", "--builds", "list", "--workloads", "^fixed_64$", "--programs", build / "bench")
    done = headline(*words, "--output", output)
    assert done.returncode == 0, done.stderr
    found = json.loads((output / "headline.json").read_text())
    variants = found["workloads"]["fixed_64"]["variants"]
    assert list(variants)[:2] == ["cache=list", "system"]
    assert found["baseline"] == "cache=list" and variants["cache=list"]["ratio"] == 1
    assert all(row["ratio"] > 0 for row in variants.values())
    assert f"{variants['system']['ratio']:.3f}" in done.stdout
    served = json.loads((output / "fixed_64" / "ab.json").read_text())["variants"][0]
    assert (served["label"], served["allocator"]["cache"]) == ("cache=list", "list")
    seen = look_at(browser, output / "headline.html")
    (row,) = seen["rows"]["headline"]
    assert row[0] == "fixed_64" and len(row) == len(variants) + 3


def test_mistakes(build: Path, tmp_path: Path) -> None:
    done = headline("--workloads", "nosuch", "--output", tmp_path)
    assert done.returncode == 2 and "There are: random_mixed_400" in done.stderr
    done = headline("--workloads", "^fixed_64$", "--programs", tmp_path, "--output", tmp_path)
    assert done.returncode == 2 and "has no bench_fixed_size" in done.stderr
