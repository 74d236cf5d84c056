/* SPDX-License-Identifier: MIT
 * See reserve.h. The word of a reserve, which is changed by compare-and-swap, holds:
 * bits 0..15 pages left | 16 they read as zero and are not charged | 17 used lately |
 *   24..63 number of the first
 * The reserve's thread takes slabs off the front; a thread that purges takes all that is left. */
#include "reserve.h"

#include "core/base/list.h"
#include "core/pages/page_heap.h"
#include "core/parts/purge.h"
#include "core/plugin.h"

#define ZERO ((uint64_t)1 << 16)
#define USED ((uint64_t)1 << 17)
#define NUMBER_SHIFT 24

/* Held while pages move between the page heap and a reserve, so that no fork happens in between. */
static HAK_LOCK(reserves_lock, HAK_RANK_FRONTEND);
static struct reserve *reserves, *last_reserve; /* all reserves; the lock protects this */
static unsigned reserve_count;                  /* the lock protects this, too */
static struct hak_meta_list recycled_reserves;
static unsigned part_index, levels;
static size_t first_pages, most_pages;
static _Atomic(uint64_t) batches, batch_bytes, returned, slabs;

int hak_reserve_init(const struct hak_option_values *options, unsigned p)
{
    part_index = p;
    most_pages = options->pool_mb_max * HAK_MIB / HAK_PAGE;
    first_pages = hak_min(options->pool_mb_init * HAK_MIB / HAK_PAGE, most_pages);
    levels = options->pool_growth;
    return 0;
}

static size_t pages_in_word(uint64_t word)
{
    return word & 0xffff;
}

static char *base_of(uint64_t word)
{
    return (char *)(uintptr_t)(word >> NUMBER_SHIFT << HAK_PAGE_LG);
}

struct reserve *hak_reserve_of(struct hak_heap *heap)
{
    struct reserve *r = heap->local[part_index];
    if (r)
        return r;
    hak_lock_acquire(&reserves_lock);
    if ((r = heap->local[part_index] = hak_meta_new(&recycled_reserves, sizeof *r))) {
        HAK_QUEUE_ADD(&reserves, &last_reserve, r);
        reserve_count++;
    }
    hak_lock_release(&reserves_lock);
    return r;
}

/* --- taking --------------------------------------------------------------------------------------------- */

/* Takes `pages` pages off the front; NULL if fewer are left. */
static char *cut_from_run(struct reserve *r, unsigned pages)
{
    uint64_t word = HAK_LOAD_RELAXED(&r->word);
    while (pages_in_word(word) >= pages) {
        uint64_t rest = word - pages + ((uint64_t)pages << NUMBER_SHIFT);
        if (!HAK_CAS_ACQ_REL(&r->word, &word, rest | USED))
            continue;
        if (word & ZERO)
            hak_budget_take(pages * HAK_PAGE);
        return base_of(word);
    }
    return NULL;
}

/* Returns the rest to the page heap. The caller holds the lock. */
static void give_back(struct reserve *r)
{
    uint64_t word = HAK_EXCHANGE_ACQ_REL(&r->word, 0);
    if (!pages_in_word(word))
        return;
    HAK_ADD_RELAXED(&returned, 1);
    hak_pages_put_rest(base_of(word), pages_in_word(word), word & ZERO);
}

/* Takes dirty pages, which are resident already: the longest run of at most `most`. */
static bool take_dirty(struct hak_page_request *b, size_t most, unsigned least)
{
    for (b->pages = hak_min(most, HAK_SUPERSLAB_PAGES); b->pages >= least; b->pages /= 2)
        if (hak_pages_take(b, HAK_PAGES_DIRTY))
            return true;
    return false;
}

static bool take_others(struct hak_page_request *b, size_t pages)
{
    b->pages = pages;
    b->until = HAK_PAGES_MAPPED;
    return hak_pages_take(b, HAK_PAGES_WHOLE);
}

/* Takes a batch, each larger than the one before. */
static bool take_batch(struct reserve *r, struct hak_page_request *b, size_t pages)
{
    if (!take_others(b, pages))
        return false;
    if (r->level < levels)
        r->level++;
    HAK_ADD_RELAXED(&batches, 1);
    HAK_ADD_RELAXED(&batch_bytes, pages * HAK_PAGE);
    return true;
}

/* Near a limit, pages for one slab may still be available. The caller holds the lock. */
static bool refill_reserve(struct reserve *r, unsigned pages)
{
    struct hak_page_request b = {.slab = true, .uncharged = true};
    size_t most = hak_max(pages, hak_min(first_pages << r->level, most_pages));
    give_back(r);
    if (!take_dirty(&b, most, pages) && !take_batch(r, &b, most) && !take_others(&b, pages))
        return false;
    uint64_t number = (uintptr_t)b.base >> HAK_PAGE_LG;
    HAK_STORE_RELEASE(&r->word, number << NUMBER_SHIFT | (b.zero ? ZERO : 0) | USED | b.pages);
    return true;
}

struct hak_slab *hak_reserve_take(struct hak_heap *heap, unsigned pages)
{
    struct reserve *r = hak_reserve_of(heap);
    char *base = r ? cut_from_run(r, pages) : NULL;
    if (r && !base) {
        hak_lock_acquire(&reserves_lock);
        base = refill_reserve(r, pages) ? cut_from_run(r, pages) : NULL;
        hak_lock_release(&reserves_lock);
    }
    if (!base)
        return NULL;
    HAK_ADD_RELAXED(&slabs, 1);
    return hak_pages_describe(base, pages, true);
}

/* --- releasing ------------------------------------------------------------------------------------------ */

void hak_reserve_end(struct hak_heap *heap)
{
    struct reserve *r = heap->local[part_index];
    if (!r)
        return;
    heap->local[part_index] = NULL;
    hak_lock_acquire(&reserves_lock);
    give_back(r);
    HAK_QUEUE_REMOVE(&reserves, &last_reserve, r);
    reserve_count--;
    hak_meta_recycle(&recycled_reserves, r);
    hak_lock_release(&reserves_lock);
    hak_pages_bound();
}

static void visit(struct reserve *r, uint64_t now_ms, bool all)
{
    HAK_QUEUE_REMOVE(&reserves, &last_reserve, r);
    HAK_QUEUE_ADD(&reserves, &last_reserve, r);
    r->visited_ms = now_ms;
    if (all || !(HAK_AND_RELAXED(&r->word, ~USED) & USED))
        give_back(r);
}

void hak_reserve_age(uint64_t now_ms, uint64_t delay_ms, unsigned most)
{
    bool visits = true;
    for (unsigned n = 0; visits; n++) { /* the lock is held for one visit at a time */
        hak_lock_acquire(&reserves_lock);
        visits = n < hak_min(most, reserve_count) && hak_clock_age(reserves->visited_ms, now_ms) >= delay_ms;
        if (visits)
            visit(reserves, now_ms, !delay_ms);
        hak_lock_release(&reserves_lock);
    }
    hak_pages_bound();
}

/* --- the rest --------------------------------------------------------------------------------------------- */

void hak_reserve_stats(struct hak_stats_writer *w)
{
    uint64_t held = 0, pages = 0;
    hak_lock_acquire(&reserves_lock);
    for (const struct reserve *r = reserves; r; r = r->next) {
        pages += pages_in_word(HAK_LOAD_RELAXED(&r->word));
        held += pages_in_word(HAK_LOAD_RELAXED(&r->word)) != 0;
    }
    hak_lock_release(&reserves_lock);
    hak_stats_number(w, "chunks", held);
    hak_stats_number(w, "reserved_bytes", pages * HAK_PAGE);
    hak_stats_number(w, "chunk_bytes", HAK_LOAD_RELAXED(&batch_bytes));
    hak_stats_number(w, "chunks_mapped", HAK_LOAD_RELAXED(&batches));
    hak_stats_number(w, "chunks_returned", HAK_LOAD_RELAXED(&returned));
    hak_stats_number(w, "slabs_taken", HAK_LOAD_RELAXED(&slabs));
    hak_stats_number(w, "lock_taken", HAK_LOAD_RELAXED(&reserves_lock.taken));
}
