/* SPDX-License-Identifier: MIT
 * Batched release: backends queue what is free until it has been idle for a while, and hand over many ranges
 * at once, which go back in one vectored call where the kernel has it. */
#include "core/parts/release.h"

static size_t release_vector(const struct iovec *ranges, size_t count, enum hak_cause cause)
{
    return hak_release_ranges(ranges, count, true, cause);
}

const struct hak_release hak_release_batch = {
    .name = "batch",
    .cause = HAK_CAUSE_batch_release,
    .release = release_vector,
    .stats = hak_release_stats,
};
