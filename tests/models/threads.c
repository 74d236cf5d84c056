/* SPDX-License-Identifier: MIT
 * Threads start and end, and their heaps are dissolved and serve others (core/heap/thread.c as it is). The bins only
 * record their owner: a heap and everything in it belongs to one thread at a time. */
#include <pthread.h>

#include "core/heap/arena.h"
#include "core/heap/caches/contract.h"
#include "core/heap/decay.h"
#include "core/heap/heaps.h"
#include "core/heap/thread.h"
#include "core/os/meta.h"
#include "core/parts/parts.h"
#include "world.h"

const struct hak_frontend *const hak_frontends[] = {NULL};

static const struct hak_release release = {.name = "model"};
static struct hak_heap descriptors[MODEL_THREADS];
static unsigned used_descriptors;
static void (*destructor)(void *);

#define MODEL_THREADS_HERE 2

static void setup(void)
{
    hak_parts.release = &release;
    hak_thread_make_key();
}

static void come_and_go(unsigned self)
{
    (void)self;
    struct hak_heap *t = hak_thread_heap();
    MODEL_CHECK(t && t->tag && t->tag == hak_self.tag);
    t->bins[0].batch++;
    destructor(t);
    MODEL_CHECK(!hak_thread_heap() && !hak_self.heap);
}

static void expect_none(void)
{
    struct hak_heaps_totals totals;
    hak_heaps_totals(&totals);
    MODEL_CHECK(totals.started == MODEL_THREADS_HERE && totals.used == 0 && used_descriptors <= MODEL_THREADS_HERE);
    model_reached(used_descriptors - 1);
}

/* --- what thread.c calls ----------------------------------------------------------------------------------------- */

void *const hak_cache_no_slots[1]; /* of the cache `array` */

void hak_cache_begin(struct hak_heap *t)
{
    t->bins[0].batch++;
}

void hak_bins_dissolve(struct hak_heap *t)
{
    t->bins[0].batch = 0;
}

void hak_front_end(void)
{
}

void hak_bins_flush(struct hak_heap *t)
{
    t->bins[0].batch = 0;
}

void *hak_meta_alloc(size_t size)
{
    MODEL_CHECK(size == sizeof descriptors[0] && used_descriptors < MODEL_THREADS);
    return &descriptors[used_descriptors++];
}

uint64_t hak_clock_ms(void)
{
    return 7;
}

int pthread_key_create(pthread_key_t *key, void (*end)(void *))
{
    *key = 1;
    destructor = end;
    return 0;
}

int pthread_setspecific(pthread_key_t key, const void *value)
{
    MODEL_CHECK(key == 1 && value);
    return 0;
}

const struct model models[] = {
    {"ends", MODEL_THREADS_HERE, setup, come_and_go, expect_none, MODEL_THREADS_HERE},
    {0},
};
