/* SPDX-License-Identifier: MIT
 * See arena.h. */
#include "arena.h"

#include "core/base/bits.h"
#include "core/parts/parts.h"
#include "core/pages/budget.h"
#include "core/os/meta.h"

#define WORDS 4
#define MAX_PAGES (WORDS * 64) /* 16 MiB, the largest HAKMEM_POOL_TLS_ARENA_MB_MAX */

struct chunk {
    struct chunk *next, *prev; /* of its arena, or of the orphans */
    struct arena *arena;       /* NULL: an orphan */
    struct chunk *all_next, *all_prev;
    char *base;
    void *region; /* the backend's, to give the run back with */
    unsigned pages, free_pages;
    uint64_t free[WORDS], dirty[WORDS];
    uint64_t dirty_since_ms; /* when a page became dirty with none before */
};

static struct hak_lock lock = HAK_LOCK_INIT(HAK_RANK_FRONTEND);
static struct chunk *orphans, *all_chunks;
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
    for (unsigned i = 0; i + pages <= c->pages; i++) {
        unsigned n = run_length(c->free, i, c->pages);
        if (n >= pages)
            return i;
        i += n;
    }
    return MAX_PAGES;
}

static bool is_dirty(const struct chunk *c)
{
    uint64_t any = 0;
    for (unsigned w = 0; w < WORDS; w++)
        any |= c->dirty[w];
    return any != 0;
}

static struct hak_slab *describe(struct chunk *c, unsigned first, unsigned pages)
{
    struct hak_slab *slab = hak_space_page(c->base + first * HAK_PAGE);
    slab->base = c->base + first * HAK_PAGE;
    slab->pages = (uint16_t)pages;
    slab->chunk = c;
    hak_space_describe(slab, 0, pages);
    return slab;
}

static struct hak_slab *take_from(struct chunk *c, unsigned pages)
{
    unsigned first = find_run(c, pages);
    if (first == MAX_PAGES)
        return NULL;
    hak_bits_set(c->free, first, pages, false);
    hak_budget_take((pages - hak_bits_count(c->dirty, first, pages)) * HAK_PAGE);
    hak_bits_set(c->dirty, first, pages, false);
    c->free_pages -= pages;
    slabs_taken++;
    return describe(c, first, pages);
}

/* --- lists ---------------------------------------------------------------------------------------------- */

static void link_chunk(struct chunk **list, struct chunk *c, struct arena *arena)
{
    c->arena = arena;
    c->prev = NULL;
    c->next = *list;
    if (*list)
        (*list)->prev = c;
    *list = c;
}

static void unlink_chunk(struct chunk *c)
{
    *(c->prev ? &c->prev->next : c->arena ? &c->arena->chunks : &orphans) = c->next;
    if (c->next)
        c->next->prev = c->prev;
    c->next = c->prev = NULL;
}

/* --- chunks --------------------------------------------------------------------------------------------- */

static struct chunk *map_chunk(size_t bytes)
{
    bool zeroed;
    unsigned pages = (unsigned)(bytes / HAK_PAGE);
    struct chunk *c = hak_meta_new(&recycled_chunks, sizeof *c);
    if (!c)
        return NULL;
    struct hak_slab *run = hak_parts.backend->acquire_run(pages, 1, &zeroed);
    if (!run) {
        hak_meta_recycle(&recycled_chunks, c);
        return NULL;
    }
    c->base = run->base;
    c->region = run->region;
    c->pages = c->free_pages = pages;
    hak_bits_set(c->free, 0, pages, true);
    if (zeroed)
        hak_budget_give(bytes); /* nothing is touched yet */
    else
        hak_bits_set(c->dirty, 0, pages, true);
    c->dirty_since_ms = hak_clock_ms();
    hak_space_forget(run, 0, pages);
    c->all_next = all_chunks;
    if (all_chunks)
        all_chunks->all_prev = c;
    all_chunks = c;
    chunks_mapped++;
    live_chunks++;
    chunk_bytes += bytes;
    return c;
}

/* Near a limit a smaller chunk may still be had. */
static struct chunk *grow(struct arena *a, unsigned pages)
{
    size_t bytes = hak_min(first_bytes << a->level, most_bytes);
    struct chunk *c = map_chunk(bytes);
    if (c && a->level < levels)
        a->level++;
    if (!c)
        c = map_chunk(pages * HAK_PAGE);
    if (c)
        link_chunk(&a->chunks, c, a);
    return c;
}

static void return_chunk(struct chunk *c)
{
    unlink_chunk(c);
    *(c->all_prev ? &c->all_prev->all_next : &all_chunks) = c->all_next;
    if (c->all_next)
        c->all_next->all_prev = c->all_prev;
    struct hak_slab *run = hak_space_page(c->base);
    run->base = c->base;
    run->pages = (uint16_t)c->pages;
    run->region = c->region;
    /* the backend gives up the whole run */
    hak_budget_take((c->pages - hak_bits_count(c->dirty, 0, c->pages)) * HAK_PAGE);
    hak_parts.backend->release(run);
    chunks_returned++;
    live_chunks--;
    chunk_bytes -= c->pages * HAK_PAGE;
    hak_meta_recycle(&recycled_chunks, c);
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

/* An arena keeps its only chunk when that becomes empty; one orphan stays for the next thread. */
static bool may_keep(const struct chunk *c)
{
    return !c->next && (c->arena ? c->arena->chunks : orphans) == c;
}

void hak_arena_put(struct hak_slab *slab)
{
    struct chunk *c = slab->chunk;
    unsigned pages = slab->pages;
    hak_lock_acquire(&lock);
    unsigned first = (unsigned)((size_t)(slab->base - c->base) / HAK_PAGE);
    HAK_CHECK(!hak_bit(c->free, first));
    hak_space_forget(slab, 0, pages);
    if (!is_dirty(c))
        c->dirty_since_ms = hak_clock_ms();
    hak_bits_set(c->free, first, pages, true);
    hak_bits_set(c->dirty, first, pages, true);
    c->free_pages += pages;
    slabs_put++;
    if (c->free_pages == c->pages && !may_keep(c))
        return_chunk(c);
    hak_lock_release(&lock);
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
        if (c->free_pages == c->pages && !may_keep(c))
            return_chunk(c);
    }
    hak_meta_recycle(&recycled_arenas, a);
    t->local[place] = NULL;
    hak_lock_release(&lock);
}

/* --- giving pages back ---------------------------------------------------------------------------------- */

static size_t clean_chunk(struct chunk *c, enum hak_cause cause)
{
    struct iovec ranges[MAX_PAGES / 2];
    size_t n = 0, wanted = 0;
    for (unsigned i = 0; i < c->pages; i++) {
        unsigned pages = run_length(c->dirty, i, c->pages);
        if (!pages)
            continue;
        ranges[n++] = (struct iovec){c->base + i * HAK_PAGE, pages * HAK_PAGE};
        wanted += pages * HAK_PAGE;
        i += pages;
    }
    size_t returned = n ? hak_parts.release->release(ranges, n, cause) : 0;
    if (returned == wanted) {
        hak_bits_set(c->dirty, 0, c->pages, false);
        hak_budget_give(wanted);
    }
    return returned;
}

size_t hak_arena_clean(uint64_t since_ms, enum hak_cause cause)
{
    size_t returned = 0;
    hak_lock_acquire(&lock);
    for (struct chunk *c = all_chunks; c; c = c->all_next)
        if (is_dirty(c) && c->dirty_since_ms <= since_ms) {
            returned += clean_chunk(c, cause);
            c->dirty_since_ms = hak_clock_ms();
        }
    hak_lock_release(&lock);
    return returned;
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
    hak_stats_number(w, "lock_taken", HAK_LOAD_RELAXED(&lock.taken));
    hak_lock_release(&lock);
}

void hak_arena_fork_prepare(void)
{
    hak_lock_acquire(&lock);
}

/* The other threads' arenas stay as they are: their chunks serve nobody, and are freed when their blocks are. */
void hak_arena_fork_done(bool in_child)
{
    (void)in_child;
    hak_lock_release(&lock);
}
