# SPDX-License-Identifier: MIT
"""Runs the programs that measure (hyperfine, strace) so that no process of theirs remains.

Each gets a session of its own. Ctrl-C on the terminal then reaches only the workbench, which ends the whole session:
the tool and its command.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Sequence
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
