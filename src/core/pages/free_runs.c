/* SPDX-License-Identifier: MIT
 * See free_runs.h. The runs of a set are kept on lists by length: one list for each length up to 16 pages, then 8 lists
 * for each doubling. One word tells which lists are not empty, so a search for the shortest sufficient run reads that
 * word first. */
#include "free_runs.h"

#include "core/base/list.h"
#include "core/os/meta.h"

#define LENGTHS 64u
#define FIT_SCAN 16u /* runs of a list that a search for the best fit visits */

static struct free_runs {
    struct hak_slab *lists[LENGTHS];
    uint64_t bits; /* bit i: list i is not empty */
} free_runs[HAK_NSETS];
static size_t runs;

/* For superslab i, bit i % 64 of word i / 64: it is wholly free, and of a set whose runs cross superslabs. 64 words are
 * a group, which is allocated when it is needed; without memory its bits are 0. `full` has a bit for each word: it has
 * no zero. */
#define GROUP 4096u
#define GROUPS (HAK_PLAN_MAX / HAK_SUPERSLAB / GROUP)
static uint64_t *whole[GROUPS], full[GROUPS];

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

/* --- superslabs that are wholly free -------------------------------------------------------------------- */

/* The number of a superslab is the place of its descriptors in their table. */
static size_t number_of(const char *p)
{
    return (size_t)(hak_page_at(p) - hak_page_map.descriptors) / HAK_SUPERSLAB_PAGES;
}

static uint64_t whole_word(size_t i)
{
    return whole[i / GROUP] ? whole[i / GROUP][i / 64 % 64] : 0;
}

void hak_free_runs_note_whole(const struct hak_superslab *s, bool is_whole)
{
    size_t i = number_of(s->pages.base);
    uint64_t **group = &whole[i / GROUP], bit = (uint64_t)1 << i % 64, of_word = (uint64_t)1 << i / 64 % 64;
    if (!*group && !(*group = hak_meta_alloc(64 * sizeof **group)))
        return;
    uint64_t *word = &(*group)[i / 64 % 64];
    *word = is_whole && s->set < HAK_SET_OWN ? *word | bit : *word & ~bit;
    full[i / GROUP] = ~*word ? full[i / GROUP] & ~of_word : full[i / GROUP] | of_word;
}

/* The number of set bits below bit `end` of a word, from there down. */
static size_t ones_below(uint64_t word, size_t end)
{
    uint64_t zeros = ~word << (64 - end);
    return zeros ? (size_t)__builtin_clzll(zeros) : end;
}

/* The lowest superslab of those that are wholly free up to the one before `end`; `end` if that one is not. */
static size_t row_start(size_t end)
{
    while (end) {
        size_t n = (end - 1) % 64 + 1, ones = ones_below(whole_word(end - 1), n);
        end -= ones;
        if (ones < n)
            break;
        while (end && (ones = ones_below(full[(end - 1) / GROUP], (end / 64 - 1) % 64 + 1)))
            end -= 64 * ones;
    }
    return end;
}

/* The same place in the lowest superslab of the zone from which on all are wholly free, up to this one. */
static char *lowest_whole(char *p)
{
    size_t i = number_of(p), n = i + 1 - row_start(i + 1);
    return n ? p - hak_min(n - 1, hak_space_before(p)) * HAK_SUPERSLAB : p;
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
        p = lowest_whole(first - HAK_PAGE);
    }
}

/* --- the best fit --------------------------------------------------------------------------------------- */

/* The first address in a free run at which the aligned request fits; NULL if it fits nowhere. */
static char *place_in(const struct hak_slab *run, const struct hak_fit *fit)
{
    char *base = (char *)hak_align_up((uintptr_t)run->free, hak_max(fit->align, 1) * HAK_PAGE);
    return base + fit->pages * HAK_PAGE <= (char *)run->free + run->run_pages * HAK_PAGE ? base : NULL;
}

/* Whether no superslab follows the run: most of its pages were never used. */
static bool is_at_end(const struct hak_slab *run)
{
    const char *end = (const char *)run->free + run->run_pages * HAK_PAGE;
    return (uintptr_t)end % HAK_SUPERSLAB == 0 && (!hak_space_contains(end) || !hak_superslab_of(end));
}

/* The shortest sufficient run among the first ones; of equally short ones, that freed last. One at the end of the heap
 * is *last instead. */
static struct hak_slab *best_in(struct hak_slab *list, const struct hak_fit *fit, struct hak_slab **last)
{
    struct hak_slab *best = NULL;
    for (unsigned scan = FIT_SCAN; list && scan; list = list->next, scan--) {
        if (list->run_pages > fit->most || (best && list->run_pages >= best->run_pages) || !place_in(list, fit))
            continue;
        if (!is_at_end(list))
            best = list;
        else if (!*last || list->run_pages < (*last)->run_pages)
            *last = list;
    }
    return best;
}

struct hak_place hak_free_runs_best(unsigned set, struct hak_fit fit)
{
    struct hak_slab *best = NULL, *last = NULL;
    uint64_t bits = free_runs[set].bits >> length_class(fit.pages) << length_class(fit.pages);
    for (; bits && !best; bits &= bits - 1)
        best = best_in(free_runs[set].lists[__builtin_ctzll(bits)], &fit, &last);
    best = best ? best : last;
    return (struct hak_place){best, best ? place_in(best, &fit) : NULL};
}
