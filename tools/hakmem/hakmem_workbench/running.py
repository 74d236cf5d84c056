# SPDX-License-Identifier: MIT
"""Settings of a running process, read and changed from outside, by the records that the library carries.

The process's threads see a change at their next slow path. The process is not stopped.
"""

from __future__ import annotations

import dataclasses
import os
import struct

from . import heapprofile, inspection, library, settings
from .errors import Problem
from .inspection import Process
from .statsfile import Setting

_NUMBER = struct.Struct("=I")
_PROFILE, _GUARD, _BACKGROUND = "HAKMEM_PROFILE", "HAKMEM_GUARD_RATE", "HAKMEM_BACKGROUND"


class Running:
    """The settings of one process."""

    def __init__(self, pid: int) -> None:
        self.process = Process(pid)
        path = f"/proc/{pid}/root{self.process.library}"
        # The table is the library's own, read from its file.
        self.table = settings.check(library.at(path, f"the library of process {pid}"), {}).settings
        if not self.process.layout.settings:
            raise Problem(f"{self.process.library} does not say where its settings are", settings.TOO_OLD)

    def close(self) -> None:
        self.process.close()

    def setting(self, name: str) -> Setting:
        for one in self.table:
            if one.name == name and name in self.process.layout.settings:
                return one
        hint = settings.suggestion(name, self.table) or "'hakmem options' lists all."
        raise Problem(f"{name} is not a setting of hakmem", hint)

    def _place(self, name: str) -> tuple[int, int]:
        offset, size = self.process.layout.settings[name]
        return self.process.address("hak_sealed") + offset, size

    def value(self, setting: Setting) -> str:
        if setting.name == _PROFILE:
            return str(self._profile())
        data = self.process.read(*self._place(setting.name))
        if setting.type == "string":
            return data.partition(b"\0")[0].decode("utf-8", "replace")
        (number,) = _NUMBER.unpack(data)
        return setting.choices[number] if setting.type == "enum" else str(number)

    def settings(self) -> tuple[Setting, ...]:
        """All of them, with their values."""
        known = [one for one in self.table if one.name in self.process.layout.settings]
        return tuple(dataclasses.replace(one, value=self.value(one)) for one in known)

    def _profile(self) -> int:
        try:
            return heapprofile.mean_of(heapprofile.of_process(self.process.pid))
        except Problem:
            return 0

    def change(self, setting: Setting, value: str) -> None:
        """Raises a Problem for an impossible change, before anything is written."""
        if not setting.changeable:
            raise Problem(
                f"{setting.name} is read only at the start",
                f"Start the program anew with {setting.name}={value}.",
            )
        number = _number(setting, value)
        if setting.name == _PROFILE:
            heapprofile.set_mean(heapprofile.of_process(self.process.pid), number)
            return
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
        address, _ = self._place(setting.name)
        try:
            memory = os.open(f"/proc/{self.process.pid}/mem", os.O_WRONLY)
            try:
                os.pwrite(memory, _NUMBER.pack(number), address)
            finally:
                os.close(memory)
        except OSError as error:
            raise Problem(
                f"process {self.process.pid} can't be written to: {error.strerror}",
                f"Do it {inspection.RIGHTS}.",
                code=1,
            ) from error


def _number(setting: Setting, value: str) -> int:
    if setting.type == "enum" and value in setting.choices:
        return setting.choices.index(value)
    low, high = ("0", "1") if setting.type == "bool" else (setting.low, setting.high)
    if setting.type != "enum" and value.isdecimal() and int(low) <= int(value) <= int(high):
        return int(value)
    raise Problem(f"{setting.name}={value} is refused", f"Allowed: {setting.range}.")
