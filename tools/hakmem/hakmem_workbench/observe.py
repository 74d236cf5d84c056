# SPDX-License-Identifier: MIT
"""Runs a command once and watches it and all of its children, untimed.

ptrace follows each process and stops it in two places only: after an exec and just before its memory is torn down.
There /proc is complete: which files are mapped, whether the preload arrived, how much memory was resident at most and
at the end. If ptrace is refused, the same is sampled. The command starts behind a gate in a small shell, so that
nothing is missed, and so that the interpreter that forked it does not distort its rusage.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import IO, Any

from .errors import TOOL_FAILED, Problem

_PTRACE_CONT, _PTRACE_SEIZE, _PTRACE_LISTEN = 7, 0x4206, 0x4208
_PTRACE_GETEVENTMSG = 0x4201
_EVENT_FORK, _EVENT_VFORK, _EVENT_CLONE, _EVENT_EXEC, _EVENT_EXIT, _EVENT_STOP = 1, 2, 3, 4, 6, 128
_OPTIONS = sum(1 << e for e in (_EVENT_FORK, _EVENT_VFORK, _EVENT_CLONE, _EVENT_EXEC, _EVENT_EXIT))
_WALL = 0x40000000
_EXIT_WITH_US = 1 << 20
_PR_SET_CHILD_SUBREAPER = 36
_AT_SECURE = 23
_JOB_STOPS = (signal.SIGSTOP, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU)
_STDERR_KEPT = 4000

# The gate: assignments up to "--" are exported only after the shell itself runs, so that a preload affects the command
# and never the shell.
_GATE = """
read -r _ <&9; exec 9<&-
while [ "$1" != -- ]; do export "$1"; shift; done; shift
exec "$@"
"""
_GATE_DIRECT = "echo $$ >&8; exec 8>&-" + _GATE
# A shell gives its background commands an empty input, unless it is redirected.
_GATE_ORPHAN = "exec 3<&0\n{ exec 8>&-" + _GATE + "} <&3 3<&- &\necho $! >&8\n"


@dataclass
class Image:
    """One program in one process, from its exec to its exec or exit."""

    pid: int
    parent: int
    exe: str
    argv: list[str]
    preload: str | None = None
    secure: bool = False
    objects: list[str] = field(default_factory=list)
    peak: int = 0
    final: int = 0
    ended: bool = False


@dataclass
class Observation:
    """What one run of the command did, seen from outside."""

    exit_code: int
    seconds: float
    traced: bool
    images: list[Image]
    peak: int
    final: int
    minor_faults: int
    major_faults: int
    voluntary_switches: int
    involuntary_switches: int
    samples: list[tuple[float, int]]
    stderr: str
    ended_by_us: bool = False

    @property
    def failure(self) -> int:
        """The exit code; 0 for a command that we ended as requested."""
        return 0 if self.ended_by_us else self.exit_code

    @property
    def main(self) -> list[Image]:
        """The programs that the command itself ran, in order of exec."""
        return [image for image in self.images if image.pid == self.images[0].pid]


@dataclass(frozen=True)
class Request:
    """How to run: `assign` is set for the command alone, never for the shell."""

    command: Sequence[str]
    assign: Mapping[str, str]
    environment: Mapping[str, str]
    trace: bool = True
    orphan: bool = True
    show_output: bool = False
    stdin: str | None = os.devnull
    limit: float | None = None


def observe(request: Request) -> Observation:
    """Runs the command to its end and returns what was seen."""
    with tempfile.TemporaryFile() as errors:
        watcher = _Watcher(request, errors)
        try:
            return watcher.run()
        finally:
            watcher.close()


_libc = ctypes.CDLL(None, use_errno=True)
_libc.ptrace.restype = ctypes.c_long
_libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]


def _ptrace(request: int, pid: int, data: int = 0) -> bool:
    return int(_libc.ptrace(request, pid, None, data)) != -1


class _Watcher:
    """One run: spawn, follow, sample, reap."""

    def __init__(self, request: Request, errors: IO[bytes]) -> None:
        self.request = request
        self.errors = errors
        self.live: dict[int, Image] = {}
        self.images: list[Image] = []
        self.traced = False
        self.main = 0
        self.ended_by_us = False
        self.samples: list[tuple[float, int]] = []
        self.script = _GATE_ORPHAN if request.orphan else _GATE_DIRECT
        self.mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
        self.page = os.sysconf("SC_PAGE_SIZE")
        # A foreground command gets the terminal's Ctrl-C itself; we report afterwards.
        self.interrupt = None if request.orphan else signal.signal(signal.SIGINT, signal.SIG_IGN)
        _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)

    def close(self) -> None:
        """No process that we started outlives us: under ptrace the kernel ensures that."""
        if self.main:
            with contextlib.suppress(OSError):
                os.kill(self.main, signal.SIGKILL)
                os.waitpid(self.main, _WALL)
        _libc.prctl(_PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
        signal.pthread_sigmask(signal.SIG_SETMASK, self.mask)
        if self.interrupt is not None:
            signal.signal(signal.SIGINT, self.interrupt)

    def run(self) -> Observation:
        gate = self._spawn()
        if self.request.trace:
            self.traced = _ptrace(_PTRACE_SEIZE, self.main, _OPTIONS | _EXIT_WITH_US)
        image = Image(self.main, os.getpid(), "", list(self.request.command))
        self.live[self.main] = image
        start = time.monotonic()
        os.write(gate, b"\n")
        os.close(gate)
        status, usage = self._follow(start)
        seconds = time.monotonic() - start
        self.main = 0
        self._let_go()
        return self._summary(status, usage, seconds)

    def _spawn(self) -> int:
        """Starts the gate; returns the descriptor that opens it."""
        shell = shutil.which("sh") or "/bin/sh"
        gate_out, gate_in = _high_pipe()
        pid_out, pid_in = _high_pipe()
        words = [f"{key}={value}" for key, value in self.request.assign.items()]
        actions: list[tuple[Any, ...]] = []
        if self.request.stdin is not None:
            actions.append((os.POSIX_SPAWN_OPEN, 0, self.request.stdin, os.O_RDONLY, 0))
        if not self.request.show_output:
            actions.append((os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0))
            actions.append((os.POSIX_SPAWN_DUP2, self.errors.fileno(), 2))
        actions.append((os.POSIX_SPAWN_DUP2, gate_out, 9))
        actions.append((os.POSIX_SPAWN_DUP2, pid_in, 8))
        defaults = [signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT]
        try:
            shell_pid = os.posix_spawn(
                shell,
                ["sh", "-c", self.script, "sh", *words, "--", *self.request.command],
                dict(self.request.environment),
                file_actions=actions,
                setsigmask=self.mask,
                setsigdef=defaults,
            )
        except OSError as error:
            raise Problem(
                f"{shell} can't be started: {error.strerror}",
                "Every command is started through it; put a shell called sh into PATH.",
                TOOL_FAILED,
            ) from error
        os.close(gate_out)
        os.close(pid_in)
        self.main = int(os.read(pid_out, 32))  # printed by a shell after its own exec
        os.close(pid_out)
        if self.request.orphan:
            os.waitpid(shell_pid, 0)  # a shell that continued to run could reap the command
        return gate_in

    def _follow(self, start: float) -> tuple[int, object]:
        """Serves trace events and takes samples until the command itself has ended."""
        pause = 0.0005
        stop_at = start + self.request.limit if self.request.limit else None
        while True:
            ended = self._serve_events()
            if ended is not None:
                return ended
            now = time.monotonic()
            self._sample(now - start)
            if stop_at and now > stop_at:
                with contextlib.suppress(OSError):
                    os.kill(self.main, signal.SIGTERM)
                stop_at, self.ended_by_us = None, True
            pause = min(max(pause, (now - start) / 500), 0.2)
            signal.sigtimedwait({signal.SIGCHLD}, pause)

    def _serve_events(self) -> tuple[int, object] | None:
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG | _WALL)
            except ChildProcessError as error:
                raise Problem(
                    f"{self.request.command[0]} was lost: another program waited for it",
                    "Run it once more.",
                    TOOL_FAILED,
                ) from error
            if pid == 0:
                return None
            if os.WIFSTOPPED(status):
                self._stopped(pid, status)
            elif pid == self.main:
                return status, usage

    def _stopped(self, pid: int, status: int) -> None:
        event, number = status >> 16, os.WSTOPSIG(status)
        deliver = 0
        if event in (_EVENT_FORK, _EVENT_VFORK):
            child = ctypes.c_ulong()
            _libc.ptrace(_PTRACE_GETEVENTMSG, pid, None, ctypes.addressof(child))
            self._forked(_leader(pid), child.value)
        elif event == _EVENT_EXEC:
            self._execed(pid)
        elif event == _EVENT_EXIT:
            self._exiting(pid)
        elif event == _EVENT_STOP:
            if number in _JOB_STOPS:
                _ptrace(_PTRACE_LISTEN, pid)
                return
        elif event == 0:
            deliver = number
        _ptrace(_PTRACE_CONT, pid, deliver)

    def _forked(self, parent: int, child: int) -> None:
        origin = self.live.get(parent)
        image = Image(child, parent, origin.exe if origin else "", origin.argv if origin else [])
        self.live[child] = image

    def _execed(self, pid: int) -> None:
        before = self.live.get(pid)
        image = Image(pid, before.parent if before else 0, "", [])
        _describe(image)
        self.live[pid] = image
        self.images.append(image)

    def _exiting(self, thread: int) -> None:
        pid = _leader(thread)
        image = self.live.get(pid)
        if image is None:
            return
        self._measure(image)
        if pid == thread or not image.objects:
            image.objects = mapped_objects(pid)
        image.ended = True

    def _measure(self, image: Image) -> None:
        status = _status(image.pid)
        image.peak = max(image.peak, int(status.get("VmHWM", "0 kB").split()[0]) * 1024)
        image.final = _resident(image.pid) or image.final

    def _sample(self, moment: float) -> None:
        total = 0
        for image in list(self.live.values()):
            if image.ended:
                continue
            try:
                with open(f"/proc/{image.pid}/statm", "rb") as stream:
                    resident = int(stream.read().split()[1]) * self.page
            except (OSError, IndexError, ValueError):
                continue
            total += resident
            if not self.traced and resident:
                self._sample_untraced(image, resident)
        if total:
            self.samples.append((moment, total))

    def _sample_untraced(self, image: Image, resident: int) -> None:
        if _words(image.pid, "cmdline")[2:3] == [self.script]:
            return  # still the gate
        if _exe(image.pid) != image.exe or not self.images:
            _describe(image)
            if not image.exe:  # it ended while we looked: then assume the given command
                image.exe = _program(self.request.command[0])
                image.argv = list(self.request.command)
            image.objects = []
            if image not in self.images:
                self.images.append(image)
        image.final = resident
        image.peak = max(image.peak, resident)
        image.objects = mapped_objects(image.pid) or image.objects

    def _let_go(self) -> None:
        """Reaps processes that have ended; a daemon left behind ends with us."""
        while True:
            try:
                pid, status, _ = os.wait4(-1, os.WNOHANG | _WALL)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if os.WIFSTOPPED(status):
                self._stopped(pid, status)

    def _summary(self, status: int, usage: object, seconds: float) -> Observation:
        code = os.waitstatus_to_exitcode(status)
        own = [image for image in self.images if image.pid == self.images[0].pid]
        self.errors.seek(max(0, self.errors.seek(0, os.SEEK_END) - _STDERR_KEPT))
        maxrss = getattr(usage, "ru_maxrss", 0) * 1024
        peaks = [image.peak for image in self.images if image.peak]
        return Observation(
            exit_code=code if code >= 0 else 128 - code,
            seconds=seconds,
            traced=self.traced,
            images=self.images,
            peak=max([*peaks, maxrss if self.request.orphan or not peaks else 0]),
            final=own[-1].final if own else 0,
            minor_faults=getattr(usage, "ru_minflt", 0),
            major_faults=getattr(usage, "ru_majflt", 0),
            voluntary_switches=getattr(usage, "ru_nvcsw", 0),
            involuntary_switches=getattr(usage, "ru_nivcsw", 0),
            samples=self.samples,
            stderr=self.errors.read().decode("utf-8", "replace"),
            ended_by_us=self.ended_by_us,
        )


def _high_pipe() -> tuple[int, int]:
    """A pipe whose ends avoid the descriptors that the gate uses."""
    ends = os.pipe()
    moved = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 32) for end in ends]
    for end in ends:
        os.close(end)
    return moved[0], moved[1]


def mapped_objects(pid: int) -> list[str]:
    """Files mapped with execute permission, in address order, each once."""
    objects: dict[str, None] = {}
    with contextlib.suppress(OSError), open(f"/proc/{pid}/maps", encoding="utf-8") as stream:
        for line in stream:
            fields = line.rstrip("\n").split(None, 5)
            if len(fields) == 6 and "x" in fields[1] and fields[5].startswith("/"):
                objects[fields[5].removesuffix(" (deleted)")] = None
    return list(objects)


def _program(word: str) -> str:
    return os.path.realpath(shutil.which(word) or word)


def _describe(image: Image) -> None:
    """The command line of the program."""
    image.exe = _exe(image.pid)
    image.argv = _words(image.pid, "cmdline")
    if not image.exe and image.argv:  # a program with raised privileges hides its links
        image.exe = _program(image.argv[0])
    preload = [word for word in _words(image.pid, "environ") if word.startswith("LD_PRELOAD=")]
    image.preload = preload[0].partition("=")[2] if preload else None
    image.secure = _secure(image.pid)


def _leader(thread: int) -> int:
    return int(_status(thread).get("Tgid", thread))


def _status(pid: int) -> dict[str, str]:
    with contextlib.suppress(OSError), open(f"/proc/{pid}/status", encoding="utf-8") as stream:
        return {key: value.strip() for key, _, value in (line.partition(":") for line in stream)}
    return {}


def _resident(pid: int) -> int:
    """Exact resident bytes; the kernel's cheap counter is approximate."""
    with (
        contextlib.suppress(OSError),
        open(f"/proc/{pid}/smaps_rollup", encoding="utf-8") as stream,
    ):
        for line in stream:
            if line.startswith("Rss:"):
                return int(line.split()[1]) * 1024
    return int(_status(pid).get("VmRSS", "0 kB").split()[0]) * 1024


def _exe(pid: int) -> str:
    with contextlib.suppress(OSError):
        return os.readlink(f"/proc/{pid}/exe").removesuffix(" (deleted)")
    return ""


def _words(pid: int, name: str) -> list[str]:
    with contextlib.suppress(OSError), open(f"/proc/{pid}/{name}", "rb") as stream:
        return [os.fsdecode(word) for word in stream.read().split(b"\0")[:-1]]
    return []


def _secure(pid: int) -> bool:
    """Whether the kernel told the program not to trust its environment."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/auxv", "rb") as stream:
        data = stream.read()
        width = ctypes.sizeof(ctypes.c_long)
        numbers = [
            int.from_bytes(data[at : at + width], "little") for at in range(0, len(data), width)
        ]
        return dict(zip(numbers[::2], numbers[1::2], strict=False)).get(_AT_SECURE, 0) != 0
    return False
