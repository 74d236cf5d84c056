# SPDX-License-Identifier: MIT
"""Settings of a running process, read and changed from outside, by the records that the library carries.

The process's threads see a change at their next slow path. The process is not stopped.
"""

from __future__ import annotations

import contextlib
import dataclasses
import struct
from collections.abc import Iterator

from . import heapprofile, inspection, settings
from .errors import Problem
from .inspection import Process
from .statsfile import Setting
from .text import word

_NUMBER = struct.Struct("=I")
_FIELDS = ("default_value", "min", "max", "offset", "texts", "type")  # of struct hak_option_info
_TYPES = ("bool", "int", "enum", "string")  # enum hak_option_type
_PROFILE, _GUARD, _BACKGROUND = "HAKMEM_PROFILE", "HAKMEM_GUARD_RATE", "HAKMEM_BACKGROUND"


@contextlib.contextmanager
def of(pid: int, writes: bool = False) -> Iterator[Running]:
    """The settings of one process, while they are read."""
    with inspection.of(pid, writes=writes) as process:
        yield Running(process)


class Running:
    """The settings of one process, by the table in its memory."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.places: dict[str, int] = {}
        self.table = tuple(self._rows())

    def _rows(self) -> Iterator[Setting]:
        p = self.process
        data, texts, changeable = (p.variable(name) for name in ("hak_option_table", "texts", "changeable_rows"))
        for number, at in enumerate(range(0, len(data), p.size_of("hak_option_info"))):
            first, least, most, offset, text, row = (p.get(data, f"hak_option_info.{name}", at) for name in _FIELDS)
            name, choices, _, moves = (
                word(one.decode("utf-8", "replace")) for one in texts[text:].split(b"\0", 4)[:4]
            )
            kind = _TYPES[row]
            listed = tuple(choices.split("|")) if choices else ()
            sentence = p.layout.sentences.get(name, "")
            self.places[name] = p.address("hak_sealed") + offset
            yield Setting(
                name,
                kind,
                "" if kind == "string" else listed[first] if kind == "enum" else str(first),
                low=str(least) if kind == "int" else "",
                high=str(most) if kind == "int" else "",
                choices=listed,
                sentence="" if sentence.startswith("->") else sentence,
                moves=moves,
                maps_to=sentence.removeprefix("->").strip() if sentence.startswith("->") else "",
                changeable=number in changeable,
            )

    def setting(self, name: str) -> Setting:
        for one in self.table:
            if one.name == name:
                return one
        hint = settings.suggestion(name, self.table) or "'hakmem options' lists all."
        raise Problem(f"{name} is not a setting of hakmem", hint)

    def value(self, setting: Setting) -> str:
        if setting.name == _PROFILE:
            return str(heapprofile.mean_of(self.process.pid))
        if setting.type == "string":
            data = self.process.read(self.places[setting.name], self.process.layout.numbers["text_max"])
            return word(data.partition(b"\0")[0].decode("utf-8", "replace"))
        (number,) = _NUMBER.unpack(self.process.read(self.places[setting.name], _NUMBER.size))
        return setting.choices[number] if setting.type == "enum" else str(number)

    def settings(self) -> tuple[Setting, ...]:
        """All of them, with their values."""
        return tuple(dataclasses.replace(one, value=self.value(one)) for one in self.table)

    def changed(self) -> list[Setting]:
        return [one for one in self.settings() if one.value != one.default]

    def check(self, setting: Setting, value: str) -> int:
        """The value as a number; a Problem if the change is impossible."""
        if not setting.changeable:
            raise Problem(
                f"{setting.name} is read only at the start",
                f"Start the program anew with {setting.name}={value}.",
            )
        number = _number(setting, value)
        if setting.name == _BACKGROUND and number and self.value(setting) == "0":
            raise Problem(
                "a thread can't be started from outside",
                'Start the program anew with HAKMEM_BACKGROUND=1, or call hakmem_set("HAKMEM_BACKGROUND", "1") in it.',
            )
        if setting.name == _GUARD and number and not self.process.number("hak_guard_is_on"):
            raise Problem(
                "guarded blocks have no place in this process yet",
                "Start it with HAKMEM_GUARD_RATE, or call hakmem_set in it.",
            )
        return number

    def change(self, setting: Setting, value: str) -> None:
        number = self.check(setting, value)
        if setting.name == _PROFILE:
            heapprofile.set_mean(self.process.pid, number)
        else:
            self.process.write(self.places[setting.name], _NUMBER.pack(number))


def _number(setting: Setting, value: str) -> int:
    if setting.type == "enum" and value in setting.choices:
        return setting.choices.index(value)
    low, high = ("0", "1") if setting.type == "bool" else (setting.low, setting.high)
    if setting.type != "enum" and value.isdecimal() and int(low) <= int(value) <= int(high):
        return int(value)
    raise Problem(f"{setting.name}={value} is refused", f"Allowed: {setting.range}.")
