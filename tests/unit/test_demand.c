/* SPDX-License-Identifier: MIT
 * How much memory may wait to be purged, by the estimate of demand (core/pages/dirty.h): programs whose use of memory
 * comes and goes with each period from 10 ms to 10 s, by the test's clock. Some call meanwhile, others sleep. */
#include "core/parts/purge.h"
#include "unit.h"

#define DELAY 100u
#define SPAN_PAGES 16u /* 1 MiB */
#define SPANS 100u
#define MAY_WAIT (DELAY * HAK_DIRTY_UNWANTED_PER_MS) /* whatever was wanted */

static char *spans[SPANS];
static unsigned in_use;
static size_t missed; /* pages that were taken and read as zero */

static void set_level(unsigned level)
{
    for (; in_use < level; in_use++) {
        uint64_t old[1] = {0};
        struct hak_page_request r = {.pages = SPAN_PAGES, .old = old, .until = HAK_PAGES_MAPPED};
        assert_true(hak_pages_take(&r, HAK_PAGES_WHOLE));
        spans[in_use] = r.base;
        missed += SPAN_PAGES - (size_t)__builtin_popcountll(old[0]);
        if (in_use % 8 == 7)
            hak_purge_tick();
    }
    fake_os_pass(1);
    while (in_use > level) {
        unit_put_pages(spans[--in_use], SPAN_PAGES);
        hak_pages_bound();
    }
}

static void pass(unsigned ms, bool calls)
{
    for (unsigned step; ms; ms -= step) {
        step = calls && ms > 10 ? 10 : ms;
        fake_os_pass(step);
        if (calls)
            hak_purge_tick();
    }
}

enum { BURST, RAMP, SAWTOOTH, SHAPES };

struct work {
    unsigned shape, period, most; /* most: spans in use at once */
    bool calls;                   /* while it waits */
};

/* Allocates up to the most spans, frees all, and waits for the rest of the period. Returns what waits for its purge
 * right after the last free. */
static size_t play(const struct work *w)
{
    unsigned step = w->period / 10, up = w->shape == BURST ? 1 : 5, down = w->shape == SAWTOOTH ? 5 : 1;
    unsigned passed = 0;
    for (unsigned i = 1; i <= up; i++, passed += up > 1 ? step : 0) {
        set_level((w->most * i + up - 1) / up);
        pass(up > 1 ? step : 0, w->calls);
    }
    for (unsigned i = down; i--; passed += i ? step : 0) {
        set_level(w->most * i / down);
        pass(i ? step : 0, w->calls);
    }
    size_t waiting = hak_dirty_queue.waiting;
    pass(w->period - passed, w->calls);
    return waiting;
}

/* The shortest time from a free to a request that wants the pages. */
static unsigned distance(const struct work *w)
{
    return w->shape == BURST ? w->period : w->shape == RAMP ? w->period / 2 : w->period / 10;
}

static void try_work(const struct work *w)
{
    assert_true(play(w) <= MAY_WAIT); /* nothing was wanted twice */
    play(w);
    for (unsigned i = 0; i < 6; i++) {
        missed = 0;
        size_t waiting = play(w);
        if (w->period < DELAY && missed)
            fail_msg("shape %u, each %u ms: %zu pages missed", w->shape, w->period, missed);
        if (distance(w) >= 4 * DELAY && waiting > 2 * MAY_WAIT)
            fail_msg("shape %u, each %u ms: %zu bytes wait", w->shape, w->period, waiting);
    }
    if (w->calls)
        pass(3 * DELAY, true);
    else
        fake_os_pass(10000);
    hak_purge_tick(); /* of a single call after a sleep */
    assert_int_equal(hak_dirty_queue.waiting, 0);
    fake_os_pass(20 * DELAY); /* all is forgotten */
}

TEST(what_is_wanted_again_soon_waits_and_nothing_else)
{
    static const unsigned periods[] = {10, 20, 50, 90, 100, 150, 200, 500, 1000, 1500, 2000, 5000, 10000};
    unit_init("HAKMEM_PURGE_DELAY_MS=100");
    unit_needs_delay();
    for (unsigned shape = 0; shape < SHAPES; shape++)
        for (unsigned i = 0; i < COUNT(periods); i++)
            for (unsigned k = 0; k < 4; k++)
                try_work(&(struct work){shape, periods[i], k & 1 ? SPANS : 1, k >> 1});
}
