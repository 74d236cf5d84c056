# SPDX-License-Identifier: MIT
"""Runs other programs, so that none is left behind.

Those that measure (hyperfine, strace) get a session of their own. Ctrl-C on the terminal then reaches only the
workbench, which ends the whole session: the tool and its command. The user's command stays in ours.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Sequence
from types import FrameType
from typing import Any


def run(words: Sequence[str], **more: Any) -> subprocess.CompletedProcess[str]:
    """Like subprocess.run; an interruption also ends the program and its children."""
    with subprocess.Popen(
        words, start_new_session=True, text=True, errors="replace", **more
    ) as process:
        try:
            out, err = process.communicate()
        except BaseException:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            raise
    return subprocess.CompletedProcess(list(words), process.returncode, out, err)


def attend(command: Sequence[str], **more: Any) -> tuple[int, int]:
    """Runs the user's command to its end: its process id, and its exit code as in a shell. SIGTERM and SIGHUP are
    passed on to it; Ctrl-C on the terminal reaches it without us. What we ignore, it does.
    """
    process: subprocess.Popen[bytes] | None = None
    early: list[int] = []

    def pass_on(number: int, _frame: FrameType | None) -> None:
        if process:
            process.send_signal(number)
        else:
            early.append(number)

    handlers = {signal.SIGINT: lambda *_: None, signal.SIGTERM: pass_on, signal.SIGHUP: pass_on}
    before = {number: signal.getsignal(number) for number in handlers}
    try:
        for number, handler in handlers.items():
            if before[number] != signal.SIG_IGN:
                signal.signal(number, handler)
        process = subprocess.Popen(command, **more)
        for number in early:
            process.send_signal(number)
        code = process.wait()
    finally:
        for number, old in before.items():
            signal.signal(number, old)
    return process.pid, code if code >= 0 else 128 - code
