/* SPDX-License-Identifier: MIT
 * See clock.h. */
#include "clock.h"

#include <time.h>

uint64_t hak_clock_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}
