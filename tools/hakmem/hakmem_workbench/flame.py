# SPDX-License-Identifier: MIT
"""A flame graph as one self-contained HTML page: click to zoom, type to search."""

from __future__ import annotations

import json
from html import escape
from importlib import resources
from typing import Any

from .heapprofile import HeapProfile
from .symbols import Frame, Symbols


DEEPEST = 200  # levels of a graph: each is a call of Python's, too


def page(title: str, profile: HeapProfile, symbols: Symbols) -> str:
    """Widths are bytes: live, allocated, or live at the peak; of a difference, those that came; and live ones that
    went. The lowest level is heaps of the program, if it has any.
    """
    root, heaps = _node("all"), profile.heaps
    for site, amount in profile.sites.items():
        node = root
        amounts = [max(one, 0) for one in (amount.live_bytes, amount.all_bytes, amount.peak_bytes, -amount.live_bytes)]
        _add(node, amounts)
        frames = [frame for address in reversed(site.stack) for frame in reversed(symbols.frames[address])]
        if heaps:
            frames.insert(0, Frame(f"heap {site.heap}" if site.heap else "no heap"))
        for frame in frames[:DEEPEST]:
            node = node["c"].setdefault(frame.function, _node(frame.function, frame.place))
            _add(node, amounts)
    data = json.dumps(_plain(root), ensure_ascii=False).replace("<", "\\u003c")
    frame = resources.files(__package__).joinpath("flame.html").read_text("utf-8")
    return frame.replace("@TITLE@", escape(title)).replace("@DATA@", data)


def _node(name: str, place: str = "") -> dict[str, Any]:
    return {"n": name, "p": place, "v": [0.0] * 4, "c": {}}


def _add(node: dict[str, Any], amounts: list[float]) -> None:
    node["v"] = [a + b for a, b in zip(node["v"], amounts, strict=True)]


def _plain(node: dict[str, Any]) -> dict[str, Any]:
    children = sorted(node["c"].values(), key=lambda child: child["n"])
    return {**node, "v": [round(value) for value in node["v"]], "c": [_plain(child) for child in children]}
