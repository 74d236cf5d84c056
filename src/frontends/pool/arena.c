/* SPDX-License-Identifier: MIT
 * See arena.h. */
#include "arena.h"

#include "core/base/bits.h"
#include "core/base/list.h"
#include "core/plugin.h"
#include "core/parts/purge.h"

#define WORDS 4
#define MAX_PAGES (WORDS * 64) /* 16 MiB, the largest HAKMEM_POOL_TLS_ARENA_MB_MAX */

struct chunk {
    struct hak_dirty pages; /* first: an account leads to its chunk */
    uint64_t bits[HAK_DIRTY_WORDS(MAX_PAGES)];
    struct chunk *next, *prev; /* of its arena, of the orphans, or of those to be returned */
    struct arena *arena;       /* NULL: an orphan */
    void *region;              /* the backend's, to give the run back with */
    unsigned free_pages;
    bool zero; /* to be returned: reads as zero */
    uint64_t free[WORDS];
};

static HAK_LOCK(lock, HAK_RANK_FRONTEND);
static HAK_LOCK(purging, HAK_RANK_PURGE);
static struct hak_dirty_queue dirty = {.unwanted_per_ms = HAK_DIRTY_UNWANTED_PER_MS};
static struct chunk *orphans;
static struct chunk *returning; /* wholly free: they go back to the backend when the lock is let go of */
static struct hak_meta_list recycled_chunks, recycled_arenas;
static unsigned place;
static size_t first_bytes, most_bytes;
static unsigned levels;
static uint64_t chunks_mapped, chunks_adopted, chunks_returned, chunk_bytes, live_chunks, slabs_taken, slabs_put;

int hak_arena_init(const struct hak_option_values *options, unsigned p)
{
    place = p;
    most_bytes = options->pool_mb_max * HAK_MIB;
    first_bytes = hak_min(options->pool_mb_init * HAK_MIB, most_bytes);
    levels = options->pool_growth;
    return 0;
}

/* --- pages of a chunk --------------------------------------------------------------------------------- */

static unsigned run_length(const uint64_t *words, unsigned first, unsigned end)
{
    unsigned i = first;
    while (i < end && hak_bit(words, i))
        i++;
    return i - first;
}

/* The first run of free pages that is long enough, or MAX_PAGES. */
static unsigned find_run(const struct chunk *c, unsigned pages)
{
    if (c->free_pages < pages)
        return MAX_PAGES;
    for (unsigned i = 0; i + pages <= c->pages.pages; i++) {
        unsigned n = run_length(c->free, i, c->pages.pages);
        if (n >= pages)
            return i;
        i += n;
    }
    return MAX_PAGES;
}

static struct hak_slab *describe(struct chunk *c, unsigned first, unsigned pages)
{
    struct hak_slab *slab = hak_space_run(c->pages.base + first * HAK_PAGE, pages);
    slab->chunk = c;
    return slab;
}

static struct hak_slab *take_from(struct chunk *c, unsigned pages)
{
    unsigned first = find_run(c, pages);
    if (first == MAX_PAGES)
        return NULL;
    hak_bits_set(c->free, first, pages, false);
    hak_dirty_take(&c->pages, first, pages, false);
    c->free_pages -= pages;
    slabs_taken++;
    return describe(c, first, pages);
}

/* --- lists ---------------------------------------------------------------------------------------------- */

static void link_chunk(struct chunk **list, struct chunk *c, struct arena *arena)
{
    c->arena = arena;
    HAK_LIST_PUSH(list, c);
}

static void unlink_chunk(struct chunk *c)
{
    HAK_LIST_REMOVE(c->arena ? &c->arena->chunks : &orphans, c);
}

/* --- chunks --------------------------------------------------------------------------------------------- */

static struct chunk *new_chunk(struct arena *a, struct hak_slab *run, bool zero)
{
    struct chunk *c = hak_meta_new(&recycled_chunks, sizeof *c);
    if (!c)
        return NULL;
    hak_dirty_open(&c->pages, &dirty, run->base, run->pages, HAK_PAGE, c->bits, zero);
    c->region = run->region;
    c->free_pages = run->pages;
    hak_bits_set(c->free, 0, run->pages, true);
    hak_space_forget(run, 0, run->pages);
    link_chunk(&a->chunks, c, a);
    chunks_mapped++;
    live_chunks++;
    chunk_bytes += c->free_pages * HAK_PAGE;
    return c;
}

/* The lock is let go of while the backend, which may ask the kernel, supplies the run. */
static struct chunk *map_chunk(struct arena *a, size_t bytes)
{
    bool zero;
    hak_lock_release(&lock);
    struct hak_slab *run = hak_parts.backend->acquire_run(bytes / HAK_PAGE, 1, &zero);
    hak_lock_acquire(&lock);
    struct chunk *c = run ? new_chunk(a, run, zero) : NULL;
    if (run && !c) {
        hak_lock_release(&lock);
        hak_parts.backend->release(run);
        hak_lock_acquire(&lock);
    }
    return c;
}

/* Near a limit a smaller chunk may still be had. */
static struct chunk *grow(struct arena *a, unsigned pages)
{
    struct chunk *c = map_chunk(a, hak_min(first_bytes << a->level, most_bytes));
    if (c && a->level < levels)
        a->level++;
    return c ? c : map_chunk(a, pages * HAK_PAGE);
}

/* An arena keeps its only chunk when that becomes empty; one orphan stays for the next thread. */
static bool may_keep(const struct chunk *c)
{
    return !c->next && (c->arena ? c->arena->chunks : orphans) == c;
}

static void return_if_free(struct chunk *c)
{
    if (c->free_pages != c->pages.pages || may_keep(c))
        return;
    unlink_chunk(c);
    c->zero = hak_dirty_return(&c->pages);
    c->next = returning;
    returning = c;
    chunks_returned++;
    live_chunks--;
    chunk_bytes -= c->pages.pages * HAK_PAGE;
}

/* Its run, as it was lent. */
static struct hak_slab *run_of(struct chunk *c)
{
    struct hak_slab *run = hak_space_run(c->pages.base, c->pages.pages);
    run->region = c->region;
    if (c->zero)
        HAK_STORE_RELAXED(&run->word, HAK_SLAB_RETURNED);
    return run;
}

/* Lets go of the lock, and gives back to the backend what is to be returned. */
static void unlock_and_return(void)
{
    struct chunk *c = returning;
    returning = NULL;
    hak_lock_release(&lock);
    for (struct chunk *next; c; c = next) {
        next = c->next;
        hak_parts.backend->release(run_of(c));
        hak_lock_acquire(&lock);
        hak_meta_recycle(&recycled_chunks, c);
        hak_lock_release(&lock);
    }
}

/* --- taking and giving back ----------------------------------------------------------------------------- */

static struct arena *arena_of(struct hak_thread *t)
{
    if (!t->local[place])
        t->local[place] = hak_meta_new(&recycled_arenas, sizeof(struct arena));
    return t->local[place];
}

struct arena *hak_arena_of(struct hak_thread *t)
{
    hak_lock_acquire(&lock);
    struct arena *a = arena_of(t);
    hak_lock_release(&lock);
    return a;
}

static struct hak_slab *take_from_list(struct chunk *list, unsigned pages, struct chunk **found)
{
    for (struct chunk *c = list; c; c = c->next) {
        struct hak_slab *slab = take_from(c, pages);
        if (slab) {
            *found = c;
            return slab;
        }
    }
    return NULL;
}

static struct hak_slab *take(struct arena *a, unsigned pages)
{
    struct chunk *c;
    struct hak_slab *slab = take_from_list(a->chunks, pages, &c);
    if (slab)
        return slab;
    slab = take_from_list(orphans, pages, &c);
    if (slab) {
        unlink_chunk(c);
        link_chunk(&a->chunks, c, a);
        chunks_adopted++;
        return slab;
    }
    c = grow(a, pages);
    return c ? take_from(c, pages) : NULL;
}

struct hak_slab *hak_arena_take(struct hak_thread *t, unsigned pages)
{
    hak_lock_acquire(&lock);
    struct arena *a = arena_of(t);
    struct hak_slab *slab = a ? take(a, pages) : NULL;
    hak_lock_release(&lock);
    return slab;
}

/* --- pages back to the kernel --------------------------------------------------------------------------- */

/* The account is the chunk's first member. */
static struct chunk *chunk_of(struct hak_dirty *pages)
{
    return (struct chunk *)pages;
}

static bool claim(struct hak_dirty *d, unsigned first, unsigned pages)
{
    struct chunk *c = chunk_of(d);
    hak_bits_set(c->free, first, pages, false);
    c->free_pages -= pages;
    return true;
}

static void settle(struct hak_dirty *d, unsigned first, unsigned pages)
{
    struct chunk *c = chunk_of(d);
    hak_bits_set(c->free, first, pages, true);
    c->free_pages += pages;
    return_if_free(c);
}

static enum hak_cause cause_of(const struct hak_dirty *d)
{
    (void)d;
    return HAK_CAUSE_purge;
}

static struct hak_purger purger = {
    .queue = &dirty,
    .lock = &lock,
    .purging = &purging,
    .claim = claim,
    .settle = settle,
    .cause = cause_of,
};

/* What a purge left to be returned. */
static void return_free(void)
{
    hak_lock_acquire(&lock);
    unlock_and_return();
}

bool hak_arena_tick(uint64_t now_ms)
{
    bool more = hak_purge_tick_of(&purger, now_ms);
    return_free();
    return more;
}

size_t hak_arena_trim(void)
{
    size_t bytes = hak_purge_trim(&purger, 0);
    return_free();
    return bytes;
}

void hak_arena_put(struct hak_slab *slab)
{
    struct chunk *c = slab->chunk;
    unsigned pages = slab->pages, first = (unsigned)((size_t)(slab->base - c->pages.base) / HAK_PAGE);
    hak_lock_acquire(&lock);
    HAK_CHECK(!hak_bit(c->free, first));
    hak_space_forget(slab, 0, pages);
    hak_bits_set(c->free, first, pages, true);
    hak_dirty_put(&c->pages, first, pages, true);
    c->free_pages += pages;
    slabs_put++;
    return_if_free(c);
    bool due = hak_purge_is_due(&purger);
    unlock_and_return();
    if (due) {
        hak_purge_due(&purger, SIZE_MAX);
        return_free();
    }
}

void hak_arena_abandon(struct hak_thread *t)
{
    struct arena *a = t->local[place];
    struct chunk *c;
    if (!a)
        return;
    hak_lock_acquire(&lock);
    while ((c = a->chunks)) {
        unlink_chunk(c);
        link_chunk(&orphans, c, NULL);
        return_if_free(c);
    }
    hak_meta_recycle(&recycled_arenas, a);
    t->local[place] = NULL;
    unlock_and_return();
}

/* --- the rest -------------------------------------------------------------------------------------------- */

void hak_arena_stats(struct hak_stats_writer *w)
{
    hak_lock_acquire(&lock);
    hak_stats_number(w, "chunks", live_chunks);
    hak_stats_number(w, "chunk_bytes", chunk_bytes);
    hak_stats_number(w, "chunks_mapped", chunks_mapped);
    hak_stats_number(w, "chunks_adopted", chunks_adopted);
    hak_stats_number(w, "chunks_returned", chunks_returned);
    hak_stats_number(w, "slabs_taken", slabs_taken);
    hak_stats_number(w, "slabs_put", slabs_put);
    hak_purge_stats(&purger, w);
    hak_stats_number(w, "lock_taken", HAK_LOAD_RELAXED(&lock.taken));
    hak_lock_release(&lock);
}
