/* SPDX-License-Identifier: MIT
 * The shared pool: slabs of all classes share superslabs. A slab is acquired in stages, an ordered array of
 * functions that reads top to bottom as the policy. EMPTY slabs stand on one list, PARTIAL ones on a lock-free
 * stack for each class; a wholly empty superslab goes to the LRU cache. One lock guards all that concerns
 * pages; the stacks of hot (EMPTY, of one class) and of PARTIAL slabs in front of it need none.
 *
 * A PARTIAL slab whose last block comes back stays on its stack, where the next request of its class finds
 * it. When several of a class do, or after a while, the stack is swept: they become EMPTY. */
#include <sys/mman.h>

#include "core/dispatch.h"
#include "core/log.h"
#include "core/plugin.h"
#include "core/slab_stack.h"
#include "lru.h"
#include "superslab.h"

#define IDLE_PAGES 8 /* of a class may stand idle on its stack, at least, */
#define IDLE_SLABS 4 /* or slabs, if their threads ended */
#define HUGE_PAGE (2 * HAK_MIB)
#define HUGE_FROM (64 * HAK_MIB)
#define STAGES(X) X(hot) X(partial) X(warm) X(empty) X(unused) X(drain) X(lru) X(map)

enum stage {
#define X(name) STAGE_##name,
    STAGES(X)
#undef X
    NSTAGES
};
_Static_assert(NSTAGES <= HAK_STAGES, "a thread counts them");
static const char *const stage_names[] = {
#define X(name) #name,
    STAGES(X)
#undef X
};

#define CLEAN_BYTES (256 * HAK_MIB) /* that one call gives back, or a quarter of what is dirty */

static struct hak_lock lock = HAK_LOCK_INIT(HAK_RANK_BACKEND);
static struct hot { /* EMPTY slabs of a class, their pages not free */
    struct hak_slab_stack stack;
    _Atomic(int32_t) count; /* roughly */
} hot[HAK_NBINS];
static struct hak_slab *empty_list;               /* EMPTY slabs, the most recent first */
static struct partial {
    struct hak_slab_stack stack;
    _Atomic(int32_t) idle;   /* slabs of the stack whose blocks are all back, roughly */
    _Atomic(bool) served;     /* an idle one since the last look at the clock */
    _Atomic(int32_t) length; /* of the stack when it was last swept, roughly */
} partials[HAK_NBINS];
static _Atomic(uint64_t) failed;
static uint64_t empties, prefault_touched;

/* --- lists ----------------------------------------------------------------------------------------- */

static void push_slab(struct hak_slab **list, struct hak_slab *slab)
{
    slab->prev = NULL;
    slab->next = *list;
    if (*list)
        (*list)->prev = slab;
    *list = slab;
    slab->listed = true;
}

static void remove_slab(struct hak_slab **list, struct hak_slab *slab)
{
    *(slab->prev ? &slab->prev->next : list) = slab->next;
    if (slab->next)
        slab->next->prev = slab->prev;
    slab->next = slab->prev = NULL;
    slab->listed = false;
}

/* --- runs of pages ---------------------------------------------------------------------------------- */

static unsigned index_in(const struct superslab *s, const struct hak_slab *slab)
{
    return (unsigned)((size_t)(slab->base - s->base) / HAK_PAGE);
}

/* Makes the descriptors of a run say that it is one. */
static struct hak_slab *describe(struct superslab *s, char *base, size_t pages)
{
    struct hak_slab *slab = hak_space_page(base);
    slab->base = base;
    slab->region = s;
    slab->pages = (uint16_t)pages;
    for (size_t i = 0; i < pages && i < HAK_SUPERSLAB_PAGES; i++)
        slab[i].head_offset = (uint32_t)i;
    return slab;
}

static void forget(struct hak_slab *slab)
{
    size_t pages = hak_min(slab->pages, HAK_SUPERSLAB_PAGES);
    for (size_t i = 0; i < pages; i++) {
        slab[i].head_offset = 0;
        slab[i].base = NULL;
        slab[i].region = NULL;
        atomic_store_explicit(&slab[i].word, HAK_SLAB_UNUSED, memory_order_relaxed);
    }
}

/* An EMPTY slab stops being one: its pages stay free and dirty. */
static void dissolve(struct hak_slab *slab, enum hak_slab_state to)
{
    remove_slab(&empty_list, slab);
    hak_slab_count(HAK_SLAB_EMPTY, to);
    forget(slab);
}

/* The EMPTY slabs in these pages of a superslab. */
static void dissolve_pages(const struct superslab *s, uint64_t pages, enum hak_slab_state to)
{
    for (pages &= s->dirty; pages; pages &= pages - 1) {
        struct hak_slab *slab = hak_space_slab(s->base + (size_t)__builtin_ctzll(pages) * HAK_PAGE);
        if (slab && slab->region == s && hak_slab_state(slab) == HAK_SLAB_EMPTY && slab->listed)
            dissolve(slab, to);
    }
}

static struct hak_slab *take_run(struct superslab *s, unsigned pages, bool *clean)
{
    unsigned first = superslab_fit(s, pages);
    *clean = superslab_is_zero(s, superslab_run(first, pages));
    dissolve_pages(s, superslab_run(first, pages), HAK_SLAB_UNUSED);
    return superslab_take_at(s, first, pages) ? describe(s, s->base + first * HAK_PAGE, pages) : NULL;
}

static size_t clean_region(struct superslab *s, enum hak_cause cause)
{
    if (s->count == 1)
        dissolve_pages(s, ALL_PAGES, HAK_SLAB_RETURNED);
    return superslab_clean(s, cause);
}

/* --- stages ------------------------------------------------------------------------------------------ */

struct request {
    struct hak_thread *thread;
    unsigned bin, pages;
    bool header, clean;
};

static struct hak_slab *pop_hot(unsigned bin)
{
    struct hak_slab *slab = hak_slab_stack_pop(&hot[bin].stack);
    if (slab)
        atomic_fetch_sub_explicit(&hot[bin].count, 1, memory_order_relaxed);
    return slab;
}

static struct hak_slab *stage_hot(struct request *r)
{
    return pop_hot(r->bin);
}

static bool has_header(unsigned bin)
{
    return hak_class_has_header(bin) && hak_dispatch.by_bin[bin]->headers;
}

/* A hot slab of another class, of the same length. */
static struct hak_slab *stage_warm(struct request *r)
{
    for (unsigned bin = 0; bin < HAK_NBINS; bin++) {
        if (hak_slab_stack_is_empty(&hot[bin].stack) || hak_slab_pages[bin] != r->pages || has_header(bin) != r->header)
            continue;
        struct hak_slab *slab = pop_hot(bin);
        if (slab)
            return slab;
    }
    return NULL;
}

/* The first EMPTY slab of the class among so many; else one of the same length. */
static struct hak_slab *find_empty(const struct request *r)
{
    struct hak_slab *other = NULL;
    unsigned left = hak_dispatch.options.empty_scan_limit;
    for (struct hak_slab *slab = empty_list; slab && left; slab = slab->next, left--) {
        if (slab->pages != r->pages || hak_space_in_header_zone(slab->base) != r->header)
            continue;
        other = slab;
        if (slab->bin == r->bin)
            break;
    }
    return other;
}

static struct hak_slab *stage_empty(struct request *r)
{
    struct hak_slab *slab = find_empty(r);
    if (slab) {
        struct superslab *s = slab->region;
        remove_slab(&empty_list, slab);
        HAK_CHECK(superslab_take_at(s, index_in(s, slab), slab->pages));
    }
    return slab;
}

static struct hak_slab *stage_partial(struct request *r)
{
    struct partial *p = &partials[r->bin];
    struct hak_slab *slab = hak_slab_stack_pop(&p->stack);
    if (slab && hak_slab_adopt(slab, r->thread)) {
        atomic_fetch_sub_explicit(&p->idle, 1, memory_order_relaxed);
        atomic_store_explicit(&p->served, true, memory_order_relaxed);
    }
    return slab;
}

static struct hak_slab *stage_unused(struct request *r)
{
    struct superslab *s = superslab_find(r->pages, r->header);
    return s ? take_run(s, r->pages, &r->clean) : NULL;
}

/* Foreign blocks that this thread has not given back yet may complete a slab, and what ended threads left parked
 * may hold some. */
static struct hak_slab *stage_drain(struct request *r)
{
    hak_lock_release(&lock);
    hak_bin_flush_foreign(r->thread);
    if (r->thread == hak_self.thread) /* not for the orphan, whose lock comes after theirs */
        hak_thread_break_up(UINT64_MAX);
    hak_lock_acquire(&lock);
    struct hak_slab *slab = stage_partial(r);
    return slab ? slab : stage_empty(r);
}

static struct hak_slab *stage_lru(struct request *r)
{
    struct superslab *s = lru_pop(1, 1, r->header);
    if (!s)
        return NULL;
    superslab_offer(s);
    return take_run(s, r->pages, &r->clean);
}

/* Huge pages pay once the heap is larger than the caches, and waste little of it then. */
static void advise_huge(const struct superslab *s)
{
    struct hak_space_stats space;
    if (hak_dispatch.options.thp != HAK_THP_AUTO || HAK_SUPERSLAB < HUGE_PAGE)
        return;
    hak_space_stats(&space);
    if (space.handed_out > HUGE_FROM && !hak_space_commit(s->base, HAK_SUPERSLAB, HAK_CAUSE_superslab_map))
        hak_os_advise(s->base, HAK_SUPERSLAB, MADV_HUGEPAGE, HAK_CAUSE_huge_page);
}

static void prefault(struct superslab *s);

static struct hak_slab *stage_map(struct request *r)
{
    struct superslab *s = superslab_map(1, 1, r->header);
    if (!s)
        return NULL;
    superslab_offer(s);
    advise_huge(s);
    if (hak_dispatch.options.ss_prefault)
        prefault(s);
    return take_run(s, r->pages, &r->clean);
}

static struct hak_slab *(*const stages[NSTAGES])(struct request *) = {
#define X(name) [STAGE_##name] = stage_##name,
    STAGES(X)
#undef X
};

static struct hak_slab *run_stages(struct request *r, unsigned from, unsigned to)
{
    for (unsigned i = from; i <= to; i++) {
        struct hak_slab *slab = stages[i](r);
        if (!slab)
            continue;
        HAK_COUNT(r->thread, stages[i], 1);
        if (HAK_UNLIKELY(hak_dispatch.options.log_acquire))
            hak_log("SS_ACQUIRE class %u, stage %s: slab %p", r->bin, stage_names[i], (void *)slab->base);
        return slab;
    }
    return NULL;
}

static struct hak_slab *acquire_slab(struct hak_thread *t, unsigned bin)
{
    struct request r = {.thread = t, .bin = bin, .pages = hak_slab_pages[bin]};
    r.header = has_header(bin);
    struct hak_slab *slab = run_stages(&r, STAGE_hot, STAGE_warm);
    if (!slab) {
        hak_lock_acquire(&lock);
        slab = run_stages(&r, STAGE_empty, STAGE_map);
        if (!slab && r.header) { /* their zone is full: blocks without headers serve as well */
            r.header = false;
            slab = run_stages(&r, STAGE_empty, STAGE_map);
        }
        hak_lock_release(&lock);
    }
    if (!slab)
        atomic_fetch_add_explicit(&failed, 1, memory_order_relaxed);
    else if (hak_slab_state(slab) != HAK_SLAB_ACTIVE)
        hak_slab_format(slab, bin, t);
    return slab;
}

static struct hak_slab *adopt(struct hak_thread *t, unsigned bin)
{
    struct request r = {.thread = t, .bin = bin};
    return run_stages(&r, STAGE_partial, STAGE_partial);
}

/* --- larger runs -------------------------------------------------------------------------------------- */

static bool cool_down(void);

static struct hak_slab *acquire_within(size_t pages, bool *clean)
{
    struct superslab *s = superslab_find((unsigned)pages, false);
    if (!s && cool_down())
        s = superslab_find((unsigned)pages, false);
    if (!s && (s = lru_pop(1, 1, false)))
        superslab_offer(s);
    if (!s && (s = superslab_map(1, 1, false)))
        superslab_offer(s);
    return s ? take_run(s, (unsigned)pages, clean) : NULL;
}

static struct hak_slab *acquire_regions(size_t pages, size_t align, bool *clean)
{
    size_t count = hak_align_up(pages, HAK_SUPERSLAB_PAGES) / HAK_SUPERSLAB_PAGES;
    size_t align_count = hak_max(1, align / HAK_SUPERSLAB_PAGES);
    struct superslab *s = lru_pop(count, align_count, false);
    if (!s)
        s = superslab_map(count, align_count, false);
    if (!s)
        return NULL;
    *clean = superslab_is_zero(s, ALL_PAGES);
    if (hak_space_commit(s->base, pages * HAK_PAGE, HAK_CAUSE_superslab_map)) {
        lru_push(s);
        return NULL;
    }
    superslab_take_whole(s);
    return describe(s, s->base, pages);
}

static struct hak_slab *acquire_run(size_t pages, size_t align, bool *zeroed)
{
    hak_lock_acquire(&lock);
    struct hak_slab *slab = pages <= HAK_SUPERSLAB_PAGES && align <= 1 ? acquire_within(pages, zeroed)
                                                                       : acquire_regions(pages, align, zeroed);
    hak_lock_release(&lock);
    return slab;
}

/* --- giving back --------------------------------------------------------------------------------------- */

static void cache_if_free(struct superslab *s)
{
    if (s->free != ALL_PAGES)
        return;
    if (s->count == 1)
        dissolve_pages(s, ALL_PAGES, HAK_SLAB_UNUSED);
    superslab_withdraw(s);
    if (hak_dispatch.options.log_free)
        hak_log("SS_FREE superslab %p is wholly empty", (void *)s->base);
    lru_push(s);
}

static int32_t hot_limit(void)
{
    return hak_dispatch.release->at_once ? 1 : (int32_t)hak_dispatch.options.hot_slabs;
}

static uint64_t purge_delay_ms(void)
{
    return hak_dispatch.release->at_once ? 0 : hak_dispatch.options.purge_delay_ms;
}

/* Everything that was free then is idle: nobody had come to a slow path for the purge delay. Under the lock. */
static uint64_t slept_until_ms;

static bool is_idle(const struct superslab *s, uint64_t now_ms)
{
    return s && (now_ms - s->dirty_since_ms >= purge_delay_ms() || s->dirty_since_ms <= slept_until_ms);
}

static bool is_cached(const struct superslab *s)
{
    return s->free == ALL_PAGES;
}

/* Gives back pages that have been dirty for too long: those of cached regions always, those of regions in use
 * as partial release. Bounded in bytes, so that nobody waits long; true if more is idle. */
static bool clean_idle(uint64_t now_ms, bool partial)
{
    static struct superslab_batch batches[2];
    size_t done = 0, most = hak_max(CLEAN_BYTES, superslab_dirty_bytes() / 4);
    struct superslab *s;
    batches[0].cause = HAK_CAUSE_partial_release;
    batches[1].cause = hak_dispatch.release->cause;
    for (size_t n = superslab_dirty_regions(); n && done < most && is_idle(s = superslab_oldest_dirty(), now_ms); n--) {
        uint64_t pages = superslab_idle(s, now_ms, purge_delay_ms());
        if (s->put_ms <= slept_until_ms)
            pages = s->dirty;
        if (!is_cached(s) && !partial)
            continue;
        if (s->count == 1)
            dissolve_pages(s, pages, HAK_SLAB_RETURNED);
        done += superslab_batch_add(&batches[is_cached(s)], s, pages);
    }
    superslab_batch_send(&batches[0]);
    superslab_batch_send(&batches[1]);
    return done >= most && is_idle(superslab_oldest_dirty(), now_ms);
}

static void note_empty(const struct hak_slab *slab)
{
    const struct hak_options *o = &hak_dispatch.options;
    if (HAK_UNLIKELY(o->log_free))
        hak_log("EMPTY slab %p of %u-byte blocks", (void *)slab->base, slab->stride);
    if (++empties % o->ss_partial_interval == 0 && o->ss_partial)
        clean_idle(hak_os_coarse_ms(), true);
}

static void release_empty(struct hak_slab *slab)
{
    struct superslab *s = slab->region;
    superslab_put(s, index_in(s, slab), slab->pages, true);
    push_slab(&empty_list, slab);
    note_empty(slab);
    cache_if_free(s);
}

static void release_region(struct hak_slab *slab)
{
    struct superslab *s = slab->region;
    bool dirty = hak_slab_state(slab) != HAK_SLAB_RETURNED;
    forget(slab);
    superslab_put_whole(s, dirty);
    lru_push(s);
}

static void release_run(struct hak_slab *slab)
{
    struct superslab *s = slab->region;
    unsigned first = index_in(s, slab), pages = slab->pages;
    bool dirty = hak_slab_state(slab) != HAK_SLAB_RETURNED;
    forget(slab);
    superslab_put(s, first, pages, dirty);
    cache_if_free(s);
}

static void cool(struct hak_slab *slab)
{
    for (struct hak_slab *next; slab; slab = next) {
        next = hak_slab_stack_next(slab);
        release_empty(slab);
    }
}

static struct hak_slab *take_hot(struct hot *h)
{
    atomic_store_explicit(&h->count, 0, memory_order_relaxed);
    return hak_slab_stack_take_all(&h->stack);
}

/* The most recent one is hot; those before it join the EMPTY list together when they are too many. */
static void heat(struct hak_slab *slab)
{
    struct hot *h = &hot[slab->bin];
    struct hak_slab *before = NULL;
    if (atomic_load_explicit(&h->count, memory_order_relaxed) >= hot_limit())
        before = take_hot(h);
    hak_slab_stack_push(&h->stack, slab);
    atomic_fetch_add_explicit(&h->count, 1, memory_order_relaxed);
    if (!before)
        return;
    hak_lock_acquire(&lock);
    cool(before);
    if (hak_dispatch.release->at_once)
        clean_idle(hak_os_coarse_ms(), hak_dispatch.options.ss_partial);
    hak_lock_release(&lock);
}

static void release(struct hak_slab *slab)
{
    if (hak_slab_state(slab) == HAK_SLAB_EMPTY) {
        heat(slab);
        return;
    }
    hak_lock_acquire(&lock);
    struct superslab *s = slab->region;
    if (s->whole)
        release_region(slab);
    else
        release_run(slab);
    if (hak_dispatch.release->at_once)
        clean_idle(hak_os_coarse_ms(), hak_dispatch.options.ss_partial);
    hak_lock_release(&lock);
}

/* Slabs whose blocks are all back leave the stack as EMPTY. */
static void sweep(struct partial *p)
{
    int32_t length = 0;
    atomic_store_explicit(&p->idle, 0, memory_order_relaxed); /* before: what comes back from here on counts again */
    struct hak_slab *next, *slab = hak_slab_stack_take_all(&p->stack);
    for (; slab; slab = next, length++) {
        next = hak_slab_stack_next(slab);
        if (hak_slab_all_back(slab))
            hak_slab_reap(slab);
        else
            hak_slab_stack_push(&p->stack, slab);
    }
    atomic_store_explicit(&p->length, length, memory_order_relaxed);
}

/* Sweeps when so many are idle that each costs a look at few others. */
static void count_idle(struct partial *p, int32_t most)
{
    int32_t idle = atomic_fetch_add_explicit(&p->idle, 1, memory_order_relaxed) + 1;
    if (idle >= most + atomic_load_explicit(&p->length, memory_order_relaxed) / 4)
        sweep(p);
}

static void all_back(struct hak_slab *slab, unsigned bin)
{
    (void)slab; /* it may be anybody's by now */
    count_idle(&partials[bin], IDLE_PAGES / hak_slab_pages[bin]);
}

/* An ended thread's slabs without live blocks wait for the next thread, which then touches the same pages. */
static void publish(struct hak_slab *slab)
{
    struct partial *p = &partials[slab->bin];
    hak_slab_stack_push(&p->stack, slab);
    if (hak_slab_all_back(slab)) /* perhaps somebody else's by now */
        count_idle(p, IDLE_SLABS);
}

/* All hot slabs join the EMPTY list; false if there were none. */
static bool cool_down(void)
{
    bool any = false;
    for (unsigned bin = 0; bin < HAK_NBINS; bin++)
        if (!hak_slab_stack_is_empty(&hot[bin].stack)) {
            cool(take_hot(&hot[bin]));
            any = true;
        }
    return any;
}

static void sweep_all(void)
{
    for (unsigned bin = 0; bin < HAK_NBINS; bin++)
        if (atomic_load_explicit(&partials[bin].idle, memory_order_relaxed) > 0)
            sweep(&partials[bin]);
}

/* Idle slabs of classes that come and go stay: else each thread in turn would touch other pages. */
static void sweep_unserved(void)
{
    for (unsigned bin = 0; bin < HAK_NBINS; bin++)
        if (!atomic_exchange_explicit(&partials[bin].served, false, memory_order_relaxed) &&
            atomic_load_explicit(&partials[bin].idle, memory_order_relaxed) > 0)
            sweep(&partials[bin]);
}

static size_t trim(size_t keep)
{
    size_t returned = 0;
    sweep_all();
    hak_lock_acquire(&lock);
    cool_down();
    struct superslab *s;
    while (superslab_dirty_bytes() > keep && (s = superslab_oldest_dirty())) {
        size_t n = clean_region(s, HAK_CAUSE_trim);
        returned += n;
        if (!n)
            break;
    }
    lru_trim(keep, HAK_CAUSE_trim);
    hak_lock_release(&lock);
    return returned;
}

static bool age(uint64_t now_ms)
{
    static uint64_t cooled_ms;
    static _Atomic(uint64_t) last_ms;
    uint64_t last = atomic_exchange_explicit(&last_ms, now_ms, memory_order_relaxed);
    bool slept = last && now_ms - last >= purge_delay_ms();
    if (slept)
        sweep_all();
    else
        sweep_unserved();
    hak_lock_acquire(&lock);
    if (slept)
        slept_until_ms = now_ms;
    if (slept || now_ms - cooled_ms >= purge_delay_ms()) {
        cooled_ms = now_ms;
        cool_down();
    }
    bool more = clean_idle(now_ms, hak_dispatch.options.ss_partial);
    lru_age(now_ms);
    hak_lock_release(&lock);
    return more;
}

/* --- the rest ------------------------------------------------------------------------------------------- */

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

static void prefault(struct superslab *s)
{
    if (hak_space_commit(s->base, HAK_SUPERSLAB, HAK_CAUSE_superslab_map))
        return;
    if (hak_os_advise(s->base, HAK_SUPERSLAB, MADV_POPULATE_WRITE, HAK_CAUSE_prefault) == 0 ||
        hak_dispatch.options.no_fallback_prefault)
        return;
    for (size_t i = 0; i < HAK_SUPERSLAB; i += 4096) { /* kernels before 5.14 */
        ((volatile char *)s->base)[i] = 0;
        prefault_touched++;
    }
}

static void fork_prepare(void)
{
    hak_lock_acquire(&lock);
}

static void fork_done(bool in_child)
{
    (void)in_child;
    hak_lock_release(&lock);
}

static uint64_t partial_slabs(const struct hak_thread_counters *c)
{
    return c->transitions[HAK_SLAB_FULL][HAK_SLAB_PARTIAL] + c->transitions[HAK_SLAB_ACTIVE][HAK_SLAB_PARTIAL] -
           c->transitions[HAK_SLAB_PARTIAL][HAK_SLAB_ACTIVE];
}

static void stats(struct hak_stats_writer *w)
{
    struct hak_thread_totals t;
    hak_thread_totals(&t);
    hak_stats_begin(w, "stages");
    for (unsigned i = 0; i < NSTAGES; i++)
        hak_stats_number(w, stage_names[i], atomic_load_explicit(&t.counters.stages[i], memory_order_relaxed));
    hak_stats_number(w, "failed", atomic_load_explicit(&failed, memory_order_relaxed));
    hak_stats_end(w);
    hak_lock_acquire(&lock);
    lru_stats(w);
    hak_stats_begin(w, "shared_pool");
    hak_stats_number(w, "partial_slabs", partial_slabs(&t.counters));
    hak_stats_number(w, "empties", empties);
    hak_stats_number(w, "dirty_bytes", superslab_dirty_bytes());
    hak_stats_number(w, "prefault_touched", prefault_touched);
    hak_stats_number(w, "lock_taken", atomic_load_explicit(&lock.taken, memory_order_relaxed));
    hak_stats_end(w);
    hak_lock_release(&lock);
}

const struct hak_backend hak_backend_shared_pool = {
    .name = "shared_pool",
    .acquire_slab = acquire_slab,
    .adopt = adopt,
    .acquire_run = acquire_run,
    .release = release,
    .publish = publish,
    .all_back = all_back,
    .trim = trim,
    .age = age,
    .fork_prepare = fork_prepare,
    .fork_done = fork_done,
    .stats = stats,
};
