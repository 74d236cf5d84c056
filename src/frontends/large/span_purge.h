/* SPDX-License-Identifier: MIT
 * Dirty pages of free spans go back to the kernel, and chunks that are wholly free and clean then to the backend.
 * Under the lock of spans.c. */
#ifndef LARGE_SPAN_PURGE_H
#define LARGE_SPAN_PURGE_H

#include "core/plugin.h"

/* Pages that have been idle for the delay, until `keep_pages` dirty ones are left or about `most` bytes went back.
 * Returns bytes. */
size_t hak_span_purge(uint64_t now_ms, uint64_t delay_ms, size_t keep_pages, size_t most, enum hak_cause cause);

#endif
