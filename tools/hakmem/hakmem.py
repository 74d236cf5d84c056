# SPDX-License-Identifier: MIT
"""Numbers of the hakmem that serves this process, as it runs under `hakmem run -- python3 app.py`.

>>> import hakmem
>>> hakmem.read("live"), hakmem.figures()["resident"]
>>> hakmem.trim()
>>> [(heap.name, heap.held) for heap in hakmem.heaps()]
"""

from __future__ import annotations

import ctypes
import json
import os
from typing import NamedTuple

__all__ = ["FIGURES", "Heap", "figures", "heaps", "read", "trim", "version"]

FIGURES = ("live", "bins", "slack", "dirty", "metadata", "resident", "mapped", "peak", "threads", "limit")
"""What `read` knows, in the order of enum hakmem_stat in hakmem.h, which explains them."""

_library = ctypes.CDLL(None)
if not hasattr(_library, "hakmem_read"):
    raise ImportError("hakmem does not serve this process; start it by: hakmem run -- python3 ...")
_library.hakmem_read.argtypes = [ctypes.c_int, ctypes.POINTER(ctypes.c_uint64)]
_library.hakmem_trim.argtypes = [ctypes.c_size_t]
_library.hakmem_trim.restype = ctypes.c_size_t
_library.hakmem_stats.argtypes = [ctypes.c_int, ctypes.c_int]
_library.hakmem_version.restype = ctypes.c_char_p


class Heap(NamedTuple):
    """Figures of a heap of the program: bytes, but for name and blocks."""

    name: str
    live: int
    blocks: int
    held: int
    peak: int
    limit: int  # 0: none


def version() -> str:
    """The version of the library."""
    return str(_library.hakmem_version().decode())


def read(figure: str) -> int:
    """One of FIGURES: bytes, but for threads. Reads no more than that."""
    value = ctypes.c_uint64()
    error = -_library.hakmem_read(FIGURES.index(figure), ctypes.byref(value))
    if error:
        raise OSError(error, os.strerror(error))
    return value.value


def figures() -> dict[str, int]:
    """All of them."""
    return {figure: read(figure) for figure in FIGURES}


def trim(keep: int = 0) -> int:
    """Returns free memory to the kernel, but for at most `keep` bytes; about how many bytes that were."""
    return int(_library.hakmem_trim(keep))


def heaps() -> list[Heap]:
    """The heaps of the program, from a whole report: slower than the rest."""
    with open(os.memfd_create("hakmem"), "w+b") as report:
        error = -_library.hakmem_stats(report.fileno(), 1)
        if error:
            raise OSError(error, os.strerror(error))
        report.seek(0)
        rows = json.load(report).get("heaps", [])
    names = ("live_bytes", "blocks", "held_bytes", "peak_bytes", "limit_bytes")
    return [Heap(row["name"], *(row[name] for name in names)) for row in rows]
