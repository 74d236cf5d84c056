# SPDX-License-Identifier: MIT
"""Which code holds the memory, and which allocated it. Runs a command under a
sampling heap profile, reads the profile of a running process, or reads a file.
Every stack is resolved to source lines. After the end of a command, live
memory was never freed.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Iterable
from pathlib import Path

from .. import children, elf, heapprofile, inspection, library, preload, process, settings
from ..errors import Problem
from ..heapprofile import Amount, HeapProfile
from ..symbols import Symbols, jit_functions
from ..text import Printer, count, percent, plural, size, word
from .common import add_command, add_heap_by, add_policy, heap_by, policy
from .output import stoppable

EPILOG = """\
A sample is taken every 512 KiB of allocations, on average (--mean). Figures are
estimates: a stack that holds a hundredth of 1 GiB is right to within a fifth.
A mean of 1 counts each block, but for those of libraries' constructors, up to
131072 live ones.

examples:
  hakmem profile -- ./server --once              where its memory is at the end
  hakmem profile -o before -- ./server           before.pb.gz and before.html
  hakmem profile --base before.hakprof after.hakprof     what came to it
  go tool pprof -http=: before.pb.gz
  hakmem profile --idle -- ./server              loaded, not switched on
  hakmem profile --on 4711                       now it is
  hakmem profile -o now 4711
"""
DEFAULT_MEAN = 512 * 1024
DEPTH = 12  # frames shown of a stack
LIMIT = 1 << 30


def configure(parser: argparse.ArgumentParser) -> None:
    add_policy(parser)
    parser.add_argument(
        "--mean",
        type=_mean,
        metavar="BYTES",
        help="between two samples, on average (default 524288)",
    )
    parser.add_argument("--frames", action="store_true", help="walk frame pointers: faster")
    parser.add_argument(
        "-o",
        "--output",
        metavar="NAME",
        help="write NAME.pb.gz for pprof, NAME.html and, unless from a FILE, NAME.hakprof; "
        "of a command's other programs NAME.PROGRAM.pb.gz, …",
    )
    parser.add_argument("--base", metavar="FILE", help="show what came to this profile, and what went")
    parser.add_argument(
        "-n", "--top", type=int, default=10, metavar="N", help="stacks to show (default 10)"
    )
    parser.add_argument(
        "--allocated", action="store_true", help="by all that was allocated, not by what lives"
    )
    parser.add_argument("--peak", action="store_true", help="by what lived when most did")
    parser.add_argument("--heap", metavar="NAME", help="only what lies in heaps of this name; '': in none")
    parser.add_argument("--idle", action="store_true", help="load it, and switch nothing on")
    switch = parser.add_mutually_exclusive_group()
    switch.add_argument("--on", action="store_true", help="switch it on in a running process")
    switch.add_argument("--off", action="store_true", help="switch it off in a running process")
    parser.add_argument("what", metavar="PID|FILE", nargs="?", help="a process, or a profile's file")
    add_heap_by(parser)
    add_command(parser, before="{PID|FILE|-- CMD …}")


def _mean(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= LIMIT:
        raise argparse.ArgumentTypeError(f"'{text}' is not a number of bytes from 1 to {LIMIT}")
    return int(text)


def main(args: argparse.Namespace) -> int:
    if bool(args.what) == bool(args.command):
        raise Problem(
            "name a process, a file, or a command behind --", "As in: hakmem profile -- CMD."
        )
    if args.output and not os.access(folder := os.path.dirname(args.output) or ".", os.W_OK):
        raise Problem(f"there is no folder {folder} that can be written to", "Name another place with -o.")
    if args.idle and (args.output or args.base):
        raise Problem("--idle writes no profile", "hakmem profile PID -o NAME reads it while the program runs.")
    base = heapprofile.load_all(args.base) if args.base else []
    if args.command:
        return _run(args, base)
    running = args.what.isdecimal() and not os.path.exists(args.what)
    if args.on or args.off:
        if not running:
            raise Problem("--on and --off need a process", "Name its PID.")
        heapprofile.set_mean(int(args.what), 0 if args.off else args.mean or DEFAULT_MEAN)
        return 0
    if running:
        data = heapprofile.read(int(args.what))
        return _show([heapprofile.parse(data, int(args.what))], base, args, "live", args.output, [data])
    return _show(heapprofile.load_all(args.what), base, args, "live at its end or now", args.output)


def _run(args: argparse.Namespace, base: list[HeapProfile]) -> int:
    program = preload.resolve_command(args.command)
    chosen = library.find(args.library)
    assigned = policy(args)
    if assigned:
        settings.check(chosen, assigned)
    within = _contains_profile(program)
    with stoppable(), tempfile.TemporaryDirectory(prefix="hakmem-") as folder:
        if args.idle:
            assigned["HAKMEM_PROFILE"] = "0"
        else:
            assigned["HAKMEM_PROFILE"] = str(args.mean or DEFAULT_MEAN)
            assigned["HAKMEM_PROFILE_FILE"] = f"{folder}/%p"
        if args.frames:
            assigned["HAKMEM_PROFILE_UNWIND"] = "frames"
        environment = preload.original_environment()
        environment |= preload.assignments(None if within else chosen, assigned)
        if not within:
            observer = library.beside(chosen, heapprofile.OBSERVER)
            environment["LD_PRELOAD"] = heap_by(args, chosen, preload.chain(observer, environment["LD_PRELOAD"]))
        pid, code = children.attend(args.command, executable=program, env=environment)
        if not args.idle:
            _report(Path(folder), pid, base, args)
    return code


def _contains_profile(program: str) -> bool:
    """Whether it was linked with libhakmem-profile.a; a Problem if it has no profile and cannot get one."""
    try:
        records = inspection.layout(program)
        static = elf.read(program).static
    except (OSError, elf.NotElf):
        return False
    if records and "profile" in records.variables:
        return True
    if records or static:
        what = "contains a hakmem without the profile" if records else "is statically linked"
        raise Problem(f"{program} {what}", "Link libhakmem-profile.a in place of libhakmem.a (docs/profile.md).")
    return False


def _report(folder: Path, pid: int, base: list[HeapProfile], args: argparse.Namespace) -> None:
    """All processes, merged by program: the first program is the command's, unless another has twice its samples.
    Without samples, a process has no known program.
    """
    profiles = sorted(map(heapprofile.load, folder.iterdir()), key=lambda one: (one.pid != pid, one.started_ns))
    if not profiles:
        raise Problem(
            "the command left no heap profile",
            "'hakmem verify -- CMD' says why hakmem had no effect.",
            1,
        )
    programs: dict[str, list[HeapProfile]] = {}
    for one in [one for one in profiles if one.sites] or profiles[:1]:
        programs.setdefault(one.program, []).append(one)

    def samples(group: list[HeapProfile]) -> int:
        return sum(one.total.samples for one in group)

    groups = sorted(programs.values(), key=lambda group: -samples(group) * (2 if group[0].pid == pid else 1))
    names: list[str] = []
    for number, group in enumerate(groups):
        if number and not args.output:
            told = ", ".join(f"{word(os.path.basename(one[0].program))} ({plural(samples(one), 'sample')})"
                             for one in groups[1:])
            Printer().line(f"{plural(len(groups) - 1, 'other program')}: {told}; -o NAME writes all.")
            break
        name = args.output and args.output + (f".{os.path.basename(group[0].program)}" if number else "")
        if name in names:
            name += f".{number}"
        names.append(name)
        raw = ((folder / str(one.pid)).read_bytes() for one in group)
        _show(group, base, args, "never freed", name, raw, shown=not number)


def _whose(profiles: list[HeapProfile]) -> str:
    if len(profiles) == 1:
        return f"process {profiles[0].pid}"
    pids = ", ".join(str(one.pid) for one in profiles[:5]) + (", …" if len(profiles) > 5 else "")
    return f"{len(profiles)} processes of {word(os.path.basename(profiles[0].program))} ({pids})"


def _show(
    profiles: list[HeapProfile],
    base: list[HeapProfile],
    args: argparse.Namespace,
    live: str,
    output: str | None,
    raw: Iterable[bytes] | None = None,
    shown: bool = True,
) -> int:
    """`raw`: what they were read from, of processes whose ids are still theirs; `shown`: with the table. The command's
    status: 1 if the heap that was asked for is not there.
    """
    profile = heapprofile.merged(profiles, base) if base or len(profiles) > 1 else profiles[0]
    jit = jit_functions(profile.pid, profile.started_ns) if raw and not base and len(profiles) == 1 else []
    heaps, unknown = sorted(filter(None, profile.heaps)), ""
    if args.heap is not None:
        profile.sites = {site: amount for site, amount in profile.sites.items() if site.heap == args.heap}
        if shown and not profile.sites:
            what = f"no heap has the name '{args.heap}'" if args.heap else "all samples lie in heaps"
            unknown = f"{what}; there are: {', '.join(heaps) or 'none'}"
    elsewhere = shown and live == "live" and not process.has_our_root(profile.pid)
    symbols = Symbols(profile.mappings, profile.addresses, jit, 1 if elsewhere else profile.started_ns)
    title = f"heap profile of {_whose(profiles)}" + (f", less that of {_whose(base)}" if base else "")
    try:  # a reader of the table may leave early
        written = _write(output, raw, title, profile, symbols) if output else ""
    finally:
        _tell(title, profile, symbols, live, args, shown, len(profiles) > 1)
    for said in filter(None, (unknown, written)):
        Printer().line(said)
    return 1 if unknown else 0


def _write(
    name: str, raw: Iterable[bytes] | None, title: str, profile: HeapProfile, symbols: Symbols
) -> str:
    from .. import flame, pprof

    try:
        if raw:
            heapprofile.save(f"{name}.hakprof", raw)
        Path(f"{name}.pb.gz").write_bytes(pprof.encode(profile, symbols))
        Path(f"{name}.html").write_text(flame.page(title, profile, symbols), "utf-8")
    except OSError as error:
        raise Problem(f"{name}.* can't be written: {error.strerror}", "Name another place with -o.", 1) from error
    return f"written: {f'{name}.hakprof, ' if raw else ''}{name}.pb.gz (go tool pprof), {name}.html (a browser)"


def _tell(
    title: str, profile: HeapProfile, symbols: Symbols, live: str, args: argparse.Namespace, shown: bool, several: bool
) -> None:
    printer, total = Printer(), profile.total
    printer.line(
        f"{printer.style(title, 'bold')}: "
        f"{plural(total.samples, 'sample')}"
        + (f", one every {_means(profile)} on average" if profile.mean else "; it is switched off")
    )
    if not profile.mean and live == "live":
        printer.line(f"'hakmem profile --on {profile.pid}' switches it on.")
    if profile.lost:
        printer.line(f"{plural(profile.lost, 'sample')} were lost for lack of room: figures are too low")
    printer.line(f"allocated {size(total.all_bytes)} in {_blocks(total.all_blocks)}")
    printer.line(f"{live}: {size(total.live_bytes)} in {_blocks(total.live_blocks)}")
    printer.line(f"at its peak: {size(total.peak_bytes)} in {_blocks(total.peak_blocks)}")
    if several and profile.inherited:
        printer.line(f"children share some {size(profile.inherited)} with their parents: it counts in each")
    for name, amount in sorted(profile.heaps.items(), key=lambda item: -item[1].live_bytes):
        printer.line(f"{f'heap {name}' if name else 'no heap'}: {size(amount.live_bytes)} in "
                     f"{_blocks(amount.live_blocks)}, of {size(amount.all_bytes)} allocated")
    if shown:
        _table(printer, profile, symbols, args)


def _means(profile: HeapProfile) -> str:
    least, most = min(profile.means, default=profile.mean), max(profile.means, default=profile.mean)
    return size(least) if least == most else f"{size(least)} to {size(most)}"


def _blocks(number: float) -> str:
    return plural(round(number), "block")


def _table(
    printer: Printer, profile: HeapProfile, symbols: Symbols, args: argparse.Namespace
) -> None:
    """Stacks by size, each of one heap. Stacks that differ only in an instruction are merged."""
    merged: dict[tuple[str, ...], Amount] = {}
    for site, amount in profile.sites.items():
        heap = (f"in heap {site.heap}",) if site.heap else ()
        merged.setdefault(heap + _words(site.stack, symbols), Amount()).add(amount)

    def weight(amount: Amount) -> float:
        return amount.all_bytes if args.allocated else amount.peak_bytes if args.peak else amount.live_bytes

    def number(amount: Amount) -> float:
        return amount.all_blocks if args.allocated else amount.peak_blocks if args.peak else amount.live_blocks

    whole = sum(abs(weight(amount)) for amount in merged.values())
    rows = sorted(merged.items(), key=lambda row: -abs(weight(row[1])))
    for words, amount in rows[: max(args.top, 0)]:
        if not weight(amount):
            break
        blocks = round(number(amount))
        printer.line()
        printer.line(
            f"{printer.style(size(weight(amount)), 'bold')}  {percent(weight(amount) / whole)}"
            f"  {count(blocks)} × {size(weight(amount) / (blocks or 1))}"
        )
        for word in words[:DEPTH]:
            printer.line(f"    {word}")
        if len(words) > DEPTH:
            printer.line(f"    … {len(words) - DEPTH} more")


def _words(stack: tuple[int, ...], symbols: Symbols) -> tuple[str, ...]:
    frames = [frame for address in stack for frame in symbols.frames[address]]
    return tuple(f"{frame.function}  {frame.place}".rstrip() for frame in frames)
