/* SPDX-License-Identifier: MIT
 * See clock.h. */
#include "clock.h"

#include <time.h>

#include "kernel.h"

static _Atomic(uint64_t) last_ns, added_ns; /* the latest reading; what the kernel's clock lost in all */

/* The kernel's clock is read after the latest reading, so it is behind that only if it was set back. */
uint64_t hak_clock_ms(void)
{
    uint64_t last = HAK_LOAD_RELAXED(&last_ns), added = HAK_LOAD_RELAXED(&added_ns);
    uint64_t now = hak_kernel_clock(CLOCK_MONOTONIC_COARSE) + added;
    if (now > last) {
        HAK_STORE_RELAXED(&last_ns, now);
    } else if (now < last) {
        HAK_CAS_RELAXED(&added_ns, &added, added + (last - now));
        now = last;
    }
    return now / 1000000;
}

uint64_t hak_clock_ns(void)
{
    return hak_kernel_clock(CLOCK_MONOTONIC) + HAK_LOAD_RELAXED(&added_ns);
}
