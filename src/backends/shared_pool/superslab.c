/* SPDX-License-Identifier: MIT
 * See superslab.h. */
#include "superslab.h"

#include "core/dispatch.h"
#include "core/log.h"
#include "core/meta.h"

/* [kind][longest run]: regions with free pages; kind 1 holds blocks with headers. */
static HAK_IN_DATA struct superslab *index_lists[2][65];
static uint64_t index_bits[2]; /* bit n-1: index_lists[..][n] is not empty */
static struct superslab *dirty_oldest, *dirty_newest;
static size_t dirty_pages;
static struct superslab *unused_descriptors;

static unsigned kind_of(const struct superslab *s)
{
    return hak_space_in_header_zone(s->base);
}

static uint64_t run_mask(unsigned first, unsigned pages)
{
    return (pages == 64 ? ~(uint64_t)0 : ((uint64_t)1 << pages) - 1) << first;
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

struct superslab *superslab_find(unsigned pages, bool header)
{
    uint64_t fitting = index_bits[header] >> (pages - 1);
    return fitting ? index_lists[header][pages + (unsigned)__builtin_ctzll(fitting)] : NULL;
}

void superslab_withdraw(struct superslab *s)
{
    unindex(s);
}

void superslab_offer(struct superslab *s)
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
    s->dirty_since_ms = hak_os_coarse_ms();
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
    s->dirty = dirty;
    if (dirty)
        dirty_list(s);
    else
        undirty_list(s);
}

void superslab_put_whole(struct superslab *s)
{
    s->whole = false;
    s->free = ALL_PAGES;
    set_dirty(s, ALL_PAGES);
}

struct superslab *superslab_oldest_dirty(void)
{
    return dirty_oldest;
}

size_t superslab_dirty_bytes(void)
{
    return dirty_pages * HAK_PAGE;
}

static unsigned dirty_ranges(const struct superslab *s, struct iovec *ranges)
{
    unsigned n = 0;
    for (uint64_t bits = s->dirty; bits;) {
        unsigned first = (unsigned)__builtin_ctzll(bits);
        uint64_t rest = ~(bits >> first);
        unsigned pages = rest ? (unsigned)__builtin_ctzll(rest) : 64 - first;
        ranges[n].iov_base = s->base + first * HAK_PAGE;
        ranges[n++].iov_len = pages * HAK_PAGE;
        bits &= ~run_mask(first, pages);
    }
    return n;
}

size_t superslab_clean(struct superslab *s, enum hak_cause cause)
{
    struct iovec ranges[32];
    size_t wanted = weight(s, s->dirty) * HAK_PAGE;
    unsigned n = 1;
    if (s->count > 1)
        ranges[0] = (struct iovec){s->base, wanted};
    else
        n = dirty_ranges(s, ranges);
    size_t returned = wanted ? hak_dispatch.release->release(ranges, n, cause) : 0;
    if (returned == wanted) {
        s->returned |= s->dirty;
        s->returned_ms = hak_os_coarse_ms();
        s->returned_for = cause;
        set_dirty(s, 0);
    } else { /* refused, for locked pages say: they stay dirty, and are asked for again later */
        undirty_list(s);
        dirty_list(s);
    }
    return returned;
}

/* --- pages --------------------------------------------------------------------------------------- */

static bool commit(const struct superslab *s, unsigned first, unsigned pages)
{
    return hak_space_commit(s->base + first * HAK_PAGE, pages * HAK_PAGE, HAK_CAUSE_superslab_map) == 0;
}

/* Pages that are taken again: were they given back just now? */
static void note_regret(struct superslab *s, uint64_t taken)
{
    uint64_t again = s->returned & taken;
    if (again && hak_os_coarse_ms() - s->returned_ms < HAK_REGRET_MS)
        hak_os_regret(s->returned_for, weight(s, again) * HAK_PAGE);
    s->returned &= ~taken;
}

bool superslab_take_at(struct superslab *s, unsigned first, unsigned pages)
{
    uint64_t mask = run_mask(first, pages);
    if (first + pages > HAK_SUPERSLAB_PAGES || (s->free & mask) != mask || !commit(s, first, pages))
        return false;
    s->free &= ~mask;
    set_dirty(s, s->dirty & ~mask);
    note_regret(s, mask);
    reindex(s);
    return true;
}

unsigned superslab_fit(const struct superslab *s, unsigned pages)
{
    uint64_t starts = run_starts(s->free, pages);
    HAK_CHECK(starts);
    return (unsigned)__builtin_ctzll(starts);
}

bool superslab_is_clean(const struct superslab *s, unsigned first, unsigned pages)
{
    return !(s->dirty & run_mask(first, pages));
}

void superslab_take_whole(struct superslab *s)
{
    s->whole = true;
    s->free = 0;
    set_dirty(s, 0);
    note_regret(s, ALL_PAGES);
}

void superslab_put(struct superslab *s, unsigned first, unsigned pages, bool dirty)
{
    uint64_t mask = run_mask(first, pages);
    HAK_CHECK(!(s->free & mask));
    s->free |= mask;
    if (dirty)
        set_dirty(s, s->dirty | mask);
    reindex(s);
}

/* --- regions ------------------------------------------------------------------------------------- */

static struct superslab *new_descriptor(void)
{
    struct superslab *s = unused_descriptors;
    if (!s)
        return hak_meta_alloc(sizeof *s);
    unused_descriptors = s->next;
    *s = (struct superslab){0};
    return s;
}

struct superslab *superslab_map(size_t count, size_t align, bool header)
{
    struct superslab *s = new_descriptor();
    if (!s)
        return NULL;
    s->base = hak_space_alloc(count, align, header);
    if (!s->base) {
        s->next = unused_descriptors;
        unused_descriptors = s;
        return NULL;
    }
    s->free = ALL_PAGES;
    s->count = (unsigned)count;
    if (hak_dispatch.options.log_registry)
        hak_log("SUPER_REG register %p, %zu KiB", (void *)s->base, count * HAK_SUPERSLAB / HAK_KIB);
    return s;
}

void superslab_unmap(struct superslab *s)
{
    HAK_ASSERT(!s->dirty && !s->longest);
    if (hak_dispatch.options.log_registry)
        hak_log("SUPER_REG unregister %p", (void *)s->base);
    hak_space_free(s->base, s->count);
    s->next = unused_descriptors;
    unused_descriptors = s;
}
