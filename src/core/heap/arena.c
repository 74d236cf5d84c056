/* SPDX-License-Identifier: MIT
 * See arena.h. Slabs with free blocks stand on a list of their class, the others on `full`. A class keeps one slab
 * without blocks, if it has no other with free ones.
 *
 * A thread that uses one arena steadily has a front, which caches a few of the arena's free blocks of each class
 * without a lock. These count as allocated. The arena's lock protects which arena a front belongs to, and so the
 * front's blocks while the thread neither allocates nor frees there. Without an arena, and before a thread has a front,
 * all its bins are empty: so one comparison covers all. */
#include "arena.h"

#include <string.h>

#include "core/base/layout.h"
#include "core/base/log.h"
#include "core/base/text.h"
#include "core/base/work.h"
#include "core/os/limit.h"
#include "core/os/meta.h"
#include "core/pages/budget.h"
#include "core/pages/closed.h"
#include "core/pages/page_heap.h"
#include "core/pages/slab_list.h"
#include "core/pages/space.h"
#include "core/pages/zero.h"
#include "core/parts/purge.h"

struct hak_arena { /* its lock protects all but the links and the tag */
    uint64_t tag;
    struct hak_arena *next, *prev;
    struct hak_slab *full, *spans;
    struct hak_front *fronts; /* of all threads */
    size_t live, blocks, held, peak, limit;
    hak_arena_reached *reached;
    void *context;
    bool apart;
    uint8_t advice;
    uint16_t align;
    char name[HAK_ARENA_NAME];
    struct hak_slab *open[HAK_NCLASSES];
};

#define REACHED_MOST 16u /* calls of the program's function; it may free in steps */
#define PUT_AT_ONCE 64u  /* runs, under the lock */

/* Arenas share a few locks: so fork takes few, and an arena is small. */
#define LOCKS 8u
static struct {
    _Alignas(2 * HAK_CACHELINE) struct hak_lock lock;
} locks[LOCKS] = {[0 ... LOCKS - 1] = {HAK_LOCK_INIT(HAK_RANK_ARENA)}};
#define ENTRY(i) static struct hak_lock *const lock_entry##i HAK_LOCK_ENTRY = &locks[i].lock
ENTRY(0);
ENTRY(1);
ENTRY(2);
ENTRY(3);
ENTRY(4);
ENTRY(5);
ENTRY(6);
ENTRY(7);

static struct hak_lock *lock_of(const struct hak_arena *a)
{
    return &locks[((uintptr_t)a >> 6) % LOCKS].lock;
}

static HAK_LOCK(arenas_lock, HAK_RANK_ARENAS);
static struct hak_arena *arenas; /* those alive */
static size_t alive;
static uint32_t tags_of_arenas;
static struct hak_meta_list unused_arenas;

/* --- pages ------------------------------------------------------------------------------------------------- */

static bool has_room_for(const struct hak_arena *a, size_t bytes)
{
    return !a->limit || (bytes <= a->limit && a->held <= a->limit - bytes);
}

static void charge(struct hak_arena *a, size_t bytes)
{
    a->held += bytes;
    a->peak = hak_max(a->peak, a->held);
}

/* The run belongs to the arena from here on. */
static void own_run(struct hak_arena *a, struct hak_slab *run)
{
    charge(a, run->pages * HAK_PAGE);
    HAK_STORE_RELAXED(&run->owner, (struct hak_heap *)(void *)a);
    hak_count_transition(HAK_SLAB_UNUSED, HAK_SLAB_ARENA);
    HAK_STORE_RELEASE(&run->word, HAK_SLAB_ARENA);
}

/* Makes a run that was taken accessible. */
static bool is_usable(const struct hak_slab *run)
{
    size_t bytes = run->pages * HAK_PAGE;
    return (!hak_limit_is_tight || !hak_space_open(run->base, bytes)) && hak_closed_open(run->base, bytes);
}

/* The superslabs of the run are others', too, or lose advice. */
static bool is_advised_alone(const struct hak_arena *a, const struct hak_slab *run)
{
    return a->advice && (hak_limit_is_tight || hak_superslab_of(run->base)->set < HAK_SET_OWN);
}

static bool advise_run(const struct hak_arena *a, const struct hak_slab *run)
{
    return !is_advised_alone(a, run) || hak_pages_advise(run->base, run->pages * HAK_PAGE, HAK_ADVICE_NONE, a->advice);
}

/* The rest of the run, from that page on, ceases to be the arena's. */
static void end_advice(const struct hak_arena *a, const struct hak_slab *run, size_t first)
{
    if (is_advised_alone(a, run))
        hak_pages_advise(run->base + first * HAK_PAGE, (run->pages - first) * HAK_PAGE, a->advice, HAK_ADVICE_NONE);
}

/* A set's own runs begin and end with their superslab. */
static struct hak_slab *acquire_run(struct hak_arena *a, struct hak_page_request *r, bool beyond)
{
    r->align = hak_max(hak_max(r->align, a->align), 1);
    bool apart = a->apart && hak_max(r->pages, r->align) <= HAK_SUPERSLAB_PAGES;
    r->set = apart ? HAK_SET_APART + a->advice : HAK_SET_COMMON;
    r->until = HAK_PAGES_MAPPED;
    enum hak_pages_from from = r->slab && r->align == 1 ? HAK_PAGES_DIRTY
                               : r->slab || apart       ? HAK_PAGES_FREE
                                                        : HAK_PAGES_WHOLE;
    struct hak_slab *run = beyond || has_room_for(a, r->pages * HAK_PAGE) ? hak_pages_take_run(r, from) : NULL;
    if (run && HAK_UNLIKELY(!is_usable(run) || !advise_run(a, run))) {
        end_advice(a, run, 0);
        hak_pages_put(run);
        run = NULL;
    }
    return run;
}

static void release_run(struct hak_arena *a, struct hak_slab *run)
{
    a->held -= run->pages * HAK_PAGE;
    if (run->cls != HAK_CLASS_SPAN)
        hak_slab_untag(run);
    end_advice(a, run, 0);
    hak_closed_shut(run->base, run->pages * HAK_PAGE);
    HAK_STORE_RELAXED(&run->owner, NULL);
    hak_count_transition(HAK_SLAB_ARENA, HAK_SLAB_UNUSED);
    hak_pages_put(run);
}

static void count_live(struct hak_arena *a, size_t bytes, size_t blocks)
{
    a->live += bytes;
    a->blocks += blocks;
    hak_count_allocated(bytes);
}

/* --- blocks of slabs --------------------------------------------------------------------------------------- */

static bool has_free(const struct hak_slab *slab)
{
    return slab->marked || slab->carved < slab->capacity;
}

static struct hak_slab *new_slab_of(struct hak_arena *a, unsigned cls, bool beyond)
{
    struct hak_page_request r = {.pages = hak_slab_pages[cls], .slab = true};
    struct hak_slab *slab = acquire_run(a, &r, beyond);
    if (!slab)
        return NULL;
    hak_slab_lay_out(slab, cls);
    if (!hak_slab_make_bitmap(slab)) {
        end_advice(a, slab, 0);
        hak_pages_put(slab);
        return NULL;
    }
    own_run(a, slab);
    hak_slab_tag(slab, a->tag);
    hak_slab_list_push(&a->open[cls], slab);
    return slab;
}

/* Blocks are handed out in address order, as far as they are free. */
static void *take_block(struct hak_slab *slab)
{
    uint32_t i = slab->carved;
    if (slab->marked) {
        uint32_t words = (slab->capacity + 63) / 64;
        while (!slab->bitmap[slab->cursor])
            slab->cursor = (uint16_t)(slab->cursor + 1u < words ? slab->cursor + 1u : 0);
        uint64_t *word = &slab->bitmap[slab->cursor];
        i = slab->cursor * 64u + (uint32_t)__builtin_ctzll(*word);
        *word &= *word - 1;
        slab->marked--;
    } else {
        slab->carved++;
    }
    slab->used++;
    return slab->base + (size_t)i * slab->stride;
}

static void *pop_block(struct hak_arena *a, unsigned cls, const struct hak_arena_request *r, bool may_grow)
{
    struct hak_slab *slab = a->open[cls];
    if (!slab && (!may_grow || !(slab = new_slab_of(a, cls, r->beyond))))
        return NULL;
    void *p = take_block(slab);
    if (!has_free(slab)) {
        hak_slab_list_remove(&a->open[cls], slab);
        hak_slab_list_push(&a->full, slab);
    }
    return p;
}

/* The number of the block; stops the process unless it is live. */
static uint32_t live_number(const struct hak_slab *slab, const void *p, const char *call)
{
    uint64_t offset = (uintptr_t)p - (uintptr_t)slab->base;
    uint32_t i = (uint32_t)(offset * slab->bitmap_divisor >> 32);
    if (HAK_UNLIKELY((uint64_t)i * slab->stride != offset || i >= slab->carved))
        hak_slab_check_block(slab, p, call);
    if (HAK_UNLIKELY(slab->bitmap[i / 64] >> i % 64 & 1))
        hak_slab_fail_free(slab, p);
    return i;
}

static void push_block(struct hak_arena *a, struct hak_slab *slab, void *p)
{
    uint32_t i = live_number(slab, p, "free");
    unsigned cls = slab->cls;
    if (!has_free(slab)) {
        struct hak_slab *empty = a->open[cls] && !a->open[cls]->used ? a->open[cls] : NULL;
        if (empty) {
            hak_slab_list_remove(&a->open[cls], empty);
            release_run(a, empty);
        }
        hak_slab_list_remove(&a->full, slab);
        hak_slab_list_push(&a->open[cls], slab);
    }
    slab->bitmap[i / 64] |= (uint64_t)1 << i % 64;
    slab->marked++;
    slab->used--;
    if (!slab->used && (a->open[cls] != slab || slab->next)) {
        hak_slab_list_remove(&a->open[cls], slab);
        release_run(a, slab);
    }
}

static void push_blocks(struct hak_arena *a, void *const *blocks, uint32_t n, unsigned cls)
{
    for (uint32_t i = 0; i < n; i++)
        push_block(a, hak_space_slab_of_block(blocks[i]), blocks[i]);
    count_live(a, -(size_t)n * hak_class_usable(cls), -(size_t)n);
}

/* --- fronts ------------------------------------------------------------------------------------------------ */

static struct hak_meta_list unused_fronts; /* under arenas_lock */

static uint32_t count_in(const struct hak_front_bin *b)
{
    return (uint32_t)(b->last - b->slots);
}

/* Gives the blocks freed longest ago back. */
static void give_back(struct hak_arena *a, struct hak_front_bin *b, unsigned cls, uint32_t n)
{
    uint32_t rest = count_in(b) - n;
    push_blocks(a, b->slots + 1, n, cls);
    hak_move(b->slots + 1, b->slots + 1 + n, rest * sizeof *b->slots);
    b->last = b->slots + rest;
}

static void flush_front(struct hak_arena *a, struct hak_front *f)
{
    for (unsigned cls = 0; cls < HAK_NCLASSES; cls++)
        give_back(a, &f->bins[cls], cls, count_in(&f->bins[cls]));
}

/* Release: whoever sees that it has no arena sees the empty bins. */
static void empty_front(struct hak_front *f)
{
    HAK_STORE_RELAXED(&f->tag, HAK_TAG_NOBODY);
    for (unsigned cls = 0; cls < HAK_NCLASSES; cls++)
        f->bins[cls].last = f->bins[cls].slots;
    HAK_STORE_RELEASE(&f->arena, NULL);
}

/* The front gives its blocks back, and is free for another arena. */
static void leave_arena(struct hak_front *f)
{
    struct hak_arena *a = HAK_LOAD_ACQUIRE(&f->arena);
    if (!a)
        return;
    hak_lock_acquire(lock_of(a));
    if (HAK_LOAD_RELAXED(&f->arena)) { /* otherwise a was destroyed in the meantime */
        flush_front(a, f);
        HAK_LIST_REMOVE(&a->fronts, f);
        empty_front(f);
    }
    hak_lock_release(lock_of(a));
}

void hak_front_begin(struct hak_arena *a)
{
    struct hak_front *f = hak_front;
    if (f == &hak_no_front) {
        hak_lock_acquire(&arenas_lock);
        f = hak_meta_new(&unused_fronts, sizeof *f + HAK_NCLASSES * sizeof *f->bins);
        hak_lock_release(&arenas_lock);
    }
    if (!f)
        return;
    leave_arena(f);
    hak_lock_acquire(lock_of(a));
    HAK_LIST_PUSH(&a->fronts, f);
    empty_front(f);
    HAK_STORE_RELAXED(&f->tag, a->tag);
    HAK_STORE_RELAXED(&f->arena, a);
    hak_lock_release(lock_of(a));
    hak_front = f;
}

void hak_front_end(void)
{
    struct hak_front *f = hak_front;
    hak_front = &hak_no_front;
    leave_arena(f);
    hak_lock_acquire(&arenas_lock);
    hak_meta_recycle(&unused_fronts, f);
    hak_lock_release(&arenas_lock);
}

/* --- spans ------------------------------------------------------------------------------------------------- */

static size_t pages_of(size_t size)
{
    return hak_align_up(hak_max(size, 1), HAK_PAGE) / HAK_PAGE;
}

/* As spans of the large frontend: a canary stands at the end of all pages. */
static void set_requested(struct hak_arena *a, struct hak_slab *span, size_t size)
{
    size_t before = span->requested;
    span->requested = HAK_CANARY ? span->pages * HAK_PAGE : hak_align_up(hak_max(size, 1), HAK_SYSTEM_PAGE);
    count_live(a, span->requested - before, 0);
}

static void *take_span(struct hak_arena *a, struct hak_arena_request *r)
{
    struct hak_page_request pages = {.pages = pages_of(r->size), .align = r->align / HAK_PAGE};
    struct hak_slab *span = acquire_run(a, &pages, r->beyond);
    if (!span)
        return NULL;
    span->requested = 0;
    set_requested(a, span, r->size);
    own_run(a, span);
    count_live(a, 0, 1);
    HAK_LIST_PUSH(&a->spans, span);
    r->is_zero = pages.zero;
    return span->base;
}

static void put_span(struct hak_arena *a, struct hak_slab *span)
{
    if (hak_zeroes_on_free())
        memset(span->base, 0, span->requested);
    count_live(a, -span->requested, (size_t)-1);
    HAK_LIST_REMOVE(&a->spans, span);
    release_run(a, span);
}

static void check_span(const struct hak_slab *span, const void *p, const char *call)
{
    if (HAK_UNLIKELY(p != span->base))
        hak_log_fatal("invalid %s: %p lies within a block of %zu bytes at %p", call, p, span->requested,
                      (void *)span->base);
}

/* --- calls ------------------------------------------------------------------------------------------------- */

static bool is_span_of_arena(const struct hak_slab *slab)
{
    return slab->cls == HAK_CLASS_SPAN;
}

/* A block for the caller, and some for its front. */
static void *pop_blocks(struct hak_arena *a, const struct hak_arena_request *r, bool may_grow)
{
    struct hak_front *f = hak_front;
    struct hak_front_bin *b = &f->bins[r->cls];
    void *p = pop_block(a, r->cls, r, may_grow), *more;
    uint32_t n = p != NULL;
    if (p && HAK_LOAD_RELAXED(&f->arena) == a)
        for (; count_in(b) < HAK_FRONT_REFILL && (more = pop_block(a, r->cls, r, false)); n++)
            *++b->last = more;
    count_live(a, n * hak_class_usable(r->cls), n);
    return p;
}

void *hak_arena_take(struct hak_arena *a, struct hak_arena_request *r, bool may_grow)
{
    void *p = NULL;
    hak_lock_acquire(lock_of(a));
    if (r->cls < HAK_NCLASSES)
        p = pop_blocks(a, r, may_grow);
    else if (may_grow)
        p = take_span(a, r);
    hak_lock_release(lock_of(a));
    return p;
}

bool hak_arena_may_grow(struct hak_arena *a, size_t bytes, bool *beyond)
{
    for (unsigned i = 0;; i++) {
        hak_lock_acquire(lock_of(a));
        bool has_room = has_room_for(a, bytes);
        hak_lock_release(lock_of(a));
        if (has_room)
            return true;
        int answer = a->reached && i < REACHED_MOST ? a->reached(a, bytes, a->context) : 0;
        if (answer != 1)
            return *beyond = answer > 1;
    }
}

static void put_block(struct hak_arena *a, struct hak_slab *slab, void *p)
{
    unsigned cls = slab->cls;
    struct hak_front *f = hak_front;
    struct hak_front_bin *b = &f->bins[cls];
    bool is_mine = HAK_LOAD_RELAXED(&f->arena) == a;
    hak_slab_tag(slab, a->tag); /* the tag was lost if the table grew */
    if (is_mine && *b->last == p)
        hak_slab_fail_free(slab, p);
    if (is_mine && count_in(b) == HAK_FRONT_MOST)
        give_back(a, b, cls, HAK_FRONT_REFILL);
    push_blocks(a, &p, 1, cls);
}

void hak_arena_put(struct hak_slab *slab, void *p)
{
    struct hak_arena *a = hak_arena_of(slab);
    hak_lock_acquire(lock_of(a));
    if (!is_span_of_arena(slab)) {
        put_block(a, slab, p);
    } else {
        check_span(slab, p, "free");
        put_span(a, slab);
    }
    hak_lock_release(lock_of(a));
}

size_t hak_arena_usable(struct hak_slab *slab, const void *p, const char *call)
{
    if (is_span_of_arena(slab)) {
        check_span(slab, p, call);
        return slab->requested;
    }
    struct hak_arena *a = hak_arena_of(slab);
    hak_lock_acquire(lock_of(a));
    live_number(slab, p, call);
    hak_lock_release(lock_of(a));
    return hak_class_usable(slab->cls);
}

bool hak_arena_resize(struct hak_slab *slab, void *p, size_t size, bool beyond)
{
    struct hak_arena *a = hak_arena_of(slab);
    size_t pages = pages_of(size), before = slab->pages;
    if (!is_span_of_arena(slab) || size > HAK_ARENA_MOST)
        return false;
    check_span(slab, p, "realloc");
    hak_lock_acquire(lock_of(a));
    if (pages < before) {
        end_advice(a, slab, pages);
        hak_closed_shut(slab->base + pages * HAK_PAGE, (before - pages) * HAK_PAGE);
    }
    bool done =
        (pages <= before || beyond || has_room_for(a, (pages - before) * HAK_PAGE)) && hak_pages_resize(slab, pages);
    if (done && pages > before && HAK_UNLIKELY(!is_usable(slab) || !advise_run(a, slab))) {
        end_advice(a, slab, before);
        hak_pages_resize(slab, before);
        done = false;
    }
    if (done) {
        charge(a, (pages - before) * HAK_PAGE); /* modulo 2^64 */
        set_requested(a, slab, size);
    }
    hak_lock_release(lock_of(a));
    return done;
}

/* --- arenas ------------------------------------------------------------------------------------------------ */

struct hak_arena *hak_arena_new(const struct hak_arena_options *options)
{
    hak_lock_acquire(&arenas_lock);
    struct hak_arena *a = hak_meta_new(&unused_arenas, sizeof *a);
    if (a) {
        a->tag = (uint64_t)++tags_of_arenas << 32 | HAK_ARENA_TAG;
        a->limit = options->limit;
        a->reached = options->reached;
        a->context = options->context;
        a->apart = options->apart || options->advice;
        a->advice = (uint8_t)options->advice;
        a->align = (uint16_t)options->align;
        if (options->name)
            hak_text_format(a->name, sizeof a->name, "%s", options->name);
        HAK_LIST_PUSH(&arenas, a);
        alive++;
    }
    hak_lock_release(&arenas_lock);
    return a;
}

/* Their blocks are not visited. A fork may come in between: then the child's arena has what is left. */
static void put_list(struct hak_arena *a, struct hak_slab **list)
{
    struct hak_slab *run;
    do {
        hak_lock_acquire(lock_of(a));
        for (unsigned i = 0; (run = *list) && i < PUT_AT_ONCE; i++) {
            HAK_LIST_REMOVE(list, run);
            release_run(a, run);
        }
        hak_lock_release(lock_of(a));
    } while (run);
}

void hak_arena_destroy(struct hak_arena *a)
{
    hak_lock_acquire(&arenas_lock);
    HAK_LIST_REMOVE(&arenas, a);
    alive--;
    hak_lock_release(&arenas_lock);
    hak_lock_acquire(lock_of(a));
    for (struct hak_front *f; (f = a->fronts);) {
        HAK_LIST_REMOVE(&a->fronts, f);
        empty_front(f);
    }
    hak_lock_release(lock_of(a));
    hak_count_allocated(-a->live);
    put_list(a, &a->spans);
    put_list(a, &a->full);
    for (unsigned cls = 0; cls < HAK_NCLASSES; cls++)
        if (a->open[cls])
            put_list(a, &a->open[cls]);
    hak_lock_acquire(&arenas_lock);
    hak_meta_recycle(&unused_arenas, a);
    hak_lock_release(&arenas_lock);
    hak_pages_bound();
}

/* The caller holds the lock. */
static void flush_own(struct hak_arena *a)
{
    if (HAK_LOAD_RELAXED(&hak_front->arena) == a)
        flush_front(a, hak_front);
}

void hak_arena_trim(struct hak_arena *a)
{
    hak_lock_acquire(lock_of(a));
    flush_own(a);
    for (unsigned cls = 0; cls < HAK_NCLASSES; cls++) {
        struct hak_slab *slab = a->open[cls];
        if (slab && !slab->used) {
            hak_slab_list_remove(&a->open[cls], slab);
            release_run(a, slab);
        }
    }
    hak_lock_release(lock_of(a));
}

static bool visit_slabs(const struct hak_slab *slab, hak_arena_visitor *visit, void *context)
{
    for (; slab; slab = slab->next)
        for (uint32_t i = 0; i < slab->carved; i++)
            if (!visit(slab->base + (size_t)i * slab->stride, hak_class_usable(slab->cls),
                       !(slab->bitmap[i / 64] >> i % 64 & 1), context))
                return false;
    return true;
}

bool hak_arena_visit(struct hak_arena *a, hak_arena_visitor *visit, void *context)
{
    hak_lock_acquire(lock_of(a));
    for (struct hak_front *f = a->fronts; f; f = f->next)
        flush_front(a, f);
    hak_lock_release(lock_of(a));
    for (const struct hak_slab *span = a->spans; span; span = span->next)
        if (!visit(span->base, span->requested, true, context))
            return false;
    bool more = visit_slabs(a->full, visit, context);
    for (unsigned cls = 0; more && cls < HAK_NCLASSES; cls++)
        more = visit_slabs(a->open[cls], visit, context);
    return more;
}

void hak_arena_figures(struct hak_arena *a, struct hak_arena_figures *figures)
{
    hak_lock_acquire(lock_of(a));
    flush_own(a);
    *figures = (struct hak_arena_figures){
        .live = a->live, .blocks = a->blocks, .held = a->held, .peak = a->peak, .limit = a->limit};
    hak_lock_release(lock_of(a));
    hak_move(figures->name, a->name, sizeof a->name);
}

size_t hak_arenas_figures(struct hak_arena_figures *figures, size_t most)
{
    size_t n = 0;
    HAK_SHOW_VARIABLE(arenas);
    HAK_SHOW_SIZE(hak_arena);
    HAK_SHOW_FIELD(hak_arena, next);
    HAK_SHOW_FIELD(hak_arena, name);
    HAK_SHOW_FIELD(hak_arena, live);
    HAK_SHOW_FIELD(hak_arena, blocks);
    HAK_SHOW_FIELD(hak_arena, held);
    HAK_SHOW_FIELD(hak_arena, peak);
    HAK_SHOW_FIELD(hak_arena, limit);
    HAK_SHOW_NUMBER("state.arena", HAK_SLAB_ARENA);
    HAK_SHOW_NUMBER("class_span", HAK_CLASS_SPAN);
    hak_lock_acquire(&arenas_lock);
    for (struct hak_arena *a = arenas; a && n < most; a = a->next)
        hak_arena_figures(a, &figures[n++]);
    n = alive;
    hak_lock_release(&arenas_lock);
    return n;
}
