/* SPDX-License-Identifier: MIT
 * The reserve of a thread (frontends/pool/reserve.c as it is): its owner cuts slabs off, while others take all that is
 * left and give it back, and refills. No page is taken twice, no taken page is returned, and none is lost. */
#include "frontends/pool/reserve.h"

#include "core/os/meta.h"
#include "core/pages/budget.h"
#include "core/pages/page_heap.h"
#include "core/parts/purge.h"
#include "world.h"

#define SLAB 8u   /* pages */
#define BATCH 16u /* pages: two slabs */
#define SLABS 6u  /* of the page heap */
#define FIRST 1000u

static struct hak_heap threads[MODEL_THREADS];
static struct reserve descriptors[MODEL_THREADS];
static unsigned descriptors_used;
static struct hak_slab slabs[SLABS];
static bool is_free[SLABS], is_cut[SLABS]; /* plain: only their owner may access them */
static _Atomic(size_t) charged;
static _Atomic(unsigned) cut, rests;
static bool zero;

static void setup(void)
{
    static struct hak_option_values options = {.pool_mb_init = 1, .pool_mb_max = 1};
    MODEL_CHECK(options.pool_mb_init * HAK_MIB / HAK_PAGE == BATCH);
    hak_reserve_init(&options, 0);
    for (unsigned i = 0; i < SLABS; i++)
        is_free[i] = true;
    MODEL_CHECK(hak_reserve_of(&threads[0]));
}

static void setup_zero(void)
{
    setup();
    zero = true;
}

static unsigned number_of(const char *base)
{
    uintptr_t page = (uintptr_t)base / HAK_PAGE - FIRST;
    MODEL_CHECK(page % SLAB == 0 && page / SLAB < SLABS);
    return (unsigned)(page / SLAB);
}

static void take(unsigned self)
{
    struct hak_slab *slab = hak_reserve_take(&threads[self], SLAB);
    MODEL_CHECK(slab);
    unsigned i = number_of(slab->base);
    MODEL_CHECK(!is_free[i] && !is_cut[i]);
    is_cut[i] = true;
    atomic_fetch_add_explicit(&cut, 1, memory_order_relaxed);
}

/* --- age: the owner cuts and refills, and another thread takes what is left ------------------------------------------
 */

static void cut_or_age(unsigned self)
{
    if (self == 1) {
        hak_reserve_age(1, 0, 99);
        return;
    }
    for (unsigned i = 0; i < 3; i++)
        take(0);
}

/* The second call detects that the reserve was not used. */
static void cut_or_look(unsigned self)
{
    if (self == 0) {
        take(0);
        take(0);
        return;
    }
    hak_reserve_age(1000, 100, 99);
    hak_reserve_age(2000, 100, 99);
}

/* --- owners: two of them, and a thread that takes from both
 * ---------------------------------------------------------------
 */

static void cut_by_two(unsigned self)
{
    if (self == 2)
        hak_reserve_age(1, 0, 99);
    else
        take(self);
}

/* --- end: an ended thread's reserve is returned during a purge ---------------------------------------------------- */

static void end_or_age(unsigned self)
{
    if (self == 1) {
        hak_reserve_age(1, 0, 99);
        model_reached(atomic_load_explicit(&rests, memory_order_relaxed));
        return;
    }
    take(0);
    hak_reserve_end(&threads[0]);
    MODEL_CHECK(!threads[0].local[0]);
}

/* --- check: pages that were not taken are free once all rests are back
 * --------------------------------------------------
 */

static void expect_all(void)
{
    unsigned missing = 0;
    model_reached(atomic_load_explicit(&rests, memory_order_relaxed));
    hak_reserve_age(1, 0, 99);
    for (unsigned i = 0; i < SLABS; i++) {
        MODEL_CHECK(is_free[i] != is_cut[i]);
        missing += is_cut[i];
    }
    MODEL_CHECK(missing == atomic_load_explicit(&cut, memory_order_relaxed));
    MODEL_CHECK(charged == (zero ? missing * SLAB * HAK_PAGE : 0));
}

/* --- what reserve.c calls -------------------------------------------------------------------------------------------
 */

/* Called under the lock of reserve.c, like all functions that change free pages. */
bool hak_pages_take(struct hak_page_request *r, enum hak_pages_from from)
{
    MODEL_CHECK(r->uncharged && r->slab);
    if (from != HAK_PAGES_WHOLE)
        return false;
    MODEL_CHECK(r->pages == BATCH);
    for (unsigned i = 0; i + 1 < SLABS; i++)
        if (is_free[i] && is_free[i + 1]) {
            MODEL_CHECK(!is_cut[i] && !is_cut[i + 1]);
            is_free[i] = is_free[i + 1] = false;
            r->base = (char *)(uintptr_t)((FIRST + i * SLAB) * HAK_PAGE);
            r->zero = zero;
            return true;
        }
    return false;
}

void hak_pages_put_rest(char *base, size_t pages, bool unused)
{
    MODEL_CHECK(unused == zero && pages && pages % SLAB == 0);
    for (unsigned i = number_of(base), end = i + (unsigned)(pages / SLAB); i < end; i++) {
        MODEL_CHECK(i < SLABS && !is_free[i] && !is_cut[i]);
        is_free[i] = true;
    }
    atomic_fetch_add_explicit(&rests, 1, memory_order_relaxed);
}

struct hak_slab *hak_pages_describe(char *base, size_t pages, bool slab)
{
    MODEL_CHECK(slab && pages == SLAB);
    struct hak_slab *s = &slabs[number_of(base)];
    s->base = base;
    return s;
}

void hak_pages_bound(void)
{
}

void hak_budget_take(size_t bytes)
{
    atomic_fetch_add_explicit(&charged, bytes, memory_order_relaxed);
}

void *hak_meta_alloc(size_t size)
{
    MODEL_CHECK(size == sizeof descriptors[0] && descriptors_used < MODEL_THREADS);
    return &descriptors[descriptors_used++];
}

void hak_stats_number(struct hak_stats_writer *w, const char *key, uint64_t value)
{
    (void)w, (void)key, (void)value;
}

const struct model models[] = {
    {"age", 2, setup_zero, cut_or_age, expect_all, 2},
    {"look", 2, setup, cut_or_look, expect_all, 2},
    {"owners", 3, setup, cut_by_two, expect_all, 3},
    {"end", 2, setup_zero, end_or_age, expect_all, 2},
    {0},
};
