/* SPDX-License-Identifier: MIT
 * The run cache: free runs that wait before the page heap, where the next request of their length takes one without a
 * lock: EMPTY slabs, and spans of the large frontend. For each kind and length it has the run that was put last, and
 * older ones on a lock-free stack, whose pages the caller bounds. At each purge delay, after a sleep and before a trim
 * all runs go to the page heap. Any thread may call these functions. */
#ifndef HAK_RUN_CACHE_H
#define HAK_RUN_CACHE_H

#include "slab_stack.h"

/* Slabs of the two sets that classes share; spans. */
enum hak_run_kind { HAK_RUNS_COMMON, HAK_RUNS_HEADERS, HAK_RUNS_SPANS, HAK_RUN_KINDS };

#define HAK_RUN_LENGTHS 16u /* in pages; of longer ones only the last one waits */
/* Up to it the last one of each length waits, and one of all longer ones, in row 0: spans keep neighbours apart. */
#define HAK_RUN_SHORT(kind) ((kind) == HAK_RUNS_SPANS ? 4u : HAK_RUN_LENGTHS)

/* `last` is the word of a stack with one run, with its length in place of the version. */
struct hak_run_row {
    struct hak_slab_stack last, older;
};
struct hak_run_cache {
    struct hak_run_row rows[HAK_RUN_KINDS][HAK_RUN_LENGTHS + 1];
    struct {
        _Atomic(size_t) older;       /* about how many pages wait besides the last runs */
        _Atomic(size_t) runs, pages; /* these were flushed */
    } kinds[HAK_RUN_KINDS];
};
extern HAK_HIDDEN struct hak_run_cache hak_run_cache;

HAK_INLINE _Atomic(uint64_t) *hak_run_last(enum hak_run_kind kind, size_t pages)
{
    return &hak_run_cache.rows[kind][pages <= HAK_RUN_SHORT(kind) ? pages : 0].last.head;
}

/* The run that was put last, if it has exactly so many pages. It belongs to the caller once the word is 0; acquire:
 * another thread has described it. */
HAK_INLINE struct hak_slab *hak_run_cache_take_last(enum hak_run_kind kind, size_t pages)
{
    _Atomic(uint64_t) *last = hak_run_last(kind, pages);
    uint64_t word = HAK_LOAD_RELAXED(last);
    bool fits = word >> HAK_SLAB_STACK_VERSION_SHIFT == pages;
    return HAK_LIKELY(fits && HAK_CAS_ACQUIRE(last, &word, 0)) ? hak_slab_stack_top(word) : NULL;
}
/* The last one of the row: the longer ones share row 0. */
HAK_INLINE struct hak_slab *hak_run_cache_take_any(enum hak_run_kind kind, size_t pages)
{
    return hak_slab_stack_top(HAK_EXCHANGE_ACQUIRE(hak_run_last(kind, pages), 0));
}

/* A run of so many pages; NULL if none waits. */
struct hak_slab *hak_run_cache_take(enum hak_run_kind kind, size_t pages);
/* Puts an older run on its stack, unless more than `most` pages of its kind wait there: then it returns it. */
HAK_NOINLINE struct hak_slab *hak_run_cache_keep(enum hak_run_kind kind, struct hak_slab *run, size_t most);
/* Puts a run. Returns one that must go to the page heap, or NULL. */
HAK_INLINE struct hak_slab *hak_run_cache_put(enum hak_run_kind kind, struct hak_slab *run, size_t most)
{
    uint64_t pages = run->pages;
    uint64_t word = pages << HAK_SLAB_STACK_VERSION_SHIFT | (uintptr_t)run >> HAK_SLAB_STACK_UNIT_LG;
    HAK_STORE_RELAXED(&run->below, NULL);
    run = hak_slab_stack_top(HAK_EXCHANGE_ACQ_REL(hak_run_last(kind, pages), word));
    return HAK_LIKELY(!run) ? NULL : hak_run_cache_keep(kind, run, most);
}
/* The pages of all runs that wait. */
size_t hak_run_cache_waiting(enum hak_run_kind kind);
/* Gives all runs to the page heap. The tick does so once per purge delay, or after a sleep; if some hundred wait, the
 * next tick continues. The caller calls hak_pages_bound. */
void hak_run_cache_flush(void);
void hak_run_cache_tick(uint64_t now_ms);

#endif
