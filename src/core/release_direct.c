/* SPDX-License-Identifier: MIT
 * The release policy without a plugin: each range goes back by a call of its own, as soon as it is free. */
#include <sys/mman.h>

#include "plugin.h"

static size_t release(const struct iovec *ranges, size_t count, enum hak_cause cause)
{
    size_t bytes = 0;
    for (size_t i = 0; i < count; i++)
        if (hak_os_advise(ranges[i].iov_base, ranges[i].iov_len, MADV_DONTNEED, cause) == 0)
            bytes += ranges[i].iov_len;
    return bytes;
}

const struct hak_release hak_release_direct = {
    .name = "direct",
    .at_once = true,
    .cause = HAK_CAUSE_direct_release,
    .release = release,
};
