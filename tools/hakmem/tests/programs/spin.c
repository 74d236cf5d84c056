/* SPDX-License-Identifier: MIT
 * Does a fixed amount of work: its argument in millions of steps, and twice as
 * many where HAKMEM_BACKEND is legacy. That is the planted slowdown. */
#include <stdlib.h>
#include <string.h>

int main(int count, char **words)
{
    const char *backend = getenv("HAKMEM_BACKEND");
    long steps = (count > 1 ? atol(words[1]) : 10) * 1000000;
    if (backend && !strcmp(backend, "legacy"))
        steps *= 2;
    volatile unsigned state = 1;
    for (long i = 0; i < steps; i++)
        state = state * 1103515245u + 12345u;
    return state == 0;
}
