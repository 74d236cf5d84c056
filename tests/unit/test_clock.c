/* SPDX-License-Identifier: MIT
 * The age of memory on a clock that threads read out of order, that stands still, that leaps, and that is set back.
 * Memory that was just used never counts as idle. Each kind of idle memory returns to the kernel after the delay,
 * whatever the program does meanwhile, as long as it takes some slow path. */
#include "core/base/kernel.h"
#include "core/heap/decay.h"
#include "core/pages/run_cache.h"
#include "core/plugin.h"
#include "touched.h"

#define HOUR_MS 3600000u
#define AN_HOUR "HAKMEM_PURGE_DELAY_MS=3600000 HAKMEM_SUPERSLAB_TTL_SEC=86400"
#define IDLE (20 * HAK_MIB)
/* Bins, caches, and the memory that the traffic itself uses: more of it where each class has superslabs of its own, and
 * blocks are chosen at random. */
#define STAYS ((HAK_HARDENED ? 10 : 8) * HAK_MIB)
#define STEPS (HAK_SANITIZED ? 4000u : 20000u)

static const size_t sizes[] = {100, 4000, 20000, 300000, HAK_MIB};

static void start(const char *settings)
{
    unit_needs_mincore();
    unit_init(settings);
    if (hak_parts.release->at_once)
        skip(); /* free memory is returned at once, whatever the time */
}

/* Releases, except of wholly free superslabs by the legacy backend, which never keeps one. */
static uint64_t releases(void)
{
    static const enum hak_cause causes[] = {HAK_CAUSE_partial_release, HAK_CAUSE_batch_release,
                                            HAK_CAUSE_direct_release,  HAK_CAUSE_lru_evict,
                                            HAK_CAUSE_purge,           HAK_CAUSE_trim};
    bool keeps = strcmp(hak_parts.backend->name, "legacy");
    uint64_t n = 0;
    for (unsigned i = 0; i < COUNT(causes); i++)
        n += keeps || causes[i] != hak_parts.release->cause ? unit_cause_calls(causes[i]) : 0;
    return n;
}

/* --- touched blocks of a size, all free but a few, which keep their regions from being free as a whole ----- */

struct idle {
    struct touched all;
    size_t stays; /* one of `stays` blocks stays live */
};

static struct idle take(size_t size, size_t bytes, size_t one_of)
{
    return (struct idle){touch(size, bytes), one_of / size + 1};
}

static void give(const struct idle *s)
{
    for (size_t i = 0; i < s->all.n; i++)
        if (i % s->stays)
            hak_free(s->all.block[i]);
    hak_bins_flush(unit_thread());
}

/* All blocks are allocated before the first is freed, so that none reuses the place of another. */
static void leave_idle(struct idle *each, size_t bytes)
{
    for (unsigned i = 0; i < COUNT(sizes); i++)
        each[i] = take(sizes[i], bytes, 4 * HAK_MIB);
    for (unsigned i = 0; i < COUNT(sizes); i++)
        give(&each[i]);
}

/* The slab or span of each live block may stay resident. */
static void assert_gone(const struct idle *s, const char *when)
{
    size_t size = s->all.size;
    size_t around =
        size <= HAK_SMALL_MAX ? hak_slab_pages[hak_class_of(size)] * HAK_PAGE : hak_align_up(size, HAK_PAGE);
    assert_resident(&s->all, (s->all.n / s->stays + 1) * around + STAYS, when);
}

/* --- nothing goes back early ------------------------------------------------------------------------------- */

static void mixed_traffic(uint64_t *random, char **slot, size_t slots)
{
    size_t size = sizes[unit_random(random) % COUNT(sizes)], i = unit_random(random) % slots;
    hak_free(slot[i]);
    slot[i] = hak_malloc(size);
    assert_non_null(slot[i]);
    slot[i][0] = 1;
}

static const struct {
    const char *settings;
    uint64_t steps;
    int64_t skew;
} clocks[] = {{AN_HOUR, 12, 20}, {"HAKMEM_PURGE_DELAY_MS=100000" /* no purge for bytes alone */, 1, 0}};

/* The clock stands still; or each read is off by up to 20 ms, as if the reading thread had been delayed. */
TEST_EACH(clocks_that_stand_or_differ_make_nothing_old, clocks)
{
    static char *slot[400];
    uint64_t random = 1;
    int64_t skew = row->skew;
    start(row->settings);
    for (unsigned i = 0; i < STEPS; i++) {
        fake_os_pass(unit_random(&random) % row->steps);
        fake_os_skew((int64_t)(unit_random(&random) % (uint64_t)(2 * skew + 1)) - skew);
        mixed_traffic(&random, slot, COUNT(slot));
        hak_purge_tick();
        if (releases())
            fail_msg("pages went back after %u steps", i);
    }
}

/* A thread reads the clock and is delayed; memory that others free meanwhile is younger than its `now`. */
static void age_at(uint64_t now_ms)
{
    if (hak_parts.backend->purge_tick)
        hak_parts.backend->purge_tick(now_ms);
    hak_run_cache_tick(now_ms);
}

/* Live blocks lie close to each other, so that no superslab is wholly free: legacy would return it at once. */
static bool may_free_while_another_is_held_up(size_t size, uint64_t used_ms)
{
    uint64_t now = hak_clock_ms() + used_ms;
    fake_os_pass(3);
    struct idle s = take(size, 16 * HAK_MIB, 256 * HAK_KIB);
    uint64_t before = releases();
    fake_os_pass(used_ms);
    give(&s);
    age_at(now);
    age_at(now);
    if (releases() != before)
        print_error("%zu-byte blocks: pages that were freed 3 ms after `now` went back, an hour early\n", size);
    return releases() == before;
}

TEST(a_thread_that_was_held_up_makes_nothing_old)
{
    bool ok = true;
    start(AN_HOUR);
    for (unsigned i = 0; i < COUNT(sizes); i++)
        ok &= may_free_while_another_is_held_up(sizes[i], 0) && may_free_while_another_is_held_up(sizes[i], 100);
    assert_true(ok);
}

static void leap(uint64_t ms)
{
    fake_os_pass(ms);
    for (unsigned i = 0; i < 40; i++) {
        hak_purge_tick();
        fake_os_pass(20);
    }
}

TEST(only_a_leap_beyond_the_delay_makes_all_old)
{
    struct idle idle[COUNT(sizes)];
    start(AN_HOUR);
    leave_idle(idle, 16 * HAK_MIB);
    uint64_t before = releases();
    leap(HOUR_MS - 1000);
    assert_int_equal(releases(), before);
    leap(HOUR_MS + 1000);
    for (unsigned i = 0; i < COUNT(sizes); i++)
        assert_gone(&idle[i], "after a leap of an hour");
}

/* --- the kernel's clock is set back ------------------------------------------------------------------------ */

static uint64_t kernel_ns;

uint64_t __real_hak_kernel_clock(int clock);
uint64_t __wrap_hak_kernel_clock(int clock);
uint64_t __wrap_hak_kernel_clock(int clock)
{
    return kernel_ns ? kernel_ns : __real_hak_kernel_clock(clock);
}

uint64_t __real_hak_clock_ms(void);

TEST(a_clock_that_is_set_back_goes_on_from_its_last_reading)
{
    uint64_t step = 7 * (uint64_t)1000000000;
    kernel_ns = 1000 * step;
    uint64_t ms = __real_hak_clock_ms(), ns = hak_clock_ns();
    for (unsigned i = 1; i < 5; i++) {
        kernel_ns /= i * 2;
        assert_int_equal(__real_hak_clock_ms(), ms);
        assert_int_equal(hak_clock_ns(), ns);
        kernel_ns += step;
        ms += step / 1000000;
        ns += step;
        assert_int_equal(__real_hak_clock_ms(), ms);
        assert_int_equal(hak_clock_ns(), ns);
    }
}

/* --- everything idle goes back ------------------------------------------------------------------------------ */

TEST(clocks_that_differ_keep_nothing_young)
{
    struct idle idle[COUNT(sizes)];
    uint64_t random = 2;
    start(NULL);
    fake_os_skew(200);
    leave_idle(idle, 16 * HAK_MIB);
    for (unsigned i = 0; i < 300; i++) {
        fake_os_pass(10);
        fake_os_skew((int64_t)(unit_random(&random) % 401) - 200);
        hak_purge_tick();
    }
    for (unsigned i = 0; i < COUNT(sizes); i++)
        assert_gone(&idle[i], "after 3 s");
}

/* --- whatever the program does ------------------------------------------------------------------------------- */

static void blocks(size_t size, unsigned n)
{
    unit_free_blocks(unit_blocks(size, n));
}

static void zeroed(size_t size, unsigned n)
{
    (void)n;
    hak_free(hak_alloc_zeroed(size));
}

static void aligned(size_t size, unsigned n)
{
    (void)n;
    hak_free(hak_alloc_aligned(HAK_PAGE << size % 3, size));
}

static void resized(size_t size, unsigned n)
{
    static void *p;
    (void)n;
    p = p ? hak_resize(p, size) : hak_malloc(size);
    assert_non_null(p);
}

static void frees(size_t size, unsigned n)
{
    static void *block[3000];
    static unsigned left;
    (void)n;
    if (!block[0])
        while (left < COUNT(block))
            block[left++] = hak_malloc(size);
    hak_free(block[--left]);
}

static const struct {
    const char *name;
    void (*once)(size_t size, unsigned n);
    size_t size, more; /* a random part of `more` is added */
    unsigned n;
} traffics[] = {
    {"after 3 s of spans", blocks, 100 * HAK_KIB, 200 * HAK_KIB, 1},
    {"after 3 s of zeroed spans", zeroed, 100 * HAK_KIB, 200 * HAK_KIB, 1},
    {"after 3 s of aligned spans", aligned, 100 * HAK_KIB, 200 * HAK_KIB, 1},
    {"after 3 s of mappings", blocks, 80 * HAK_MIB, HAK_MIB, 1},
    {"after 3 s of resized spans", resized, 100 * HAK_KIB, 200 * HAK_KIB, 1},
    {"after 3 s of resized mappings", resized, 80 * HAK_MIB, HAK_MIB, 1},
    {"after 3 s of frees of spans", frees, 70000, 1, 1},
    {"after 3 s of small blocks", blocks, 16, 1000, 300},
    {"after 3 s of pool blocks", blocks, 8192, 40000, 30},
};

/* 3 s of one kind of traffic, once a millisecond. */
TEST_EACH(every_slow_path_ages_all, traffics)
{
    struct idle idle[COUNT(sizes)];
    uint64_t random = 3;
    start(NULL);
    if (row->once == frees)
        frees(row->size, 1);
    leave_idle(idle, IDLE);
    for (unsigned i = 0; i < 2900; i++) {
        fake_os_pass(1);
        row->once(row->size + unit_random(&random) % row->more, row->n);
    }
    for (unsigned i = 0; i < COUNT(sizes); i++)
        assert_gone(&idle[i], row->name);
}
