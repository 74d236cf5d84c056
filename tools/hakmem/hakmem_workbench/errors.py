# SPDX-License-Identifier: MIT
"""What can go wrong in a way that the user can mend.

A `Problem` becomes one or two lines on stderr and an exit code; every other
exception is a bug of ours and keeps its traceback.
"""

USAGE = 2
TOOL_FAILED = 125
NOT_EXECUTABLE = 126
NOT_FOUND = 127


class Problem(Exception):
    """A sentence for the user, what to do about it, and the exit code."""

    def __init__(self, sentence: str, hint: str = "", code: int = USAGE) -> None:
        super().__init__(sentence)
        self.sentence = sentence
        self.hint = hint
        self.code = code
