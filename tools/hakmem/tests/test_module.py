# SPDX-License-Identifier: MIT
"""The module `hakmem`: numbers of the library that serves the interpreter."""

import subprocess
import sys
from pathlib import Path

from conftest import TOOL, clean_environment

SCRIPT = """
import ctypes, hakmem
before = hakmem.read("live")
block = bytes(8_000_000)
assert hakmem.read("live") >= before + 7_000_000, (before, hakmem.read("live"))
numbers = hakmem.figures()
assert tuple(numbers) == hakmem.FIGURES and numbers["mapped"] >= 8_000_000 and numbers["threads"] > 0
assert numbers["peak"] >= 8_000_000 and numbers["limit"] == 0
del block
assert hakmem.trim() >= 0 and hakmem.version()[0].isdigit() and hakmem.heaps() == []
library = ctypes.CDLL(None)
library.hakmem_heap_new.restype = library.hakmem_heap_malloc.restype = ctypes.c_void_p
heap = ctypes.c_void_p(library.hakmem_heap_new(None))
library.hakmem_heap_malloc(heap, ctypes.c_size_t(1000000))
(heap,) = hakmem.heaps()
assert heap.name == "" and 1_000_000 <= heap.live <= heap.held == heap.peak and heap.blocks == 1 and not heap.limit
try:
    hakmem.read("none")
except ValueError:
    print("all is well")
"""


def run(script: str, **more: str) -> subprocess.CompletedProcess[str]:
    environment = clean_environment() | {"PYTHONPATH": str(TOOL.parent), "PYTHONDONTWRITEBYTECODE": "1"} | more
    return subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, timeout=60
    )


def test_numbers_of_the_interpreter(real_library: Path) -> None:
    done = run(SCRIPT, LD_PRELOAD=str(real_library))
    assert (done.returncode, done.stdout, done.stderr) == (0, "all is well\n", "")


def test_without_the_library_it_says_how() -> None:
    done = run("import hakmem")
    assert done.returncode == 1 and "ImportError: hakmem does not serve this process" in done.stderr
