/* SPDX-License-Identifier: MIT */
#include "backends/shared_pool/lru.h"
#include "backends/shared_pool/runs.h"

#include "unit.h"

static void start(const char *settings)
{
    unit_start(settings);
    assert_true(hak_init());
}

static struct superslab *map(size_t count)
{
    struct superslab *s = hak_superslab_map(count, 1, false);
    assert_non_null(s);
    return s;
}

/* Maps n regions and caches them, a millisecond apart. */
static void cache(struct superslab **all, unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        all[i] = map(1);
    for (unsigned i = 0; i < n; i++) {
        hak_lru_push(all[i]);
        fake_os_pass(1);
    }
}

static size_t cached_bytes(void)
{
    return unit_stat("lru", "cached_bytes");
}

static void bound(void)
{
    hak_runs_evict(SIZE_MAX, HAK_CAUSE_lru_evict, UINT64_MAX);
}

static size_t handed_out(void)
{
    struct hak_space_stats s;
    hak_space_stats(&s);
    return s.handed_out;
}

TEST(the_most_recent_is_taken_first)
{
    struct superslab *all[3];
    start(NULL);
    cache(all, 3);
    assert_int_equal(cached_bytes(), 3 * HAK_SUPERSLAB);
    for (unsigned i = 3; i-- > 0;)
        assert_ptr_equal(hak_lru_pop(1, 1, false), all[i]);
    assert_null(hak_lru_pop(1, 1, false));
    assert_int_equal(cached_bytes(), 0);
    assert_int_equal(unit_stat("lru", "pushes"), 3);
    assert_int_equal(unit_stat("lru", "hits"), 3);
    assert_int_equal(unit_stat("lru", "misses"), 1);
}

TEST(what_is_cached_says_so)
{
    struct superslab *s;
    start(NULL);
    cache(&s, 1);
    assert_true(s->cached);
    assert_ptr_equal(hak_lru_pop(1, 1, false), s);
    assert_false(s->cached);
}

TEST(a_region_fits_by_count_alignment_and_kind)
{
    start(NULL);
    struct superslab *one = map(1), *two = map(2), *aligned = hak_superslab_map(1, 8, false);
    hak_lru_push(aligned);
    hak_lru_push(two);
    hak_lru_push(one);
    assert_null(hak_lru_pop(3, 1, false));
    assert_ptr_equal(hak_lru_pop(2, 1, false), two);
    struct superslab *fitting = hak_lru_pop(1, 8, false); /* `one` may happen to be aligned too, and is more recent */
    assert_int_equal(((uintptr_t)fitting->pages.base >> HAK_SUPERSLAB_LG) % 8, 0);
    if (HAK_HEADER_LIMIT)
        assert_null(hak_lru_pop(1, 1, true));
    assert_ptr_equal(hak_lru_pop(1, 1, false), fitting == aligned ? one : aligned);
}

TEST(at_most_so_many)
{
    struct superslab *all[5];
    start("HAKMEM_SUPERSLAB_MAX_CACHED=3");
    cache(all, 5);
    bound();
    assert_int_equal(unit_stat("lru", "cached"), 3);
    assert_int_equal(unit_stat("lru", "evictions"), 2);
    assert_int_equal(handed_out(), 3 * HAK_SUPERSLAB);
    assert_ptr_equal(hak_lru_pop(1, 1, false), all[4]);
}

TEST(none_at_all)
{
    struct superslab *all[2];
    start("HAKMEM_SUPERSLAB_MAX_CACHED=0");
    cache(all, 2);
    bound();
    assert_int_equal(handed_out(), 0);
    assert_null(hak_lru_pop(1, 1, false));
}

TEST(at_most_so_many_bytes)
{
    struct superslab *all[12];
    start("HAKMEM_SUPERSLAB_MAX_MEMORY_MB=4");
    cache(all, 12);
    bound();
    assert_int_equal(cached_bytes(), hak_min(4 * HAK_MIB / HAK_SUPERSLAB, 12) * HAK_SUPERSLAB);
    hak_lru_push(map(4 * HAK_MIB / HAK_SUPERSLAB + 1)); /* alone beyond the limit: everything goes */
    bound();
    assert_int_equal(cached_bytes(), 0);
    assert_int_equal(handed_out(), 0);
}

TEST(at_most_so_old)
{
    struct superslab *all[3];
    start("HAKMEM_SUPERSLAB_TTL_SEC=60");
    cache(all, 3); /* at 0, 1 and 2 ms */
    fake_os_pass(60000 - 3);
    bound();
    assert_int_equal(unit_stat("lru", "cached"), 3);
    fake_os_pass(1);
    bound();
    assert_int_equal(unit_stat("lru", "cached"), 2);
    fake_os_pass(2);
    bound();
    assert_int_equal(unit_stat("lru", "cached"), 0);
}

TEST(trim_keeps_what_it_is_told_to)
{
    struct superslab *all[4];
    start(NULL);
    cache(all, 4);
    hak_runs_evict(2 * HAK_SUPERSLAB, HAK_CAUSE_trim, UINT64_MAX);
    assert_int_equal(cached_bytes(), 2 * HAK_SUPERSLAB);
    assert_ptr_equal(hak_lru_pop(1, 1, false), all[3]);
    hak_runs_evict(0, HAK_CAUSE_trim, UINT64_MAX);
    assert_int_equal(cached_bytes(), 0);
}

static struct superslab *cache_dirty(void)
{
    struct superslab *s = map(1);
    hak_superslab_take_whole(s);
    hak_budget_take(HAK_SUPERSLAB);
    hak_superslab_put_whole(s, true);
    hak_lru_push(s);
    return s;
}

TEST(what_the_kernel_refuses_stays_and_the_others_go)
{
    start("HAKMEM_RELEASE=direct HAKMEM_SUPERSLAB_MAX_CACHED=0");
    struct superslab *refused = cache_dirty(), *other = cache_dirty();
    fake_os_lock_page(refused->pages.base + HAK_PAGE);
    assert_ptr_not_equal(refused, other);
    bound();
    assert_int_equal(cached_bytes(), HAK_SUPERSLAB);
    assert_int_equal(hak_pool_dirty.refused, HAK_PAGE); /* what lies around the page went */
    assert_int_equal(hak_pool_dirty.waiting, 0);
    uint64_t calls = unit_cause_calls(HAK_CAUSE_lru_evict);
    bound(); /* it is set aside */
    assert_int_equal(unit_cause_calls(HAK_CAUSE_lru_evict), calls);
    fake_os_allow();
    assert_int_equal(hak_purge_trim(&hak_runs_purger, 0), HAK_PAGE);
    bound();
    assert_int_equal(cached_bytes(), 0);
    assert_int_equal(hak_pool_dirty.refused, 0);
}

/* The kernel refuses the oldest of so many. */
static void cache_with_refused(unsigned n)
{
    for (unsigned i = 0; i < n; i++) {
        struct superslab *s = cache_dirty();
        if (i == 0)
            fake_os_lock_page(s->pages.base + HAK_SUPERSLAB / 2);
        fake_os_pass(1);
    }
}

TEST(a_refused_one_does_not_keep_the_others_from_a_trim)
{
    start("HAKMEM_PURGE_DELAY_MS=3600000");
    cache_with_refused(5);
    hak_runs_evict(0, HAK_CAUSE_trim, UINT64_MAX);
    assert_int_equal(cached_bytes(), HAK_SUPERSLAB);
    fake_os_unlock_pages();
    hak_purge_trim(&hak_runs_purger, 0);
    hak_runs_evict(0, HAK_CAUSE_trim, UINT64_MAX);
    assert_int_equal(cached_bytes(), 0);
    assert_int_equal(hak_pool_dirty.waiting + hak_pool_dirty.refused, 0);
}

TEST(a_refused_one_does_not_keep_the_others_from_growing_old)
{
    start("HAKMEM_PURGE_DELAY_MS=3600000 HAKMEM_SUPERSLAB_TTL_SEC=60");
    cache_with_refused(5);
    fake_os_pass(60001);
    bound();
    assert_int_equal(unit_stat("lru", "cached"), 1);
}

TEST(a_refused_one_does_not_lift_the_limits)
{
    start("HAKMEM_PURGE_DELAY_MS=3600000 HAKMEM_SUPERSLAB_MAX_CACHED=3");
    cache_with_refused(12);
    bound();
    assert_true(unit_stat("lru", "cached") <= 3 + 1);
    assert_true(unit_stat("lru", "evictions") >= 8);
}

UNIT_MAIN(T(the_most_recent_is_taken_first), T(what_is_cached_says_so), T(a_region_fits_by_count_alignment_and_kind),
          T(at_most_so_many), T(none_at_all), T(at_most_so_many_bytes), T(at_most_so_old),
          T(trim_keeps_what_it_is_told_to), T(what_the_kernel_refuses_stays_and_the_others_go),
          T(a_refused_one_does_not_keep_the_others_from_a_trim),
          T(a_refused_one_does_not_keep_the_others_from_growing_old), T(a_refused_one_does_not_lift_the_limits))
