/* SPDX-License-Identifier: MIT
 * The tiny frontend: 16 B to 7.5 KiB from slabs of the span backend. In header builds its small classes carry
 * the byte that names their bin. Its bins, refill and drain are core's. */
#include "core/dispatch.h"
#include "core/plugin.h"

#define TINY_PREWARM_MAX 128u /* classes up to this stride are filled ahead */
#define TINY_PREWARM_BLOCKS 16u

static struct hak_slab *slab_acquire(struct hak_thread *t, unsigned bin)
{
    return hak_dispatch.backend->acquire_slab(t, bin);
}

static void slab_release(struct hak_slab *slab)
{
    hak_dispatch.backend->release(slab);
}

/* The capacities of the original's classes C0..C7, each of which covered several of ours; C0 and C1 are one here. */
static uint32_t bin_limit(unsigned bin)
{
    const struct hak_options *o = &hak_dispatch.options;
    const uint32_t caps[] = {o->fast_cap_c1 ? o->fast_cap_c1 : o->fast_cap_c0, o->fast_cap_c2, o->fast_cap_c3,
                             o->fast_cap_c4, o->fast_cap_c5, o->fast_cap_c6, o->fast_cap_c7};
    for (unsigned c = 0; c < sizeof caps / sizeof caps[0]; c++)
        if (hak_strides[bin] <= 16u << c)
            return caps[c];
    return 0;
}

static void thread_start(struct hak_thread *t)
{
    if (!hak_dispatch.options.tiny_prewarm)
        return;
    for (unsigned bin = 0; bin < HAK_NBINS && hak_strides[bin] <= TINY_PREWARM_MAX; bin++)
        hak_bin_prewarm(t, bin, TINY_PREWARM_BLOCKS);
}

const struct hak_frontend hak_frontend_tiny = {
    .name = "tiny",
    .min_stride = 16,
    .max_stride = HAK_TINY_MAX,
    .headers = true,
    .slab_acquire = slab_acquire,
    .slab_release = slab_release,
    .bin_limit = bin_limit,
    .thread_start = thread_start,
};
