# SPDX-License-Identifier: MIT
"""Errors that the user can correct.

A `Problem` becomes one line on stderr and an exit code; every other exception
is a bug of ours and keeps its traceback.
"""

import contextlib
import signal
import struct
import zlib
from collections.abc import Iterator

USAGE = 2
TOOL_FAILED = 125
NOT_EXECUTABLE = 126
NOT_FOUND = 127


class Problem(Exception):
    """Which value is wrong and why, what to do about it, and the exit code."""

    def __init__(self, sentence: str, hint: str, code: int = USAGE) -> None:
        super().__init__(sentence)
        self.sentence = sentence
        self.hint = hint
        self.code = code

    @property
    def line(self) -> str:
        """Both in one line, even if the hint has several (a compiler's or linker's)."""
        joint = "; " if self.hint[:1].islower() else ". "
        words = f"{self.sentence}{joint}{self.hint}" if self.hint else self.sentence
        return " ".join(part.strip() for part in words.splitlines())


@contextlib.contextmanager
def reading(what: str, hint: str) -> Iterator[None]:
    """Around a reader of what others wrote, which may be anything: what does not fit is a Problem."""
    wrong = (ArithmeticError, AttributeError, EOFError, LookupError, MemoryError, RecursionError, TypeError, ValueError)
    try:
        yield
    except (*wrong, struct.error, zlib.error) as error:
        said = " ".join(str(error).split())[:100]
        raise Problem(f"{what} is damaged: {said or type(error).__name__}", hint) from error


class Interrupted(KeyboardInterrupt):
    """A signal that requests termination; Ctrl-C is one of them."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number


def exit_code_of(interrupt: KeyboardInterrupt) -> int:
    """As in a shell: 128 plus the signal's number."""
    return 128 + getattr(interrupt, "number", signal.SIGINT)


def name_of(interrupt: KeyboardInterrupt) -> str:
    number = getattr(interrupt, "number", signal.SIGINT)
    return "Ctrl-C" if number == signal.SIGINT else signal.Signals(number).name
