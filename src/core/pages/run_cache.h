/* SPDX-License-Identifier: MIT
 * The run cache: free runs that wait before the page heap, where the next request of their length takes one without a
 * lock: EMPTY slabs, and spans of the large frontend. For each kind and length it has the run that was put last, and
 * older ones on a lock-free stack, whose pages the caller bounds. At each purge delay, after a sleep and before a trim
 * all runs go to the page heap. Any thread may call these functions. */
#ifndef HAK_RUN_CACHE_H
#define HAK_RUN_CACHE_H

#include "page_heap.h"
#include "slab_stack.h"

/* Slabs of the two sets that classes share; spans. */
enum hak_run_kind { HAK_RUNS_COMMON, HAK_RUNS_HEADERS, HAK_RUNS_SPANS, HAK_RUN_KINDS };

#define HAK_RUN_LENGTHS 16u /* in pages; of longer ones only the last one waits */
/* Up to it the last one of each length waits, and one of all longer ones, in row 0: spans keep neighbours apart. */
#define HAK_RUN_SHORT(kind) ((kind) == HAK_RUNS_SPANS ? 4u : HAK_RUN_LENGTHS)

/* `last`: the descriptor of the run that was put last, and its length above bit 48; 0: none. */
#define HAK_RUN_PAGES_SHIFT 48
struct hak_run_cache {
    _Atomic(uint64_t) last[HAK_RUN_KINDS][HAK_RUN_LENGTHS + 1];
    struct hak_slab_stack older[HAK_RUN_KINDS][HAK_RUN_LENGTHS + 1];
    struct {
        _Atomic(size_t) older;       /* about how many pages wait besides the last runs */
        _Atomic(size_t) runs, pages; /* these were flushed */
    } kinds[HAK_RUN_KINDS];
};
extern HAK_HIDDEN struct hak_run_cache hak_run_cache;

HAK_INLINE _Atomic(uint64_t) *hak_run_last(enum hak_run_kind kind, size_t pages)
{
    size_t row = pages <= HAK_RUN_SHORT(kind) ? pages : 0;
    __asm__("" : "+r"(row)); /* the compiler would compute the address, which takes three instructions more */
    return &hak_run_cache.last[kind][row];
}

HAK_INLINE uint64_t hak_run_word(const struct hak_slab *run, uint64_t pages)
{
    return pages << HAK_RUN_PAGES_SHIFT | (uintptr_t)run;
}
HAK_INLINE struct hak_slab *hak_run_of(uint64_t word)
{
    return (struct hak_slab *)(word << (64 - HAK_RUN_PAGES_SHIFT) >> (64 - HAK_RUN_PAGES_SHIFT));
}
/* The run that was put last, if it has exactly so many pages. It belongs to the caller once the word is 0; acquire:
 * another thread has described it. */
HAK_INLINE struct hak_slab *hak_run_cache_take_last(enum hak_run_kind kind, size_t pages)
{
    _Atomic(uint64_t) *last = hak_run_last(kind, pages);
    uint64_t word = HAK_LOAD_RELAXED(last);
    bool fits = word >> HAK_RUN_PAGES_SHIFT == pages;
    return HAK_LIKELY(fits && HAK_CAS_ACQUIRE(last, &word, 0)) ? hak_run_of(word) : NULL;
}
/* hak_allocated counts `requested` bytes of a span that waits: they were put and will be taken without counting, if the
 * next block has as many. Not any more from here on. */
HAK_INLINE void hak_run_cache_uncount(struct hak_slab *span)
{
    hak_count_allocated(-span->requested);
    span->requested = 0;
}
/* The bytes of all those. */
size_t hak_run_cache_counted(void);
/* Puts a span where none waits; false if one does, or the span may not wait. */
HAK_INLINE bool hak_run_cache_put_last(struct hak_slab *span)
{
    size_t pages = span->pages;
    _Atomic(uint64_t) *last = hak_run_last(HAK_RUNS_SPANS, pages);
    uint64_t none = 0;
    if (HAK_UNLIKELY(pages > HAK_LOAD_RELAXED(&hak_pages_room_soon)))
        return false;
    HAK_STORE_RELEASE(&span->word, HAK_SLAB_UNUSED); /* the run cache may keep its descriptor */
    if (HAK_LIKELY(HAK_CAS_ACQ_REL(last, &none, hak_run_word(span, pages))))
        return true;
    HAK_STORE_RELEASE(&span->word, HAK_SLAB_SPAN);
    return false;
}
/* The last one of the row: the longer ones share row 0. */
HAK_INLINE struct hak_slab *hak_run_cache_take_any(enum hak_run_kind kind, size_t pages)
{
    return hak_run_of(HAK_EXCHANGE_ACQUIRE(hak_run_last(kind, pages), 0));
}

/* A run of so many pages; NULL if none waits. */
struct hak_slab *hak_run_cache_take(enum hak_run_kind kind, size_t pages);
/* Puts an older run on its stack, unless more than `most` pages of its kind wait there: then it returns it. */
HAK_NOINLINE struct hak_slab *hak_run_cache_keep(enum hak_run_kind kind, struct hak_slab *run, size_t most);
/* Puts a run. Returns one that must go to the page heap, or NULL. */
HAK_INLINE struct hak_slab *hak_run_cache_put(enum hak_run_kind kind, struct hak_slab *run, size_t most)
{
    uint64_t pages = run->pages;
    uint64_t word = hak_run_word(run, pages);
    run = hak_run_of(HAK_EXCHANGE_ACQ_REL(hak_run_last(kind, pages), word));
    return HAK_LIKELY(!run) ? NULL : hak_run_cache_keep(kind, run, most);
}
/* The pages of all runs that wait. */
size_t hak_run_cache_waiting(enum hak_run_kind kind);
/* Gives all runs to the page heap. The tick does so once per purge delay, or after a sleep; if some hundred wait, the
 * next tick continues. The caller calls hak_pages_bound. */
void hak_run_cache_flush(void);
void hak_run_cache_tick(uint64_t now_ms);

#endif
