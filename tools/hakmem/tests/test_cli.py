# SPDX-License-Identifier: MIT
"""The command line as a whole: help, mistakes, and required packages."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import TOOL, Hakmem

import hakmem_workbench
from hakmem_workbench.cli import COMMANDS, main

PACKAGE = Path(hakmem_workbench.__file__).parent


def test_help(hakmem: Hakmem, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert hakmem().code == 2
    done = hakmem("--help")
    assert done.code == 0
    for command in COMMANDS:
        assert f"  {command} " in done.out
        with pytest.raises(SystemExit, match="^0$"):
            main([command, "--help"])
        own = capsys.readouterr().out
        assert own.startswith(f"usage: hakmem {command}")
        assert max(map(len, (done.out + own).splitlines())) <= 80


def test_complaints_of_the_parser_are_like_all_others(hakmem: Hakmem) -> None:
    calls = (("ab", "--runs", "x"), ("stat", "self"), ("stat", "-i", "often"), ("run", "--bad"))
    for words in calls:
        done = hakmem(*words)
        assert done.code == 2 and done.err.startswith("hakmem: ")
        assert words[-1] in done.err and f"'hakmem {words[0]} --help'" in done.err


def test_every_problem_says_what_to_do() -> None:
    """Each is raised with a sentence and a hint that is not empty."""
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Problem":
                names = {word.arg for word in node.keywords}
                assert len(node.args) > 1 or "hint" in names, f"{path.name}:{node.lineno}"
                hint = node.args[1] if len(node.args) > 1 else None
                empty = isinstance(hint, ast.Constant) and not hint.value
                assert not empty, f"{path.name}:{node.lineno}"


MISTAKES = (
    ("verfy",),
    ("run", "--", "no-such-command"),
    ("run", "--set", "PARTIAL", "--", "ls"),
    ("run", "--library", "/nowhere", "--", "ls"),
    ("verify", "--allow", "nothing", "--", "ls"),
    ("ab", "mimaloc", "--", "ls"),
    ("ab", "-o", "/proc/none", "--", "ls"),
    ("matrix", "-f", "header", "--", "ls"),
    ("options", "--backend", "legcy"),
    ("stat", "4194999"),
    ("causes", "/nowhere.json"),
    ("record", "--", "no-such-command"),
    ("replay", "/nowhere.trace"),
    ("advise", "--", "no-such-command"),
)


@pytest.mark.parametrize("words", MISTAKES, ids=" ".join)
def test_an_error_is_one_line(hakmem: Hakmem, library: Path, words: tuple[str, ...]) -> None:
    """It names what was wrong and ends with the remedy."""
    known = words[0] in ("run", "verify", "ab", "options") and "--library" not in words
    more = ("--library", str(library)) if known else ()
    done = hakmem(words[0], *more, *words[1:])
    assert done.code != 0 and done.out == ""
    (line,) = done.err.splitlines()
    assert line.startswith("hakmem: ") and line[-1] in ".?"
    value = [word for word in words if word not in ("--", "ls")][-1]
    assert value.upper().removeprefix("HAKMEM_") in line.upper()


def test_version(hakmem: Hakmem) -> None:
    assert hakmem("--version").out == f"hakmem workbench {hakmem_workbench.__version__}\n"


def test_misspelt_command(hakmem: Hakmem) -> None:
    done = hakmem("verfy", "--", "ls")
    assert done.code == 2 and "did you mean verify?" in done.err


def test_words_before_the_separator(hakmem: Hakmem) -> None:
    done = hakmem("run", "ls", "--", "cat")
    assert done.code == 2 and "stands before --" in done.err


BLOCKER = """
import sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split('.')[0] in {blocked!r}:
            raise ImportError(name)
sys.meta_path.insert(0, Refuse())
sys.path.insert(0, {tree!r})
from hakmem_workbench.cli import main
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.parametrize("command", ["run", "verify", "options", "causes", "top"])
def test_standard_library_alone(command: str, library: Path, tmp_path: Path) -> None:
    """These commands work if no packages were installed."""
    blocked = {"numpy", "matplotlib", "rich", "scipy"}
    script = BLOCKER.format(blocked=blocked, tree=str(PACKAGE.parent))
    words = ["top", "--once"] if command == "top" else [command, "--library", str(library)]
    words += [] if command in ("options", "top") else ["--", "ls", "/"]
    done = subprocess.run(
        [sys.executable, "-c", script, *words], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_the_others_say_what_is_missing(library: Path) -> None:
    script = BLOCKER.format(blocked={"numpy", "rich"}, tree=str(PACKAGE.parent))
    words = ["ab", "--library", str(library), "--", "ls"]
    done = subprocess.run(
        [sys.executable, "-c", script, *words], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert f"needs numpy, rich, which {sys.executable} does not have" in done.stderr
    assert f"{sys.executable} -m pip install numpy rich" in done.stderr or (
        sys.executable.startswith("/usr/bin/") and "apt-get install python3-numpy python3-rich" in done.stderr
    )


@pytest.mark.parametrize("wheel", [False, True])
def test_what_is_missing_in_an_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, wheel: bool) -> None:
    """Packages of the system do not reach it, though its python is the system's."""
    from hakmem_workbench import library as finder
    from hakmem_workbench.commands import common
    from hakmem_workbench.errors import Problem

    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.setattr(finder, "of_wheel", lambda: (tmp_path if wheel else tmp_path / "none") / "libhakmem.so.0")
    with pytest.raises(Problem) as caught:
        common.need("not_there")
    wanted = "'hakmem[measure]'" if wheel else "not_there"
    assert caught.value.hint == f"Install it there: {sys.executable} -m pip install {wanted}."


def test_live_counters_need_nothing() -> None:
    script = BLOCKER.format(blocked={"numpy", "rich"}, tree=str(PACKAGE.parent))
    done = subprocess.run(
        [sys.executable, "-c", script, "stat", "--json", str(2**22)], capture_output=True, text=True, check=False
    )
    assert "needs" not in done.stderr and str(2**22) in done.stderr


LAYERS = (
    {"errors", "text", "glossary", "children"},
    {"elf", "observe", "ldtrace", "machine", "statsfile", "process", "timing", "blocks", "screen"},
    {"library", "sidecar", "explain", "inference", "inspection"},
    {"settings", "resolve", "mesonbuild", "factorial", "heapprofile"},
    {"preload", "checks", "running", "symbols"},
    {"variants", "pprof", "flame"},
    {"results", "trace"},
    {"experiment", "live", "report", "plots", "advice"},
    {"page"},
    {"matrix"},
    {"commands"},
    {"cli"},
    {"__main__"},
)


def test_layers() -> None:
    """A module imports only from lower layers; commands may share `commands.common` and `ab`."""
    height = {name: level for level, names in enumerate(LAYERS) for name in names}
    for path in PACKAGE.rglob("*.py"):
        here = "commands" if path.parent.name == "commands" else path.stem
        if path.stem == "__init__":
            continue
        for name in _imports(path):
            if here != "commands" or name != "commands":
                assert height[name] < height[here], f"{path.name} imports {name}"


def _imports(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.level:
            inside = path.parent.name == "commands" and node.level == 1
            if inside:
                found.add("commands")
            elif node.module:
                found.add(node.module.split(".")[0])
            else:
                found |= {name.name for name in node.names if name.name != "__version__"}
    return found


def test_every_file_says_what_it_owns() -> None:
    for path in PACKAGE.rglob("*.py"):
        text = path.read_text()
        assert text.startswith("# SPDX-License-Identifier: MIT\n"), path
        assert ast.get_docstring(ast.parse(text)), path


@pytest.mark.parametrize("words", [["top", "--once"], ["--help"]])
def test_a_full_disk(words: list[str]) -> None:
    """One line, also where the rest is written at the end."""
    with open("/dev/full", "w") as full:
        command = [sys.executable, str(TOOL), *words]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == "hakmem: the output can't be written: No space left on device. Make room for it.\n"


def test_closed_streams(tmp_path: Path) -> None:
    """As under cron and in daemons: the exit code is the same, and nothing is said elsewhere."""
    for closed in ">&-", "2>&-", ">&- 2>&-":
        line = f"{sys.executable} {TOOL} --version {closed}"
        assert not subprocess.run(line, shell=True, capture_output=True, check=True).stderr
