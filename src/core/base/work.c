/* SPDX-License-Identifier: MIT
 * See work.h. */
#include "work.h"

HAK_THREAD_LOCAL uint32_t hak_work;
_Atomic(bool) hak_purge_waits;
_Atomic(uint64_t) hak_slept_ms;
_Atomic(unsigned) hak_tick_share = 1;
_Alignas(HAK_CACHELINE) _Atomic(uint64_t)
    hak_awake_ms; /* each maintenance step writes it, the others are read far more often */
