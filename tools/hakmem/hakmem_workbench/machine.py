# SPDX-License-Identifier: MIT
"""The state of the machine on which a measurement was made.

Everything is read from /proc and /sys; what can't be read is left out. `notes` says what makes timings here less
reliable than they could be.
"""

from __future__ import annotations

import contextlib
import os
import platform
import re
from datetime import datetime
from pathlib import Path
from typing import Any

from .text import size


def record() -> dict[str, Any]:
    """A flat mapping from names to values, ready for JSON and for a table."""
    state: dict[str, Any] = {
        "time": datetime.now().astimezone().isoformat(timespec="seconds"),
        "kernel": f"{platform.system()} {platform.release()}",
        "machine": platform.machine(),
        "libc": " ".join(platform.libc_ver()).strip() or "unknown",
        "cpu": _cpu(),
        "cpus_online": os.cpu_count(),
        "cpus_usable": len(os.sched_getaffinity(0)),
        "governor": _each("/sys/devices/system/cpu", "cpu[0-9]*/cpufreq/scaling_governor"),
        "boost": _boost(),
        "virtual_machine": _virtual(),
        "numa_nodes": len(list(Path("/sys/devices/system/node").glob("node[0-9]*"))) or 1,
        "page_size": os.sysconf("SC_PAGE_SIZE"),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "thp": _chosen("/sys/kernel/mm/transparent_hugepage/enabled"),
        "thp_defrag": _chosen("/sys/kernel/mm/transparent_hugepage/defrag"),
        "overcommit": _read("/proc/sys/vm/overcommit_memory"),
        "max_map_count": _read("/proc/sys/vm/max_map_count"),
        "swappiness": _read("/proc/sys/vm/swappiness"),
        "address_randomisation": _read("/proc/sys/kernel/randomize_va_space"),
        "load": list(os.getloadavg()),
        **_cgroup(),
    }
    return {key: value for key, value in state.items() if value not in (None, "", [])}


class Neighbours:
    """How much CPU all other programs took between two moments, without ourselves and our children."""

    def __init__(self) -> None:
        self.start = self._now()

    def cpus(self) -> float:
        """The number of CPUs busy with other programs, on average since the start."""
        elapsed, busy, own = (b - a for a, b in zip(self.start, self._now(), strict=True))
        return max(busy - own, 0.0) / elapsed if elapsed > 0 else 0.0

    @staticmethod
    def _now() -> tuple[float, float, float]:
        ticks = os.sysconf("SC_CLK_TCK")
        times = os.times()
        own = times.user + times.system + times.children_user + times.children_system
        fields = (_read("/proc/stat") or "cpu").splitlines()[0].split()[1:]
        numbers = [int(field) for field in fields]
        busy = sum(numbers[:8]) - sum(numbers[3:5]) if len(numbers) >= 8 else 0
        return times.elapsed, busy / ticks, own


def notes(before: dict[str, Any], others: float = 0.0) -> list[str]:
    """What a careful reader should know; `others` is what `Neighbours` measured."""
    found = []
    cpus = int(before.get("cpus_online") or 1)
    if others > 0.2:
        found.append(
            f"Other programs kept {others:.1f} of {cpus} CPUs busy meanwhile: "
            "expect wide intervals, and trust CPU time more than time."
        )
    governor = before.get("governor")
    if governor and governor != "performance":
        found.append(f"The CPU governor is {governor}, not performance: clock rates vary.")
    if before.get("boost") == "on":
        found.append("Turbo boost is on: clock rates depend on heat.")
    if before.get("virtual_machine"):
        found.append("This is a virtual machine: its neighbours are part of the noise.")
    limit = before.get("cgroup_cpu_max")
    if limit and not str(limit).startswith("max"):
        found.append(f"A cgroup limits the CPU ({limit}): throttling comes in bursts.")
    return found


def rows(state: dict[str, Any]) -> list[tuple[str, str]]:
    """(name, value) for a table."""
    return [(key.replace("_", " "), _plain(key, value)) for key, value in state.items()]


def _plain(key: str, value: Any) -> str:
    if key.endswith("bytes"):
        return size(value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return " ".join(f"{item:.2f}" if isinstance(item, float) else str(item) for item in value)
    return str(value)


def _read(path: str | Path) -> str | None:
    with contextlib.suppress(OSError, UnicodeDecodeError):
        return Path(path).read_text(encoding="utf-8").strip()
    return None


def _chosen(path: str) -> str | None:
    """'always [madvise] never' → 'madvise'."""
    match = re.search(r"\[(\w+)\]", _read(path) or "")
    return match[1] if match else None


def _each(folder: str, pattern: str) -> str | None:
    values = {_read(path) for path in Path(folder).glob(pattern)} - {None}
    return ", ".join(sorted(value for value in values if value)) or None


def _cpu() -> str | None:
    for line in (_read("/proc/cpuinfo") or "").splitlines():
        key, _, value = line.partition(":")
        if key.strip() in ("model name", "Model", "Hardware", "cpu model"):
            return value.strip()
    return None


def _virtual() -> bool | None:
    text = _read("/proc/cpuinfo") or ""
    return True if re.search(r"^flags\s*:.*\bhypervisor\b", text, re.M) else None


def _boost() -> str | None:
    if (value := _read("/sys/devices/system/cpu/intel_pstate/no_turbo")) is not None:
        return "off" if value == "1" else "on"
    if (value := _read("/sys/devices/system/cpu/cpufreq/boost")) is not None:
        return "on" if value == "1" else "off"
    return None


def _cgroup() -> dict[str, Any]:
    """Limits of our own control group, v2 or v1, the tightest up the tree."""
    limits: dict[str, Any] = {}
    text = _read("/proc/self/cgroup") or ""
    for line in text.splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            names = {
                "cgroup_memory_max": "memory.max",
                "cgroup_memory_high": "memory.high",
                "cgroup_cpu_max": "cpu.max",
                "cgroup_pids_max": "pids.max",
            }
            root = Path("/sys/fs/cgroup")
        elif "memory" in controllers.split(","):
            names = {"cgroup_memory_max": "memory.limit_in_bytes"}
            root = Path("/sys/fs/cgroup/memory")
        else:
            continue
        for key, name in names.items():
            value = _tightest(root, path, name)
            if value:
                limits[key] = value
    return limits


def _tightest(root: Path, path: str, name: str) -> str | None:
    folder = root / path.lstrip("/")
    best: tuple[float, str] | None = None
    for candidate in (folder, *folder.parents):
        if root not in (candidate, *candidate.parents):
            break
        value = _read(candidate / name)
        if value and not value.startswith("max") and value != "9223372036854771712":
            number = float(value.split()[0])
            if best is None or number < best[0]:
                best = (number, value)
    return best[1] if best else None
