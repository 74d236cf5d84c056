/* SPDX-License-Identifier: MIT
 * The cases by name, in tables that end with an empty row: forks.c, ends.c, calls.c, locks.c. */
#ifndef TESTS_LIFE_CASES_H
#define TESTS_LIFE_CASES_H

#include "life.h"

struct life_case {
    const char *name;
    void (*run)(unsigned count);
    unsigned count; /* multiplied by the number on the command line */
};

extern const struct life_case life_forks[], life_ends[], life_calls[], life_locks[];

#endif
