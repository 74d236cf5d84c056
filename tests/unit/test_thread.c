/* SPDX-License-Identifier: MIT
 * A thread gets a heap at its first slow path. When it ends, its heap is retired for the next thread, and dissolved if
 * none comes. */
#include <limits.h>
#include <stdlib.h>

#include "core/heap/bin.h"
#include "core/heap/bins.h"
#include "core/heap/drain.h"
#include "core/heap/heaps.h"
#include "core/heap/owned.h"
#include "core/heap/remote_cache.h"
#include "core/heap/share.h"
#include "core/heap/thread.h"

#include "core/malloc/malloc.h"
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

/* --- retired: the heap of an ended thread waits for the next one -------------------------------------------- */

/* A release backend that returns idle memory at once retires no heap. */
static void start(const char *settings)
{
    unit_init(settings);
    if (hak_parts.release->at_once)
        skip();
}

/* Allocates n blocks of SIZE and frees them. */
static void *come_and_go(void *n)
{
    unit_free_blocks(unit_blocks(SIZE, *(size_t *)n));
    return NULL;
}

static uint64_t refills(void)
{
    struct hak_heaps_totals t = unit_totals();
    return t.counters.refills;
}

TEST(the_next_thread_goes_on_with_what_the_last_one_had)
{
    start(NULL);
    size_t n = 10;
    unit_join(unit_begin(come_and_go, &n));
    assert_int_equal(unit_totals().used, 0);
    assert_int_equal(unit_totals().retired, 1);
    assert_true(hak_heaps_free_bytes() >= n * SIZE);
    uint64_t used = unit_census().used, before = refills();
    for (unsigned i = 0; i < 10; i++)
        unit_join(unit_begin(come_and_go, &n));
    assert_int_equal(refills(), before);
    assert_int_equal(unit_totals().resumed, 10);
    assert_int_equal(unit_totals().retired, 1);
    assert_int_equal(unit_census().free, 0); /* all are in bins */
    assert_int_equal(unit_census().used, used);
    hak_orphan_acquire(); /* a debug build stops at locks taken in the wrong order */
    hak_heaps_dissolve(UINT64_MAX, UINT_MAX);
    hak_orphan_release();
    assert_int_equal(unit_totals().retired, 0);
    assert_int_equal(unit_totals().active_slabs, 0);
    assert_int_equal(unit_census().used, 0);
}

static void age_by(uint64_t ms)
{
    fake_os_pass(ms);
    hak_purge_tick();
}

TEST(parked_threads_are_dissolved_after_the_purge_delay_and_by_a_trim)
{
    start("HAKMEM_PURGE_DELAY_MS=100");
    size_t n = 10;
    unit_thread();
    unit_join(unit_begin(come_and_go, &n));
    age_by(50);
    assert_int_equal(unit_totals().retired, 1);
    age_by(60);
    assert_int_equal(unit_totals().retired, 0);
    assert_int_equal(unit_census().used, 0);
    unit_join(unit_begin(come_and_go, &n));
    assert_int_equal(unit_totals().retired, 1);
    hak_trim(0);
    assert_int_equal(unit_totals().retired, 0);
    assert_int_equal(unit_census().used, 0);
}

/* Every second block stays live. */
static void leave_gaps(size_t size, size_t n)
{
    for (struct unit_block *b = unit_blocks(size, n); b && b->next; b = b->next) {
        struct unit_block *gap = b->next;
        b->next = gap->next;
        hak_free(gap);
    }
}

/* Owns as much as a thread may, of each of that many classes. */
static void *own_much(void *classes)
{
    for (unsigned i = 0; i < *(size_t *)classes; i++) {
        size_t size = hak_strides[HAK_NCLASSES - 1 - i];
        leave_gaps(size, 2 * HAK_OWNED_PAGES * HAK_PAGE / size);
    }
    return NULL;
}

TEST(a_thread_with_much_memory_is_not_parked)
{
    start(NULL);
    size_t few = 2, many = 16;
    unit_thread();
    unit_join(unit_begin(own_much, &few));
    assert_int_equal(unit_totals().retired, 1);
    unit_join(unit_begin(own_much, &many));
    assert_int_equal(unit_totals().retired, 0);
    assert_int_equal(unit_totals().active_slabs, 0);
}

static pthread_barrier_t together;

static void *come_and_go_together(void *n)
{
    come_and_go(n);
    pthread_barrier_wait(&together);
    return NULL;
}

static void run_together(unsigned count)
{
    pthread_t threads[8];
    size_t n = 10;
    pthread_barrier_init(&together, NULL, count);
    for (unsigned i = 0; i < count; i++)
        threads[i] = unit_begin(come_and_go_together, &n);
    for (unsigned i = 0; i < count; i++)
        unit_join(threads[i]);
}

static const struct {
    const char *settings;
    uint64_t parked;
} parking[] = {{"HAKMEM_PARKED_THREADS=3", 3}, {"HAKMEM_PARKED_THREADS=0", 0}, {"HAKMEM_RELEASE=direct", 0}};

TEST_EACH(so_many_threads_are_parked, parking)
{
    unit_init(row->settings);
    run_together(8);
    assert_int_equal(unit_totals().retired, hak_parts.release->at_once ? 0 : row->parked);
    assert_int_equal(unit_totals().used, 0);
    if (!row->parked)
        assert_int_equal(unit_totals().active_slabs, 0);
}

static void *live_on(void *unused)
{
    get(NULL);
    pthread_barrier_wait(&together); /* the thread has a heap */
    pthread_barrier_wait(&together); /* it may end */
    return unused;
}

/* In the child, one thread lives, and the next one resumes the retired heap. */
static int resume_parked(void)
{
    uint64_t resumed = unit_totals().resumed;
    if (hak_share_uses != 0 || unit_totals().used != 1)
        return 1;
    if (HAK_SANITIZED || getenv("UNIT_RUN_BY")) /* thread sanitizer and qemu-user die of a thread in a forked child */
        return 0;
    unit_join(unit_begin(come_and_go, &(size_t){10}));
    return unit_totals().resumed != resumed + 1;
}

/* Threads that live share the budget of a class. */
TEST(a_forked_child_has_the_parked_threads_alone)
{
    start(NULL);
    unit_thread();
    run_together(2);
    pthread_barrier_init(&together, NULL, 2);
    pthread_t other = unit_begin(live_on, NULL);
    pthread_barrier_wait(&together);
    assert_int_equal(hak_share_uses, 1);
    unit_in_child(resume_parked);
    assert_int_equal(hak_share_uses, 1);
    assert_int_equal(unit_totals().retired, 1);
    pthread_barrier_wait(&together);
    unit_join(other);
    assert_int_equal(hak_share_uses, 0);
}

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
