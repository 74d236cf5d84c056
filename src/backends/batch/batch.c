/* SPDX-License-Identifier: MIT
 * Batched release: pages stay dirty until they have been idle for a while; then many ranges are purged at once, by one
 * vectored call if the kernel has it. */
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
