/* SPDX-License-Identifier: MIT
 * See superslab.h. */
#include "superslab.h"

#include "core/base/list.h"
#include "core/plugin.h"

/* [kind][longest run]: superslabs with free pages; kind 1 holds blocks with headers. */
static struct superslab *index_lists[2][65];
static uint64_t index_bits[2]; /* bit n-1: index_lists[..][n] is not empty */
static struct hak_meta_list recycled;
HAK_LOCK(hak_pool_lock, HAK_RANK_BACKEND);
struct hak_dirty_queue hak_pool_dirty = {.unwanted_per_ms = HAK_DIRTY_UNWANTED_PER_MS};

static unsigned kind_of(const struct superslab *s)
{
    return hak_tag_in_header_zone(s->pages.base);
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
    HAK_LIST_REMOVE(&index_lists[kind][n], s);
    if (!index_lists[kind][n])
        index_bits[kind] &= ~((uint64_t)1 << (n - 1));
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
    HAK_LIST_PUSH(&index_lists[kind][n], s);
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

/* --- pages --------------------------------------------------------------------------------------- */

bool hak_superslab_take_at(struct superslab *s, unsigned first, unsigned pages, bool lent, bool *zero)
{
    uint64_t mask = superslab_run(first, pages);
    if (first + pages > HAK_SUPERSLAB_PAGES || (s->free & mask) != mask)
        return false;
    s->free &= ~mask;
    *zero = hak_dirty_take(&s->pages, first, pages, lent);
    reindex(s);
    return true;
}

unsigned hak_superslab_fit(const struct superslab *s, unsigned pages)
{
    uint64_t starts = run_starts(s->free, pages);
    HAK_CHECK(starts);
    return (unsigned)__builtin_ctzll(starts);
}

void hak_superslab_put(struct superslab *s, unsigned first, unsigned pages, bool dirty)
{
    uint64_t mask = superslab_run(first, pages);
    HAK_CHECK(!(s->free & mask));
    s->free |= mask;
    hak_dirty_put(&s->pages, first, pages, dirty);
    reindex(s);
}

void hak_superslab_hide(struct superslab *s, uint64_t pages)
{
    s->free &= ~pages;
    if (!s->cached)
        reindex(s);
}

void hak_superslab_show(struct superslab *s, uint64_t pages)
{
    s->free |= pages;
    if (!s->cached)
        reindex(s);
}

bool hak_superslab_take_whole(struct superslab *s)
{
    s->whole = true;
    s->free = 0;
    return hak_dirty_take(&s->pages, 0, HAK_SUPERSLAB_PAGES, true);
}

void hak_superslab_put_whole(struct superslab *s, bool dirty)
{
    s->whole = false;
    s->free = ALL_PAGES;
    hak_dirty_put(&s->pages, 0, HAK_SUPERSLAB_PAGES, dirty);
}

/* --- superslabs ---------------------------------------------------------------------------------- */

struct superslab *hak_superslab_map(size_t count, size_t align, bool header)
{
    char *base = hak_space_alloc(count, align, header);
    if (!base)
        return NULL;
    hak_lock_acquire(&hak_pool_lock);
    struct superslab *s = hak_meta_new(&recycled, sizeof *s);
    if (s) {
        hak_dirty_open(&s->pages, &hak_pool_dirty, base, HAK_SUPERSLAB_PAGES, count * HAK_PAGE, s->bits, true);
        s->free = ALL_PAGES;
        s->count = (unsigned)count;
    }
    hak_lock_release(&hak_pool_lock);
    if (!s)
        hak_space_free(base, count, HAK_CAUSE_superslab_map);
    else if (hak_options.log_registry)
        hak_log("SUPER_REG register %p, %zu KiB", (void *)base, count * HAK_SUPERSLAB / HAK_KIB);
    return s;
}

void hak_superslab_unmap(struct superslab *s)
{
    HAK_ASSERT(!s->pages.dirty && !s->longest);
    if (hak_options.log_registry)
        hak_log("SUPER_REG unregister %p", (void *)s->pages.base);
    hak_space_free(s->pages.base, s->count, hak_parts.release->cause);
    hak_meta_recycle(&recycled, s);
}
