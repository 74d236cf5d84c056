/* SPDX-License-Identifier: MIT
 * See dirty.h. */
#include "dirty.h"

#include "budget.h"
#include "core/base/bits.h"
#include "core/base/clock.h"
#include "core/base/list.h"
#include "core/base/log.h"
#include "core/base/sealed.h"
#include "core/os/huge_page.h"

#define PER_REGRET 4u /* bytes may wait: what goes too soon costs a fault for each page */
#define FADING 8u     /* windows, until a regret is forgotten */

static uint64_t *set_of(const struct hak_dirty *d, enum hak_dirty_set which)
{
    return d->bits + which * d->words;
}

/* --- the queue --------------------------------------------------------------------------------------- */

static void leave_queue(struct hak_dirty *d)
{
    struct hak_dirty_queue *q = d->queue;
    HAK_QUEUE_REMOVE(&q->first, &q->last, d);
    q->regions--;
}

static void join_queue(struct hak_dirty *d, uint64_t now_ms)
{
    struct hak_dirty_queue *q = d->queue;
    HAK_QUEUE_ADD(&q->first, &q->last, d);
    q->regions++;
    d->checked_ms = now_ms;
}

/* --- what was wanted --------------------------------------------------------------------------------- */

static void note_wanted(struct hak_dirty_queue *q, size_t bytes)
{
    q->drawn += bytes;
    q->deepest = hak_max(q->deepest, q->drawn);
}

static void begin_window(struct hak_dirty_queue *q, uint64_t now_ms, uint64_t windows)
{
    q->deepest_before = windows > 1 ? 0 : q->deepest;
    q->deepest = q->drawn = 0;
    q->regretted -= windows < FADING ? q->regretted / FADING * windows : q->regretted;
    q->window_ms = now_ms;
}

size_t hak_dirty_allowance(struct hak_dirty_queue *q, uint64_t now_ms, uint64_t delay_ms)
{
    uint64_t age = hak_clock_age(q->window_ms, now_ms);
    if (age > delay_ms)
        begin_window(q, now_ms, delay_ms ? age / delay_ms : FADING);
    return delay_ms * q->unwanted_per_ms + hak_max(q->regretted, hak_max(q->deepest, q->deepest_before));
}

/* --- dirty pages ------------------------------------------------------------------------------------- */

static HAK_NOINLINE void add_dirty(struct hak_dirty *d, unsigned first, unsigned pages, uint64_t now_ms)
{
    HAK_CHECK(hak_bits_set(set_of(d, HAK_DIRTY_OLD), first, pages, true) == pages);
    if (!d->dirty)
        join_queue(d, now_ms);
    d->dirty = (uint16_t)(d->dirty + pages);
    d->queue->waiting += pages * d->unit;
}

/* They are dirty no more; returns how many were. */
static HAK_NOINLINE unsigned remove_dirty(struct hak_dirty *d, unsigned first, unsigned pages)
{
    unsigned dirty = d->dirty ? hak_bits_set(set_of(d, HAK_DIRTY_OLD), first, pages, false) : 0;
    if (!dirty)
        return 0;
    hak_bits_set(set_of(d, HAK_DIRTY_IDLE), first, pages, false);
    unsigned refused = d->refused ? hak_bits_set(set_of(d, HAK_DIRTY_REFUSED), first, pages, false) : 0;
    d->dirty = (uint16_t)(d->dirty - dirty);
    d->refused = (uint16_t)(d->refused - refused);
    d->queue->waiting -= (dirty - refused) * d->unit;
    d->queue->refused -= refused * d->unit;
    if (!d->dirty)
        leave_queue(d);
    return dirty;
}

/* Pages are taken: did some go back just now? */
static void note_regret(struct hak_dirty *d, unsigned first, unsigned pages)
{
    if (!d->purged_ms)
        return;
    size_t again = hak_bits_set(set_of(d, HAK_DIRTY_PURGED), first, pages, false) * d->unit;
    d->queue->purged -= again;
    if (!again || hak_clock_age(d->purged_ms, hak_clock_ms()) >= HAK_REGRET_MS)
        return;
    hak_os_regret(d->purged_for, again);
    d->queue->regretted += PER_REGRET * again;
}

/* --- pages come and go ------------------------------------------------------------------------------- */

void hak_dirty_open(struct hak_dirty *d, struct hak_dirty_queue *queue, char *base, unsigned pages, size_t unit,
                    uint64_t *bits)
{
    *d = (struct hak_dirty){.queue = queue, .base = base, .unit = unit, .bits = bits};
    d->pages = (uint16_t)pages;
    d->words = (uint16_t)((pages + 63) / 64);
}

void hak_dirty_close(struct hak_dirty *d)
{
    d->queue->purged -= hak_bits_count(set_of(d, HAK_DIRTY_PURGED), 0, d->pages) * d->unit;
}

bool hak_dirty_take(struct hak_dirty *d, unsigned first, unsigned pages, bool uncharged)
{
    bool zero = !hak_bits_count(hak_dirty_old(d), first, pages);
    unsigned dirty = remove_dirty(d, first, pages);
    note_wanted(d->queue, dirty * d->unit);
    note_regret(d, first, pages);
    if (!uncharged || !zero)
        hak_budget_take((pages - dirty) * d->unit);
    hak_bits_set(set_of(d, HAK_DIRTY_USED), first, pages, true);
    return zero;
}

void hak_dirty_put(struct hak_dirty *d, unsigned first, unsigned pages, bool dirty)
{
    struct hak_dirty_queue *q = d->queue;
    size_t bytes = pages * d->unit;
    q->drawn -= hak_min(q->drawn, bytes);
    if (!dirty)
        return;
    d->put_ms = hak_clock_ms();
    add_dirty(d, first, pages, d->put_ms);
}

void hak_dirty_soil(struct hak_dirty *d)
{
    uint64_t *used = set_of(d, HAK_DIRTY_USED), now = hak_clock_ms();
    for (unsigned i = 0; i < d->pages; i++) {
        if (!hak_bits_set(used, i, 1, true))
            continue;
        add_dirty(d, i, 1, now);
        hak_budget_take(d->unit);
    }
}

/* Pages that went back lazily may still hold what they held. */
const uint64_t *hak_dirty_old(const struct hak_dirty *d)
{
    return set_of(d, hak_pages_go_lazily() ? HAK_DIRTY_USED : HAK_DIRTY_OLD);
}

unsigned hak_dirty_count(const struct hak_dirty *d, unsigned first, unsigned pages)
{
    return d->dirty ? hak_bits_count(set_of(d, HAK_DIRTY_OLD), first, pages) : 0;
}

unsigned hak_dirty_given(const struct hak_dirty *d, unsigned first, unsigned pages)
{
    return hak_bits_count(set_of(d, HAK_DIRTY_USED), first, pages) -
           hak_bits_count(set_of(d, HAK_DIRTY_PURGED), first, pages);
}

/* --- for a purge ------------------------------------------------------------------------------------- */

static uint64_t chosen(const struct hak_dirty *d, unsigned word, struct hak_dirty_choice choice)
{
    uint64_t pages = set_of(d, choice.all ? HAK_DIRTY_OLD : HAK_DIRTY_IDLE)[word];
    return choice.again ? pages : pages & ~set_of(d, HAK_DIRTY_REFUSED)[word];
}

HAK_COLD unsigned hak_dirty_run(const struct hak_dirty *d, unsigned *first, struct hak_dirty_choice choice)
{
    unsigned i = *first;
    uint64_t word = 0;
    while (i < d->pages && !(word = chosen(d, i / 64, choice) >> i % 64))
        i = (i / 64 + 1) * 64;
    if (i >= d->pages)
        return 0;
    *first = i += (unsigned)__builtin_ctzll(word);
    unsigned end = i;
    for (; end < d->pages && (chosen(d, end / 64, choice) >> end % 64 & 1); end++)
        ;
    return end - i;
}

HAK_COLD void hak_dirty_checked(struct hak_dirty *d, uint64_t now_ms)
{
    if (!d->dirty)
        return;
    for (unsigned i = 0; i < d->words; i++)
        set_of(d, HAK_DIRTY_IDLE)[i] = set_of(d, HAK_DIRTY_OLD)[i];
    leave_queue(d);
    join_queue(d, now_ms);
}

/* None where it begins with a huge page; those behind the first 64 are left alone. */
static uint64_t torn_at(const struct hak_dirty *d, size_t offset)
{
    uintptr_t end = (uintptr_t)d->base + offset, i = end / HAK_HUGE_PAGE - (uintptr_t)d->base / HAK_HUGE_PAGE;
    return end % HAK_HUGE_PAGE && i < 64 ? (uint64_t)1 << i : 0;
}

uint64_t hak_dirty_tear(struct hak_dirty *d, unsigned first, unsigned pages)
{
    uint64_t torn = (torn_at(d, first * d->unit) | torn_at(d, (first + pages) * d->unit)) & ~d->torn;
    d->torn |= torn;
    return torn;
}

void hak_dirty_claim(struct hak_dirty *d, unsigned first, unsigned pages)
{
    HAK_CHECK(remove_dirty(d, first, pages) == pages);
}

HAK_COLD void hak_dirty_settle(struct hak_dirty *d, unsigned first, unsigned pages, bool gone, enum hak_cause cause)
{
    uint64_t now = hak_clock_ms();
    if (gone) {
        d->queue->purged += hak_bits_set(set_of(d, HAK_DIRTY_PURGED), first, pages, true) * d->unit;
        d->purged_ms = now;
        d->purged_for = cause;
        hak_budget_give(pages * d->unit);
        return;
    }
    add_dirty(d, first, pages, now);
    hak_bits_set(set_of(d, HAK_DIRTY_REFUSED), first, pages, true);
    d->refused = (uint16_t)(d->refused + pages);
    d->queue->waiting -= pages * d->unit;
    d->queue->refused += pages * d->unit;
    d->refused_ms = now;
}
