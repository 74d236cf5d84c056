/* SPDX-License-Identifier: MIT */
/*
 * A bounded lock-free queue of blocks from one thread to one other.
 * Both sides publish their position once per RING_BATCH blocks, so that the queue costs far less than the allocator;
 * the receiver still frees one block at a time.
 */
#ifndef HAKMEM_BENCH_RING_H
#define HAKMEM_BENCH_RING_H

#include "bench.h"

#include <stdatomic.h>

enum { RING_BATCH = 16 };

struct ring {
    /* Sender's line. `sent` is what the receiver may see of `next_in`. */
    _Alignas(BENCH_CACHE_LINE) _Atomic(uint64_t) sent;
    uint64_t next_in;
    uint64_t known_taken;
    /* Receiver's line. `taken` is what the sender may see of `next_out`. */
    _Alignas(BENCH_CACHE_LINE) _Atomic(uint64_t) taken;
    uint64_t next_out;
    uint64_t known_sent;
    /* Read by both, written by none. */
    _Alignas(BENCH_CACHE_LINE) void **cells;
    uint64_t capacity;
};

/* Capacity: a power of two, at least 2 * RING_BATCH. */
static inline void ring_init(struct ring *ring, uint64_t capacity)
{
    *ring = (struct ring){.capacity = capacity};
    ring->cells = bench_map(capacity * sizeof *ring->cells);
}

static inline void ring_destroy(struct ring *ring)
{
    bench_unmap(ring->cells, ring->capacity * sizeof *ring->cells);
}

/* Makes all blocks put so far visible to the receiver. */
static inline void ring_flush(struct ring *ring)
{
    /* Release: the cells and the blocks' contents before the position; pairs with ring_get. */
    atomic_store_explicit(&ring->sent, ring->next_in, memory_order_release);
}

/* False if the ring is full; all that was put is then visible to the receiver. */
static inline bool ring_put(struct ring *ring, void *block)
{
    if (ring->next_in - ring->known_taken == ring->capacity) {
        /* Acquire: the receiver has read a cell before it is used again; pairs with ring_get. */
        ring->known_taken = atomic_load_explicit(&ring->taken, memory_order_acquire);
        if (ring->next_in - ring->known_taken == ring->capacity) {
            ring_flush(ring);
            return false;
        }
    }
    ring->cells[ring->next_in++ & (ring->capacity - 1)] = block;
    if (ring->next_in % RING_BATCH == 0)
        ring_flush(ring);
    return true;
}

/* NULL if nothing is visible. */
static inline void *ring_get(struct ring *ring)
{
    if (ring->next_out == ring->known_sent) {
        /* Acquire: pairs with the release in ring_flush. */
        ring->known_sent = atomic_load_explicit(&ring->sent, memory_order_acquire);
        if (ring->next_out == ring->known_sent)
            return NULL;
    }
    void *block = ring->cells[ring->next_out++ & (ring->capacity - 1)];
    if (ring->next_out % RING_BATCH == 0 || ring->next_out == ring->known_sent) {
        /* Release: the cell has been read; pairs with the acquire in ring_put. */
        atomic_store_explicit(&ring->taken, ring->next_out, memory_order_release);
    }
    return block;
}

#endif
