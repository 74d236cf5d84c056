/* SPDX-License-Identifier: MIT
 * life CASE [TIMES]: one case in the life of a process; life.py runs them all, in each way that the library comes into
 * a process. A case ends with status 0 or with a line that says what is wrong; it may also hang, which life.py
 * detects. */
#include "cases.h"

static const struct life_case *const all[] = {life_forks, life_ends, life_calls, life_locks};

int main(int argc, char **argv)
{
    for (unsigned i = 0; argc > 1 && i < COUNT(all); i++)
        for (const struct life_case *c = all[i]; c->name; c++)
            if (!strcmp(c->name, argv[1])) {
                c->run(c->count * (argc > 2 ? (unsigned)atoi(argv[2]) : 1));
                return 0;
            }
    die("usage: life CASE [TIMES]");
}
