/* SPDX-License-Identifier: MIT
 * See superslab.h. */
#include "superslab.h"

#include "core/parts/parts.h"
#include "core/pages/budget.h"
#include "core/base/log.h"
#include "core/os/meta.h"

/* [kind][longest run]: regions with free pages; kind 1 holds blocks with headers. */
static struct superslab *index_lists[2][65];
static uint64_t index_bits[2]; /* bit n-1: index_lists[..][n] is not empty */
static struct superslab *dirty_oldest, *dirty_newest;
static size_t dirty_pages, dirty_regions;
static struct hak_meta_list recycled;

static unsigned kind_of(const struct superslab *s)
{
    return hak_tag_in_header_zone(s->base);
}

/* The length of the longest run of ones. */
static unsigned longest_run(uint64_t bits)
{
    unsigned n = 0;
    for (; bits; n++)
        bits &= bits << 1;
    return n;
}

/* Bit i of the result: a run of `pages` ones begins at bit i. */
static uint64_t run_starts(uint64_t bits, unsigned pages)
{
    unsigned have = 1;
    while (have < pages) {
        unsigned step = have < pages - have ? have : pages - have;
        bits &= bits >> step;
        have += step;
    }
    return bits;
}

/* --- index --------------------------------------------------------------------------------------- */

static void unindex(struct superslab *s)
{
    unsigned kind = kind_of(s), n = s->longest;
    if (!n)
        return;
    if (s->prev)
        s->prev->next = s->next;
    else if (!(index_lists[kind][n] = s->next))
        index_bits[kind] &= ~((uint64_t)1 << (n - 1));
    if (s->next)
        s->next->prev = s->prev;
    s->next = s->prev = NULL;
    s->longest = 0;
}

static void reindex(struct superslab *s)
{
    unsigned kind = kind_of(s), n = longest_run(s->free);
    if (n == s->longest)
        return;
    unindex(s);
    if (!n)
        return;
    s->longest = n;
    s->next = index_lists[kind][n];
    if (s->next)
        s->next->prev = s;
    index_lists[kind][n] = s;
    index_bits[kind] |= (uint64_t)1 << (n - 1);
}

struct superslab *hak_superslab_find(unsigned pages, bool header)
{
    uint64_t fitting = index_bits[header] >> (pages - 1);
    return fitting ? index_lists[header][pages + (unsigned)__builtin_ctzll(fitting)] : NULL;
}

void hak_superslab_withdraw(struct superslab *s)
{
    unindex(s);
}

void hak_superslab_offer(struct superslab *s)
{
    reindex(s);
}

/* --- dirty pages --------------------------------------------------------------------------------- */

static void undirty_list(struct superslab *s)
{
    if (!s->on_dirty_list)
        return;
    *(s->dirty_prev ? &s->dirty_prev->dirty_next : &dirty_oldest) = s->dirty_next;
    *(s->dirty_next ? &s->dirty_next->dirty_prev : &dirty_newest) = s->dirty_prev;
    s->dirty_next = s->dirty_prev = NULL;
    s->on_dirty_list = false;
    dirty_regions--;
}

static void dirty_list(struct superslab *s)
{
    if (s->on_dirty_list)
        return;
    s->dirty_prev = dirty_newest;
    s->dirty_next = NULL;
    *(dirty_newest ? &dirty_newest->dirty_next : &dirty_oldest) = s;
    dirty_newest = s;
    s->on_dirty_list = true;
    dirty_regions++;
    s->dirty_since_ms = hak_clock_ms();
}

/* A region of several superslabs is dirty as a whole or not at all. */
static size_t weight(const struct superslab *s, uint64_t dirty)
{
    if (s->count > 1)
        return dirty ? s->count * HAK_SUPERSLAB_PAGES : 0;
    return (size_t)__builtin_popcountll(dirty);
}

static void set_dirty(struct superslab *s, uint64_t dirty)
{
    dirty_pages += weight(s, dirty) - weight(s, s->dirty);
    if (dirty & ~s->dirty)
        s->put_ms = hak_clock_ms();
    s->dirty = dirty;
    s->idle &= dirty;
    if (dirty)
        dirty_list(s);
    else
        undirty_list(s);
}

void hak_superslab_put_whole(struct superslab *s, bool dirty)
{
    s->whole = false;
    s->free = ALL_PAGES;
    if (dirty)
        set_dirty(s, ALL_PAGES);
    else
        hak_budget_give(s->count * HAK_SUPERSLAB);
}

struct superslab *hak_superslab_oldest_dirty(void)
{
    return dirty_oldest;
}

size_t hak_superslab_dirty_bytes(void)
{
    return dirty_pages * HAK_PAGE;
}

size_t hak_superslab_dirty_regions(void)
{
    return dirty_regions;
}

uint64_t hak_superslab_idle(struct superslab *s, uint64_t now_ms, uint64_t delay_ms)
{
    uint64_t idle = now_ms - s->put_ms >= delay_ms ? s->dirty : s->idle;
    s->idle = s->dirty;
    undirty_list(s);
    dirty_list(s);
    return idle;
}

static unsigned ranges_of(const struct superslab *s, uint64_t pages, struct iovec *ranges)
{
    unsigned n = 0;
    if (s->count > 1) {
        *ranges = (struct iovec){s->base, weight(s, pages) * HAK_PAGE};
        return pages != 0;
    }
    while (pages) {
        unsigned first = (unsigned)__builtin_ctzll(pages);
        uint64_t rest = ~(pages >> first);
        unsigned length = rest ? (unsigned)__builtin_ctzll(rest) : 64 - first;
        ranges[n++] = (struct iovec){s->base + first * HAK_PAGE, length * HAK_PAGE};
        pages &= ~superslab_run(first, length);
    }
    return n;
}

static void note_returned(struct superslab *s, uint64_t pages, enum hak_cause cause)
{
    s->returned |= pages;
    s->returned_ms = hak_clock_ms();
    s->returned_for = cause;
    hak_budget_give(weight(s, pages) * HAK_PAGE);
    set_dirty(s, s->dirty & ~pages);
}

/* Refused, for locked pages say: they stay dirty, and are asked for again later. */
static size_t give_back(struct superslab *s, uint64_t pages, enum hak_cause cause)
{
    struct iovec ranges[32];
    size_t wanted = weight(s, pages) * HAK_PAGE;
    unsigned n = ranges_of(s, pages, ranges);
    size_t returned = n ? hak_parts.release->release(ranges, n, cause) : 0;
    if (returned == wanted)
        note_returned(s, pages, cause);
    return returned;
}

size_t hak_superslab_clean(struct superslab *s, enum hak_cause cause)
{
    size_t returned = give_back(s, s->dirty, cause);
    if (s->dirty) {
        undirty_list(s);
        dirty_list(s);
    }
    return returned;
}

size_t hak_superslab_batch_send(struct superslab_batch *b)
{
    size_t wanted = 0;
    for (unsigned i = 0; i < b->regions; i++)
        wanted += weight(b->region[i], b->region[i]->leaving) * HAK_PAGE;
    size_t returned = wanted ? hak_parts.release->release(b->range, b->ranges, b->cause) : 0;
    bool all = returned == wanted;
    if (!all) /* some were refused: one by one tells which */
        returned = 0;
    for (unsigned i = 0; i < b->regions; i++) {
        struct superslab *s = b->region[i];
        if (all)
            note_returned(s, s->leaving, b->cause);
        else
            returned += give_back(s, s->leaving, b->cause);
        s->leaving = 0;
    }
    b->regions = b->ranges = 0;
    return returned;
}

size_t hak_superslab_batch_add(struct superslab_batch *b, struct superslab *s, uint64_t pages)
{
    if (!pages || s->leaving)
        return 0;
    s->leaving = pages;
    b->region[b->regions++] = s;
    b->ranges += ranges_of(s, pages, b->range + b->ranges);
    if (b->ranges >= SUPERSLAB_BATCH)
        hak_superslab_batch_send(b);
    return weight(s, pages) * HAK_PAGE;
}

/* --- pages --------------------------------------------------------------------------------------- */

/* Pages that are taken again: were they given back just now? */
static void note_regret(struct superslab *s, uint64_t taken)
{
    uint64_t again = s->returned & taken;
    if (again && hak_clock_ms() - s->returned_ms < HAK_REGRET_MS)
        hak_os_regret(s->returned_for, weight(s, again) * HAK_PAGE);
    s->returned &= ~taken;
}

bool hak_superslab_take_at(struct superslab *s, unsigned first, unsigned pages)
{
    uint64_t mask = superslab_run(first, pages);
    if (first + pages > HAK_SUPERSLAB_PAGES || (s->free & mask) != mask)
        return false;
    s->free &= ~mask;
    s->used |= mask;
    hak_budget_take((pages - weight(s, s->dirty & mask)) * HAK_PAGE);
    set_dirty(s, s->dirty & ~mask);
    note_regret(s, mask);
    reindex(s);
    return true;
}

unsigned hak_superslab_fit(const struct superslab *s, unsigned pages)
{
    uint64_t starts = run_starts(s->free, pages);
    HAK_CHECK(starts);
    return (unsigned)__builtin_ctzll(starts);
}

bool hak_superslab_is_zero(const struct superslab *s, uint64_t pages)
{
    return !((hak_pages_go_lazily() ? s->used : s->dirty) & pages);
}

void hak_superslab_take_whole(struct superslab *s)
{
    s->whole = true;
    s->free = 0;
    s->used = ALL_PAGES;
    hak_budget_take((s->count * HAK_SUPERSLAB_PAGES - weight(s, s->dirty)) * HAK_PAGE);
    set_dirty(s, 0);
    note_regret(s, ALL_PAGES);
}

void hak_superslab_put(struct superslab *s, unsigned first, unsigned pages, bool dirty)
{
    uint64_t mask = superslab_run(first, pages);
    HAK_CHECK(!(s->free & mask));
    s->free |= mask;
    if (dirty)
        set_dirty(s, s->dirty | mask);
    else
        hak_budget_give(pages * HAK_PAGE);
    reindex(s);
}

/* --- regions ------------------------------------------------------------------------------------- */

struct superslab *hak_superslab_map(size_t count, size_t align, bool header)
{
    struct superslab *s = hak_meta_new(&recycled, sizeof *s);
    if (!s)
        return NULL;
    s->base = hak_space_alloc(count, align, header);
    if (!s->base) {
        hak_meta_recycle(&recycled, s);
        return NULL;
    }
    s->free = ALL_PAGES;
    s->count = (unsigned)count;
    if (hak_options.log_registry)
        hak_log("SUPER_REG register %p, %zu KiB", (void *)s->base, count * HAK_SUPERSLAB / HAK_KIB);
    return s;
}

void hak_superslab_unmap(struct superslab *s)
{
    HAK_ASSERT(!s->dirty && !s->longest);
    if (hak_options.log_registry)
        hak_log("SUPER_REG unregister %p", (void *)s->base);
    hak_space_free(s->base, s->count, hak_parts.release->cause);
    hak_meta_recycle(&recycled, s);
}
