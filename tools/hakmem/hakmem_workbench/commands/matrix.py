# SPDX-License-Identifier: MIT
"""Factorial experiment: every combination of options, from builds of their own."""

from __future__ import annotations

import argparse
import shlex
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from .. import library, settings, variants
from ..errors import Problem
from ..mesonbuild import ALIASES, Project, default_root
from ..settings import PREFIX
from ..text import Printer, plural
from .ab import add_measuring, plan, write_pictures
from .common import add_command, need
from .output import Output, add_output, stoppable, warn_of_few

if TYPE_CHECKING:
    from ..factorial import Factor
    from ..matrix import MatrixResults

DEFAULT_FACTORS = ("header=true,false,small", "backend=shared_pool,legacy", "release=batch,direct")

EPILOG = """\
Exit codes are those of 'hakmem ab'.

factors:
  header=true,false,small       build option tiny_header
  backend=shared_pool,legacy    build option default_backend
  release=batch,direct          build with or without the batch backend
  cache=list,array              build option cache: how free blocks are held
  NAME=A,B                      any other build option (array: A+B is one value)
  HAKMEM_NAME=A,B               a setting, switched without a build of its own

Without --factor: header × backend × release, 12 combinations. The first value
of each factor is what the others are compared with.

examples:
  hakmem matrix -- ./my-benchmark 1000
  hakmem matrix -f header=true,false -f superslab_lg=19,21 -- ./bench 1000
  hakmem matrix -f HAKMEM_SS_PREFAULT=0,1 -f header=true,small -- ./bench 1000
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-f",
        "--factor",
        action="append",
        default=[],
        metavar="NAME=A,B…",
        dest="factors",
        help="an option and its values; repeatable; see below",
    )
    parser.add_argument(
        "--source", metavar="DIR", help="the sources of hakmem (default: this checkout)"
    )
    parser.add_argument(
        "--build-root", metavar="DIR", help="where build directories go (default: a cache)"
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="show the combinations, build nothing"
    )
    add_measuring(parser)
    add_output(parser, "hakmem-matrix")
    add_command(parser, before="-- CMD …")


def main(args: argparse.Namespace) -> int:
    need("numpy", "matplotlib", "rich")
    from ..factorial import cells, parse_factor

    if not args.command and not args.dry_run:
        raise Problem(
            "there is no command to run", "Put it behind --, as in: hakmem matrix -- ./bench 1000"
        )
    factors = [parse_factor(text) for text in args.factors or DEFAULT_FACTORS]
    _check_names(factors)
    _check_settings(factors)
    builder = _Builder(args, factors)
    if args.dry_run:
        builder.show(cells(factors))
        return 0
    return _measure(args, factors, builder)


def _check_names(factors: list[Factor]) -> None:
    names = [ALIASES.get(factor.name, factor.name) for factor in factors]
    for name in names:
        if names.count(name) > 1:
            raise Problem(f"the factor {name} is named twice", "Name all its values in one -f.")


def _check_settings(factors: list[Factor]) -> None:
    """Before anything is built, by a library that is there; else the first one that is built tells."""
    try:
        known = library.find(None)
    except Problem:
        return
    for factor in factors:
        for level in factor.levels if factor.name.startswith(PREFIX) else ():
            settings.check(known, {factor.name: level})


class _Builder:
    """Turns a combination into a variant, building what it needs."""

    def __init__(self, args: argparse.Namespace, factors: list[Factor]) -> None:
        self.factors = factors
        self.project = Project(args.source)
        self.root = Path(args.build_root) if args.build_root else default_root(self.project.source)
        for factor in factors:
            for level in factor.levels:
                if not factor.name.startswith(PREFIX):
                    self.project.assignments(factor.name, level)

    def split(self, cell: tuple[str, ...]) -> tuple[dict[str, str], dict[str, str]]:
        """(build options, settings) of a combination."""
        options: dict[str, str] = {}
        assigned: dict[str, str] = {}
        for factor, level in zip(self.factors, cell, strict=True):
            if factor.name.startswith(PREFIX):
                assigned[factor.name] = level
            else:
                options |= self.project.assignments(factor.name, level)
        return options, assigned

    def label(self, cell: tuple[str, ...]) -> str:
        names = (factor.name.removeprefix(PREFIX) for factor in self.factors)
        return " ".join(f"{name}={level}" for name, level in zip(names, cell, strict=True))

    def show(self, combinations: list[tuple[str, ...]]) -> None:
        printer = Printer()
        directories = {
            self.project.directory(self.root, self.split(cell)[0]) for cell in combinations
        }
        printer.line(
            f"{plural(len(combinations), 'combination')} from "
            f"{plural(len(directories), 'build')} in {self.root}"
        )
        for cell in combinations:
            options, assigned = self.split(cell)
            words = [f"-D{key}={value}" for key, value in options.items()]
            words += [f"{key}={value}" for key, value in assigned.items()]
            printer.line(f"  {self.label(cell)}:  {shlex.join(words)}")

    def variants(self, combinations: list[tuple[str, ...]]) -> list[variants.Variant]:
        say = Printer(None)
        built: set[Path] = set()
        found = []
        for cell in combinations:
            options, assigned = self.split(cell)
            directory = self.project.directory(self.root, options)
            if directory not in built:
                self.project.build(directory, options, lambda words: say.line(words, "dim"))
                built.add(directory)
            chosen = library.from_build(str(directory))
            stats = settings.check(chosen, assigned)
            name = self.label(cell)
            found.append(variants.Variant(name, name, chosen, True, assigned, stats))
        return found


def _measure(args: argparse.Namespace, factors: list[Factor], builder: _Builder) -> int:
    from ..experiment import Experiment
    from ..factorial import cells
    from ..live import Display
    from ..matrix import MatrixResults, show
    from ..screen import console

    asked = plan(args, [])
    warn_of_few(args.runs)
    with stoppable(), Output(args, "hakmem-matrix", "matrix.csv") as output:
        contestants = builder.variants(cells(factors))
        with Display(args.quiet) as display:
            results = Experiment(
                replace(asked, variants=contestants), display, output.record
            ).carry_out()
        matrix = MatrixResults(factors, results)
        return output.conclude(
            results,
            lambda: show(matrix, console()),
            lambda folder: _write(matrix, folder, args.pictures),
        )


def _write(matrix: MatrixResults, folder: Path, pictures: bool) -> list[str]:
    from ..matrix import matrix_page, matrix_plots
    from ..results import write_csv, write_json

    write_json(matrix.to_json(), folder / "matrix.json")
    write_csv(matrix.results, folder / "matrix.csv")
    (folder / "matrix.html").write_text(matrix_page(matrix), encoding="utf-8")
    names = write_pictures(matrix_plots(matrix), folder) if pictures else []
    return ["matrix.html", "matrix.json", "matrix.csv", *names]
