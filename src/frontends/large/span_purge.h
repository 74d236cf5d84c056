/* SPDX-License-Identifier: MIT
 * How dirty pages of free spans go back to the kernel, and chunks that are wholly free and clean then to the backend:
 * the purger of all chunks. */
#ifndef LARGE_SPAN_PURGE_H
#define LARGE_SPAN_PURGE_H

#include "core/parts/purge.h"

extern struct hak_lock hak_spans_lock;
extern struct hak_purger hak_spans_purger;

#endif
