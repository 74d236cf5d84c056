/* SPDX-License-Identifier: MIT
 * The page heap: how runs are taken, joined, resized and put back, in which set; which pages are dirty, charged and
 * cached; purges while other threads take pages; and random calls against a plain model of all pages. */
#include "core/pages/page_heap.h"

#include <stdlib.h>
#include <string.h>

#include "core/os/meta.h"
#include "core/pages/budget.h"
#include "core/parts/purge.h"
#include "core/plugin.h"
#include "unit.h"

#define PAGES ((unsigned)HAK_SUPERSLAB_PAGES)
#define LATER "HAKMEM_PURGE_DELAY_MS=3600000 "

static void start(const char *settings)
{
    unit_init(settings);
    assert_int_equal(hak_budget_held(), 0);
}

/* What is dirty, refused by the kernel, charged, in the cache of superslabs that are wholly free, and evicted from it.
 */
struct now {
    size_t waiting, refused, held; /* pages */
    uint64_t cached, evicted;
};

static void expect(struct now wanted, int line)
{
    const struct now is = {hak_dirty_queue.waiting / HAK_PAGE, hak_dirty_queue.refused / HAK_PAGE,
                           hak_budget_held() / HAK_PAGE, unit_stat("lru", "cached"), unit_stat("lru", "evictions")};
    if (memcmp(&is, &wanted, sizeof is))
        fail_msg("line %d: %zu waiting, %zu refused, %zu held, %lu cached, %lu evicted", line, is.waiting, is.refused,
                 is.held, (unsigned long)is.cached, (unsigned long)is.evicted);
}

/* All that is not named must be 0. */
#define EXPECT(...) expect((struct now){__VA_ARGS__}, __LINE__)

static char *at(char *base, size_t pages)
{
    return base + pages * HAK_PAGE;
}

static struct hak_dirty *account_of(char *p)
{
    return hak_space_page((char *)((uintptr_t)p & ~(HAK_SUPERSLAB - 1)))->region;
}

/* --- taking ---------------------------------------------------------------------------------------------- */

static struct hak_slab *take_of(unsigned set, size_t pages, enum hak_pages_from from)
{
    struct hak_page_request r = {.pages = pages, .set = set};
    struct hak_slab *run = hak_pages_take_run(&r, from);
    assert_ptr_equal(run ? run->base : NULL, r.base);
    return run;
}

static struct hak_slab *take(size_t pages, enum hak_pages_from from)
{
    return take_of(HAK_SET_COMMON, pages, from);
}

static char *base_of(struct hak_slab *run)
{
    assert_non_null(run);
    return run->base;
}

/* As callers do: purges the pages that exceed the bound. */
static void put(struct hak_slab *run)
{
    hak_pages_put(run);
    hak_pages_bound();
}

static void give(char *base, size_t pages)
{
    put(hak_pages_describe(base, pages, true));
}

static bool resize(struct hak_slab *run, size_t pages)
{
    bool done = hak_pages_resize(run, pages);
    hak_pages_bound();
    return done;
}

static char *fresh_base;
static size_t fresh_bytes;
static unsigned fresh_calls;
static size_t wanted;

static size_t wanted_pages(const struct hak_page_request *r)
{
    (void)r;
    return wanted;
}

static void note_fresh(char *base, size_t bytes)
{
    assert_false(hak_lock_is_any_held());
    fresh_base = base;
    fresh_bytes = bytes;
    fresh_calls++;
}

/* All pages of so many new superslabs, one behind the other. */
static char *map_taken(unsigned set, unsigned superslabs)
{
    struct hak_page_request r = {
        .pages = superslabs * PAGES, .align = PAGES, .set = set, .slab = true, .fresh = note_fresh};
    unsigned before = fresh_calls;
    assert_true(hak_pages_take(&r, HAK_PAGES_MAPPED));
    assert_int_equal(fresh_calls, before + 1);
    assert_int_equal(fresh_bytes, superslabs * HAK_SUPERSLAB);
    assert_true(r.zero);
    return r.base;
}

/* The same, free. */
static char *map_free(unsigned superslabs)
{
    char *base = map_taken(HAK_SET_COMMON, superslabs);
    give(base, superslabs * PAGES);
    return base;
}

static void give_dirty(char *base, size_t pages)
{
    memset(base, 1, pages * HAK_PAGE);
    give(base, pages);
}

static bool is_run(char *base, size_t pages)
{
    struct hak_slab *run = hak_space_page(base), *last = run + pages - 1;
    return run->free == base && run->run_pages == pages && last->run_first == pages - 1 && !run->base &&
           hak_slab_state(run) == HAK_SLAB_UNUSED && !hak_space_slab(base) && !hak_space_slab(at(base, pages - 1));
}

TEST(of_equal_runs_the_one_that_was_freed_last_is_used)
{
    start(LATER);
    char *base = map_taken(HAK_SET_COMMON, 1);
    for (unsigned i = 0; i < 3; i++)
        give(at(base, 2 * i), 1);
    for (unsigned i = 3; i-- > 0;)
        assert_ptr_equal(base_of(take(1, HAK_PAGES_FREE)), at(base, 2 * i));
}

/* --- neighbours ------------------------------------------------------------------------------------------ */

TEST(what_is_free_is_not_put_again)
{
    start(LATER);
    give(map_taken(HAK_SET_COMMON, 1), 2);
    assert_dies(give(at(fresh_base, 1), 1), "page_heap.c");
}

/* --- sets ------------------------------------------------------------------------------------------------ */

#define OWN(cls) (HAK_SET_OWN + (cls))

/* Slabs of 3 pages leave rests that are too short for one. */
TEST(short_rests_of_a_class_hide_no_slab)
{
    enum { N = 40 };
    start(LATER);
    char *base = map_free(N + 1), *fitting;
    struct hak_page_request r = {.pages = PAGES, .set = OWN(9), .slab = true};
    for (unsigned i = 0; i <= N; i++)
        assert_true(hak_pages_take(&r, HAK_PAGES_WHOLE));
    give(fitting = at(base, 1), 3);
    for (unsigned i = 1; i <= N; i++)
        give(at(base, i * PAGES + 2), 2);
    assert_ptr_equal(base_of(take_of(OWN(9), 3, HAK_PAGES_FREE)), fitting);
    assert_null(take_of(OWN(9), 3, HAK_PAGES_FREE));
}

/* --- where runs come from ----------------------------------------------------------------------------------------- */

TEST(dirty_pages_are_looked_for_in_so_many_superslabs)
{
    start(LATER "HAKMEM_SS_EMPTY_SCAN_LIMIT=2");
    unit_needs_delay();
    char *base = map_taken(HAK_SET_COMMON, 3);
    give_dirty(base, 3);
    give_dirty(at(base, PAGES), 2);
    give_dirty(at(base, 2 * PAGES), 1);
    assert_null(take(3, HAK_PAGES_DIRTY)); /* in the third one */
    assert_ptr_equal(base_of(take(2, HAK_PAGES_DIRTY)), at(base, PAGES));
    assert_ptr_equal(base_of(take(3, HAK_PAGES_DIRTY)), base);
}

TEST(new_superslabs_are_as_many_as_are_wanted_or_needed)
{
    static const struct {
        size_t pages, wanted, at_most, mapped; /* wanted: pages; others: superslabs */
    } rows[] = {{PAGES + 1, 4 * PAGES, 64, 4}, {PAGES + 1, 0, 64, 2}, {PAGES + 1, 1, 64, 2}, {3, 64 * PAGES, 8, 1}};
    size_t superslabs = 0;
    start(LATER);
    for (unsigned i = 0; i < COUNT(rows); i++) {
        struct hak_page_request r = {.pages = rows[i].pages, .map_pages = wanted_pages, .fresh = note_fresh};
        wanted = rows[i].wanted;
        fake_os_limit_maps(rows[i].at_most * HAK_SUPERSLAB);
        assert_true(hak_pages_take(&r, HAK_PAGES_MAPPED));
        assert_int_equal(fresh_calls, i + 1);
        assert_int_equal(fresh_bytes, rows[i].mapped * HAK_SUPERSLAB);
        superslabs += rows[i].mapped;
    }
    struct hak_page_request r = {.pages = PAGES + 1, .fresh = note_fresh};
    assert_true(hak_pages_take(&r, HAK_PAGES_WHOLE)); /* in the rest of the first four */
    assert_int_equal(fresh_calls, COUNT(rows));
    assert_int_equal(unit_stat("page_heap", "superslabs_mapped"), superslabs);
    assert_int_equal(unit_stat("lru", "misses"), COUNT(rows));
}

TEST(without_memory_nothing_is_taken)
{
    start(LATER);
    size_t before = unit_space().handed_out;
    fake_os_refuse(HAK_OS_mmap, 1, ENOMEM, true);
    struct hak_page_request r = {.pages = 64 * PAGES, .map_pages = wanted_pages, .fresh = note_fresh};
    wanted = 128 * PAGES;
    assert_false(hak_pages_take(&r, HAK_PAGES_MAPPED));
    assert_null(r.base);
    r = (struct hak_page_request){.pages = (size_t)1 << 40, .fresh = note_fresh};
    assert_false(hak_pages_take(&r, HAK_PAGES_MAPPED));
    fake_os_allow();
    fake_os_limit_maps(32 * HAK_SUPERSLAB);
    r.pages = 64 * PAGES;
    assert_false(hak_pages_take(&r, HAK_PAGES_MAPPED));
    uint64_t meta = hak_meta_bytes();
    for (unsigned i = 0; i < 100; i++) /* descriptors serve again */
        assert_false(hak_pages_take(&r, HAK_PAGES_MAPPED));
    assert_int_equal(hak_meta_bytes(), meta);
    fake_os_allow();
    assert_int_equal(fresh_calls, 0);
    assert_int_equal(unit_space().handed_out, before);
    assert_int_equal(hak_budget_held(), 0);
    assert_non_null(take(1, HAK_PAGES_MAPPED));
    assert_int_equal(unit_space().handed_out, before + HAK_SUPERSLAB);
}

TEST(without_memory_for_descriptors_nothing_is_mapped)
{
    start(LATER);
    size_t before = unit_space().handed_out;
    fake_os_refuse(HAK_OS_mmap, 1, ENOMEM, true);
    while (hak_meta_alloc(64))
        ;
    assert_null(take(PAGES, HAK_PAGES_MAPPED));
    assert_int_equal(unit_space().handed_out, before);
    fake_os_allow();
    assert_non_null(take(PAGES, HAK_PAGES_MAPPED));
}

/* --- dirty pages and the budget --------------------------------------------------------------------------- */

TEST(what_went_lazily_is_old)
{
    start(LATER "HAKMEM_MADV=free");
    struct hak_slab *run = take(3, HAK_PAGES_MAPPED);
    memset(run->base, 1, 3 * HAK_PAGE);
    put(run);
    hak_pages_trim(0);
    EXPECT(.evicted = 1);
    uint64_t old = 0;
    struct hak_page_request r = {.pages = 4, .old = &old};
    assert_true(hak_pages_take(&r, HAK_PAGES_WHOLE));
    assert_false(r.zero);
    assert_int_equal(old, 7);
    assert_int_equal(hak_budget_held(), 4 * HAK_PAGE);
    assert_true(unit_stat("release", "lazy_bytes") >= 3 * HAK_PAGE);
}

TEST(what_does_not_go_lazily_goes_at_once)
{
    start(LATER "HAKMEM_MADV=free");
    struct hak_slab *run = take(1, HAK_PAGES_MAPPED);
    char *p = memset(base_of(run), 1, HAK_PAGE);
    fake_os_refuse(HAK_OS_madvise, 1, EINVAL, false); /* a kernel before 4.5 */
    put(run);
    hak_pages_trim(0);
    assert_int_equal(p[0], 0);
    assert_int_equal(unit_dirty_bytes(), 0);
    assert_int_equal(unit_stat("release", "lazy_bytes"), 0);
}

TEST(given_pages_are_those_that_did_not_go_back)
{
    start(LATER);
    unit_needs_delay();
    struct hak_page_request r = {.pages = 5, .map_pages = wanted_pages};
    wanted = 2 * PAGES;
    assert_true(hak_pages_take(&r, HAK_PAGES_MAPPED));
    char *base = r.base;
    assert_int_equal(hak_pages_given(base, 2 * PAGES), 5);
    assert_int_equal(hak_pages_given(at(base, 3), 4), 2);
    put(hak_pages_describe(base, 5, false));
    assert_int_equal(hak_pages_given(base, 2 * PAGES), 5);
    hak_pages_trim(0);
    assert_int_equal(hak_pages_given(base, 2 * PAGES), 0);
    assert_non_null(take(PAGES + 1, HAK_PAGES_WHOLE));
    assert_int_equal(hak_pages_given(base, 2 * PAGES), PAGES + 1);
}

static void tick_later(void)
{
    fake_os_pass(1000);
    hak_pages_tick(hak_clock_ms());
}

TEST(what_slabs_share_a_superslab_with_goes_as_the_settings_say)
{
    start("HAKMEM_PURGE_DELAY_MS=100 HAKMEM_TINY_SS_PARTIAL=0");
    unit_needs_delay();
    char *base = map_taken(HAK_SET_COMMON, 1);
    give_dirty(base, 3);
    fake_os_pass(1000);
    assert_false(hak_pages_tick(hak_clock_ms()));
    EXPECT(.waiting = 3, .held = PAGES);
    struct hak_slab *span = take(5, HAK_PAGES_MAPPED);
    assert_true(resize(span, 1)); /* no slab is beside it */
    EXPECT(.waiting = 3 + 4, .held = PAGES + 5);
    tick_later();
    EXPECT(.waiting = 3, .held = PAGES + 1);
    give_dirty(at(base, 3), PAGES - 3);
    tick_later();
    EXPECT(.held = 1, .cached = 1);
    assert_int_equal(unit_cause_calls(HAK_CAUSE_partial_release), 0);
}

TEST(beside_slabs_that_are_gone_pages_go_as_others)
{
    start("HAKMEM_PURGE_DELAY_MS=100 HAKMEM_TINY_SS_PARTIAL=0");
    unit_needs_delay();
    struct hak_page_request r = {.pages = 2, .slab = true};
    struct hak_slab *slab = hak_pages_take_run(&r, HAK_PAGES_MAPPED), *span = take(1, HAK_PAGES_FREE);
    assert_ptr_equal(span->base, at(slab->base, 2));
    put(slab);
    tick_later();
    EXPECT(.held = 1);
}

TEST(beside_slabs_in_use_pages_go_under_a_cause_of_their_own)
{
    start("HAKMEM_PURGE_DELAY_MS=100");
    unit_needs_delay();
    give_dirty(map_taken(HAK_SET_COMMON, 1), 3);
    tick_later();
    EXPECT(.held = PAGES - 3);
    assert_true(unit_cause_calls(HAK_CAUSE_partial_release) > 0);
    assert_int_equal(unit_cause_calls(hak_parts.release->cause), 0);
}

/* --- superslabs that are wholly free ------------------------------------------------------------------------ */

/* So many superslabs become wholly free, a millisecond apart, all dirty. */
static void free_dirty(char *base, unsigned n)
{
    for (unsigned i = 0; i < n; i++) {
        give_dirty(at(base, i * PAGES), PAGES);
        fake_os_pass(1);
    }
}

static char *cache(unsigned n)
{
    char *base = map_taken(HAK_SET_COMMON, n);
    free_dirty(base, n);
    return base;
}

static void bound(void)
{
    while (hak_pages_tick(hak_clock_ms()))
        ;
}

static void send(struct hak_slab *run)
{
    struct hak_superslab *s = hak_superslab_of(run->free);
    unsigned first = hak_page_index(run->free);
    hak_dirty_settle(&s->pages, hak_page_bits(first, 1), true, HAK_CAUSE_trim);
    hak_pages_settle(s, first, 1);
}

/* Huge pages made them resident, and no page of the superslab is dirty when the last one is free. */
TEST(what_was_never_taken_goes_with_a_superslab_whose_pages_went_one_by_one)
{
    start("HAKMEM_THP=always " LATER);
    unit_needs_delay();
    struct hak_slab *runs[] = {take(1, HAK_PAGES_MAPPED), take(1, HAK_PAGES_FREE)};
    for (int i = 0; i < 2; i++) {
        hak_pages_put(runs[i]);
        hak_lock_acquire(&hak_pages_lock);
        hak_pages_claim(hak_superslab_of(runs[i]->free), hak_page_index(runs[i]->free), 1);
        hak_lock_release(&hak_pages_lock);
    }
    assert_int_equal(unit_dirty_bytes(), 0);
    hak_lock_acquire(&hak_pages_lock);
    send(runs[0]);
    send(runs[1]);
    hak_lock_release(&hak_pages_lock);
    assert_int_equal(unit_dirty_bytes(), (PAGES - 2) * HAK_PAGE);
    hak_pages_trim(0);
    EXPECT(.evicted = 1);
}

static const struct {
    const char *settings;
    unsigned n, keeps;
} caches[] = {
    {LATER "HAKMEM_SUPERSLAB_MAX_CACHED=3", 5, 3},
    {LATER "HAKMEM_SUPERSLAB_MAX_CACHED=0", 2, 0},
    {LATER "HAKMEM_SUPERSLAB_MAX_MEMORY_MB=4", 12, 4 * HAK_MIB / HAK_SUPERSLAB < 12 ? 4 * HAK_MIB / HAK_SUPERSLAB : 12},
};

/* Of superslabs that become wholly free, all but so many go, the oldest ones first. */
TEST_EACH(the_cache_keeps_as_many_as_the_settings_say, caches)
{
    unsigned n = row->n, keeps = row->keeps;
    start(row->settings);
    bool at_once = hak_parts.release->at_once;
    char *base = cache(n);
    size_t dirty = at_once ? 0 : keeps * PAGES;
    EXPECT(.waiting = dirty, .held = dirty, .cached = keeps, .evicted = n - keeps);
    assert_int_equal(unit_cause_calls(HAK_CAUSE_lru_evict) > 0, !at_once && keeps < n);
    for (unsigned i = 0; i < n && !at_once; i++)
        assert_int_equal(account_of(at(base, i * PAGES))->old, i < n - keeps ? 0 : hak_page_bits(0, PAGES));
    struct hak_slab *run = take(n * PAGES, HAK_PAGES_WHOLE); /* purged pages can be taken, too */
    assert_ptr_equal(base_of(run), base);
    EXPECT(.held = n * PAGES, .evicted = n - keeps);
    put(run); /* all at once */
    EXPECT(.waiting = dirty, .held = dirty, .cached = keeps, .evicted = 2 * (n - keeps));
}

TEST(at_most_so_old)
{
    start(LATER "HAKMEM_SUPERSLAB_TTL_SEC=60");
    struct hak_slab *span = take(PAGES, HAK_PAGES_MAPPED);
    cache(4); /* at 0, 1, 2 and 3 ms */
    static const struct {
        unsigned pass, cached;
    } rows[] = {{60000 - 4, 4}, {1, 3}, {2, 1}};
    for (unsigned i = 0; i < COUNT(rows); i++) {
        fake_os_pass(rows[i].pass);
        bound();
        assert_int_equal(unit_stat("lru", "cached"), rows[i].cached);
        assert_int_equal(unit_stat("lru", "evictions"), 4 - rows[i].cached);
    }
    fake_os_pass(1);
    put(span); /* evicts, too */
    assert_int_equal(unit_stat("lru", "cached"), 1);
    assert_int_equal(unit_stat("lru", "evictions"), 4);
}

/* In bytes, and in the number of superslabs. */
static const struct {
    const char *settings;
    unsigned stride, most;
} bounds[] = {{LATER "HAKMEM_BATCH_MAX_MB=2", 1, 2 * HAK_MIB / HAK_PAGE},
              {LATER "HAKMEM_BATCH_MAX_RANGES=4", PAGES, 4}};

TEST_EACH(what_waits_is_bounded, bounds)
{
    start(row->settings);
    unit_needs_delay();
    char *base = map_taken(HAK_SET_COMMON, (row->most + 6) * row->stride / PAGES + 1);
    for (unsigned i = 0; i < row->most + 6; i++) {
        give_dirty(at(base, i * row->stride), 1);
        assert_true(hak_dirty_length() <= row->most);
        assert_true(hak_dirty_queue.waiting <= row->most * HAK_PAGE);
        assert_int_equal(hak_dirty_queue.waiting < (i + 1) * HAK_PAGE, i >= row->most);
    }
}

/* Addresses are limited from here on, but there are enough. */
static void limit(void)
{
    if (!unit_limit_addresses())
        skip();
}

TEST(what_the_kernel_refused_is_not_unmapped)
{
    start(LATER);
    unit_needs_delay();
    limit();
    size_t before = unit_space().handed_out;
    char *base = cache(2);
    fake_os_lock_page(at(base, 1));
    hak_pages_trim(0);
    assert_int_equal(unit_space().handed_out, before + HAK_SUPERSLAB);
    EXPECT(.refused = 1, .held = 1, .evicted = 1);
    assert_true(is_run(base, PAGES));
    fake_os_unlock_pages();
    hak_pages_trim(0);
    assert_int_equal(unit_space().handed_out, before);
    EXPECT(.evicted = 2);
}

/* --- what the kernel refuses ------------------------------------------------------------------------------ */

TEST(what_the_kernel_refuses_stays_and_the_others_go)
{
    start("HAKMEM_RELEASE=direct HAKMEM_SUPERSLAB_MAX_CACHED=0");
    char *base = map_taken(HAK_SET_COMMON, 2);
    fake_os_lock_page(at(base, 1));
    give_dirty(base, PAGES);
    give_dirty(at(base, PAGES), PAGES);
    EXPECT(.refused = 1, .held = 1, .evicted = 1); /* what lies around the page went */
    assert_true(is_run(base, 2 * PAGES));
    uint64_t calls = fake_os_count(HAK_OS_madvise);
    bound(); /* it is set aside */
    assert_int_equal(fake_os_count(HAK_OS_madvise), calls);
    fake_os_allow();
    assert_int_equal(hak_pages_trim(0), HAK_PAGE);
    EXPECT(.evicted = 2);
}

static const struct {
    const char *settings;
    unsigned n, ms; /* that pass when n superslabs have become free */
    bool trim;
    unsigned most;
} refusals[] = {
    {LATER, 5, 0, true, 0},
    {LATER "HAKMEM_SUPERSLAB_TTL_SEC=60", 5, 60001, false, 0},
    {LATER "HAKMEM_SUPERSLAB_MAX_CACHED=3", 12, 0, false, 3},
};

/* The kernel refuses a page of the oldest superslab; the others go all the same. */
TEST_EACH(a_refused_page_keeps_no_other_superslab, refusals)
{
    start(row->settings);
    char *base = map_taken(HAK_SET_COMMON, row->n);
    fake_os_lock_page(at(base, PAGES / 2));
    free_dirty(base, row->n);
    fake_os_pass(row->ms);
    bound();
    if (row->trim)
        hak_pages_trim(0);
    assert_in_range(unit_stat("lru", "cached"), 0, row->most);
    fake_os_unlock_pages();
    hak_pages_trim(0);
    EXPECT(.evicted = row->n);
}

/* --- purges while other threads run ------------------------------------------------------------------------------- */

static void (*beside)(void);
static char *shared;

static void *call_beside(void *context)
{
    (void)context;
    void (*once)(void) = beside;
    beside = NULL;
    once();
    return NULL;
}

/* While a purge waits for the kernel, another thread comes. */
static void run_beside(void)
{
    if (beside)
        unit_join(unit_begin(call_beside, NULL));
}

static void start_hooked(const char *settings)
{
    start(settings);
    unit_needs_delay(); /* else a put waits for the purge */
    fake_os_before_advice(run_beside);
}

static void look_at_claimed(void)
{
    EXPECT(.held = PAGES - 1);
    assert_true(is_run(shared, 1));
    assert_null(take(2, HAK_PAGES_FREE));
    assert_null(take(1, HAK_PAGES_DIRTY));
    assert_ptr_equal(base_of(take(1, HAK_PAGES_WHOLE)), shared);
    assert_null(take(1, HAK_PAGES_WHOLE));
    give_dirty(at(shared, 4), 1);
    assert_true(is_run(at(shared, 4), 1));
    give(at(shared, 5), 1);
    assert_true(is_run(at(shared, 4), 2));
}

TEST(claimed_pages_are_nobodys)
{
    start_hooked(LATER);
    shared = map_taken(HAK_SET_COMMON, 1);
    give(shared, 1);
    hak_pages_trim(0);
    give_dirty(at(shared, 1), 3);
    assert_true(is_run(shared, 4));
    beside = look_at_claimed;
    assert_int_equal(hak_pages_trim(0), 3 * HAK_PAGE);
    assert_null(beside);
    assert_int_equal(shared[HAK_PAGE], 0);
    assert_true(is_run(at(shared, 1), 5)); /* with the pages that were put beside them */
    EXPECT(.waiting = 2, .held = PAGES - 3);
    put(hak_space_slab(shared));
    assert_true(is_run(shared, 6));
}

static void take_the_rest(void)
{
    assert_null(take(PAGES, HAK_PAGES_WHOLE));
    assert_ptr_equal(base_of(take(PAGES - 4, HAK_PAGES_FREE)), at(shared, 4));
}

TEST(beside_claimed_pages_the_rest_of_a_cached_superslab_is_taken)
{
    start_hooked(LATER);
    shared = cache(1);
    beside = take_the_rest;
    hak_pages_trim((PAGES - 4) * HAK_PAGE);
    assert_null(beside);
    EXPECT(.held = PAGES - 4);
    assert_true(is_run(shared, 4));
    put(hak_space_slab(at(shared, 4)));
    EXPECT(.waiting = PAGES - 4, .held = PAGES - 4, .cached = 1);
    assert_true(is_run(shared, PAGES));
}

static void give_the_rest(void)
{
    give(at(shared, 3), PAGES - 3);
    EXPECT(.waiting = PAGES - 3, .held = PAGES);
    assert_true(is_run(at(shared, 3), PAGES - 3));
}

TEST(a_superslab_is_wholly_free_when_its_claimed_pages_are_back)
{
    start_hooked("HAKMEM_PURGE_DELAY_MS=100");
    shared = map_taken(HAK_SET_COMMON, 1);
    give_dirty(shared, 3);
    fake_os_pass(1000);
    beside = give_the_rest;
    bound();
    assert_null(beside);
    assert_true(is_run(shared, PAGES));
    EXPECT(.waiting = PAGES - 3, .held = PAGES - 3, .cached = 1);
    assert_int_equal(unit_stat("lru", "pushes"), 1);
}

static void put_others_of_the_class(void)
{
    put(hak_space_slab(at(shared, 3)));
    assert_null(take(1, HAK_PAGES_WHOLE));
}

TEST(a_superslab_of_one_class_goes_back_when_its_claimed_pages_are_back)
{
    start_hooked("HAKMEM_PURGE_DELAY_MS=100");
    map_free(1);
    struct hak_slab *run = take_of(OWN(3), 3, HAK_PAGES_WHOLE);
    shared = base_of(run);
    assert_non_null(take_of(OWN(3), PAGES - 3, HAK_PAGES_FREE));
    put(run);
    fake_os_pass(1000);
    beside = put_others_of_the_class;
    bound();
    assert_null(beside);
    bound();
    EXPECT(.evicted = 1);
    assert_true(is_run(shared, PAGES));
    assert_null(take_of(OWN(3), 1, HAK_PAGES_FREE));
    assert_ptr_equal(base_of(take(PAGES, HAK_PAGES_WHOLE)), shared);
}

enum { THREADS = 4, ROUNDS = 2000, LIVE = 8 };
static _Atomic(unsigned) at_work;

/* Each page of a run names the run, as long as it is this thread's. */
static void *take_and_put(void *seed)
{
    uint64_t random = (uintptr_t)seed;
    struct hak_slab *live[LIVE] = {0};
    for (unsigned round = 0; round < ROUNDS + LIVE; round++) {
        unsigned k = round < ROUNDS ? unit_random(&random) % LIVE : round - ROUNDS;
        if (live[k]) {
            for (unsigned i = 0; i < live[k]->pages; i++)
                HAK_CHECK(*(struct hak_slab **)at(live[k]->base, i) == live[k]);
            put(live[k]);
            live[k] = NULL;
        } else if (round < ROUNDS) {
            struct hak_page_request r = {.set = unit_random(&random) % 3 ? HAK_SET_COMMON : OWN(k),
                                         .until = HAK_PAGES_MAPPED};
            r.pages = 1 + unit_random(&random) % (r.set == HAK_SET_COMMON ? PAGES + 2 : 3);
            live[k] = hak_pages_take_run(&r, unit_random(&random) % 3);
            HAK_CHECK(live[k] && live[k]->base == r.base);
            for (unsigned i = 0; i < live[k]->pages; i++)
                *(struct hak_slab **)at(r.base, i) = live[k];
        }
    }
    HAK_SUB_RELAXED(&at_work, 1);
    return NULL;
}

TEST(threads_take_and_put_while_pages_go)
{
    start("HAKMEM_PURGE_DELAY_MS=1 HAKMEM_SUPERSLAB_MAX_CACHED=4");
    pthread_t threads[THREADS];
    HAK_STORE_RELAXED(&at_work, THREADS);
    for (uintptr_t i = 0; i < THREADS; i++)
        threads[i] = unit_begin(take_and_put, (void *)i);
    for (unsigned i = 0; HAK_LOAD_RELAXED(&at_work); i++) {
        fake_os_pass(1);
        if (i % 2)
            hak_pages_trim(i % 8 * HAK_SUPERSLAB);
        else
            hak_pages_tick(hak_clock_ms());
    }
    for (unsigned i = 0; i < THREADS; i++)
        unit_join(threads[i]);
    hak_pages_trim(0);
    EXPECT(.evicted = unit_stat("lru", "evictions"));
}

/* --- random calls against a plain model --------------------------------------------------------------------- */

enum { MOST = 200, LIVES = 32, LENGTHS = 64 };

/* All superslabs, by address. */
static struct modelled {
    char *base;
    unsigned set, supplier;
    unsigned cached_at; /* its position in the order of the cache; 0: not in the cache */
    struct page {
        bool taken, dirty;
        uint64_t mark; /* its content: 0 until a write */
    } page[HAK_SUPERSLAB_PAGES];
} model[MOST];
static unsigned superslabs, mapped, pushes;
static bool unmaps; /* a trim to nothing unmaps wholly free superslabs */

static struct run {
    char *base;
    size_t pages;
    unsigned set, list;
} runs[MOST * HAK_SUPERSLAB_PAGES];
static unsigned run_count;

static struct life {
    char *base;
    size_t pages;
    struct hak_slab *run;
} lives[LIVES];
static uint64_t random_state, marks;

static unsigned any(unsigned n)
{
    return (unsigned)(unit_random(&random_state) % n);
}

static struct modelled *modelled_of(const char *p)
{
    for (unsigned i = 0; i < superslabs; i++)
        if ((size_t)(p - model[i].base) < HAK_SUPERSLAB)
            return &model[i];
    fail_msg("%p is in no superslab", (const void *)p);
    return NULL;
}

static struct page *page_of(const char *p)
{
    struct modelled *s = modelled_of(p);
    return &s->page[(size_t)(p - s->base) / HAK_PAGE];
}

static void add_modelled(char *base, size_t bytes)
{
    note_fresh(base, bytes);
    for (; bytes; bytes -= HAK_SUPERSLAB, base += HAK_SUPERSLAB) {
        unsigned i = superslabs++, set = hak_tag_in_header_zone(base) ? HAK_SET_HEADERS : HAK_SET_COMMON;
        assert_true(superslabs <= MOST);
        for (; i && model[i - 1].base > base; i--)
            model[i] = model[i - 1];
        mapped++;
        model[i] = (struct modelled){.base = base, .set = set, .supplier = set};
    }
}

/* Lists are for one length up to 16 pages, then 8 for each doubling. */
static unsigned list_of(unsigned set, size_t pages)
{
    unsigned lg = 63 - (unsigned)__builtin_clzll(pages), length = (unsigned)pages - 1;
    if (pages > 16)
        length = hak_min(LENGTHS - 1, 16 + (lg - 4) * 8 + (unsigned)(pages >> (lg - 3)) % 8);
    return set * LENGTHS + length;
}

/* Whether free pages of both would be one run. */
static bool are_neighbours(const struct modelled *s, const struct modelled *next)
{
    return next->base == s->base + HAK_SUPERSLAB && s->set == next->set && s->set < HAK_SET_OWN &&
           hak_space_page(next->base) == hak_space_page(s->base) + PAGES;
}

static void find_runs(void)
{
    bool open = false;
    run_count = 0;
    for (unsigned k = 0; k < superslabs; k++) {
        struct modelled *s = &model[k];
        open = open && are_neighbours(s - 1, s);
        for (unsigned i = 0; i < PAGES; i++) {
            if (!s->page[i].taken && !open)
                runs[run_count++] = (struct run){.base = at(s->base, i), .set = s->set};
            open = !s->page[i].taken;
            runs[run_count - open].pages += open;
        }
    }
    for (unsigned i = 0; i < run_count; i++)
        runs[i].list = list_of(runs[i].set, runs[i].pages);
}

static void check_runs(void)
{
    find_runs();
    for (unsigned i = 0; i < run_count; i++)
        assert_true(is_run(runs[i].base, runs[i].pages));
}

/* If a purge was possible, dirty pages may be gone. */
static void check_pages(bool purge)
{
    size_t dirty = 0, charged = 0;
    unsigned regions = 0;
    for (unsigned k = 0; k < superslabs; k++) {
        struct modelled *s = &model[k];
        const struct hak_dirty *d = account_of(s->base);
        for (unsigned i = 0; i < PAGES; i++) {
            struct page *p = &s->page[i];
            bool old = d->old >> i & 1;
            if (purge && p->dirty && !old)
                *p = (struct page){0};
            assert_int_equal(old, p->dirty);
            assert_int_equal(*(uint64_t *)at(s->base, i), p->mark);
            dirty += p->dirty * HAK_PAGE;
            charged += (p->dirty || p->taken) * HAK_PAGE;
        }
        regions += d->old != 0;
    }
    assert_int_equal(hak_dirty_queue.waiting, dirty);
    assert_int_equal(hak_dirty_queue.refused, 0);
    assert_int_equal(hak_dirty_length(), regions);
    assert_int_equal(hak_budget_held(), charged);
}

static void check_cache(void)
{
    unsigned n = 0;
    for (unsigned k = 0; k < superslabs; k++)
        n += model[k].cached_at != 0;
    assert_int_equal(unit_stat("lru", "cached"), n);
    assert_int_equal(unit_stat("lru", "pushes"), pushes);
    assert_int_equal(unit_stat("page_heap", "superslabs_mapped"), mapped);
}

/* Superslabs that became wholly free. */
static void note_free(char *base, size_t pages)
{
    for (char *end = at(base, pages), *p = base; p < end; p = (char *)hak_align_up((uintptr_t)p + 1, HAK_SUPERSLAB)) {
        struct modelled *s = modelled_of(p);
        bool in_use = s->cached_at;
        for (unsigned i = 0; i < PAGES; i++)
            in_use |= s->page[i].taken;
        if (in_use)
            continue;
        s->cached_at = ++pushes;
        if (s->set < HAK_SET_OWN)
            continue;
        s->cached_at = 0; /* at once */
        s->set = s->supplier;
        assert_int_equal(account_of(s->base)->old, 0);
    }
}

static void model_take(char *base, size_t pages)
{
    for (size_t i = 0; i < pages; i++) {
        struct page *p = page_of(at(base, i));
        assert_false(p->taken);
        modelled_of(at(base, i))->cached_at = 0;
        p->taken = true;
        p->dirty = false;
        *(uint64_t *)at(base, i) = p->mark = ++marks;
    }
}

static void model_put(char *base, size_t pages)
{
    for (size_t i = 0; i < pages; i++) {
        struct page *p = page_of(at(base, i));
        assert_true(p->taken);
        p->taken = false;
        p->dirty = true;
    }
    note_free(base, pages);
}

static char *place_in(const struct run *run, const struct hak_page_request *r)
{
    char *base = (char *)hak_align_up((uintptr_t)run->base, hak_max(r->align, 1) * HAK_PAGE);
    return base + r->pages * HAK_PAGE <= run->base + run->pages * HAK_PAGE ? base : NULL;
}

/* One of the runs that may serve the request. If a list of different lengths has more than 16 runs, or an alignment is
 * requested, the search does not visit all of them. */
static bool is_choice(const struct run *run, const struct hak_page_request *r, size_t most)
{
    return run->set == r->set && run->pages <= most && place_in(run, r);
}

/* Whether no superslab follows: another run serves first. */
static bool is_last(const struct run *run)
{
    const char *end = at(run->base, run->pages);
    return (uintptr_t)end % HAK_SUPERSLAB == 0 && (!hak_space_contains(end) || !hak_superslab_of(end));
}

static bool is_better(const struct run *run, const struct run *best)
{
    return !best || (is_last(run) == is_last(best) ? run->pages < best->pages : is_last(best));
}

static void check_fit(const struct hak_page_request *r, const char *got, size_t most)
{
    const struct run *best = NULL, *from = NULL;
    unsigned crowd[HAK_NSETS * LENGTHS] = {0};
    bool crowded = false;
    for (unsigned i = 0; i < run_count; i++)
        if (runs[i].set == r->set)
            crowded |= ++crowd[runs[i].list] > 16 && (runs[i].pages > 16 || r->align > 1);
    for (unsigned i = 0; i < run_count; i++) {
        if (is_choice(&runs[i], r, most) && is_better(&runs[i], best))
            best = &runs[i];
        if (got && is_choice(&runs[i], r, most) && place_in(&runs[i], r) == got)
            from = &runs[i];
    }
    if (got)
        assert_non_null(from);
    if (!crowded && !got)
        assert_null(best);
    if (!crowded && got)
        assert_int_equal(from->pages, best->pages);
}

/* A block that will grow stands in the middle third of a place, if there is one. */
static void check_place(struct hak_page_request r, char *got, size_t most)
{
    struct hak_page_request third = r;
    third.pages *= 3;
    char *first = got && r.roomy ? got - r.pages * HAK_PAGE : NULL;
    for (unsigned i = 0; i < run_count && first; i++)
        if (is_choice(&runs[i], &third, most) && place_in(&runs[i], &third) == first) {
            check_fit(&third, first, most);
            return;
        }
    if (r.roomy)
        check_fit(&third, NULL, most);
    check_fit(&r, got, most);
}

/* Where the dirty pages for a request are. */
static char *dirty_place(const struct hak_page_request *r)
{
    for (unsigned list = 0; list < HAK_DIRTY_LISTS; list++)
        for (const struct hak_dirty *d = hak_dirty_queue.lists[list].last; d; d = d->prev) {
            const struct modelled *s = modelled_of(d->base);
            unsigned length = 0;
            for (unsigned i = 0; i < PAGES && s->set == r->set; i++) {
                length = s->page[i].dirty ? length + 1 : 0;
                if (length == r->pages)
                    return at(s->base, i + 1 - length);
            }
        }
    return NULL;
}

static void check_old(const struct hak_page_request *r)
{
    bool zero = true;
    for (size_t i = 0; i < r->pages; i++) {
        bool dirty = page_of(at(r->base, i))->dirty;
        assert_int_equal(r->old[i / 64] >> i % 64 & 1, dirty);
        zero &= !dirty;
    }
    assert_int_equal(r->zero, zero);
}

static void take_any(struct life *l)
{
    static uint64_t old[4 * HAK_SUPERSLAB_PAGES / 64 + 1];
    enum hak_pages_from from = any(superslabs < MOST / 2 ? 4 : 3);
    unsigned kind = any(4);
    struct hak_page_request r = {.pages = 1 + any(kind < 2   ? 6
                                                  : kind < 3 ? PAGES
                                                             : 3 * PAGES),
                                 .old = old,
                                 .fresh = add_modelled};
    r.set = any(3) ? HAK_SET_COMMON : any(2) ? OWN(any(3)) : HAK_HEADER_LIMIT ? HAK_SET_HEADERS : HAK_SET_COMMON;
    if (r.set >= HAK_SET_OWN) {
        r.pages = 1 + any(PAGES / 2);
        r.header = HAK_HEADER_LIMIT && r.set == OWN(2);
    } else if (from >= HAK_PAGES_WHOLE) {
        r.align = any(4) ? 0 : (size_t)1 << any(8);
        r.roomy = r.align <= 1 && !any(4);
    }
    r.slab = !any(3);
    r.map_pages = any(8) ? NULL : wanted_pages;
    wanted = any(4 * PAGES);
    char *dirty = from == HAK_PAGES_DIRTY ? dirty_place(&r) : NULL;
    bool got = hak_pages_take(&r, from);
    find_runs(); /* with new superslabs */
    if (from == HAK_PAGES_DIRTY) {
        assert_ptr_equal(r.base, dirty);
    } else if (from == HAK_PAGES_FREE || r.set < HAK_SET_OWN) {
        check_place(r, r.base, from == HAK_PAGES_FREE ? PAGES - 1 : SIZE_MAX);
    } else {
        struct hak_page_request all = {
            .pages = PAGES, .align = PAGES, .set = r.header ? HAK_SET_HEADERS : HAK_SET_COMMON};
        check_fit(&all, r.base, SIZE_MAX);
        if (got)
            modelled_of(r.base)->set = r.set;
    }
    assert_true(got || from != HAK_PAGES_MAPPED);
    if (!got)
        return;
    check_old(&r);
    model_take(r.base, r.pages);
    *l = (struct life){.base = r.base, .pages = r.pages, .run = hak_pages_describe(r.base, r.pages, r.slab)};
}

static void put_any(struct life *l)
{
    put(l->run);
    model_put(l->base, l->pages);
    l->pages = 0;
}

static bool may_grow(const struct life *l, size_t more)
{
    char *end = at(l->base, l->pages);
    const struct modelled *last = modelled_of(end - 1);
    find_runs();
    for (unsigned i = 0; i < run_count; i++)
        if (runs[i].base == end)
            return runs[i].pages >= more && (modelled_of(end) == last || are_neighbours(last, modelled_of(end)));
    return false;
}

static void resize_any(struct life *l)
{
    size_t before = l->pages, pages = 1 + any((unsigned)(any(2) ? before : before + 6));
    bool may = pages <= before || may_grow(l, pages - before);
    assert_int_equal(resize(l->run, pages), may);
    assert_int_equal(l->run->pages, may ? pages : before);
    if (!may)
        return;
    if (pages > before)
        model_take(at(l->base, before), pages - before);
    else if (pages < before)
        model_put(at(l->base, pages), before - pages);
    l->pages = pages;
}

/* The oldest ones leave the cache. */
static void model_evict(size_t keep)
{
    for (;;) {
        struct modelled *oldest = NULL;
        unsigned n = 0;
        for (unsigned k = 0; k < superslabs; k++) {
            struct modelled *s = &model[k];
            n += s->cached_at != 0;
            if (s->cached_at && (!oldest || s->cached_at < oldest->cached_at))
                oldest = s;
        }
        if (n * HAK_SUPERSLAB <= keep)
            return;
        oldest->cached_at = 0;
        assert_true(unmaps || !account_of(oldest->base)->old);
    }
}

static void model_unmap(void)
{
    unsigned left = 0;
    for (unsigned k = 0; k < superslabs; k++) {
        bool in_use = false;
        for (unsigned i = 0; i < PAGES; i++)
            in_use |= model[k].page[i].taken;
        if (in_use)
            model[left++] = model[k];
        else
            assert_null(account_of(model[k].base));
    }
    superslabs = left;
}

static void trim_any(void)
{
    size_t keep = any(3) ? any(16) * HAK_SUPERSLAB / 4 : 0, before = hak_dirty_queue.waiting;
    size_t bytes = hak_pages_trim(keep);
    assert_true(bytes == (before > keep ? before - keep : 0));
    assert_true(hak_dirty_queue.waiting <= keep);
    model_evict(keep);
    if (unmaps && !keep)
        model_unmap();
}

/* True: pages may have gone to the kernel. */
static bool do_any(void)
{
    struct life *l = &lives[any(LIVES)];
    switch (any(16)) {
    case 0:
        trim_any();
        return true;
    case 1:
        fake_os_pass(any(40));
        hak_pages_tick(hak_clock_ms());
        return true;
    case 2:
    case 3:
    case 4:
        if (!l->pages || l->run->cls != HAK_CLASS_SPAN)
            return false;
        resize_any(l);
        return true;
    default:
        if (!l->pages) {
            take_any(l);
            return false;
        }
        put_any(l);
        return true;
    }
}

static void random_life(unsigned rounds)
{
    rounds /= HAK_SANITIZED ? 8 : getenv("TEST_SHORT") ? 4 : 1;
    for (unsigned round = 0; round < rounds; round++) {
        check_pages(do_any());
        check_runs();
        for (unsigned i = 0; i < LIVES; i++)
            for (size_t k = 0; lives[i].pages && k < hak_min(lives[i].pages, PAGES); k++)
                assert_ptr_equal(hak_space_slab(at(lives[i].base, k)), lives[i].run);
        if (round % 16 == 0)
            check_cache();
    }
    for (unsigned i = 0; i < LIVES; i++)
        while (lives[i].pages)
            put_any(&lives[i]);
    check_pages(true);
    check_cache();
    hak_pages_trim(0);
    model_evict(0);
    if (unmaps)
        model_unmap();
    check_pages(true);
    check_cache();
    check_runs();
    assert_int_equal(hak_budget_held(), 0);
}

/* --- advice ------------------------------------------------------------------------------------------------ */

TEST(a_superslab_is_advised_once_and_serves_others_again)
{
    start(LATER);
    unsigned set = HAK_SET_APART + HAK_ADVICE_NO_DUMP;
    struct hak_slab *some[3], *other = take_of(HAK_SET_APART, 1, HAK_PAGES_MAPPED);
    uint64_t calls = fake_os_count(HAK_OS_madvise);
    for (unsigned i = 0; i < 3; i++)
        some[i] = take_of(set, 1, i ? HAK_PAGES_FREE : HAK_PAGES_MAPPED);
    assert_int_equal(fake_os_count(HAK_OS_madvise), calls + 1);
    struct hak_superslab *s = hak_superslab_of(base_of(some[0]));
    assert_ptr_equal(s, hak_superslab_of(base_of(some[2])));
    assert_int_equal(s->advice, HAK_ADVICE_NO_DUMP);
    for (unsigned i = 0; i < 3; i++)
        put(some[i]);
    struct hak_slab *all = take(PAGES, HAK_PAGES_WHOLE);
    assert_ptr_equal(s, hak_superslab_of(base_of(all)));
    assert_int_equal(s->advice, HAK_ADVICE_NONE);
    put(all);
    put(other);
}

TEST(no_run_is_handed_out_without_its_advice)
{
    start(LATER);
    struct hak_page_request r = {.pages = 1, .set = HAK_SET_APART + HAK_ADVICE_NO_DUMP, .until = HAK_PAGES_MAPPED};
    fake_os_refuse(HAK_OS_madvise, 1, EAGAIN, true);
    assert_null(hak_pages_take_run(&r, HAK_PAGES_DIRTY));
    assert_int_equal(hak_budget_held(), HAK_PAGE); /* dirty, since it was taken */
    fake_os_allow();
    struct hak_slab *run = hak_pages_take_run(&r, HAK_PAGES_DIRTY);
    assert_int_equal(hak_superslab_of(base_of(run))->advice, HAK_ADVICE_NO_DUMP);
    put(run);
}

static const struct {
    const char *settings;
    unsigned rounds, random;
    bool limited;
} random_lives[] = {
    {"HAKMEM_PURGE_DELAY_MS=20 HAKMEM_SUPERSLAB_TTL_SEC=86400", 6000, 11, false},
    {LATER "HAKMEM_SUPERSLAB_TTL_SEC=86400 HAKMEM_SS_EMPTY_SCAN_LIMIT=1000", 4000, 12, false}, /* much waits */
    {"HAKMEM_PURGE_DELAY_MS=20 HAKMEM_SUPERSLAB_TTL_SEC=86400", 4000, 13, true},
};

TEST_EACH(a_random_life_as_a_plain_model_says, random_lives)
{
    start(row->settings);
    if ((unmaps = row->limited))
        limit();
    random_state = row->random;
    random_life(row->rounds);
}
