# SPDX-License-Identifier: MIT
"""The command line: one parser, one place for errors, one exit code.

Each command is a module with SUMMARY, `configure(parser)` and `main(args)`; it is imported only when it is called, so
that `run` starts fast and needs only the standard library.
"""

from __future__ import annotations

import argparse
import errno
import importlib
import os
import signal
import sys
from collections.abc import Callable, Sequence
from typing import NoReturn

from . import __version__
from .errors import USAGE, Problem, exit_code_of
from .text import Printer, did_you_mean, listing

COMMANDS = {
    "run": "run a command under hakmem",
    "verify": "is hakmem in effect? what serves malloc in each object",
    "ab": "compare policies, builds and allocators on a command",
    "matrix": "factorial experiment over build options",
    "options": "every setting: type, range, value, source",
    "get": "settings of a running process",
    "set": "change settings of a running process",
    "log": "last lines that a running process logged",
    "stat": "counters of a running process, refreshing",
    "top": "processes by live, retained and resident memory",
    "profile": "which code holds the memory: heap profile, leaks",
    "export": "statistics in the text format of Prometheus",
    "causes": "why a process keeps memory, what caused its system calls",
    "record": "record each malloc and free of a command",
    "replay": "replay a record under any allocator",
    "advise": "which settings and builds are best for a command",
}

_HELP = """\
usage: hakmem COMMAND [OPTION]… [-- CMD …]

Find out which allocator policy serves your program, and trust the answer.

commands:
{commands}

examples:
  hakmem run -- python3 app.py
  hakmem verify --for 5 -- redis-server --port 7777
  hakmem ab system mimalloc hakmem -- ./my-benchmark 1000
  hakmem ab backend=legacy set:HAKMEM_TINY_SS_PARTIAL=0 -- ./my-benchmark 1000
  hakmem matrix -f header=true,false -f backend=shared_pool,legacy -- ./bench

'hakmem COMMAND --help' explains it; 'hakmem --version' prints the version.
"""


class _Parser(argparse.ArgumentParser):
    """Reports errors like all others: one sentence, and what to do."""

    def error(self, message: str) -> NoReturn:
        raise Problem(message, f"'{self.prog} --help' lists all options.")


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command; returns its exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    return guarded(lambda: _dispatch(arguments))


def guarded(work: Callable[[], int]) -> int:
    """Runs it; an error becomes one line on stderr and an exit code."""
    if sys.stdout is None:  # it was started with that closed
        sys.stdout = open(os.devnull, "w", encoding="utf-8")
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")
    try:
        code = work()
        sys.stdout.flush()
        return code
    except Problem as problem:
        return _complain(problem)
    except KeyboardInterrupt as interrupt:
        print("hakmem: interrupted", file=sys.stderr)
        return exit_code_of(interrupt)
    except BrokenPipeError:
        _drop_output()
        return 128 + signal.SIGPIPE
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        _drop_output()
        return _complain(Problem(f"the output can't be written: {error.strerror}", "Make room for it.", 1))


def _drop_output() -> None:
    """What is left of it, which Python would write at the end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _dispatch(arguments: list[str]) -> int:
    name = arguments[0] if arguments else ""
    if name in ("", "-h", "--help", "help"):
        width = max(map(len, COMMANDS))
        lines = [f"  {command:<{width}}  {summary}" for command, summary in COMMANDS.items()]
        print(_HELP.format(commands="\n".join(lines)), end="")
        return 0 if name else USAGE
    if name in ("-V", "--version"):
        print(f"hakmem workbench {__version__}")
        return 0
    if name not in COMMANDS:
        raise Problem(
            f"there is no command '{name}'",
            did_you_mean(name, COMMANDS) or f"There are: {listing(list(COMMANDS))}.",
        )
    module = importlib.import_module(f".commands.{name}", __package__)
    parser = _Parser(
        prog=f"hakmem {name}",
        description=(module.__doc__ or "").strip(),
        epilog=module.EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    module.configure(parser)
    left, command = _split(arguments[1:])
    # A command line may follow without -- only if the command has no other positional argument.
    direct = any(action.nargs == argparse.REMAINDER for action in parser._actions)
    args = parser.parse_args(left) if direct else parser.parse_intermixed_args(left)
    if command is not None:
        if getattr(args, "command", []):
            raise Problem(
                f"'{args.command[0]}' stands before --, but the command comes after it",
                f"As in: hakmem {name} -- CMD.",
            )
        args.command = command
    return int(module.main(args))


def _split(arguments: list[str]) -> tuple[list[str], list[str] | None]:
    """Everything after the first '--' belongs to the command, unchanged."""
    if "--" not in arguments:
        return arguments, None
    at = arguments.index("--")
    return arguments[:at], arguments[at + 1 :]


def _complain(problem: Problem) -> int:
    printer = Printer(sys.stderr)
    printer.line(f"{printer.style('hakmem:', 'bold', 'red')} {problem.line}")
    return problem.code
