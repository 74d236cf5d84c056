/* SPDX-License-Identifier: MIT
 * Threads that start, end, are parked, resumed and broken up (core/heap/thread.c as it is), with bins that only note
 * whose they are: a descriptor and all behind it belongs to one thread at a time. */
#include <pthread.h>

#include "core/heap/heap.h"
#include "core/heap/share.h"
#include "core/heap/thread.h"
#include "core/os/meta.h"
#include "core/parts/parts.h"
#include "world.h"

const struct hak_frontend *const hak_frontends[] = {NULL};

static const struct hak_release release = {.name = "model"};
static struct hak_thread descriptors[MODEL_THREADS];
static unsigned used_descriptors;
static void (*destructor)(void *);

static void setup(void)
{
    hak_parts.release = &release;
    hak_options.parked_threads = 1;
    hak_thread_make_key();
}

/* --- park: threads come and go, and one breaks up what waits ------------------------------------------------- */

static void come_and_go(unsigned self)
{
    if (self == 2) {
        hak_thread_break_up(UINT64_MAX);
        return;
    }
    struct hak_thread *t = hak_thread_get();
    MODEL_CHECK(t && t->tag && t->tag == hak_self.tag);
    t->bins[0].batch++;
    destructor(t);
    MODEL_CHECK(!hak_thread_get() && hak_self.tag == HAK_TAG_NOBODY);
}

static void expect_two(void)
{
    struct hak_thread_totals totals;
    hak_thread_totals(&totals);
    MODEL_CHECK(totals.started == 2 && totals.threads == 0 && totals.parked <= 1);
    model_reached(totals.parked);
    if (totals.resumed)
        model_reached(2);
    hak_thread_break_up(UINT64_MAX);
    hak_thread_totals(&totals);
    MODEL_CHECK(totals.parked == 0 && used_descriptors <= 2);
}

/* --- what thread.c calls ----------------------------------------------------------------------------------------- */

void hak_share_set_threads(uint32_t live)
{
    (void)live;
}

void hak_heap_resume(struct hak_thread *t)
{
    t->bins[0].batch++;
}

void hak_heap_park(struct hak_thread *t)
{
    t->bins[0].batch++;
    t->parked_bytes = 100;
}

void hak_heap_abandon(struct hak_thread *t)
{
    t->bins[0].batch = 0;
}

void hak_heap_drain(struct hak_thread *t)
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
