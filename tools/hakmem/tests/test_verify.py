# SPDX-License-Identifier: MIT
"""`hakmem verify`: each way in which a preload fails is named, with a non-zero exit."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import TOOL, Done, Hakmem, clean_environment

from hakmem_workbench import library as finder

Compiled = Callable[..., Path]


def verify(hakmem: Hakmem, library: Path, *words: object, **more: object) -> Done:
    return hakmem("verify", "--library", library, *words, **more)


def kinds(done: Done) -> list[str]:
    return [finding["kind"] for finding in json.loads(done.out)["findings"]]


def test_in_effect(hakmem: Hakmem, library: Path, compiled: Compiled) -> None:
    done = verify(hakmem, library, "--", compiled("allocates"))
    assert done.code == 0, done.text
    assert "In effect: hakmem serves this program." in done.out
    assert "libc.so.6" in done.out and "0.0-fake" in done.out


def test_what_each_object_resolves_to(hakmem: Hakmem, library: Path, compiled: Compiled) -> None:
    done = verify(hakmem, library, "--json", "--", compiled("allocates"))
    report = json.loads(done.out)
    objects = {os.path.basename(row["path"]): row for row in report["programs"][0]["objects"]}
    assert report["in_effect"]
    for row in objects.values():
        assert row["malloc"] == str(library)
    assert any(row["seen"] for row in objects.values())


def test_static_program(hakmem: Hakmem, library: Path, compiled: Compiled) -> None:
    done = verify(hakmem, library, "--json", "--", compiled("allocates", "-static"))
    assert done.code == 1 and kinds(done) == ["static"]


def test_setuid_program(hakmem: Hakmem, library: Path, compiled: Compiled) -> None:
    if os.getuid() != 0:
        pytest.skip("only root can make a program of another user setuid")
    program = compiled("allocates", name="raised")
    os.chown(program, 65534, -1)
    program.chmod(0o4755)
    done = verify(hakmem, library, "--json", "--", program)
    assert done.code == 1 and kinds(done) == ["setuid"]
    done = verify(hakmem, library, "--json", "--", "sh", "-c", f"{program}; true")
    assert done.code == 1 and kinds(done) == ["setuid"]


def test_cleared_environment(hakmem: Hakmem, library: Path, compiled: Compiled) -> None:
    program = compiled("allocates")
    done = verify(hakmem, library, "--json", "--", compiled("drops_env"), program)
    assert done.code == 1 and kinds(done) == ["env-cleared"]
    assert "was started by drops_env" in json.loads(done.out)["findings"][0]["sentence"]
    assert verify(hakmem, library, "--", "env", "-i", program).code == 1


def test_deepbind(hakmem: Hakmem, library: Path, compiled: Compiled) -> None:
    plugin = compiled("plugin", "-shared", "-fPIC")
    done = verify(hakmem, library, "--json", "--", compiled("deepbind", "-ldl"), plugin)
    assert done.code == 1 and kinds(done) == ["deepbind"]


def test_namespace(hakmem: Hakmem, library: Path, compiled: Compiled) -> None:
    plugin = compiled("plugin", "-shared", "-fPIC")
    done = verify(hakmem, library, "--json", "--", compiled("deepbind", "-ldl"), plugin, "own")
    assert done.code == 1 and set(kinds(done)) == {"namespace"}


def test_own_malloc(hakmem: Hakmem, library: Path, compiled: Compiled) -> None:
    program = compiled("own_malloc", "-fno-builtin")
    done = verify(hakmem, library, "--json", "--", program)
    assert done.code == 1 and kinds(done) == ["own-malloc"]


def test_a_function_pointer_is_no_malloc(
    hakmem: Hakmem, library: Path, compiled: Compiled
) -> None:
    """Debian's python3 is such a program."""
    program = compiled("takes_address", "-no-pie", "-fno-pic")
    done = verify(hakmem, library, "--json", "--", program)
    assert done.code == 0, done.text
    assert kinds(done) == []


@pytest.mark.parametrize(
    ("asks", "found", "told"),
    [
        ("mallocx", ["second-allocator"], []),
        ("mallctl", [], ["libjemalloc.so.2 is loaded, but serves no malloc: mallctl still"]),
        ("", [], ["libjemalloc.so.2 is loaded, but serves no malloc"]),
    ],
)
def test_second_allocator(
    hakmem: Hakmem, library: Path, compiled: Compiled, asks: str, found: list[str], told: list[str]
) -> None:
    """One that only tells, as jemalloc beside Debian's redis-server, does no harm; one that hands out blocks does."""
    jemalloc = compiled("other", "-shared", "-fPIC", "-Wl,-soname,libjemalloc.so.2", name="libjemalloc.so.2")
    flags = ("-Wl,--no-as-needed", str(jemalloc), *([f"-DASKS={asks}"] * bool(asks)))
    program = compiled("allocates", *flags, f"-Wl,-rpath,{jemalloc.parent}", name=f"asks-{asks}")
    done = verify(hakmem, library, "--json", "--", program)
    assert kinds(done) == found and done.code == len(found), done.text
    notes = json.loads(done.out)["programs"][0]["notes"]
    assert len(notes) == len(told) and all(map(str.startswith, notes, told)), notes
    assert verify(hakmem, library, "--allow", "second-allocator", "--", program).code == 0
    assert hakmem("run", "--library", library, "--", program).err == ""


@pytest.mark.parametrize("asks", ["mallocx", "mallctl"])
def test_jemallocs_interface(hakmem: Hakmem, real_library: Path, compiled: Compiled, asks: str) -> None:
    """With libhakmem-jemalloc.so, a program that uses jemalloc's interface gets all from hakmem."""
    try:
        interface = finder.beside(finder.at(real_library, "test"), finder.JEMALLOC)
    except finder.Problem:
        pytest.skip("built without it")
    jemalloc = compiled("other", "-shared", "-fPIC", "-Wl,-soname,libjemalloc.so.2", name="libjemalloc.so.2")
    flags = ("-Wl,--no-as-needed", str(jemalloc), f"-DASKS={asks}", f"-Wl,-rpath,{jemalloc.parent}")
    program = compiled("allocates", *flags, name=f"served-{asks}")
    for how in (("--library", real_library), ("--as-is",)):
        done = hakmem("verify", *how, "--json", "--", program, env={"LD_PRELOAD": interface})
        assert done.code == 0 and kinds(done) == [], done.text
        assert "serves jemalloc's interface" in json.loads(done.out)["programs"][0]["notes"][0]
    done = hakmem("run", "-v", "--library", real_library, "--", program, env={"LD_PRELOAD": interface})
    assert done.code == 0 and done.err.endswith("serves jemalloc's interface\n"), done.text


def test_preload_of_another_allocator_behind_ours(hakmem: Hakmem, library: Path) -> None:
    try:
        other = finder.find_peer("mimalloc")
    except finder.Problem as problem:
        pytest.skip(problem.sentence)
    done = verify(hakmem, library, "--", "ls", env={"LD_PRELOAD": other.path})
    assert done.code == 0 and "is loaded, but serves no malloc\n" in done.out, done.text


def test_hakmem_under_its_own_names(hakmem: Hakmem, compiled: Compiled) -> None:
    """As a Rust program has it; stripped, too."""
    program = compiled("allocates", "-DOWN", "-Wl,--strip-all")
    done = hakmem("verify", "--as-is", "--json", "--", program)
    assert done.code == 0, done.text
    assert "contains a hakmem" in json.loads(done.out)["programs"][0]["notes"][0]


def test_ended_by_a_signal(library: Path, tmp_path: Path) -> None:
    """Nothing is left behind."""
    here = tmp_path / "here"
    command = [sys.executable, TOOL, "verify", "--library", library, "--", "sh", "-c", f"echo $$ >{here}; sleep 60"]
    process = subprocess.Popen(command, env=clean_environment() | {"TMPDIR": str(tmp_path)}, stderr=subprocess.DEVNULL)
    while not (here.exists() and here.read_text()):
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 128 + signal.SIGTERM
    assert list(tmp_path.iterdir()) == [here]
    while Path("/proc", here.read_text().strip()).exists():  # the kernel kills what is traced
        time.sleep(0.01)


@pytest.mark.parametrize("how", [[], ["-static"]])
def test_linked_with_the_archive(
    hakmem: Hakmem, real_library: Path, library: Path, compiled: Compiled, how: list[str]
) -> None:
    archive = real_library.parent / "libhakmem.a"
    program = compiled("allocates", *how, "-Wl,-u,malloc", str(archive), "-pthread", "-ldl")
    done = hakmem("verify", "--as-is", "--json", "--", program)
    assert done.code == 0, done.text
    notes = json.loads(done.out)["programs"][0]["notes"]
    assert [note.split(" is ")[1] for note in notes] == ["linked with libhakmem.a, which serves its malloc"]
    done = verify(hakmem, library, "--", program)
    assert done.code == 1 and "linked with libhakmem.a\n" in done.out and "needs no preload" in done.out, done.text


def test_refused_preload(hakmem: Hakmem, library: Path, compiled: Compiled, tmp_path: Path) -> None:
    """A library that needs another one which does not exist."""
    missing = compiled("plugin", "-shared", "-fPIC", "-Wl,-soname,libgone.so", name="libgone.so")
    flags = ("-shared", "-fPIC", "-Wl,-soname,libhakmem.so.0", "-Wl,--no-as-needed", str(missing))
    broken = tmp_path / "libhakmem.so.0"
    shutil.copy(compiled("fake_hakmem", *flags), broken)
    environment = {"LD_LIBRARY_PATH": "/nowhere"}
    done = hakmem("verify", "--library", broken, "--", "ls", env=environment)
    assert done.code != 0
    assert "libgone.so" in done.text


def test_wrong_class(hakmem: Hakmem, library: Path, compiled: Compiled, tmp_path: Path) -> None:
    """A library for another machine, as the linker sees it."""
    from hakmem_workbench import checks
    from hakmem_workbench.observe import Image, Observation

    data = bytearray(library.read_bytes())
    data[18:20] = (183).to_bytes(2, "little")  # e_machine: aarch64
    other = tmp_path / "libhakmem.so.0"
    other.write_bytes(data)
    program = str(compiled("allocates"))
    image = Image(1, 0, program, [program], preload=str(other), objects=[program])
    seen = Observation(0, 0, True, [image], 0, 0, 0, 0, 0, 0, [], "")
    expected = checks.Expected("hakmem", finder.at(other, "test"))
    (judged,) = checks.judge(seen, expected)
    assert [finding.kind for finding in judged.findings] == ["refused-preload"]
    assert "aarch64" in judged.findings[0].sentence


def test_as_is(hakmem: Hakmem, library: Path, compiled: Compiled) -> None:
    program = compiled("allocates")
    done = hakmem("verify", "--as-is", "--", program)
    assert done.code == 1 and "--no-as-needed,-lhakmem" in done.out and "(DT_NEEDED)" in done.out
    done = hakmem("verify", "--as-is", "--", compiled("allocates", "-static"))
    assert done.code == 1 and "-Wl,-u,malloc" in done.out
    assert hakmem("verify", "--as-is", "--", program, env={"LD_PRELOAD": str(library)}).code == 0
    linked = compiled("allocates", "-Wl,--no-as-needed", library, name="links-hakmem")
    environment = {"LD_LIBRARY_PATH": str(library.parent)}
    assert hakmem("verify", "--as-is", "--", linked, env=environment).code == 0


def test_missing_preload(hakmem: Hakmem) -> None:
    environment = {"LD_PRELOAD": "/nowhere/libhakmem.so.0"}
    done = hakmem("verify", "--as-is", "--json", "--", "ls", env=environment)
    assert done.code == 1 and kinds(done) == ["refused-preload"]
    assert "/nowhere/libhakmem.so.0, which does not exist" in done.text


def test_unknown_setting_in_the_environment(
    hakmem: Hakmem, library: Path, compiled: Compiled
) -> None:
    environment = {"HAKMEM_TINY_SS_PARTAIL": "0"}
    done = verify(hakmem, library, "--", compiled("allocates"), env=environment)
    assert done.code == 1
    assert "unknown-setting" in done.out and "HAKMEM_TINY_SS_PARTIAL?" in done.out


def test_refused_value_in_the_environment(
    hakmem: Hakmem, library: Path, compiled: Compiled
) -> None:
    environment = {"HAKMEM_SUPERSLAB_MAX_CACHED": "lots"}
    done = verify(hakmem, library, "--", compiled("allocates"), env=environment)
    assert done.code == 1 and "refused-setting" in done.out


def test_effective_settings_and_their_source(
    hakmem: Hakmem, library: Path, compiled: Compiled
) -> None:
    environment = {"HAKMEM_SUPERSLAB_MAX_CACHED": "8"}
    done = verify(
        hakmem, library, "--backend", "legacy", "--", compiled("allocates"), env=environment
    )
    assert done.code == 0
    assert "HAKMEM_SUPERSLAB_MAX_CACHED  8       256          environment" in done.out
    assert "HAKMEM_BACKEND               legacy  shared_pool  environment" in done.out


def test_a_whole_tree_of_processes(hakmem: Hakmem, library: Path) -> None:
    done = verify(hakmem, library, "--", "sh", "-c", "ls / | sort | cat; exit 3")
    assert done.code == 3  # the command's own: it failed under the allocator
    assert "exit code 3" in done.out
    assert "all 4 programs" in done.out


def test_programs_are_counted_and_not_processes(hakmem: Hakmem, library: Path) -> None:
    """One process that executes two more programs, and a fork that executes none."""
    done = verify(hakmem, library, "--", "sh", "-c", "(:); exec env env true")
    assert done.code == 0, done.text
    assert "all 4 programs" in done.out
    assert "… and 1 more program like these (--all)" in done.out
    report = json.loads(verify(hakmem, library, "--json", "--", "sh", "-c", "exit 5").out)
    assert report["exit_code"] == 5 and report["failed"] and report["in_effect"]


def test_a_server_is_ended(hakmem: Hakmem, library: Path) -> None:
    done = verify(hakmem, library, "--for", "1", "--", "sleep", "60")
    assert done.code == 0, done.text


def test_output_of_the_command(hakmem: Hakmem, library: Path) -> None:
    assert "hello" not in verify(hakmem, library, "--", "echo", "hello").out
    assert "hello" in verify(hakmem, library, "--show-output", "--", "echo", "hello").out
    assert "piped" in verify(hakmem, library, "--show-output", "--", "cat", stdin="piped").out


def test_a_wrong_finding_name(hakmem: Hakmem, library: Path) -> None:
    assert "there is no finding" in verify(hakmem, library, "--allow", "x", "--", "true").err


def test_setuid_program_for_an_ordinary_user(
    hakmem: Hakmem, library: Path, compiled: Compiled
) -> None:
    """Without the right to trace it, its file mode and /proc identify it. He runs a copy of the tool: the checkout may
    lie in a folder that others cannot enter.
    """
    setpriv = shutil.which("setpriv")
    system = shutil.which("python3", path="/usr/bin")
    if os.getuid() != 0 or not setpriv or not system or not os.access(os.getcwd(), os.X_OK):
        pytest.skip("needs root, setpriv and a Python that others can run")
    program = compiled("allocates", name="raised-to-root")
    program.chmod(0o4755)
    user = [setpriv, "--reuid=65534", "--regid=65534", "--clear-groups", system]
    tool = program.parent / "hakmem"
    subprocess.run(["cp", "-r", TOOL, TOOL.parent / "hakmem_workbench", tool.parent], check=True)
    subprocess.run(["chmod", "-R", "a+rX", tool.parent], check=True)
    words = [*user, str(tool), "verify", "--library", str(library), "--json", "--", str(program)]
    done = subprocess.run(words, capture_output=True, text=True, check=False, cwd="/")
    assert done.returncode == 1
    assert kinds(Done(done.returncode, done.stdout, done.stderr)) == ["setuid"]
