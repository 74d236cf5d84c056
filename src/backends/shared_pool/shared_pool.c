/* SPDX-License-Identifier: MIT
 * The shared pool: slabs of all classes share superslabs. A slab is acquired in stages, an ordered array of
 * functions that reads top to bottom as the policy: hot (EMPTY) and PARTIAL slabs first, from lock-free stacks
 * of their class (hot.c, partial.c), then pages (runs.c, superslab.c), whole superslabs from the LRU cache
 * (lru.c) and from the address space at last. One lock guards all that concerns pages. */
#include <limits.h>
#include <sys/mman.h>

#include "core/plugin.h"
#include "core/os/huge_page.h"
#include "core/base/work.h"
#include "core/heap/remote_cache.h"
#include "core/heap/thread.h"
#include "hot.h"
#include "lru.h"
#include "partial.h"
#include "runs.h"

#define SWEEP 256u              /* PARTIAL slabs that a tick looks at: some 20 us, */
#define SWEEP_AFTER_SLEEP 4096u /* or more, since none of them was used */
#define HUGE_FROM (16 * HAK_MIB)
#define HUGE_LOOK_BACK 4u
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

/* The policy, top to bottom: name, whether it holds the lock, what it finds. */
#define STAGES(X)                                                                                   \
    X(hot, false, "an EMPTY slab of its class that waits without a lock")                           \
    X(partial, false, "a PARTIAL slab of its class, which is adopted")                              \
    X(warm, false, "a hot slab of another class, of the same length")                               \
    X(empty, true, "an EMPTY slab of its class, or of the same length")                             \
    X(unused, true, "free pages of a superslab")                                                    \
    X(drain, true, "what blocks of others that this thread gave back, or ended threads, left free") \
    X(lru, true, "a cached superslab that was wholly free")                                         \
    X(map, true, "a new superslab")

enum stage {
#define X(name, locked, finds) STAGE_##name,
    STAGES(X)
#undef X
    NSTAGES
};
static const struct hak_stage stage_list[] = {
#define X(name, locked, finds) {#name, locked, finds},
    STAGES(X)
#undef X
    {0}};

static _Atomic(uint64_t) prefault_touched;

/* --- stages ------------------------------------------------------------------------------------------ */

struct request {
    struct hak_thread *thread;
    unsigned cls, pages;
    bool header;
};

static struct hak_slab *stage_hot(struct request *r)
{
    return hak_hot_pop(r->cls);
}

static struct hak_slab *stage_partial(struct request *r)
{
    return hak_partial_take(r->thread, r->cls);
}

static struct hak_slab *stage_warm(struct request *r)
{
    return hak_hot_pop_similar(r->pages, r->header);
}

static struct hak_slab *stage_empty(struct request *r)
{
    return hak_runs_take_empty(r->cls, r->pages, r->header);
}

/* A slab of a superslab that has room for it. */
static struct hak_slab *take(struct request *r, struct superslab *s)
{
    bool zero;
    return hak_runs_take(s, r->pages, false, &zero);
}

static struct hak_slab *stage_unused(struct request *r)
{
    struct superslab *s = hak_superslab_find(r->pages, r->header);
    return s ? take(r, s) : NULL;
}

/* Foreign blocks that this thread has not given back yet may complete a slab, and what ended threads left parked
 * may hold some. */
static struct hak_slab *stage_drain(struct request *r)
{
    hak_lock_release(&hak_pool_lock);
    hak_remote_cache_flush(r->thread);
    hak_thread_break_up(UINT64_MAX);
    hak_lock_acquire(&hak_pool_lock);
    struct hak_slab *slab = stage_partial(r);
    return slab ? slab : stage_empty(r);
}

static struct hak_slab *stage_lru(struct request *r)
{
    struct superslab *s = hak_lru_pop(1, 1, r->header);
    if (!s)
        return NULL;
    hak_superslab_offer(s);
    return take(r, s);
}

static bool is_dense(void *superslab)
{
    int resident = superslab ? hak_os_resident(superslab, HAK_HUGE_PAGE, HAK_CAUSE_huge_page) : 0;
    return resident > 0 && hak_huge_page_is_dense((size_t)resident, HAK_HUGE_PAGE);
}

/* In a larger heap huge pages pay; they waste little of it if the program touches what it gets, which the
 * superslab mapped a few before this one shows. Two threads at once look at the same one. */
static void advise_huge(char *base)
{
    static _Atomic(char *) mapped[HUGE_LOOK_BACK];
    static _Atomic(unsigned) turn;
    struct hak_space_stats space;
    if (hak_options.thp != HAK_THP_AUTO || HAK_SUPERSLAB < HAK_HUGE_PAGE)
        return;
    char *before = HAK_EXCHANGE_RELAXED(&mapped[HAK_ADD_RELAXED(&turn, 1) % HUGE_LOOK_BACK], base);
    hak_space_stats(&space);
    if (space.handed_out > HUGE_FROM && is_dense(before))
        hak_huge_page_advise(base, HAK_SUPERSLAB);
}

static void prefault(char *base)
{
    if (hak_os_advise(base, HAK_SUPERSLAB, MADV_POPULATE_WRITE, HAK_CAUSE_prefault) == 0 ||
        hak_options.no_fallback_prefault)
        return;
    for (size_t i = 0; i < HAK_SUPERSLAB; i += HAK_SYSTEM_PAGE) /* kernels before 5.14 */
        ((volatile char *)base)[i] = 0;
    HAK_ADD_RELAXED(&prefault_touched, HAK_SUPERSLAB / HAK_SYSTEM_PAGE);
}

/* Nobody waits for the system calls of another: the lock is let go of meanwhile. */
static struct superslab *map_outside(size_t count, size_t align, bool header)
{
    hak_lock_release(&hak_pool_lock);
    struct superslab *s = hak_superslab_map(count, align, header);
    hak_lock_acquire(&hak_pool_lock);
    return s;
}

static struct hak_slab *stage_map(struct request *r)
{
    hak_lock_release(&hak_pool_lock);
    struct superslab *s = hak_superslab_map(1, 1, r->header);
    if (s)
        advise_huge(s->pages.base);
    if (s && hak_options.ss_prefault)
        prefault(s->pages.base);
    hak_lock_acquire(&hak_pool_lock);
    if (!s)
        return NULL;
    hak_superslab_offer(s);
    return take(r, s);
}

static struct hak_slab *(*const stages[NSTAGES])(struct request *) = {
#define X(name, locked, finds) [STAGE_##name] = stage_##name,
    STAGES(X)
#undef X
};

static struct hak_slab *run_stages(struct request *r, unsigned from, unsigned to)
{
    for (unsigned i = from; i <= to; i++) {
        struct hak_slab *slab = stages[i](r);
        if (!slab)
            continue;
        hak_count_stage(i);
        if (HAK_UNLIKELY(hak_options.log_acquire))
            hak_log("SS_ACQUIRE class %u, stage %s: slab %p", r->cls, stage_list[i].name, (void *)slab->base);
        return slab;
    }
    return NULL;
}

static struct hak_slab *acquire_slab(struct hak_thread *t, unsigned cls)
{
    struct request r = {.thread = t, .cls = cls, .pages = hak_slab_pages[cls]};
    r.header = hak_parts_has_header(cls);
    struct hak_slab *slab = run_stages(&r, STAGE_hot, STAGE_warm);
    if (!slab) {
        hak_lock_acquire(&hak_pool_lock);
        slab = run_stages(&r, STAGE_empty, STAGE_map);
        if (!slab && r.header) { /* their zone is full: blocks without headers serve as well */
            r.header = false;
            slab = run_stages(&r, STAGE_empty, STAGE_map);
        }
        hak_lock_release(&hak_pool_lock);
    }
    if (slab && hak_slab_state(slab) != HAK_SLAB_ACTIVE)
        hak_slab_format(slab, cls, t);
    return slab;
}

static struct hak_slab *adopt(struct hak_thread *t, unsigned cls)
{
    struct request r = {.thread = t, .cls = cls};
    return run_stages(&r, STAGE_partial, STAGE_partial);
}

/* --- larger runs -------------------------------------------------------------------------------------- */

static void cool(struct hak_slab *slab)
{
    for (struct hak_slab *next; slab; slab = next) {
        next = hak_slab_stack_next(slab);
        hak_runs_put_empty(slab);
    }
}

/* All hot slabs join the EMPTY list; false if there were none. */
static bool cool_down(void)
{
    bool any = false;
    struct hak_slab *slabs;
    for (unsigned cls = 0; (slabs = hak_hot_take_all(&cls)); any = true)
        cool(slabs);
    return any;
}

static struct hak_slab *acquire_within(size_t pages, bool *zero)
{
    struct superslab *s = hak_superslab_find((unsigned)pages, false);
    if (!s && cool_down())
        s = hak_superslab_find((unsigned)pages, false);
    if (!s && (s = hak_lru_pop(1, 1, false)))
        hak_superslab_offer(s);
    if (!s && (s = map_outside(1, 1, false)))
        hak_superslab_offer(s);
    return s ? hak_runs_take(s, (unsigned)pages, true, zero) : NULL;
}

static struct hak_slab *acquire_regions(size_t pages, size_t align, bool *zero)
{
    size_t count = hak_align_up(pages, HAK_SUPERSLAB_PAGES) / HAK_SUPERSLAB_PAGES;
    size_t align_count = hak_max(1, align / HAK_SUPERSLAB_PAGES);
    struct superslab *s = hak_lru_pop(count, align_count, false);
    if (!s)
        s = map_outside(count, align_count, false);
    if (!s)
        return NULL;
    struct hak_slab *slab = hak_runs_take_whole(s, pages, zero);
    if (!slab)
        hak_lru_push(s);
    return slab;
}

static struct hak_slab *acquire_run(size_t pages, size_t align, bool *zeroed)
{
    hak_lock_acquire(&hak_pool_lock);
    struct hak_slab *slab = pages <= HAK_SUPERSLAB_PAGES && align <= 1 ? acquire_within(pages, zeroed)
                                                                       : acquire_regions(pages, align, zeroed);
    hak_lock_release(&hak_pool_lock);
    return slab;
}

/* --- giving back --------------------------------------------------------------------------------------- */

/* Pages were put: what is too much by that goes at once. */
static void release_lock_and_bound(void)
{
    bool exceeds = hak_runs_exceed();
    hak_lock_release(&hak_pool_lock);
    if (exceeds)
        hak_runs_bound();
}

/* The most recent one is hot; those before it join the EMPTY list together when they are too many. */
static void heat(struct hak_slab *slab)
{
    if (hak_hot_push(slab))
        return;
    hak_lock_acquire(&hak_pool_lock);
    do
        cool(hak_hot_take(slab->cls));
    while (!hak_hot_push(slab));
    release_lock_and_bound();
}

static void release(struct hak_slab *slab)
{
    if (hak_slab_state(slab) == HAK_SLAB_EMPTY) {
        heat(slab);
        return;
    }
    hak_lock_acquire(&hak_pool_lock);
    hak_runs_put(slab);
    release_lock_and_bound();
}

static void all_back(struct hak_slab *slab, unsigned cls)
{
    (void)slab; /* it may be anybody's by now */
    hak_partial_note_idle(cls);
}

static void reap(void)
{
    while (hak_partial_sweep(true, UINT_MAX))
        hak_lock_let_fork();
}

static size_t trim(size_t keep)
{
    hak_lock_acquire(&hak_pool_lock);
    cool_down();
    hak_lock_release(&hak_pool_lock);
    size_t bytes = hak_purge_trim(&hak_runs_purger, keep);
    hak_runs_evict(keep, HAK_CAUSE_trim, UINT64_MAX);
    return bytes;
}

static bool purge_tick(uint64_t now_ms)
{
    static _Atomic(uint64_t) cooled_ms;
    bool slept = HAK_LOAD_RELAXED(&hak_slept_ms) == now_ms;
    bool more = hak_partial_sweep(slept, slept ? SWEEP_AFTER_SLEEP : SWEEP);
    bool cool = slept || hak_clock_age(HAK_LOAD_RELAXED(&cooled_ms), now_ms) >= hak_purge_delay_ms();
    hak_lock_acquire(&hak_pool_lock);
    if (cool)
        cool_down();
    bool evict = hak_lru_unwanted(SIZE_MAX);
    hak_lock_release(&hak_pool_lock);
    if (cool)
        HAK_STORE_RELAXED(&cooled_ms, now_ms);
    if (evict && hak_runs_evict(SIZE_MAX, HAK_CAUSE_lru_evict, hak_os->clock_ns() + HAK_PURGE_TICK_NS))
        return true;
    return hak_purge_tick_of(&hak_runs_purger, now_ms) || (more && slept);
}

/* --- the rest ------------------------------------------------------------------------------------------- */

static uint64_t partial_slabs(const struct hak_counters *c)
{
    return c->transitions[HAK_SLAB_FULL][HAK_SLAB_PARTIAL] + c->transitions[HAK_SLAB_ACTIVE][HAK_SLAB_PARTIAL] -
           c->transitions[HAK_SLAB_PARTIAL][HAK_SLAB_ACTIVE];
}

static void stats(struct hak_stats_writer *w)
{
    struct hak_thread_totals t;
    hak_thread_totals(&t);
    hak_lock_acquire(&hak_pool_lock);
    hak_lru_stats(w);
    hak_stats_begin(w, "shared_pool");
    hak_stats_number(w, "partial_slabs", partial_slabs(&t.counters));
    hak_stats_number(w, "empties", hak_runs_empties());
    hak_purge_stats(&hak_runs_purger, w);
    hak_stats_number(w, "prefault_touched", HAK_LOAD_RELAXED(&prefault_touched));
    hak_stats_number(w, "lock_taken", HAK_LOAD_RELAXED(&hak_pool_lock.taken));
    hak_stats_end(w);
    hak_lock_release(&hak_pool_lock);
}

const struct hak_backend hak_backend_shared_pool = {
    .name = "shared_pool",
    .stages = stage_list,
    .acquire_slab = acquire_slab,
    .adopt = adopt,
    .acquire_run = acquire_run,
    .release = release,
    .publish = hak_partial_put,
    .all_back = all_back,
    .reap = reap,
    .trim = trim,
    .purge_tick = purge_tick,
    .stats = stats,
};
