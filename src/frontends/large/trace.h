/* SPDX-License-Identifier: MIT
 * HAKMEM_ACE_TRACE=1: one line for each large request that failed or got less than it should, with the reason:
 *   Threshold   no class is close enough in size: the block has pages of its own length
 *   Exhaustion  no span of its class, or no pages for one: something else serves
 *   MapFail     the system refused: its errno, and the limits in force */
#ifndef LARGE_TRACE_H
#define LARGE_TRACE_H

#include "core/base/log.h"
#include "core/plugin.h"

#define TRACE(reason, size, what)                              \
    do {                                                       \
        if (HAK_UNLIKELY(hak_options.ace_trace))               \
            hak_log("ACE " reason ": %zu bytes, " what, size); \
    } while (0)
#define TRACE_MAP_FAIL(size, error, what)          \
    do {                                           \
        if (HAK_UNLIKELY(hak_options.ace_trace))   \
            hak_trace_map_fail(size, error, what); \
    } while (0)

/* `error` is positive; `what` says what became of the request. */
HAK_COLD void hak_trace_map_fail(size_t size, int error, const char *what);

#endif
