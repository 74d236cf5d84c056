/* SPDX-License-Identifier: MIT
 * Work that slow paths do is counted, in blocks, so that the clock is read once for so many of them and not at each
 * trip. Whoever works adds to it; the slow entries end in a pulse (process/pulse.h), which looks at it. */
#ifndef HAK_WORK_H
#define HAK_WORK_H

#include "words.h"

#define HAK_WORK_MAX 256u /* after so much a thread looks at the clock */

/* Of this thread since its last pulse. */
extern HAK_HIDDEN HAK_THREAD_LOCAL uint32_t hak_work;
/* Memory waits to be purged: the next slow entry of any thread goes on with it. */
extern HAK_HIDDEN _Atomic(bool) hak_purge_waits;
/* Nobody came to a slow path for the purge delay before: all that was free then is idle. */
extern HAK_HIDDEN _Atomic(uint64_t) hak_slept_ms;

HAK_INLINE void hak_work_add(uint32_t blocks)
{
    hak_work += blocks;
}

#endif
