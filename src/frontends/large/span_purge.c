/* SPDX-License-Identifier: MIT
 * See span_purge.h. */
#include "span_purge.h"

#include "chunk.h"
#include "core/parts/parts.h"
#include "core/pages/budget.h"

#define PURGE_RANGES 64u

struct purge {
    struct iovec ranges[PURGE_RANGES];
    struct span *spans[PURGE_RANGES]; /* which each of them belongs to */
    unsigned n;
    size_t bytes;
    enum hak_cause cause;
};

static unsigned first_page(const struct purge *p, unsigned i)
{
    return (unsigned)((size_t)((char *)p->ranges[i].iov_base - p->spans[i]->chunk->base) / HAK_PAGE);
}

static void note_returned(struct purge *p, unsigned i)
{
    struct chunk *c = p->spans[i]->chunk;
    hak_bits_set(c->returned, first_page(p, i), (unsigned)(p->ranges[i].iov_len / HAK_PAGE), true);
    c->returned_ms = hak_clock_ms();
    c->returned_for = p->cause;
}

/* What the kernel refuses is dirty again. Chunks that are wholly free and clean go back to the backend. */
static size_t send(struct purge *p)
{
    size_t returned = p->n ? hak_parts.release->release(p->ranges, p->n, p->cause) : 0;
    bool all = returned == p->bytes;
    if (all)
        hak_budget_give(returned);
    for (unsigned i = 0; i < p->n; i++)
        if (all)
            note_returned(p, i);
        else
            hak_free_spans_mark(p->spans[i], first_page(p, i), (unsigned)(p->ranges[i].iov_len / HAK_PAGE), true);
    for (unsigned i = 0; i < p->n; i++)
        if ((i + 1 == p->n || p->spans[i + 1] != p->spans[i]) && span_is_chunk(p->spans[i]) && !span_dirty(p->spans[i]))
            hak_chunk_return(p->spans[i]);
    p->n = 0;
    p->bytes = 0;
    return all ? returned : 0;
}

/* The dirty runs of a free span among the pages of `which`, NULL for all. Returns what went back meanwhile. */
static size_t add(struct purge *p, struct span *s, const uint64_t *which)
{
    struct chunk *c = s->chunk;
    size_t returned = 0;
    for (unsigned i = s->first, end = i + s->pages; i < end; i++) {
        unsigned from = i;
        while (i < end && hak_bit(c->dirty, i) && (!which || hak_bit(which, i)))
            i++;
        if (i == from)
            continue;
        if (p->n == PURGE_RANGES)
            returned += send(p);
        p->ranges[p->n] = (struct iovec){c->base + from * HAK_PAGE, (i - from) * HAK_PAGE};
        p->spans[p->n++] = s;
        p->bytes += (i - from) * HAK_PAGE;
        hak_free_spans_mark(s, from, i - from, false);
    }
    return returned;
}

/* The idle pages of a chunk. If nothing was freed in it for the delay, all its free pages are idle. */
static size_t clean_chunk(struct purge *p, struct chunk *c, uint64_t now_ms, uint64_t delay_ms)
{
    uint64_t idle[CHUNK_WORDS];
    size_t returned = 0;
    bool all = now_ms - c->freed_ms >= delay_ms;
    for (unsigned i = 0; i < CHUNK_WORDS; i++)
        idle[i] = c->idle[i];
    c->looked_ms = now_ms;
    hak_bits_set(c->idle, 0, c->pages, false);
    for (struct span *s = c->lowest, *above; s; s = above) {
        above = s->above;
        if (s->state != SPAN_FREE)
            continue;
        hak_bits_set(c->idle, s->first, s->pages, true);
        returned += add(p, s, all ? NULL : idle);
    }
    return returned;
}

size_t hak_span_purge(uint64_t now_ms, uint64_t delay_ms, size_t keep_pages, size_t most, enum hak_cause cause)
{
    struct purge p = {.cause = cause};
    size_t returned = 0;
    for (struct chunk *c = hak_chunk_first(), *next; c; c = next) {
        next = c->next;
        if (returned + p.bytes >= most || hak_free_spans_dirty_pages() <= keep_pages)
            break;
        if (now_ms - c->looked_ms >= delay_ms)
            returned += clean_chunk(&p, c, now_ms, delay_ms);
    }
    return returned + send(&p);
}
