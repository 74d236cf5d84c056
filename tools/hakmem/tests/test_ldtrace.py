# SPDX-License-Identifier: MIT
"""What the dynamic linker says, understood."""

from hakmem_workbench import ldtrace

REPORT = """\
       100:\t
       100:\tfile=/x/liba.so [0];  needed by ./prog [0]
       100:\tInitial object scopes
       100:\tobject=./prog [0]
       100:\t scope 0: ./prog /x/liba.so /lib/libc.so.6
       100:\t
       100:\tobject=linux-vdso.so.1 [0]
       100:\t scope 0: ./prog /x/liba.so /lib/libc.so.6
       100:\tobject=/x/liba.so [0]
       100:\t scope 0: ./prog /x/liba.so /lib/libc.so.6
       100:\tbinding file ./prog [0] to /x/liba.so [0]: normal symbol `malloc' [GLIBC_2.2.5]
       100:\tbinding file ./prog [0] to /x/liba.so [0]: normal symbol `puts' [GLIBC_2.2.5]
       100:\tfile=/x/plug.so [0];  dynamically loaded by ./prog [0]
       100:\tobject=/x/plug.so [0]
       100:\t scope 0: /x/plug.so /lib/libc.so.6
       100:\t scope 1: ./prog /x/liba.so /lib/libc.so.6
       100:\tbinding file /x/plug.so [0] to /lib/libc.so.6 [0]: normal symbol `malloc' [GLIBC_2.2.5]
       101:\tbinding file ./prog [0] to /x/liba.so [0]: normal symbol `free' [GLIBC_2.2.5]
       100:\tobject=/x/other.so [1]
       100:\t scope 0: /x/other.so
       100:\tInitial object scopes
       100:\tobject=/bin/second [0]
       100:\t scope 0: /bin/second /lib/libc.so.6
"""


def test_one_process_two_programs() -> None:
    first, second = ldtrace.parse(100, REPORT.splitlines(keepends=True))
    assert (first.program, second.program) == ("./prog", "/bin/second")
    assert first.bindings == {
        ("./prog", "malloc"): "/x/liba.so",
        ("/x/plug.so", "malloc"): "/lib/libc.so.6",
        ("./prog", "free"): "/x/liba.so",  # from a forked child that shares the report
    }
    assert first.objects == ["./prog", "/x/liba.so", "/x/plug.so", "/x/other.so"]
    assert first.loaded_by == {"/x/plug.so": "./prog"}
    assert first.namespaces["/x/other.so"] == 1


def test_deepbind_is_seen_in_the_scopes() -> None:
    first, _ = ldtrace.parse(100, REPORT.splitlines(keepends=True))
    assert first.deep("/x/plug.so")
    assert not first.deep("/x/liba.so")
    assert not first.deep("./prog")


def test_refusals() -> None:
    said = (
        "ERROR: ld.so: object '/x/libhakmem.so.0' from LD_PRELOAD cannot be preloaded "
        "(wrong ELF class: ELFCLASS64): ignored.\nhello\n"
    )
    assert ldtrace.refusals(said) == {"libhakmem.so.0": "wrong ELF class: ELFCLASS64"}
    assert ldtrace.refusals("all is well") == {}
