/* SPDX-License-Identifier: MIT
 * The tiny frontend: 16 B to 7.5 KiB from slabs of the span backend. In header builds, blocks of its small classes
 * carry the byte that names their bin. Bins, refill and drain are in core. */
#include "core/heap/refill.h"
#include "core/plugin.h"

#define TINY_PREWARM_MAX 128u /* prewarm classes up to this stride */
#define TINY_PREWARM_BLOCKS 16u

extern const struct hak_frontend hak_frontend_tiny;

/* Bin capacities come from the original's classes C0..C7, each of which covered several of ours. */
static uint32_t tiny_bin_capacity(unsigned cls)
{
    const struct hak_option_values *o = &hak_options;
    const uint32_t caps[] = {o->fast_cap_c1, o->fast_cap_c2, o->fast_cap_c3, o->fast_cap_c4,
                             o->fast_cap_c5, o->fast_cap_c6, o->fast_cap_c7};
    for (unsigned c = 0; c < sizeof caps / sizeof caps[0]; c++)
        if (hak_strides[cls] <= 16u << c)
            return caps[c];
    return 0;
}

static void prewarm_tiny(struct hak_heap *heap)
{
    if (!hak_options.tiny_prewarm)
        return;
    for (unsigned cls = 0; cls < HAK_NCLASSES && hak_strides[cls] <= TINY_PREWARM_MAX; cls++)
        if (hak_parts.by_class[cls] == &hak_frontend_tiny)
            hak_bin_prewarm(heap, cls, TINY_PREWARM_BLOCKS);
}

const struct hak_frontend hak_frontend_tiny = {
    .name = "tiny",
    .min_stride = HAK_TINY_MIN,
    .max_stride = HAK_TINY_MAX,
    .headers = true,
    .bin_capacity = tiny_bin_capacity,
    .heap_start = prewarm_tiny,
};
