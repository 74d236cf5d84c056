/* SPDX-License-Identifier: MIT
 * A thread gets a heap when it has done enough. When it ends, its heap is dissolved. */
#include <limits.h>
#include <stdlib.h>

#include "core/heap/decay.h"
#include "core/heap/drain.h"
#include "core/heap/heaps.h"
#include "core/heap/owned.h"
#include "core/heap/refill.h"
#include "core/heap/remote_cache.h"
#include "core/heap/thread.h"

#include "core/malloc/malloc.h"
#include "core/os/cgroup.h"
#include "core/os/meta.h"
#include "unit.h"

#define SIZE 2000 /* without a header in any build */

static void *get(void *unused)
{
    const struct hak_heap *t = unit_thread();
    assert_ptr_equal(unit_thread(), t);
    assert_ptr_equal(hak_self.heap, t);
    assert_int_equal(hak_self.tag, t->tag);
    assert_ptr_equal(hak_counters_own, &t->counters);
    return unused;
}

static void *free_some(void *blocks)
{
    void **p = blocks;
    hak_free(p[0]);
    assert_null(hak_self.heap); /* the C library frees a block at the end of threads that never called malloc */
    for (unsigned i = 1; i < 100; i++)
        hak_free(p[i]);
    assert_non_null(hak_self.heap);
    return NULL;
}

TEST(who_frees_a_little_has_no_heap)
{
    static void *blocks[100];
    if (HAK_CPU_HEAPS)
        skip();
    unit_start(NULL);
    for (unsigned i = 0; i < COUNT(blocks); i++)
        blocks[i] = hak_malloc(SIZE);
    unit_in_thread(free_some, blocks);
    hak_bins_flush(unit_thread());
    struct hak_census c = unit_census();
    assert_int_equal(c.used, c.remote);
}

static struct unit_block *kept;

/* Of each class, some blocks stay live, some are freed, and some slabs are full. */
static void *leave(void *unused)
{
    for (unsigned cls = 0; cls < HAK_NCLASSES; cls++) {
        size_t size = hak_class_usable(cls);
        struct unit_block *blocks = unit_blocks(size, unit_slab_capacity(size) + 3);
        struct unit_block *second = blocks->next;
        blocks->next = kept;
        kept = blocks;
        unit_free_blocks(second);
        unit_free_blocks(unit_blocks(size, 5));
    }
    return unused;
}

TEST(a_thread_that_ends_leaves_nothing_active)
{
    unit_start(NULL);
    unit_in_thread(leave, NULL);
    struct hak_census c = unit_census();
    assert_int_equal(c.pages[HAK_SLAB_ACTIVE], 0);
    assert_int_equal(c.used, HAK_NCLASSES); /* only the kept blocks */
    assert_int_equal(unit_totals().active_slabs, 0);
    unit_free_blocks(kept);
    hak_bins_flush(unit_thread());
    unit_sweep();
    c = unit_census();
    assert_int_equal(c.used, 0);
    assert_int_equal(unit_pages_in_use(&c), 0);
}

static uint64_t refills(void)
{
    struct hak_heaps_totals t = unit_totals();
    return t.counters.refills;
}

static pthread_barrier_t together;

/* --- light: a thread that has done little ------------------------------------------------------------------ */

#if HAK_CPU_HEAPS
static void *do_little(void *unused)
{
    unit_free_blocks(unit_blocks(SIZE, 10));
    assert_null(hak_self.heap);
    pthread_barrier_wait(&together);
    return unused;
}

static void *do_much(void *unused)
{
    for (unsigned i = 0; i < 20 && !hak_self.heap; i++)
        unit_free_blocks(unit_blocks(64, 1000));
    pthread_barrier_wait(&together);
    return unused;
}

static void run_together(unsigned count, void *(*work)(void *))
{
    pthread_t threads[4 * HAK_CPUS + 8];
    pthread_barrier_init(&together, NULL, count + 1);
    for (unsigned i = 0; i < count; i++)
        threads[i] = unit_begin_light(work, NULL);
    pthread_barrier_wait(&together);
    for (unsigned i = 0; i < count; i++)
        unit_join(threads[i]);
}

TEST(a_thread_that_does_little_makes_no_heap)
{
    unit_start(NULL);
    assert_non_null(unit_thread()); /* the first thread has one at once */
    run_together(200, do_little);
    assert_int_equal(unit_totals().used, 1);
    assert_int_equal(unit_totals().started - unit_totals().cpus, 1);
    assert_in_range(unit_totals().cpus, 1, HAK_CPUS);
}

TEST(a_thread_that_goes_on_gets_a_heap_while_few_have_one)
{
    unit_start(NULL);
    unit_thread();
    run_together(1, do_much);
    assert_int_equal(unit_totals().started - unit_totals().cpus, 2);
    assert_int_equal(unit_totals().used, 1);
}

TEST(among_many_busy_threads_further_ones_stay_light)
{
    unit_start(NULL);
    unit_thread();
    unsigned most = 4 * hak_cpus();
    run_together(most + 8, do_much);
    assert_in_range(unit_totals().started - unit_totals().cpus, 2, most + 1);
    assert_int_equal(unit_totals().used, 1);
    hak_trim(0);
    assert_int_equal(unit_census().used, 0);
}
#endif

/* --- after the end: a destructor that runs later than the library's still allocates ------------------- */

static pthread_key_t late;
static void *late_block;

static void allocate_late(void *unused)
{
    (void)unused;
    assert_true(hak_self.ended);
    assert_null(unit_thread());
    for (size_t size = 1; size < HAK_MIB; size *= 2) {
        void *p = hak_malloc(size);
        assert_non_null(p);
        p = hak_resize(p, 2 * size);
        assert_non_null(p);
        hak_free(p);
    }
    unit_free_blocks(unit_blocks(64, 1000));
    unit_free_blocks(kept);
    late_block = hak_malloc(SIZE);
}

static void *allocate_and_end(void *unused)
{
    pthread_setspecific(late, &late);
    kept = unit_blocks(SIZE, 100);
    return unused;
}

TEST(after_its_end_a_thread_is_served_by_the_orphan)
{
    unit_start(NULL);
    unit_in_thread(get, NULL);
    assert_int_equal(pthread_key_create(&late, allocate_late), 0); /* its destructor runs after the library's */
    for (unsigned i = 0; i < 3; i++) {
        unit_in_thread(allocate_and_end, NULL);
        assert_non_null(late_block);
        hak_free(late_block);
        hak_remote_cache_flush(unit_thread());
    }
    uint64_t refilled = refills();
    struct hak_heap *orphan = hak_orphan_acquire();
    hak_count(&orphan->counters.refills, 5);
    hak_orphan_release();
    assert_int_equal(orphan->tag, HAK_TAG_SHARED);
    assert_int_equal(refills(), refilled + 5);
    if (HAK_CPU_HEAPS)
        hak_trim(0);
    struct hak_census c = unit_census();
    assert_int_equal(c.used, c.remote); /* the orphan collects remote blocks when it next needs some */
    assert_int_equal(unit_totals().used, 1);
}

/* --- trim ---------------------------------------------------------------------------------------------- */

static void *hold_until_trimmed(void *unused)
{
    unsigned cls = hak_class_of(SIZE);
    unit_free_blocks(unit_blocks(SIZE, 10));
    assert_non_null(hak_cache_first(cls));
    pthread_barrier_wait(&together); /* the trim happens here */
    pthread_barrier_wait(&together);
    assert_non_null(hak_cache_first(cls));
    hak_free(hak_malloc(100000)); /* a slow path */
    for (unsigned b = 0; b < HAK_NCLASSES; b++)
        assert_null(hak_cache_first(b));
    assert_int_equal(unit_thread()->slabs, 0);
    return unused;
}

TEST(a_trim_asks_the_other_threads)
{
    unit_start(NULL);
    pthread_barrier_init(&together, NULL, 2);
    unit_free_blocks(unit_blocks(SIZE, 10));
    pthread_t thread = unit_begin(hold_until_trimmed, NULL);
    pthread_barrier_wait(&together);
    hak_trim(0);
    assert_null(hak_cache_first(hak_class_of(SIZE))); /* the caller's own, at once */
    pthread_barrier_wait(&together);
    unit_join(thread);
    assert_int_equal(unit_census().used, 0);
}

/* Frees its own blocks; without the request, no free would take a slow path. */
static void *free_when_untagged(void *unused)
{
    unsigned cls = hak_class_of(SIZE);
    void *one = hak_malloc(SIZE), *two = hak_malloc(2 * SIZE);
    const char *long_slab = hak_malloc(20000);
    void *full = hak_malloc(3 * SIZE);
    while (hak_slab_state(hak_space_slab(full)) != HAK_SLAB_FULL)
        hak_malloc(3 * SIZE);
    unit_free_blocks(unit_blocks(SIZE, 10));
    uint64_t tags[] = {unit_tag_of(one), unit_tag_of(two)};
    pthread_barrier_wait(&together); /* the request comes here */
    pthread_barrier_wait(&together);
    assert_non_null(hak_cache_first(cls));
    assert_int_not_equal(unit_tag_of(one), tags[0]);
    assert_int_not_equal(unit_tag_of(full), 0);
    for (unsigned i = 0; i < hak_space_slab(long_slab)->pages; i++)
        assert_int_equal(unit_tag_of((char *)hak_space_slab(long_slab)->base + i * HAK_PAGE), 0);
    hak_free(two);
    assert_null(hak_cache_first(cls));
    assert_int_equal(unit_tag_of(one), tags[0]);
    assert_int_equal(unit_tag_of(two), tags[1]);
    hak_free(one);
    hak_free((void *)(uintptr_t)long_slab);
    return unused;
}

TEST(a_free_hears_what_is_asked_without_tags)
{
    unit_start(NULL);
    pthread_barrier_init(&together, NULL, 2);
    pthread_t thread = unit_begin(free_when_untagged, NULL);
    pthread_barrier_wait(&together);
    hak_thread_request_flush();
    size_t next = 0, rounds = 0;
    do
        rounds++;
    while ((next = hak_space_untag_open(next, HAK_SUPERSLAB_PAGES)));
    struct hak_space_stats space;
    hak_space_stats(&space);
    assert_int_equal(rounds, space.mapped / HAK_SUPERSLAB);
    pthread_barrier_wait(&together);
    unit_join(thread);
}
