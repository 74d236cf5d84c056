/* SPDX-License-Identifier: MIT
 * The clock by which memory ages. */
#ifndef HAK_CLOCK_H
#define HAK_CLOCK_H

#include "words.h"

/* Milliseconds of a coarse monotonic clock: cheap, and steps of some milliseconds. */
uint64_t hak_clock_ms(void);

/* How old what was noted at `then` is. Threads read the clock out of order: what seems to come from the future is new. */
HAK_INLINE uint64_t hak_clock_age(uint64_t then, uint64_t now)
{
    return now > then ? now - then : 0;
}

#endif
