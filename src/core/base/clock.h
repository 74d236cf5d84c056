/* SPDX-License-Identifier: MIT
 * The clock by which memory ages. It never goes back: if the kernel's monotonic clock is set back (a process restored
 * from an image, or moved to another time namespace), it continues from its last reading. */
#ifndef HAK_CLOCK_H
#define HAK_CLOCK_H

#include "words.h"

/* Milliseconds: cheap to read, with a resolution of some milliseconds. */
uint64_t hak_clock_ms(void);
/* Nanoseconds, for durations. Follows a clock that was set back once hak_clock_ms has noticed it. */
uint64_t hak_clock_ns(void);

/* The age of something that happened at `then`. Threads read the clock out of order: a time in the future counts as
 * now. */
HAK_INLINE uint64_t hak_clock_age(uint64_t then, uint64_t now)
{
    return now > then ? now - then : 0;
}

#endif
