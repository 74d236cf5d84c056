/* SPDX-License-Identifier: MIT
 * See sparse.h. The free bitmap tells which blocks are free. Purged pages read as zero, so slabs are left alone whose
 * free blocks carry marks or header bytes; and those whose pages are mapped late, since a purge would unmap them. */
#include "sparse.h"

#include "core/base/block_policy.h"
#include "core/base/sealed.h"
#include "core/os/limit.h"
#include "core/os/os.h"
#include "core/pages/block_batch.h"
#include "core/pages/budget.h"
#include "core/pages/tags.h"
#include "core/plugin.h"
#include "purge.h"

#define LEAST 8u   /* part of the slab that must be free beyond what was at its last purge */
#define RANGES 64u /* the most pages of a slab; further ones stay */

static uint32_t free_blocks(const struct hak_slab *slab)
{
    return hak_slab_free_blocks(slab) + hak_slab_remote_count(slab);
}

static bool may_purge(void)
{
    return !HAK_BLOCKS_ARE_MARKED && !hak_limit_is_tight && hak_options.ss_partial;
}

/* Ages beyond HAK_SLAB_TIMES cannot be told. */
static bool can_age(void)
{
    return hak_purge_delay_ms() >> HAK_SLAB_TIME_LG < HAK_SLAB_TIMES - 2;
}

static bool is_at_rest(const struct hak_slab *slab)
{
    /* Adds one: the time of the last tick may go back a little, when a thread stores its time late. */
    uint32_t age = (hak_slab_time() + 1 - slab->taken_at) % HAK_SLAB_TIMES;
    return can_age() && age > 1 + hak_max(1, hak_purge_delay_ms() >> HAK_SLAB_TIME_LG);
}

bool hak_sparse_is_due(const struct hak_slab *slab, bool now)
{
    uint32_t n = free_blocks(slab);
    if (!may_purge() || (HAK_HEADER_LIMIT && hak_tag_in_header_zone(slab->base)) || n <= slab->sparse)
        return false;
    return now || (is_at_rest(slab) && (size_t)(n - slab->sparse) * slab->stride >= slab->pages * HAK_PAGE / LEAST);
}

static bool are_free(const struct hak_slab *slab, size_t first, size_t last)
{
    for (size_t i = first; i <= last; i++)
        if (!(slab->bitmap[i / 64] >> i % 64 & 1))
            return false;
    return true;
}

/* The next run of system pages whose blocks are all free, from `at` on; empty at the end. The kernel's pages may be
 * longer than HAK_SYSTEM_PAGE, and it would purge all of a page of which a part is named. */
static struct iovec next_run(const struct hak_slab *slab, size_t at)
{
    size_t page = hak_os_page_size(), end = (size_t)slab->carved * slab->stride / page * page, from = at;
    for (; at < end; at += page)
        if (!are_free(slab, at / slab->stride, (at + page - 1) / slab->stride)) {
            if (at > from)
                break;
            from = at + page;
        }
    return (struct iovec){slab->base + from, at - from};
}

static _Atomic(uint64_t) purged;

uint64_t hak_sparse_purged(void)
{
    return HAK_LOAD_RELAXED(&purged);
}

size_t hak_sparse_purge(struct hak_slab *slab)
{
    struct iovec ranges[RANGES], run;
    size_t n = 0, at = 0, bytes = 0;
    hak_slab_collect(slab);
    if (!hak_block_batches_open(slab) || !slab->bitmap_divisor)
        return 0;
    for (; n < RANGES && (run = next_run(slab, at)).iov_len; ranges[n++] = run) {
        at = (size_t)((char *)run.iov_base - slab->base) + run.iov_len;
        bytes += run.iov_len;
    }
    if (n && !hak_pages_purge_inside(ranges, n))
        return 0;
    slab->sparse = (uint16_t)hak_slab_free_blocks(slab);
    HAK_ADD_RELAXED(&purged, bytes);
    return bytes;
}
