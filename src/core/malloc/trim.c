/* SPDX-License-Identifier: MIT
 * See trim.h. */
#include "trim.h"

#include "core/heap/cpu_heaps.h"
#include "core/heap/decay.h"
#include "core/heap/thread.h"
#include "core/pages/space.h"
#include "core/parts/sparse.h"
#include "core/process/life.h"
#include "core/process/maintenance.h"

size_t hak_trim(size_t keep)
{
    if (!hak_init())
        return 0;
    hak_thread_request_flush();
    uint64_t purged = hak_sparse_purged();
    if (HAK_CPU_HEAPS)
        hak_cpu_heaps_dissolve(UINT64_MAX); /* before this thread's slabs: some of these blocks belong to them */
    hak_thread_heap();                      /* flushes this thread's bins at once */
    hak_bins_trim();
    size_t bytes = hak_purge_all(keep);
    hak_space_trim();
    return bytes + (hak_sparse_purged() - purged);
}
