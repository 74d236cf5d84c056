/* SPDX-License-Identifier: MIT */
/*
 * Blocks on their way between threads: a bounded queue (ring.h) for each ordered pair of them.
 * A thread closes its side when it sends no more; a thread that receives until all have closed and nothing is left
 * leaves no block behind.
 */
#ifndef HAKMEM_BENCH_MAILBOXES_H
#define HAKMEM_BENCH_MAILBOXES_H

#include "ring.h"

struct mailboxes {
    unsigned threads;
    struct ring *rings;  /* from * threads + to */
    atomic_uint senders; /* threads that have not closed */
};

static inline struct ring *mailbox(struct mailboxes *boxes, unsigned from, unsigned to)
{
    return &boxes->rings[from * boxes->threads + to];
}

/* Capacity: see ring_init. */
static inline void mailboxes_init(struct mailboxes *boxes, unsigned threads, uint64_t capacity)
{
    size_t count = (size_t)threads * threads;
    boxes->threads = threads;
    boxes->rings = bench_map(count * sizeof *boxes->rings);
    boxes->senders = threads;
    for (size_t i = 0; i < count; i++)
        ring_init(&boxes->rings[i], capacity);
}

/* Shows the others all that the thread has sent. */
static inline void mailboxes_flush(struct mailboxes *boxes, unsigned from)
{
    for (unsigned to = 0; to < boxes->threads; to++)
        ring_flush(mailbox(boxes, from, to));
}

static inline void mailboxes_close(struct mailboxes *boxes, unsigned from)
{
    mailboxes_flush(boxes, from);
    /* Release: a thread that sees that all have closed sees all flushed blocks; pairs with mailboxes_open. */
    atomic_fetch_sub_explicit(&boxes->senders, 1, memory_order_release);
}

/* Whether any thread may still send. */
static inline bool mailboxes_open(struct mailboxes *boxes)
{
    /* Acquire: pairs with mailboxes_close. */
    return atomic_load_explicit(&boxes->senders, memory_order_acquire) > 0;
}

#endif
