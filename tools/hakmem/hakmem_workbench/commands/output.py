# SPDX-License-Identifier: MIT
"""The output folder of an experiment, for `ab` and `matrix`. It is made, and written to, before anything is built or
measured. Each timed run is written at once. If nothing was measured, the folder is removed.
"""

from __future__ import annotations

import argparse
import contextlib
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from types import FrameType, TracebackType
from typing import TYPE_CHECKING

from ..errors import Interrupted, Problem

if TYPE_CHECKING:
    from ..results import Arm, Results, Run, RunLog


def add_output(parser: argparse.ArgumentParser, stem: str) -> None:
    group = parser.add_argument_group("output")
    group.add_argument(
        "-o",
        "--output",
        metavar="DIR",
        help=f"where JSON, CSV and HTML go (default: {stem}-DATE-TIME)",
    )
    group.add_argument("--pictures", action="store_true", help="write each picture as SVG too")
    group.add_argument("--no-files", action="store_true", help="write no files")


class Output:
    """The folder of one experiment, or none with --no-files."""

    def __init__(self, args: argparse.Namespace, stem: str, csv: str) -> None:
        name = args.output or f"{stem}-{datetime.now():%Y%m%d-%H%M%S}"
        self.folder = None if args.no_files else Path(name)
        self.csv = csv
        self.made: list[Path] = []
        self.log: RunLog | None = None

    def __enter__(self) -> Output:
        if self.folder is not None:
            self._make(self.folder)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.log is not None:
            self.log.close()
        else:
            with contextlib.suppress(OSError):
                for folder in self.made:
                    folder.rmdir()

    def _make(self, folder: Path) -> None:
        self.made = [path for path in (folder, *folder.parents) if not path.exists()]
        try:
            folder.mkdir(parents=True, exist_ok=True)
            tempfile.TemporaryFile(dir=folder).close()
        except OSError as error:
            raise Problem(
                f"{folder} can't be written to: {error.strerror}",
                "Name another folder with --output DIR, or measure without files: --no-files.",
                1,
            ) from error

    def record(self, arm: Arm, run: Run) -> None:
        """One more timed run."""
        from ..results import RunLog

        if self.folder is None:
            return
        if self.log is None:
            self.log = RunLog(self.folder / self.csv)
        self.log.add(arm, run)

    def conclude(
        self, results: Results, show: Callable[[], None], write: Callable[[Path], list[str]]
    ) -> int:
        """Shows and writes the results so far; the exit code says whether they are complete."""
        names: list[str] = []
        if self.folder is not None:  # a reader of the tables may leave early
            names = self._written(write, self.folder) if results.blocks else [self.csv]
        if results.blocks:
            show()
        if self.folder is not None:
            print(f"\nWritten: {self.folder}/{', '.join(names)}", flush=True)
        if results.stopped is None:
            return 0
        kept = f"; what was measured is in {self.folder}" if names else ""
        print(f"hakmem: {results.stopped.sentence}{kept}", file=sys.stderr)
        return results.stopped.code


    def _written(self, write: Callable[[Path], list[str]], folder: Path) -> list[str]:
        try:
            return write(folder)
        except OSError as error:
            raise Problem(
                f"{error.filename or folder} can't be written: {error.strerror}",
                f"The raw runs are in {folder / self.csv}.",
                1,
            ) from error


@contextlib.contextmanager
def stoppable() -> Iterator[None]:
    """SIGTERM and SIGHUP end an experiment like Ctrl-C: the measured results are kept."""

    def end(number: int, _frame: FrameType | None) -> None:
        raise Interrupted(number)

    wanted = [number for number in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(number) != signal.SIG_IGN]
    before = {number: signal.signal(number, end) for number in wanted}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def warn_of_few(runs: int | None) -> None:
    """A warning at the start, not after an hour."""
    from ..inference import FEWEST_BLOCKS

    if runs is not None and runs < FEWEST_BLOCKS:
        print(
            f"hakmem: --runs {runs} is too few for a verdict: {FEWEST_BLOCKS} are needed, and 15 "
            "find a difference of 5 %. The figures will come without one.",
            file=sys.stderr,
        )
