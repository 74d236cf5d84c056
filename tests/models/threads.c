/* SPDX-License-Identifier: MIT
 * Threads start and end, and heaps are retired, resumed and dissolved (core/heap/thread.c as it is). The bins only
 * record their owner: a heap and everything in it belongs to one thread at a time. */
#include <limits.h>
#include <pthread.h>

#include "core/heap/bins.h"
#include "core/heap/heaps.h"
#include "core/heap/share.h"
#include "core/heap/thread.h"
#include "core/os/meta.h"
#include "core/parts/parts.h"
#include "world.h"

const struct hak_frontend *const hak_frontends[] = {NULL};

static const struct hak_release release = {.name = "model"};
static struct hak_heap descriptors[MODEL_THREADS];
static unsigned used_descriptors;
static void (*destructor)(void *);

static void setup(void)
{
    hak_parts.release = &release;
    hak_options.parked_threads = 1;
    hak_thread_make_key();
}

/* --- retire: threads start and end, and one dissolves retired heaps
 * ------------------------------------------------- */

static void come_and_go(unsigned self)
{
    if (self == 2) {
        hak_heaps_dissolve(UINT64_MAX, UINT_MAX);
        return;
    }
    struct hak_heap *t = hak_thread_heap();
    MODEL_CHECK(t && t->tag && t->tag == hak_self.tag);
    t->bins[0].batch++;
    destructor(t);
    MODEL_CHECK(!hak_thread_heap() && hak_self.tag == HAK_TAG_NOBODY);
}

static void expect_two(void)
{
    struct hak_heaps_totals totals;
    hak_heaps_totals(&totals);
    MODEL_CHECK(totals.started == 2 && totals.used == 0 && totals.retired <= 1);
    model_reached(totals.retired);
    if (totals.resumed)
        model_reached(2);
    hak_heaps_dissolve(UINT64_MAX, UINT_MAX);
    hak_heaps_totals(&totals);
    MODEL_CHECK(totals.retired == 0 && used_descriptors <= 2);
}

/* --- what thread.c calls ----------------------------------------------------------------------------------------- */

void hak_share_set_heaps(uint32_t live)
{
    (void)live;
}

void hak_bins_resume(struct hak_heap *t)
{
    t->bins[0].batch++;
}

void hak_bins_retire(struct hak_heap *t)
{
    t->bins[0].batch++;
    t->retired_bytes = 100;
}

void hak_bins_dissolve(struct hak_heap *t)
{
    t->bins[0].batch = 0;
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
    {"park", 3, setup, come_and_go, expect_two, 3},
    {0},
};
