/* SPDX-License-Identifier: MIT
 * Threads begin at their first slow path; what they had waits for the next one, and nothing stays for long. */
#include "core/heap/bin.h"
#include "core/heap/bins.h"
#include "core/heap/drain.h"
#include "core/heap/heaps.h"
#include "core/heap/owned.h"
#include "core/heap/remote_cache.h"
#include "core/heap/share.h"
#include "core/heap/thread.h"

#include <sys/wait.h>
#include <unistd.h>

#include "core/malloc/malloc.h"
#include "core/os/meta.h"
#include "unit.h"

#define SIZE 2000 /* without a header in any build */

static struct hak_heaps_totals totals(void)
{
    struct hak_heaps_totals t;
    hak_heaps_totals(&t);
    return t;
}

static void *get(void *unused)
{
    (void)unused;
    struct hak_heap *t = unit_thread();
    assert_ptr_equal(unit_thread(), t);
    assert_ptr_equal(hak_self.heap, t);
    assert_int_equal(hak_self.tag, t->tag);
    assert_ptr_equal(hak_counters_own, &t->counters);
    return t;
}

TEST(before_its_first_slow_path_a_thread_has_nothing)
{
    unit_start(NULL);
    assert_null(hak_self.heap);
    assert_int_equal(hak_self.tag, HAK_TAG_NOBODY);
    assert_int_equal(totals().started, 0);
    assert_non_null(get(NULL));
    assert_int_equal(totals().used, 1);
}

static void *get_into(void *out)
{
    *(struct hak_heap **)out = get(NULL);
    return NULL;
}

TEST(descriptors_are_recycled)
{
    unit_start(NULL);
    struct hak_heap *first, *second;
    unit_in_thread(get_into, &first);
    size_t bytes = hak_meta_bytes();
    for (unsigned i = 0; i < 100; i++) {
        unit_in_thread(get_into, &second);
        assert_ptr_equal(second, first);
    }
    assert_int_equal(hak_meta_bytes(), bytes);
    assert_int_equal(totals().started, 101);
    assert_int_equal(totals().used, 0);
}

TEST(tags_of_live_threads_differ)
{
    unit_start(NULL);
    struct hak_heap *mine = get(NULL), *other;
    unit_in_thread(get_into, &other);
    assert_true(mine->tag >> 32 > 1 && (uint32_t)mine->tag == 0);
    assert_int_not_equal(mine->tag, other->tag);
}

static void *free_some(void *blocks)
{
    void **p = blocks;
    hak_free(p[0]);
    assert_null(hak_self.heap); /* as the C library's last free of a thread that never called */
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

/* Of every class some blocks stay, some are freed, and some slabs are full. */
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
    assert_int_equal(c.used, HAK_NCLASSES); /* the kept ones, nothing else */
    assert_int_equal(totals().active_slabs, 0);
    unit_free_blocks(kept);
    hak_bins_flush(unit_thread());
    unit_sweep();
    c = unit_census();
    assert_int_equal(c.used, 0);
    assert_int_equal(unit_pages_in_use(&c), 0);
}

static void *allocate_full(void *n)
{
    kept = unit_blocks(SIZE, *(size_t *)n);
    return NULL;
}

TEST(full_slabs_stay_full)
{
    unit_start(NULL);
    size_t n = 2 * unit_slab_capacity(SIZE);
    unit_in_thread(allocate_full, &n);
    struct hak_census c = unit_census();
    assert_int_equal(c.pages[HAK_SLAB_FULL], 2 * hak_slab_pages[hak_class_of(SIZE)]);
    assert_int_equal(unit_pages_in_use(&c), c.pages[HAK_SLAB_FULL]);
}

static uint64_t blocks_refilled(void)
{
    struct hak_heaps_totals t = totals();
    return t.counters.refill_blocks;
}

TEST(counters_outlive_their_thread)
{
    unit_start(NULL);
    size_t n = 100;
    unit_in_thread(allocate_full, &n);
    uint64_t blocks = blocks_refilled();
    assert_true(blocks >= 100);
    unit_in_thread(allocate_full, &n);
    assert_true(blocks_refilled() >= blocks + 100);
}

/* --- parked: what an ended thread had waits for the next one -------------------------------------------- */

/* Where idle memory goes back at once, nothing is parked. */
static void start(const char *settings)
{
    unit_start(settings);
    assert_true(hak_init());
    if (hak_parts.release->at_once)
        skip();
}

static void run(void *(*fn)(void *), void *context)
{
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, fn, context), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
}

/* So many blocks of SIZE come and go. */
static void *come_and_go(void *n)
{
    unit_free_blocks(unit_blocks(SIZE, *(size_t *)n));
    return NULL;
}

static uint64_t refills(void)
{
    struct hak_heaps_totals t = totals();
    return t.counters.refills;
}

TEST(the_next_thread_goes_on_with_what_the_last_one_had)
{
    start(NULL);
    size_t n = 10;
    run(come_and_go, &n);
    assert_int_equal(totals().used, 0);
    assert_int_equal(totals().retired, 1);
    uint64_t before = refills();
    for (unsigned i = 0; i < 10; i++)
        run(come_and_go, &n);
    assert_int_equal(refills(), before);
    assert_int_equal(totals().resumed, 10);
    assert_int_equal(totals().retired, 1);
    assert_int_equal(unit_census().free, 0); /* the bins have all */
    hak_heaps_dissolve(UINT64_MAX);
    assert_int_equal(totals().retired, 0);
    assert_int_equal(totals().active_slabs, 0);
    assert_int_equal(unit_census().used, 0);
}

static void *allocate_one(void *out)
{
    *(void **)out = hak_malloc(SIZE);
    return NULL;
}

TEST(the_first_block_of_a_resumed_thread_comes_from_its_bin)
{
    start(NULL);
    size_t n = 10;
    void *block;
    run(come_and_go, &n);
    uint64_t used = unit_census().used;
    run(allocate_one, &block);
    assert_int_equal(unit_census().used, used); /* none was lost */
    hak_free(block);
    hak_bins_flush(unit_thread());
    assert_int_equal(unit_census().used, 0);
}

TEST(blocks_of_a_parked_thread_may_be_freed_by_others)
{
    start(NULL);
    size_t n = 10;
    run(allocate_full, &n);
    unit_free_blocks(kept);
    hak_remote_cache_flush(unit_thread()); /* it is the caller that has become the next thread */
    assert_int_equal(totals().retired, 0);
    hak_bins_flush(unit_thread());
    assert_int_equal(unit_census().used, 0);
}

static void age_by(uint64_t ms)
{
    fake_os_pass(ms);
    hak_purge_tick();
}

TEST(parked_threads_are_broken_up_after_the_purge_delay)
{
    start("HAKMEM_PURGE_DELAY_MS=100");
    size_t n = 10;
    unit_thread();
    run(come_and_go, &n);
    age_by(50);
    assert_int_equal(totals().retired, 1);
    age_by(60);
    assert_int_equal(totals().retired, 0);
    assert_int_equal(unit_census().used, 0);
}

TEST(a_trim_breaks_parked_threads_up)
{
    start(NULL);
    size_t n = 10;
    unit_thread();
    run(come_and_go, &n);
    assert_int_equal(totals().retired, 1);
    hak_trim(0);
    assert_int_equal(totals().retired, 0);
    assert_int_equal(unit_census().used, 0);
}

/* Every second one stays. */
static void leave_gaps(size_t size, size_t n)
{
    for (struct unit_block *b = unit_blocks(size, n); b && b->next; b = b->next) {
        struct unit_block *gap = b->next;
        b->next = gap->next;
        hak_free(gap);
    }
}

/* As much as a thread may own of each of so many classes. */
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
    run(own_much, &few);
    assert_int_equal(totals().retired, 1);
    run(own_much, &many);
    assert_int_equal(totals().retired, 0);
    assert_int_equal(totals().active_slabs, 0);
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
        assert_int_equal(pthread_create(&threads[i], NULL, come_and_go_together, &n), 0);
    for (unsigned i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
}

TEST(so_many_threads_are_parked)
{
    start("HAKMEM_PARKED_THREADS=3");
    run_together(8);
    assert_int_equal(totals().retired, 3);
    assert_int_equal(totals().used, 0);
}

TEST(a_forked_child_goes_on_with_parked_threads)
{
    start(NULL);
    size_t n = 10;
    int status;
    run(come_and_go, &n);
    uint64_t before = refills();
    pid_t child = fork();
    if (!child) {
        run(come_and_go, &n);
        _exit(totals().resumed != 1 || refills() != before);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(totals().retired, 1);
}

static void *live_on(void *unused)
{
    get(NULL);
    pthread_barrier_wait(&together); /* it is there */
    pthread_barrier_wait(&together); /* it may go */
    return unused;
}

/* A class is shared among threads that live. */
TEST(a_forked_child_is_alone)
{
    unit_start(NULL);
    get(NULL);
    pthread_t other;
    int status;
    pthread_barrier_init(&together, NULL, 2);
    assert_int_equal(pthread_create(&other, NULL, live_on, NULL), 0);
    pthread_barrier_wait(&together);
    assert_int_equal(hak_share_uses, 1);
    pid_t child = fork();
    if (!child)
        _exit(hak_share_uses != 0 || totals().used != 1);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(hak_share_uses, 1);
    pthread_barrier_wait(&together);
    assert_int_equal(pthread_join(other, NULL), 0);
    assert_int_equal(hak_share_uses, 0);
}

static void expect_none_parked(const char *settings)
{
    unit_start(settings);
    run_together(2);
    assert_int_equal(totals().retired, 0);
    assert_int_equal(totals().active_slabs, 0);
}

TEST(none_is_parked_where_that_is_off)
{
    expect_none_parked("HAKMEM_PARKED_THREADS=0");
}

TEST(none_is_parked_where_idle_memory_goes_back_at_once)
{
    expect_none_parked("HAKMEM_RELEASE=direct");
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
    assert_int_equal(pthread_key_create(&late, allocate_late), 0); /* after the library's key, so later */
    for (unsigned i = 0; i < 3; i++) {
        unit_in_thread(allocate_and_end, NULL);
        assert_non_null(late_block);
        hak_free(late_block);
        hak_remote_cache_flush(unit_thread());
    }
    struct hak_census c = unit_census();
    assert_int_equal(c.used, c.remote); /* the orphan collects what is back when it next needs blocks */
    assert_int_equal(totals().used, 1);
}

TEST(what_the_orphan_counted_is_in_the_totals)
{
    unit_start(NULL);
    get(NULL);
    struct hak_heaps_totals before = totals(), after;
    hak_count(&hak_orphan_acquire()->counters.refills, 5);
    hak_orphan_release();
    after = totals();
    assert_int_equal(after.counters.refills, before.counters.refills + 5);
}

static void *leave_blocks_in_bins(void *unused)
{
    unit_free_blocks(unit_blocks(SIZE, 5));
    return unused;
}

TEST(blocks_in_bins_of_parked_threads_are_free)
{
    unit_start(NULL);
    get(NULL);
    if (hak_parts.release->at_once)
        skip();
    pthread_t thread;
    size_t before = hak_heaps_free_bytes();
    assert_int_equal(pthread_create(&thread, NULL, leave_blocks_in_bins, NULL), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(totals().retired, 1);
    assert_true(hak_heaps_free_bytes() >= before + 5 * SIZE);
}

TEST(the_orphans_holder_may_break_threads_up)
{
    start(NULL);
    size_t n = 10;
    run(come_and_go, &n);
    hak_orphan_acquire(); /* a debug build stops at locks taken in the wrong order */
    hak_heaps_dissolve(UINT64_MAX);
    hak_orphan_release();
    assert_int_equal(totals().retired, 0);
}

TEST(only_one_holds_the_orphan)
{
    unit_start(NULL);
    struct hak_heap *orphan = hak_orphan_acquire();
    assert_int_equal(orphan->tag, (uint64_t)1 << 32);
    hak_orphan_release();
    assert_ptr_equal(hak_orphan_acquire(), orphan);
    hak_orphan_release();
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
    pthread_t thread;
    pthread_barrier_init(&together, NULL, 2);
    unit_free_blocks(unit_blocks(SIZE, 10));
    assert_int_equal(pthread_create(&thread, NULL, hold_until_trimmed, NULL), 0);
    pthread_barrier_wait(&together);
    hak_trim(0);
    assert_null(hak_cache_first(hak_class_of(SIZE))); /* the caller's own, at once */
    pthread_barrier_wait(&together);
    pthread_join(thread, NULL);
    assert_int_equal(unit_census().used, 0);
}

/* Its own blocks, freed without a slow path otherwise. */
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
    pthread_barrier_wait(&together); /* the question comes here */
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
    pthread_t thread;
    pthread_barrier_init(&together, NULL, 2);
    assert_int_equal(pthread_create(&thread, NULL, free_when_untagged, NULL), 0);
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
    pthread_join(thread, NULL);
}

/* --- memory refused ------------------------------------------------------------------------------------ */

static void *serve_without_descriptor(void *unused)
{
    fake_os_refuse_any(1, ENOMEM, true);
    while (hak_meta_alloc(4096))
        ;
    while (hak_meta_alloc(64))
        ;
    assert_null(unit_thread());
    fake_os_allow();
    assert_non_null(unit_thread());
    unit_free_blocks(unit_blocks(SIZE, 10));
    return unused;
}

TEST(without_memory_for_a_descriptor_later_calls_try_again)
{
    unit_start(NULL);
    unit_free_blocks(unit_blocks(SIZE, 10));
    unit_in_thread(serve_without_descriptor, NULL);
    hak_bins_flush(unit_thread());
    assert_int_equal(unit_census().used, 0);
}
