/* SPDX-License-Identifier: MIT
 * Spans as large blocks see them, and in the statistics of the large frontend. */
#include <string.h>
#include <sys/mman.h>

#include "core/malloc/malloc.h"
#include "core/os/meta.h"
#include "core/pages/page_heap.h"
#include "core/plugin.h"
#include "frontends/large/spans.h"
#include "unit.h"

static size_t dirty_bytes(void)
{
    return hak_dirty_queue.waiting + hak_dirty_queue.refused;
}

static uint64_t large(const char *key)
{
    return unit_stat("large", key);
}

/* That were ever mapped. */
static uint64_t superslabs(void)
{
    return unit_stat("page_heap", "superslabs_mapped");
}

static bool at_once(void)
{
    return hak_init() && hak_parts.release->at_once;
}

static char *take(size_t size)
{
    char *p = hak_malloc(size);
    assert_non_null(p);
    assert_non_null(hak_space_slab(p));
    return memset(p, 1, size);
}

#define NO_CACHE "HAKMEM_ACE_CACHE_MB=0 HAKMEM_ACE_WASTE_PCT=0"

TEST(each_length_has_a_class_that_wastes_little)
{
    for (unsigned pages = 1; pages <= 4 * SPAN_MAX_PAGES; pages++) {
        unsigned class = hak_span_class(pages), most = hak_span_class_pages(class);
        assert_in_range(class, 0, SPAN_CLASSES - 1);
        assert_in_range(most, pages, UINT32_MAX);
        assert_true(class == 0 || hak_span_class_pages(class - 1) < pages);
        assert_true(class == SPAN_CLASSES - 1 || most - pages <= pages / 8);
        assert_true(pages > 16 || most == pages);
        assert_true(pages > SPAN_MAX_PAGES || most <= SPAN_MAX_PAGES);
    }
}

TEST(what_spans_leave_serves_slabs)
{
    enum { N = 3 };
    unit_start(NO_CACHE);
    char *p[N];
    for (unsigned i = 0; i < N; i++)
        assert_non_null(p[i] = hak_malloc(32 * HAK_MIB - HAK_PAGE));
    uint64_t mapped = superslabs();
    assert_true(mapped * HAK_SUPERSLAB >= N * (32 * HAK_MIB - HAK_PAGE));
    for (unsigned round = 0; round < 2; round++) { /* dirty pages, and those that went back */
        for (unsigned i = 0; i < N; i++)
            hak_free(p[i]);
        if (round)
            hak_trim(0);
        unit_free_blocks(unit_blocks(30000, 200));
        for (unsigned i = 0; i < N; i++)
            assert_non_null(p[i] = hak_malloc(30 * HAK_MIB));
    }
    assert_int_equal(superslabs(), mapped);
}

TEST(superslabs_that_serve_again_are_not_looked_at)
{
    unit_start(NO_CACHE);
    fake_os_clock(100); /* huge pages come quickly */
    hak_free(take(30 * HAK_MIB));
    uint64_t mapped = superslabs();
    for (unsigned i = 0; i < 3; i++) {
        hak_trim(0);
        hak_free(take(30 * HAK_MIB));
    }
    assert_int_equal(superslabs(), mapped);
    assert_int_equal(hak_ledger[HAK_CAUSE_huge_page][HAK_OS_mincore].calls, 0);
}

TEST(descriptors_serve_again)
{
    unit_start(NO_CACHE);
    hak_free(take(30 * HAK_MIB));
    hak_trim(0);
    uint64_t before = hak_meta_bytes();
    for (unsigned i = 0; i < 5; i++) {
        hak_free(take(30 * HAK_MIB));
        hak_trim(0);
    }
    assert_int_equal(hak_meta_bytes(), before);
}

static char *freed;

static void free_again(void)
{
    hak_free(freed);
}

TEST(a_cached_span_is_no_block)
{
    unit_start("HAKMEM_ACE_CACHE_MB=4");
    if (at_once())
        skip();
    enum { SIZE = 5 * 65536 };
    hak_free(take(SIZE)); /* turned away */
    hak_free(freed = take(SIZE));
    assert_int_equal(large("cached_bytes"), SIZE);
    assert_true(!hak_space_slab(freed) || hak_slab_state(hak_space_slab(freed)) == HAK_SLAB_UNUSED);
    assert_int_equal(unit_census().live_large, 0);
    assert_dies(free_again, "free");
}

TEST(a_class_keeps_what_it_needed)
{
    unit_start("HAKMEM_ACE_CACHE_MB=4");
    if (at_once())
        skip();
    enum { SIZE = 5 * 65536 };
    hak_free(take(SIZE)); /* turned away: the budget is 0; the next miss raises it */
    assert_int_equal(large("cache_over_budget"), 1);
    char *p = take(SIZE);
    hak_free(p);
    assert_int_equal(large("cached_bytes"), SIZE);
    assert_ptr_equal(take(SIZE), p);
    assert_int_equal(large("cache_hits"), 1);
    hak_free(p);
    uint64_t budget = large("cache_budget");
    fake_os_pass(hak_options.purge_delay_ms - 1);
    hak_purge_tick();
    assert_int_equal(large("cached_bytes"), SIZE);
    fake_os_pass(10);
    hak_purge_tick(); /* nobody came for it */
    assert_int_equal(large("cached_bytes"), 0);
    assert_int_equal(large("cache_evicted"), 1);
    assert_true(large("cache_budget") < budget);
}

TEST(spans_of_one_page_are_counted_too)
{
    unit_start("HAKMEM_ACE_CACHE_MB=4");
    if (at_once())
        skip();
    hak_free(take(HAK_PAGE));
    hak_free(take(HAK_PAGE));
    uint64_t budget = large("cache_budget");
    hak_free(take(HAK_PAGE));
    assert_true(budget > 0);
    assert_int_equal(large("cache_hits"), 1);
    assert_int_equal(large("cache_misses"), 2);
}

TEST(the_cache_is_bounded_in_bytes)
{
    unit_start("HAKMEM_ACE_CACHE_MB=1");
    enum { N = 40, SIZE = 2 * 65536 };
    char *p[N];
    for (unsigned round = 0; round < 40; round++) {
        for (unsigned i = 0; i < N; i++)
            p[i] = take(SIZE);
        for (unsigned i = 0; i < N; i++)
            hak_free(p[i]);
        assert_true(large("cached_bytes") <= HAK_MIB);
    }
    if (!at_once())
        assert_true(large("cache_hits") > 0);
}

TEST(rounding_wastes_no_more_than_asked)
{
    unit_start("HAKMEM_ACE_WASTE_PCT=6");
    struct hak_slab *slab = hak_space_slab(take(35 * HAK_PAGE)); /* its class has 36 */
    assert_int_equal(slab->pages, 36);
    assert_int_equal(large("rounded"), 1);
    slab = hak_space_slab(take(33 * HAK_PAGE)); /* 3 of 36 is more than 6 % */
    assert_int_equal(slab->pages, 33);
    assert_int_equal(large("rounded"), 1);
}

TEST(only_old_content_is_cleared)
{
    unit_start(NO_CACHE);
    char *old = take(10 * HAK_PAGE), *between = take(HAK_PAGE);
    hak_free(old);
    char *p = hak_alloc_zeroed(20 * HAK_PAGE);
    for (size_t i = 0; i < 20 * HAK_PAGE; i++)
        assert_int_equal(p[i], 0);
    char *q = hak_alloc_zeroed(10 * HAK_PAGE);
    for (size_t i = 0; i < 10 * HAK_PAGE; i++)
        assert_int_equal(q[i], 0);
    hak_free(between);
    /* Fresh pages are not touched. */
    unsigned char resident[8 * 65536 / 4096];
    char *fresh = hak_alloc_zeroed(8 * HAK_PAGE);
    assert_int_equal(mincore(fresh, 8 * HAK_PAGE, resident), 0);
    for (unsigned i = 0; i < COUNT(resident); i++)
        assert_false(resident[i] & 1);
}

TEST(a_block_grows_where_it_is)
{
    unit_start(NO_CACHE);
    char *p = take(HAK_PAGE);
    char *q = hak_resize(p, 8 * HAK_PAGE);
    assert_ptr_equal(q, p);
    assert_int_equal(unit_usable(p), 8 * HAK_PAGE);
    assert_int_equal(large("grown_in_place"), 1);
    p[8 * HAK_PAGE - 1] = 1;
    assert_ptr_equal(hak_resize(p, 2 * HAK_PAGE), p); /* what it leaves serves others */
    assert_null(hak_space_slab(p + 3 * HAK_PAGE));    /* and is no block until then */
    assert_int_equal(large("live_bytes"), 2 * HAK_PAGE);
    assert_ptr_equal(take(3 * HAK_PAGE), p + 2 * HAK_PAGE);
    assert_ptr_not_equal(q = hak_resize(p, 4 * HAK_PAGE), p);
    assert_int_equal(q[0], 1);
    hak_free(q);
}

TEST(a_growing_block_is_copied_seldom)
{
    unit_start(NULL);
    size_t size = HAK_PAGE;
    unsigned moves = 0;
    char *p = take(size);
    void *others[200];
    unsigned n = 0;
    for (; size < 256 * HAK_MIB; size += size / 8) {
        bool copied = hak_space_contains(p);
        char *q = hak_resize(p, size + size / 8);
        moves += q != p && copied;
        p = q;
        assert_int_equal(p[0], 1);
        others[n++] = take(HAK_PAGE); /* what takes the place behind it if nothing keeps it free */
    }
    assert_true(moves <= 6); /* of 70 steps */
    assert_true(large("remapped") > 20);
    hak_free(p);
    while (n)
        hak_free(others[--n]);
}

TEST(dirty_spans_go_back_after_the_delay_by_one_call)
{
    unit_start(NO_CACHE);
    if (at_once())
        skip();
    enum { N = 10 };
    char *p[2 * N];
    for (unsigned i = 0; i < 2 * N; i++)
        p[i] = take(HAK_PAGE);
    for (unsigned i = 0; i < 2 * N; i += 2)
        hak_free(p[i]);
    const enum hak_cause cause = HAK_CAUSE_purge; /* their superslabs are in use */
    fake_os_pass(hak_options.purge_delay_ms - 1);
    hak_purge_tick();
    assert_int_equal(unit_cause_calls(cause), 0);
    fake_os_pass(10); /* more than the steps of age */
    hak_purge_tick();
    assert_int_equal(hak_ledger[cause][HAK_OS_process_madvise].calls, 1);
    assert_int_equal(p[0][0], 0);
    assert_int_equal(dirty_bytes(), 0);
}

/* Spans alone make the clock tick. */
TEST(what_is_idle_goes_back_while_only_spans_come_and_go)
{
    unit_start(NO_CACHE " HAKMEM_PURGE_DELAY_MS=100000 HAKMEM_SUPERSLAB_MAX_CACHED=100000"); /* much may wait */
    if (at_once())
        skip();
    enum { N = 256 };
    static char *p[N];
    for (unsigned i = 0; i < N; i++)
        p[i] = take(HAK_MIB);
    for (unsigned i = 0; i < N; i++)
        hak_free(p[i]);
    assert_true(dirty_bytes() >= N * HAK_MIB);
    uint64_t random = 1;
    for (unsigned i = 0; i < 3000; i++) {
        hak_free(take(100 * HAK_KIB + unit_random(&random) % (200 * HAK_KIB)));
        fake_os_pass(100);
    }
    /* the last superslab may count whole, as a huge page makes it resident whole */
    assert_true(dirty_bytes() + large("cached_bytes") <= HAK_MIB + HAK_SUPERSLAB);
}

TEST(what_nobody_wanted_goes_at_once_but_for_a_little)
{
    unit_start(NO_CACHE);
    if (at_once())
        skip();
    enum { N = 100, SIZE = 4 * HAK_MIB };
    static char *p[N];
    for (unsigned i = 0; i < N; i++)
        p[i] = take(SIZE);
    for (unsigned i = 0; i < N; i++) {
        hak_free(p[i]);
        assert_true(dirty_bytes() <= 4 * HAK_MIB);
    }
    assert_int_equal(unit_stat("page_heap", "refused_bytes"), 0);
}

TEST(random_use_keeps_contents_and_loses_nothing)
{
    unit_start("HAKMEM_PURGE_DELAY_MS=20");
    enum { N = 60 };
    struct {
        char *p;
        size_t size;
    } slot[N] = {{0}};
    uint64_t random = 7;
    for (unsigned i = 0; i < 6000; i++) {
        unsigned k = (unsigned)(unit_random(&random) % N);
        size_t size = 53248 + 1 + unit_random(&random) % (2 * HAK_MIB);
        bool grow = unit_random(&random) % 3 == 0;
        if (slot[k].p) {
            assert_int_equal(slot[k].p[0], (char)k);
            assert_int_equal(slot[k].p[slot[k].size - 1], (char)k);
        }
        if (slot[k].p && grow) {
            slot[k].p = hak_resize(slot[k].p, size);
            assert_int_equal(slot[k].p[0], (char)k);
        } else {
            hak_free(slot[k].p);
            slot[k].p = hak_alloc_zeroed(size);
            assert_int_equal(slot[k].p[0] | slot[k].p[size / 2] | slot[k].p[size - 1], 0);
        }
        slot[k].size = size;
        memset(slot[k].p, (int)k, size < 8192 ? size : 8192);
        slot[k].p[size - 1] = (char)k;
        fake_os_pass(1);
        if (i % 20 == 0)
            hak_purge_tick();
    }
    for (unsigned k = 0; k < N; k++)
        hak_free(slot[k].p);
    assert_int_equal(large("live_bytes"), 0);
    hak_trim(0);
    assert_int_equal(dirty_bytes(), 0);
    assert_int_equal(unit_stat("lru", "cached"), 0);
    assert_int_equal(unit_census().live_large, 0);
}

TEST(huge_pages_where_all_is_touched)
{
    unit_start(NULL);
    fake_os_clock(100); /* they come quickly */
    take(HAK_MIB);
    assert_int_equal(unit_cause_calls(HAK_CAUSE_huge_page), 0); /* not in a small heap */
    for (unsigned i = 0; i < 40; i++)
        take(HAK_MIB);
    assert_true(fake_os_huge_bytes() >= 8 * HAK_MIB);
    assert_true(unit_looks() > 0);
    assert_true(unit_looks() <= unit_stat("lru", "misses"));
}

TEST(small_pages_where_little_is_touched)
{
    unit_start(NULL);
    fake_os_clock(100); /* they come quickly */
    for (unsigned i = 0; i < 40; i++)
        *(char *)hak_malloc(HAK_MIB) = 1;
    assert_int_equal(fake_os_huge_bytes(), 0);
    assert_true(unit_looks() > 0);
}

TEST(what_nobody_touched_tells_nothing)
{
    unit_start(NULL);
    fake_os_clock(100); /* they come quickly */
    for (unsigned i = 0; i < 3; i++)
        assert_non_null(hak_malloc(30 * HAK_MIB));
    assert_true(fake_os_count(HAK_OS_mincore) > 0);
    assert_int_equal(hak_ledger[HAK_CAUSE_huge_page][HAK_OS_madvise].calls, 0);
}

TEST(long_and_short_blocks_are_judged_apart)
{
    unit_start(NULL);
    fake_os_clock(100); /* they come quickly */
    for (unsigned i = 0; i < 40; i++)
        take(HAK_MIB);
    size_t huge = fake_os_huge_bytes();
    for (unsigned i = 0; i < 10; i++)
        *(char *)hak_malloc(30 * HAK_MIB) = 1;
    assert_int_equal(fake_os_huge_bytes(), huge);
    uint64_t mapped = superslabs();
    while (superslabs() == mapped) /* what was mapped with the long ones serves first */
        take(HAK_MIB);
    assert_true(fake_os_huge_bytes() > huge);
}

TEST(small_pages_again_where_less_is_touched_than_before)
{
    unit_start(NULL);
    fake_os_clock(100); /* they come quickly */
    for (unsigned i = 0; i < 40; i++)
        take(HAK_MIB);
    for (unsigned i = 0; i < 200; i++)
        *(char *)hak_malloc(HAK_MIB) = 1;
    size_t huge = fake_os_huge_bytes(); /* what began as before is known by now */
    for (unsigned i = 0; i < 200; i++)
        *(char *)hak_malloc(HAK_MIB) = 1;
    assert_int_equal(fake_os_huge_bytes(), huge);
}

TEST(huge_pages_never)
{
    unit_start("HAKMEM_THP=never");
    uint64_t against = 0;
    for (unsigned i = 0; i < 20; i++)
        take(HAK_MIB);
    against = hak_ledger[HAK_CAUSE_huge_page][HAK_OS_madvise].calls;
    assert_true(against > 0);
    assert_true(against <= hak_ledger[HAK_CAUSE_superslab_map][HAK_OS_mmap].calls); /* each says no */
}

/* --- HAKMEM_MADV=free: pages that went back may keep their content ------------------------------------------- */

static void assert_zero(const char *p, size_t size)
{
    for (size_t i = 0; i < size; i++)
        assert_int_equal(p[i], 0);
}

TEST(pages_that_went_lazily_are_cleared_for_calloc)
{
    unit_start(NO_CACHE " HAKMEM_MADV=free");
    char *p = take(20 * HAK_PAGE), *q = take(HAK_PAGE);
    hak_free(p);
    hak_trim(0);
    assert_int_equal(dirty_bytes(), 0);
    assert_true(unit_stat("release", "lazy_bytes") >= 20 * HAK_PAGE);
    char *again = hak_alloc_zeroed(20 * HAK_PAGE);
    assert_ptr_equal(again, p);
    assert_zero(again, 20 * HAK_PAGE);
    memset(again, 1, 20 * HAK_PAGE);
    hak_free(again);
    hak_free(q);
    for (unsigned i = 0; i < 3; i++) { /* the whole way to the address space and back */
        hak_trim(0);
        unit_free_blocks(unit_blocks(1000, 20000));
        hak_trim(0);
        p = hak_alloc_zeroed(30 * HAK_PAGE);
        assert_zero(p, 30 * HAK_PAGE);
        memset(p, 1, 30 * HAK_PAGE);
        hak_free(p);
    }
}

TEST(what_does_not_go_lazily_goes_at_once)
{
    unit_start(NO_CACHE " HAKMEM_MADV=free");
    char *p = take(HAK_PAGE), *q = take(HAK_PAGE);
    fake_os_refuse(HAK_OS_madvise, 1, EINVAL, false); /* a kernel before 4.5 */
    hak_free(p);
    hak_trim(0);
    assert_int_equal(unit_stat("release", "lazy_bytes"), 0);
    assert_int_equal(p[0], 0);
    assert_int_equal(dirty_bytes(), 0);
    hak_free(q);
}

TEST(a_span_of_the_exact_length_serves_where_none_has_that_of_the_class)
{
    unit_start("HAKMEM_ACE_CACHE_MB=0");
    if (at_once())
        skip();
    char *p = hak_alloc_aligned(2 * HAK_PAGE, 35 * HAK_PAGE); /* not rounded to its class, which has 36 */
    while (large("live_bytes") < superslabs() * HAK_SUPERSLAB)
        take(HAK_PAGE);
    uint64_t mapped = superslabs();
    assert_int_equal(hak_space_slab(p)->pages, 35);
    hak_free(p);
    assert_ptr_equal(take(35 * HAK_PAGE), p);
    assert_int_equal(superslabs(), mapped);
    assert_int_equal(large("live_bytes"), mapped * HAK_SUPERSLAB);
}

TEST(a_growing_block_moves_to_the_longest_free_span)
{
    unit_start(NO_CACHE);
    char *p = take(HAK_PAGE), *behind = take(HAK_PAGE);
    uint64_t mapped = superslabs();
    p = hak_resize(p, 4 * HAK_PAGE);
    assert_ptr_equal(p, behind + HAK_PAGE);
    assert_int_equal(superslabs(), mapped);
}
