/* SPDX-License-Identifier: MIT
 * See figures.h. */
#include "figures.h"

#include "core/heap/cpu_heaps.h"
#include "core/heap/decay.h"
#include "core/heap/heaps.h"
#include "core/os/cgroup.h"
#include "core/os/meta.h"
#include "core/pages/budget.h"
#include "core/pages/guard.h"
#include "core/pages/page_heap.h"
#include "core/pages/run_cache.h"
#include "core/pages/space.h"
#include "core/parts/parts.h"

static size_t outside_bytes(void)
{
    size_t blocks = 0, bytes = 0;
    for (unsigned i = 0; hak_frontends[i]; i++)
        if (hak_frontends[i]->count_outside)
            hak_frontends[i]->count_outside(&blocks, &bytes);
    return bytes;
}

size_t hak_figure_bins(void)
{
    return (hak_self.heap ? hak_bins_free_bytes(hak_self.heap) : 0) + (HAK_CPU_HEAPS ? hak_cpu_heaps_free_bytes() : 0);
}

/* Usable bytes of blocks that are live or in bins; first come the calling thread's own changes. */
static uint64_t allocated_bytes(void)
{
    if (hak_counters_own)
        hak_publish_allocated(hak_counters_own);
    int64_t bytes = (int64_t)(HAK_LOAD_RELAXED(&hak_allocated) - hak_run_cache_counted());
    return (bytes > 0 ? (uint64_t)bytes : 0) + outside_bytes() + hak_guard_bytes();
}

static uint64_t dirty_bytes(void)
{
    size_t pages = hak_pages_count().dirty;
    for (unsigned kind = 0; kind < HAK_RUN_KINDS; kind++)
        pages += hak_run_cache_waiting((enum hak_run_kind)kind);
    return pages * HAK_PAGE;
}

static uint64_t less(uint64_t a, uint64_t b)
{
    return a - hak_min(a, b); /* other threads run in the meantime */
}

static uint64_t mapped_bytes_of_all(void)
{
    struct hak_space_stats space;
    hak_space_stats(&space);
    return space.mapped + outside_bytes() + hak_meta_bytes();
}

int hak_figure(unsigned figure, uint64_t *value)
{
    switch (figure) {
    case HAK_FIGURE_LIVE:
        *value = less(allocated_bytes(), hak_figure_bins());
        return 0;
    case HAK_FIGURE_BINS:
        *value = hak_figure_bins();
        return 0;
    case HAK_FIGURE_SLACK:
        *value = less(less(hak_budget_held(), dirty_bytes()), allocated_bytes());
        return 0;
    case HAK_FIGURE_DIRTY:
        *value = dirty_bytes();
        return 0;
    case HAK_FIGURE_METADATA:
        *value = hak_meta_bytes();
        return 0;
    case HAK_FIGURE_RESIDENT:
        *value = hak_resident_bytes();
        return *value == SIZE_MAX ? -ENOSYS : 0;
    case HAK_FIGURE_MAPPED:
        *value = mapped_bytes_of_all();
        return 0;
    case HAK_FIGURE_PEAK:
        *value = hak_budget_peak();
        return 0;
    case HAK_FIGURE_THREADS:
        *value = hak_heaps_count();
        return 0;
    case HAK_FIGURE_LIMIT:
        *value = hak_budget_bytes();
        return 0;
    default:
        return -EINVAL;
    }
}
