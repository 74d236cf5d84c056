/* SPDX-License-Identifier: MIT
 * See free_runs.h. The runs of a set are kept on lists by length: one list for each length up to 16 pages, then 8 lists
 * for each doubling. One word tells which lists are not empty, so a search for the shortest sufficient run reads that
 * word first. */
#include "free_runs.h"

#include "core/base/list.h"

#define LENGTHS 64u
#define FIT_SCAN 16u /* runs of a list that a search for the best fit visits */

static struct free_runs {
    struct hak_slab *lists[LENGTHS];
    uint64_t bits; /* bit i: list i is not empty */
} free_runs[HAK_NSETS];
static size_t runs;

/* --- lists ---------------------------------------------------------------------------------------------- */

HAK_INLINE unsigned length_class(size_t pages)
{
    if (pages <= 16)
        return (unsigned)pages - 1;
    unsigned lg = 63 - (unsigned)__builtin_clzll(pages);
    return (unsigned)hak_min(LENGTHS - 1, 16 + (lg - 4) * 8 + (pages >> (lg - 3)) % 8);
}

/* `free` holds the address of a free run; a descriptor with `base` set would pass for a slab. */
static void link_run(unsigned set, struct hak_slab *run, char *base, size_t pages)
{
    unsigned length = length_class(pages);
    run->free = base;
    run->run_pages = pages;
    run[pages - 1].run_first = pages - 1;
    runs++;
    HAK_LIST_PUSH(&free_runs[set].lists[length], run);
    free_runs[set].bits |= (uint64_t)1 << length;
}

static void unlink_run(unsigned set, struct hak_slab *run)
{
    unsigned length = length_class(run->run_pages);
    runs--;
    HAK_LIST_REMOVE(&free_runs[set].lists[length], run);
    if (!free_runs[set].lists[length])
        free_runs[set].bits &= ~((uint64_t)1 << length);
}

size_t hak_free_runs_count(void)
{
    return runs;
}

void hak_free_runs_each(void (*visit)(char *base, size_t pages))
{
    for (unsigned set = 0; set < HAK_NSETS; set++)
        for (unsigned i = 0; i < LENGTHS; i++)
            for (const struct hak_slab *run = free_runs[set].lists[i]; run; run = run->next)
                visit(run->free, run->run_pages);
}

/* --- neighbours ----------------------------------------------------------------------------------------- */

/* The next page in that direction, which lies in another superslab, if it is free and of the same set; else NULL.
 * Descriptors of neighbours are neighbours, except where the table ends. */
static struct hak_slab *free_beyond(const struct hak_superslab *s, const char *p, ptrdiff_t step)
{
    const char *q = p + step * (ptrdiff_t)HAK_PAGE;
    const struct hak_superslab *other = hak_space_contains(q) ? hak_superslab_of(q) : NULL;
    if (!other || other->set != s->set || s->set >= HAK_SET_OWN || hak_page_at(q) != hak_page_at(p) + step)
        return NULL;
    return other->free >> hak_page_index(q) & 1 ? hak_page_at(q) : NULL;
}

HAK_INLINE struct hak_slab *free_before(const struct hak_superslab *s, const char *p)
{
    unsigned i = hak_page_index(p);
    if (HAK_UNLIKELY(!i))
        return free_beyond(s, p, -1);
    return s->free >> (i - 1) & 1 ? hak_page_at(p) - 1 : NULL;
}

HAK_INLINE struct hak_slab *free_after(const struct hak_superslab *s, const char *p)
{
    unsigned i = hak_page_index(p) + 1;
    if (HAK_UNLIKELY(i == HAK_SUPERSLAB_PAGES))
        return free_beyond(s, p, 1);
    return s->free >> i & 1 ? hak_page_at(p) + 1 : NULL;
}

struct hak_slab *hak_free_runs_behind(const char *base, size_t pages)
{
    const char *last = base + (pages - 1) * HAK_PAGE;
    return free_after(hak_superslab_of(last), last);
}

void hak_free_runs_join(char *base, size_t pages)
{
    const struct hak_superslab *s = hak_superslab_of(base);
    struct hak_slab *below = free_before(s, base), *above = hak_free_runs_behind(base, pages), *run = hak_page_at(base);
    if (below) {
        run = below - below->run_first;
        base = run->free;
        pages += run->run_pages;
        unlink_run(s->set, run);
    }
    if (above) {
        pages += above->run_pages;
        unlink_run(s->set, above);
    }
    link_run(s->set, run, base, pages);
}

void hak_free_runs_cut(struct hak_place at, size_t pages)
{
    unsigned set = hak_superslab_of(at.base)->set;
    size_t before = (size_t)(at.base - (char *)at.run->free) / HAK_PAGE, after = at.run->run_pages - before - pages;
    unlink_run(set, at.run);
    if (before)
        link_run(set, at.run, at.run->free, before);
    if (after)
        link_run(set, at.run + before + pages, at.base + pages * HAK_PAGE, after);
}

struct hak_place hak_free_runs_at(char *page)
{
    for (char *p = page;;) {
        const struct hak_superslab *s = hak_superslab_of(p);
        unsigned i = hak_page_index(p);
        uint64_t taken = ~(s->free << (63 - i)); /* the pages from this one down */
        unsigned below = taken ? (unsigned)__builtin_clzll(taken) - 1 : 63;
        char *first = p - below * HAK_PAGE;
        if (below < i || !free_before(s, first))
            return (struct hak_place){hak_page_at(first), page};
        p = first - HAK_PAGE;
    }
}

/* --- the best fit --------------------------------------------------------------------------------------- */

/* The first address in a free run at which the aligned request fits; NULL if it fits nowhere. */
static char *place_in(const struct hak_slab *run, const struct hak_fit *fit)
{
    char *base = (char *)hak_align_up((uintptr_t)run->free, hak_max(fit->align, 1) * HAK_PAGE);
    return base + fit->pages * HAK_PAGE <= (char *)run->free + run->run_pages * HAK_PAGE ? base : NULL;
}

/* A place in the shortest sufficient run among the first ones; of equally short runs, in the one freed last. */
static struct hak_place best_in(struct hak_slab *list, const struct hak_fit *fit)
{
    struct hak_slab *best = NULL;
    for (unsigned scan = FIT_SCAN; list && scan; list = list->next, scan--)
        if (list->run_pages <= fit->most && (!best || list->run_pages < best->run_pages) && place_in(list, fit))
            best = list;
    return (struct hak_place){best, best ? place_in(best, fit) : NULL};
}

struct hak_place hak_free_runs_best(unsigned set, struct hak_fit fit)
{
    struct hak_place best = {0};
    uint64_t bits = free_runs[set].bits >> length_class(fit.pages) << length_class(fit.pages);
    if (fit.roomy && bits)
        bits = (uint64_t)1 << (63 - __builtin_clzll(bits));
    for (; bits && !best.base; bits &= bits - 1)
        best = best_in(free_runs[set].lists[__builtin_ctzll(bits)], &fit);
    return best;
}

struct hak_place hak_free_runs_clean(unsigned set)
{
    const struct hak_fit all = {.pages = HAK_SUPERSLAB_PAGES, .align = HAK_SUPERSLAB_PAGES};
    for (unsigned i = length_class(HAK_SUPERSLAB_PAGES); i < LENGTHS; i++)
        for (struct hak_slab *run = free_runs[set].lists[i]; run; run = run->next) {
            char *end = (char *)run->free + run->run_pages * HAK_PAGE;
            for (char *base = place_in(run, &all); base && base + HAK_SUPERSLAB <= end; base += HAK_SUPERSLAB)
                if (!hak_superslab_of(base)->pages.old)
                    return (struct hak_place){run, base};
        }
    return (struct hak_place){0};
}
