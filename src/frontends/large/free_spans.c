/* SPDX-License-Identifier: MIT
 * See free_spans.h. */
#include "free_spans.h"

#include "core/base/list.h"

#define FIT_SCAN 16u /* spans of a list that are looked at for the best fit */

static struct span *free_lists[SPAN_CLASSES];
static uint64_t free_bits; /* bit i: list i is not empty */
static size_t dirty_spans;

/* All spans of a list are at least as long as the class says below it. */
static unsigned list_of(unsigned pages)
{
    unsigned class = span_class(pages);
    return pages == span_class_pages(class) || !class ? class : class - 1;
}

void hak_free_spans_add(struct span *s)
{
    unsigned list = list_of(s->pages);
    s->state = SPAN_FREE;
    HAK_LIST_PUSH(&free_lists[list], s);
    free_bits |= (uint64_t)1 << list;
    s->dirty = hak_dirty_count(&s->chunk->pages, s->first, s->pages) != 0;
    dirty_spans += s->dirty;
}

void hak_free_spans_remove(struct span *s)
{
    unsigned list = list_of(s->pages);
    HAK_LIST_REMOVE(&free_lists[list], s);
    if (!free_lists[list])
        free_bits &= ~((uint64_t)1 << list);
    dirty_spans -= s->dirty;
}

/* The shortest of the first few that are long enough; among equal ones the one freed last. */
static struct span *best_of(struct span *list, unsigned pages)
{
    struct span *best = NULL;
    for (unsigned n = 0; list && n < FIT_SCAN; list = list->next, n++)
        if (list->pages >= pages && (!best || list->pages < best->pages))
            best = list;
    return best;
}

struct span *hak_free_spans_best(unsigned pages)
{
    struct span *s = best_of(free_lists[list_of(pages)], pages);
    uint64_t longer = list_of(pages) + 1 < 64 ? free_bits & ~(uint64_t)0 << (list_of(pages) + 1) : 0;
    return s || !longer ? s : best_of(free_lists[__builtin_ctzll(longer)], pages);
}

struct span *hak_free_spans_roomiest(unsigned pages)
{
    struct span *s = free_bits ? free_lists[63 - __builtin_clzll(free_bits)] : NULL;
    return s && s->pages >= pages ? s : NULL;
}

size_t hak_free_spans_dirty(void)
{
    return dirty_spans;
}
