/* SPDX-License-Identifier: MIT
 * A plan: what plan.c makes of a trace and replay.c carries out. It is only read on the machine that made it,
 * without conversion: this header, the epochs, the threads, and each thread's steps in one piece.
 * A slot is a place for a block. Each step on it has its turn; so a thread waits for what another one does before.
 * Steps are grouped into epochs by their place in the trace: no step begins before the previous epoch is done.
 * Block by block and epoch by epoch a thread waits only for steps that are earlier in the trace, so a replay ends. */
#ifndef HAK_TRACE_PLAN_H
#define HAK_TRACE_PLAN_H

#include <stdint.h>

#define PLAN_MAGIC "HAKPLAN2"

enum {
    PLAN_TENTHS = 10,
    PLAN_EPOCH = 4096,        /* steps, at most */
    PLAN_EPOCH_NS = 10000000, /* from its first step to its last, at most */
};

enum plan_op {
    PLAN_MALLOC,
    PLAN_CALLOC,
    PLAN_ALIGNED,
    PLAN_FREE,
    PLAN_REALLOC,
    PLAN_TOUCH,        /* after an allocation: so many bytes of it, not all */
    PLAN_EPOCH_BEGINS, /* its number is in `slot` */
};

enum { PLAN_TOUCHED_LATER = 1 }; /* a flag of an allocation: PLAN_TOUCH follows */

struct plan_step {
    uint32_t slot;
    uint32_t turn;
    uint64_t size : 48;
    uint64_t op : 4;
    uint64_t flags : 4;
    uint64_t align : 8; /* log2 */
};

struct plan_thread {
    uint64_t first; /* byte in the file */
    uint64_t steps;
    uint32_t epoch; /* of its first step */
    uint32_t name;  /* its number in the trace */
};

struct plan_epoch {
    uint32_t threads; /* that have steps in it */
    uint32_t tenth;   /* 1 to 10 where one ends with it, else 0 */
    uint64_t at;      /* ns from the first event to its first */
};

struct plan_header {
    char magic[8];
    uint64_t steps; /* that are calls */
    uint64_t slots;
    uint64_t epochs;
    uint64_t threads;
    uint64_t live[PLAN_TENTHS]; /* bytes, after each tenth of the steps, as recorded */
    uint64_t peak;              /* the most that were live */
    uint64_t ended;             /* ns from the first event to the last */
};

int plan_make(const char *trace, const char *plan);
int replay(const char *plan, double paced);

#endif
