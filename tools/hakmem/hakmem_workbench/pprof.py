# SPDX-License-Identifier: MIT
"""Writes pprof's profile.proto, gzipped: https://github.com/google/pprof/blob/main/proto/profile.proto.

Its wire format is numbers of seven bits a byte and strings with their length. This takes less code than loading the
generated classes of a protobuf library.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterable

from .heapprofile import HeapProfile
from .symbols import Frame, Symbols


def _number(value: int) -> bytes:
    out = bytearray()
    value &= (1 << 64) - 1
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def _field(tag: int, value: int | bytes | Iterable[int]) -> bytes:
    """A number, a message or string, or packed numbers."""
    if isinstance(value, int):
        return _number(tag << 3) + _number(value) if value else b""
    data = value if isinstance(value, bytes) else b"".join(map(_number, value))
    return _number(tag << 3 | 2) + _number(len(data)) + data


class _Strings:
    def __init__(self) -> None:
        self.numbers = {"": 0}

    def __call__(self, text: str) -> int:
        return self.numbers.setdefault(text, len(self.numbers))


TYPES = (
    ("alloc_objects", "count"),
    ("alloc_space", "bytes"),
    ("inuse_objects", "count"),
    ("inuse_space", "bytes"),
)


def encode(profile: HeapProfile, symbols: Symbols) -> bytes:
    strings = _Strings()
    out = [_field(1, _field(1, strings(kind)) + _field(2, strings(unit))) for kind, unit in TYPES]
    locations: dict[int, int] = {}
    for site, amount in profile.sites.items():
        numbers = [locations.setdefault(address, len(locations) + 1) for address in site.stack]
        values = (amount.all_blocks, amount.all_bytes, amount.live_blocks, amount.live_bytes)
        label = _field(3, _field(1, strings("heap")) + _field(2, strings(site.heap))) if site.heap else b""
        out.append(_field(2, _field(1, numbers) + _field(2, map(round, values)) + label))
    for number, mapping in enumerate(profile.mappings, 1):
        spot = _field(1, number) + _field(2, mapping.start) + _field(3, mapping.end)
        spot += _field(4, mapping.offset) + _field(5, strings(mapping.path)) + _field(7, 1)
        out.append(_field(3, spot + _field(8, 1) + _field(9, 1) + _field(10, 1)))
    functions: dict[Frame, int] = {}
    place = {mapping.start: number for number, mapping in enumerate(profile.mappings, 1)}
    for address, number in locations.items():
        mapping = symbols.mapping(address)
        lines = b""
        for frame in symbols.frames[address]:
            key = Frame(frame.function, frame.file)
            function = functions.setdefault(key, len(functions) + 1)
            lines += _field(4, _field(1, function) + _field(2, frame.line))
        where = _field(2, place[mapping.start]) if mapping else b""
        out.append(_field(4, _field(1, number) + where + _field(3, address - 1) + lines))
    for frame, number in functions.items():
        name = strings(frame.function)
        out.append(
            _field(5, _field(1, number) + _field(2, name) + _field(3, name) + _field(4, strings(frame.file)))
        )
    period = _field(1, strings("space")) + _field(2, strings("bytes"))
    tail = _field(9, profile.started_ns) + _field(11, period) + _field(12, profile.mean)
    tail += _field(14, strings("inuse_space"))
    table = b"".join(_field(6, text.encode()) for text in strings.numbers)
    return gzip.compress(b"".join(out) + table + tail)
