# SPDX-License-Identifier: MIT
"""Reads the JSON object that the library writes at exit with HAKMEM_STATS=json. Only this module reads it. A missing
key yields an empty value, an unknown one stays in `raw`, so that versions of tool and library may differ.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .errors import Problem, reading


@dataclass(frozen=True)
class Setting:
    """One row of the library's option table, with its value in that process."""

    name: str
    type: str = "string"
    default: str = ""
    value: str = ""
    source: str = "default"
    low: str = ""
    high: str = ""
    choices: tuple[str, ...] = ()
    sentence: str = ""
    moves: str = ""
    maps_to: str = ""
    changeable: bool = False  # in a running process

    @property
    def range(self) -> str:
        if self.choices:
            return " | ".join(self.choices)
        if self.type == "bool":
            return "0 | 1"
        if self.low or self.high:
            return f"{self.low or '…'} – {self.high or '…'}"
        return ""

    @property
    def changed(self) -> bool:
        return self.source not in ("", "default")


@dataclass(frozen=True)
class OsCall:
    """One row of the ledger: a system call, why it was made, and what it cost."""

    cause: str
    call: str
    calls: int = 0
    bytes: int = 0
    ns: int = 0
    regret_bytes: int = 0
    failed: int = 0


@dataclass(frozen=True)
class Retained:
    """Memory that is kept for one reason."""

    reason: str
    bytes: int
    age_seconds: float | None = None
    memory: bool = True  # False: only address space; its memory is counted under other reasons
    returnable: int | None = None  # bytes of system pages without a live block, where known
    sizes: Mapping[int, int] = field(default_factory=dict)  # bytes by size of block, where known

    @property
    def free(self) -> bool:
        """Whether malloc could use it; the allocator's own data do not count."""
        return self.memory and self.reason != "metadata"


@dataclass(frozen=True)
class ProgramHeap:
    """A heap that the program made (hakmem_heap_new)."""

    name: str
    live_bytes: int
    blocks: int
    held_bytes: int
    peak_bytes: int
    limit_bytes: int = 0  # none
    resident_bytes: int | None = None  # where known

    def __add__(self, other: ProgramHeap) -> ProgramHeap:
        """A heap without a limit leaves its name without one."""
        mine, its = (one.resident_bytes for one in (self, other))
        return ProgramHeap(
            self.name, self.live_bytes + other.live_bytes, self.blocks + other.blocks,
            self.held_bytes + other.held_bytes, self.peak_bytes + other.peak_bytes,
            self.limit_bytes and other.limit_bytes and self.limit_bytes + other.limit_bytes,
            None if mine is None or its is None else mine + its,
        )


def by_name(heaps: Iterable[ProgramHeap]) -> dict[str, ProgramHeap]:
    """The sums of heaps with one name, the largest first."""
    sums: dict[str, ProgramHeap] = {}
    for row in heaps:
        sums[row.name] = sums[row.name] + row if row.name in sums else row
    return dict(sorted(sums.items(), key=lambda item: (-item[1].live_bytes, item[0])))


@dataclass(frozen=True)
class Stats:
    """The statistics of one process."""

    allocator: Mapping[str, Any] = field(default_factory=dict)
    settings: tuple[Setting, ...] = ()
    os_calls: tuple[OsCall, ...] = ()
    stages: Mapping[str, int] = field(default_factory=dict)
    stage_finds: Mapping[str, str] = field(default_factory=dict)
    slabs: Mapping[str, int] = field(default_factory=dict)
    latency: Mapping[str, tuple[int, int, int]] = field(default_factory=dict)  # p50, p99, worst in ns by cause
    stage_latency: Mapping[str, tuple[int, int, int]] = field(default_factory=dict)
    retained: tuple[Retained, ...] = ()
    live_bytes: int = 0
    live_resident_bytes: int | None = None  # where known
    heaps: tuple[ProgramHeap, ...] = ()
    violations: int | None = None
    running: bool = False  # read from a running process
    pid: int = 0
    age_seconds: float = 0.0
    budget_bytes: int = 0  # beyond which it returns memory: HAKMEM_LIMIT_MB, or the container's limit; 0: none
    raw: Mapping[str, Any] = field(default_factory=dict)

    @property
    def title(self) -> str:
        """'hakmem 0.1.0 (build 1a2b3c4d)'."""
        name = str(self.allocator.get("name", "an unnamed allocator"))
        version = str(self.allocator.get("version", ""))
        build = str(self.allocator.get("build_id", ""))
        parts = [name, version, f"(build {_short(build)})" if build else ""]
        return " ".join(filter(None, parts))

    @property
    def policy(self) -> str:
        """'backend shared_pool, release batch, tiny_header true, cache list, frontends tiny pool large'."""
        parts = []
        for key in ("backend", "release", "tiny_header", "cache", "frontends"):
            if key in self.allocator:
                parts.append(f"{key} {_plain(self.allocator[key])}")
        return ", ".join(parts)

    def setting(self, name: str) -> Setting | None:
        return next((setting for setting in self.settings if setting.name == name), None)


_WRITE_ONE = "Write one with HAKMEM_STATS=json HAKMEM_STATS_FILE=stats-%p.json."


def load(path: Path) -> Stats:
    """The stats in a file; a Problem says what is wrong with it."""
    try:
        if path.exists() and not (path.is_file() or path.is_fifo()):
            raise Problem(f"{path} is not a stats file: it is no file", _WRITE_ONE)
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise Problem(f"{path} can't be read: {error.strerror}", _WRITE_ONE) from error
    except UnicodeDecodeError as error:
        raise Problem(f"{path} is not a stats file: it is not text", _WRITE_ONE) from error
    with reading(str(path), _WRITE_ONE):
        return loads(text, str(path))


def loads(text: str, origin: str) -> Stats:
    """Accepts one object, or several in a row: then the last one counts."""
    start = text.find("{")
    if start < 0:
        what = "holds no JSON object" if text.strip() else "is empty"
        raise Problem(f"{origin} {what}", _WRITE_ONE)
    decoder = json.JSONDecoder()
    value: Any = None
    while start >= 0:
        try:
            value, end = decoder.raw_decode(text, start)
        except json.JSONDecodeError as error:
            raise Problem(
                f"{origin} is damaged at line {error.lineno}: {error.msg}",
                "A process that is killed while it writes, or a full disk, leaves such a file.",
            ) from error
        start = text.find("{", end)
    if isinstance(value, dict) and "values" in value and "allocator" not in value:
        raise Problem(
            f"{origin} is what `hakmem stat --json` wrote, which is no report",
            "'hakmem causes PID' explains a running process.",
        )
    if not isinstance(value, dict) or not {"allocator", "os_calls"} & value.keys():
        raise Problem(f"{origin} is JSON, but no report of hakmem: no allocator, no os_calls", _WRITE_ONE)
    return parse(value)


def most_telling(folder: Path, pid: int) -> Stats | None:
    """Of the files PID.json that a command left, its own, else that of the child with the most calls."""
    found: list[tuple[bool, int, Stats]] = []
    for path in folder.glob("*.json"):
        try:
            stats = load(path)
        except Problem:
            continue
        found.append((path.stem == str(pid), sum(row.calls for row in stats.os_calls), stats))
    return max(found, key=lambda item: item[:2])[2] if found else None


def parse(value: Mapping[str, Any]) -> Stats:
    """The stats in a decoded JSON object."""
    conservation = value.get("conservation")
    return Stats(
        allocator=_mapping(value.get("allocator")),
        settings=tuple(_setting(row) for row in _rows(value.get("settings")) if "name" in row),
        os_calls=tuple(_os_call(row) for row in _rows(value.get("os_calls"))),
        stages=numbers(value.get("stages")),
        stage_finds={
            str(row["name"]): f"{row.get('finds', '')}{', under the lock' if row.get('locked') else ''}"
            for row in _rows(value.get("stage_list"))
            if "name" in row
        },
        slabs=numbers(value.get("slabs")),
        latency=_latency(value.get("os_latency"), "cause"),
        stage_latency=_latency(value.get("stage_latency"), "stage"),
        retained=_retained(value.get("retained") or _reasons(value)) or _kept(value),
        live_bytes=_live(value),
        heaps=tuple(_program_heap(row) for row in _rows(value.get("heaps"))),
        budget_bytes=_number(_mapping(value.get("budget")).get("budget_bytes")) or 0,
        violations=_number(conservation.get("violations"))
        if isinstance(conservation, dict)
        else None,
        raw=value,
    )


def _program_heap(row: Mapping[str, Any]) -> ProgramHeap:
    names = ("live_bytes", "blocks", "held_bytes", "peak_bytes", "limit_bytes")
    return ProgramHeap(_plain(row.get("name", "")), *(_number(row.get(name)) or 0 for name in names))


def _setting(row: Mapping[str, Any]) -> Setting:
    choices = row.get("choices") or ()
    if isinstance(choices, str):
        choices = choices.replace("|", " ").split()
    sentence, maps_to = _plain(row.get("sentence", "")), _plain(row.get("maps_to", ""))
    if sentence.startswith("->"):
        sentence, maps_to = "", maps_to or sentence.removeprefix("->").strip()
    elif row.get("inherited") and not maps_to:
        maps_to = "another setting"
    return Setting(
        name=str(row["name"]),
        type=_plain(row.get("type", "string")),
        default=_plain(row.get("default", "")),
        value=_plain(row.get("value", "")),
        source=_plain(row.get("source", "default")),
        low=_plain(row.get("min", "")),
        high=_plain(row.get("max", "")),
        choices=tuple(_plain(choice) for choice in choices),
        sentence=sentence,
        moves=_plain(row.get("moves", "")),
        maps_to=maps_to,
        changeable=bool(row.get("changeable", False)),
    )


def _latency(value: Any, label: str) -> dict[str, tuple[int, int, int]]:
    return {
        str(row[label]): (_number(row.get("p50_ns")), _number(row.get("p99_ns")), _number(row.get("worst_ns")))
        for row in _rows(value)
        if label in row
    }


def _os_call(row: Mapping[str, Any]) -> OsCall:
    return OsCall(
        cause=str(row.get("cause", "unknown")),
        call=str(row.get("call", "unknown")),
        calls=_number(row.get("calls")),
        bytes=_number(row.get("bytes")),
        ns=_number(row.get("ns")),
        regret_bytes=_number(row.get("regret_bytes")),
        failed=_number(row.get("failed")),
    )


def _retained(value: Any) -> tuple[Retained, ...]:
    """Either reason → bytes, or reason → {bytes, age_ns}."""
    rows = []
    for reason, amount in _mapping(value).items():
        if isinstance(amount, dict):
            age = amount.get("age_ns")
            seconds = age / 1e9 if isinstance(age, (int, float)) else None
            rows.append(Retained(reason, _number(amount.get("bytes")), seconds))
        elif isinstance(amount, (int, float)) and not isinstance(amount, bool):
            rows.append(Retained(reason, int(amount)))
    return tuple(rows)


def _reasons(value: Mapping[str, Any]) -> Mapping[str, Any]:
    """The reasons in the five lines of memory."""
    rows = _mapping(_mapping(value.get("memory")).get("retained"))
    return {reason.removesuffix("_bytes"): amount for reason, amount in rows.items()}


def _kept(value: Mapping[str, Any]) -> tuple[Retained, ...]:
    """The same from the sections in which parts report their memory."""
    books = _mapping(value.get("conservation"))
    if "free_bytes" not in books:
        return ()
    sections = [_mapping(section) for section in value.values()]
    rows = [
        Retained("partial", _number(books["free_bytes"])),
        Retained("dirty", sum(_number(section.get("dirty_bytes")) for section in sections)),
        Retained("lru", _number(_mapping(value.get("lru")).get("cached_bytes")), memory=False),
    ]
    return tuple(rows)


def _live(value: Mapping[str, Any]) -> int:
    """Bytes of blocks that the program holds; with older libraries, also those in the bins of threads."""
    if "live_bytes" in (memory := _mapping(value.get("memory"))):
        return _number(memory["live_bytes"])
    books, large = _mapping(value.get("conservation")), _mapping(value.get("large"))
    allocated = books.get("allocated_bytes", books.get("outstanding_bytes"))  # the old name
    parts = (allocated, books.get("large_bytes"), large.get("direct_bytes"))
    return sum(map(_number, parts))


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _rows(value: Any) -> list[Mapping[str, Any]]:
    return [row for row in value if isinstance(row, dict)] if isinstance(value, list) else []


def numbers(value: Any) -> Mapping[str, int]:
    """Its members that are numbers."""
    return {
        key: int(number)
        for key, number in _mapping(value).items()
        if isinstance(number, (int, float)) and not isinstance(number, bool)
    }


def _number(value: Any) -> int:
    return int(value) if isinstance(value, (int, float)) and abs(value) < 1e300 else 0


def _short(build: str) -> str:
    """Shortens a hash to its beginning; words stay whole."""
    return build[:12] if all(c in "0123456789abcdef" for c in build) else build


def _plain(value: Any) -> str:
    """JSON true means 1 in a setting; the text 'true' is what the user typed."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return " ".join(_plain(item) for item in value)
    return str(value)
