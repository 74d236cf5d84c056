/* SPDX-License-Identifier: MIT
 * The clock by which memory ages. */
#ifndef HAK_CLOCK_H
#define HAK_CLOCK_H

#include "words.h"

/* Milliseconds of a coarse monotonic clock: cheap to read, with a resolution of some milliseconds. */
uint64_t hak_clock_ms(void);

/* The age of something that happened at `then`. Threads read the clock out of order: a time in the future counts as
 * now. */
HAK_INLINE uint64_t hak_clock_age(uint64_t then, uint64_t now)
{
    return now > then ? now - then : 0;
}

#endif
