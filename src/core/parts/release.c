/* SPDX-License-Identifier: MIT
 * The release policy `direct`, which every build has: each range is purged by a call of its own, as soon as it is free.
 * Also what all policies share (release.h). */
#include "release.h"

#include <sys/mman.h>

#include "core/base/sealed.h"
#include "core/os/limit.h"
#include "core/pages/closed.h"
#include "core/pages/space.h"

static _Atomic(uint64_t) lazy_bytes;

static size_t advise(const struct iovec *ranges, size_t count, int advice, bool together, enum hak_cause cause)
{
    if (together)
        return hak_os_advise_vector(ranges, count, advice, cause);
    size_t bytes = 0;
    for (size_t i = 0; i < count; i++)
        if (hak_os_advise(ranges[i].iov_base, ranges[i].iov_len, advice, cause) == 0)
            bytes += ranges[i].iov_len;
    return bytes;
}

static size_t bytes_of_ranges(const struct iovec *ranges, size_t count)
{
    size_t bytes = 0;
    for (size_t i = 0; i < count; i++)
        bytes += ranges[i].iov_len;
    return bytes;
}

/* Returns the bytes unmapped. */
static size_t unmap_ranges(const struct iovec *ranges, size_t count, enum hak_cause cause)
{
    size_t bytes = 0;
    for (size_t i = 0; i < count; i++)
        if (hak_space_close(ranges[i].iov_base, ranges[i].iov_len, cause))
            bytes += ranges[i].iov_len;
    return bytes;
}

/* Where address space is scarce, ranges are unmapped. Ranges that cannot be purged lazily, on an old kernel for
 * instance, are purged at once. */
size_t hak_release_ranges(const struct iovec *ranges, size_t count, bool together, enum hak_cause cause)
{
    if (hak_limit_is_tight)
        return unmap_ranges(ranges, count, cause);
    for (size_t i = 0; i < count; i++)
        hak_closed_shut(ranges[i].iov_base, ranges[i].iov_len);
    if (!hak_pages_go_lazily())
        return advise(ranges, count, MADV_DONTNEED, together, cause);
    size_t bytes = advise(ranges, count, HAK_ADVICE_FREE, together, cause);
    HAK_ADD_RELAXED(&lazy_bytes, bytes);
    return bytes == bytes_of_ranges(ranges, count) ? bytes : advise(ranges, count, MADV_DONTNEED, together, cause);
}

void hak_release_stats(struct hak_stats_writer *w)
{
    hak_stats_begin(w, "release");
    hak_stats_text(w, "advice", hak_pages_go_lazily() ? "free" : "dontneed");
    hak_stats_number(w, "lazy_bytes", HAK_LOAD_RELAXED(&lazy_bytes));
    hak_stats_end(w);
}

static size_t release_directly(const struct iovec *ranges, size_t count, enum hak_cause cause)
{
    return hak_release_ranges(ranges, count, false, cause);
}

const struct hak_release hak_release_direct = {
    .name = "direct",
    .at_once = true,
    .cause = HAK_CAUSE_direct_release,
    .release = release_directly,
    .stats = hak_release_stats,
};
