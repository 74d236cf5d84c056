/* SPDX-License-Identifier: MIT
 * What release policies share: purging ranges by one call for all, or one for each, with the advice that HAKMEM_MADV
 * names. */
#ifndef HAK_RELEASE_H
#define HAK_RELEASE_H

#include "core/plugin.h"

/* Purges the ranges; returns the number of bytes purged. */
size_t hak_release_ranges(const struct iovec *ranges, size_t count, bool together, enum hak_cause cause);

void hak_release_stats(struct hak_stats_writer *w);

#endif
