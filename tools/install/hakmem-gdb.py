# SPDX-License-Identifier: MIT
"""gdb loads this with libhakmem where both are installed below gdb's prefix; elsewhere: source PATH/hakmem-gdb.py."""
import gdb


class Hakmem(gdb.Command):
    """hakmem stats|json: the stopped process writes its report to its stderr.
hakmem usable ADDRESS: how many bytes of a block may be used.
The process runs for it: no thread may stand inside of malloc or free."""

    def __init__(self):
        super().__init__("hakmem", gdb.COMMAND_DATA)

    def invoke(self, argument, from_tty):
        verb, _, rest = argument.partition(" ")
        if verb in ("stats", "json") and not rest:
            gdb.parse_and_eval(f"((int (*)(int, int))hakmem_stats)(2, {int(verb == 'json')})")
        elif verb == "usable" and rest:
            print(gdb.parse_and_eval(f"((unsigned long (*)(void *))hakmem_malloc_usable_size)((void *)({rest}))"))
        else:
            raise gdb.GdbError("hakmem stats, hakmem json, or hakmem usable ADDRESS")


Hakmem()
