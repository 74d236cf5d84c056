/* SPDX-License-Identifier: MIT
 * The lists that any thread pushes to and takes from, as they are: stacks with versions (core/pages/slab_stack.h), the
 * run cache, and the pool's EMPTY and PARTIAL slabs with publication, adoption and sweep (shared_pool/slab_cache.c,
 * core/parts/parts.c). One thread at a time must get a slab, and see everything that the last one wrote. */
#include <limits.h>

#include "backends/shared_pool/slab_cache.h"
#include "core/os/os.h"
#include "core/pages/page_heap.h"
#include "core/pages/run_cache.h"
#include "core/pages/slab_stack.h"
#include "core/parts/parts.h"
#include "core/parts/purge.h"
#include "core/parts/sparse.h"
#include "world.h"

void hak_count_allocated(uint64_t bytes)
{
    (void)bytes;
}

static struct hak_slab *slabs[WORLD_PAGES];
static void *blocks[WORLD_PAGES];
static unsigned cls; /* of all of them */
static struct hak_slab_stack stack;

static const struct hak_frontend frontend = {.name = "model"};
static const struct hak_backend backend = {.name = "model"};
static const struct hak_release release = {.name = "model"};

const struct hak_frontend *const hak_frontends[] = {&frontend, NULL};
const struct hak_backend *const hak_backends[] = {NULL};
const struct hak_release *const hak_releases[] = {&release, NULL};
const struct hak_os *hak_os; /* holds the clock that times acquires; this model does not time them */

/* No memory for a bitmap: only the count of a slab that is released is checked. */
void *hak_meta_alloc(size_t size)
{
    (void)size;
    return NULL;
}

/* A sweep adopts and gives back slabs that are due. */
static bool sparse_is_due;

bool hak_sparse_is_due(const struct hak_slab *slab, bool now)
{
    (void)slab;
    (void)now;
    return sparse_is_due;
}

size_t hak_sparse_purge(struct hak_slab *slab)
{
    hak_slab_collect(slab);
    return 0;
}

static void setup(unsigned hot, unsigned taken)
{
    world_setup();
    hak_parts.release = &release;
    hak_parts.backend = &backend;
    hak_options.hot_slabs = hot;
    sparse_is_due = false;
    for (unsigned i = 0; i < HAK_NCLASSES; i++)
        hak_parts.by_class[i] = &frontend;
    for (unsigned i = 0; i < WORLD_PAGES; i++)
        slabs[i] = world_slab(i, 2, world_thread(0), taken, &blocks[i]);
    cls = slabs[0]->cls;
}

static void own(struct hak_slab *slab, unsigned self)
{
    world_format(slab, 2, world_thread(self));
    world_use_up(slab);
}

static _Atomic(unsigned) freed; /* slabs: their pages may serve anything */

void hak_pages_put(struct hak_slab *slab)
{
    atomic_fetch_add_explicit(&freed, 1, memory_order_relaxed);
    own(slab, MODEL_THREADS);
}

_Atomic(size_t) hak_pages_room = HAK_SUPERSLAB_PAGES; /* free slabs may wait */

void hak_pages_bound(void)
{
}

uint64_t hak_purge_delay_ms(void)
{
    return 0;
}

/* --- stack: one thread takes two and puts the first back while another one takes ---------------------------- */

static unsigned held[MODEL_THREADS];

static void setup_stack(void)
{
    setup(8, 0);
    for (unsigned i = 0; i < WORLD_PAGES; i++)
        hak_slab_stack_push(&stack, slabs[i]);
}

static struct hak_slab *take(unsigned self)
{
    struct hak_slab *slab = hak_slab_stack_pop(&stack);
    if (slab) {
        held[self]++;
        slab->used++;
    }
    return slab;
}

static void put(unsigned self, struct hak_slab *slab)
{
    held[self]--;
    slab->used--;
    hak_slab_stack_push(&stack, slab);
}

static void pop_and_push(unsigned self)
{
    struct hak_slab *first = take(self), *second = self ? NULL : take(self);
    if (first && !self)
        put(self, first);
    model_reached(second != NULL);
}

/* Each slab is held by a thread or stands on the stack. */
static void expect_all(void)
{
    unsigned n = held[0] + held[1] + held[2];
    for (struct hak_slab *slab = hak_slab_stack_take_all(&stack); slab; slab = hak_slab_stack_next(slab), n++)
        MODEL_CHECK(n < WORLD_PAGES && slab->used == 0);
    MODEL_CHECK(n == WORLD_PAGES && slabs[0]->used + slabs[1]->used == held[0] + held[1] + held[2]);
}

/* --- take_all against pop ------------------------------------------------------------------------------------- */

static void take_or_pop(unsigned self)
{
    if (self == 0) {
        struct hak_slab *next, *slab = hak_slab_stack_take_all(&stack);
        for (; slab; slab = next, held[self]++) {
            next = hak_slab_stack_next(slab);
            slab->used++;
        }
    } else {
        struct hak_slab *slab = take(self);
        if (slab && self == 1)
            put(self, slab);
        model_reached(slab != NULL);
    }
}

/* --- runs: one thread takes and puts, another takes, a third flushes ---------------------------------------- */

static void setup_runs(void)
{
    setup(8, 0);
    for (unsigned i = 0; i < WORLD_PAGES; i++)
        MODEL_CHECK(!hak_run_cache_put(HAK_RUNS_COMMON, slabs[i], WORLD_PAGES));
}

static void take_or_flush(unsigned self)
{
    struct hak_slab *run = self < 2 ? hak_run_cache_take(HAK_RUNS_COMMON, 1) : NULL;
    if (self == 2)
        hak_run_cache_flush();
    if (!run)
        return;
    run->used++;
    held[self]++;
    if (self == 1)
        return;
    run->used--;
    held[self]--;
    if ((run = hak_run_cache_put(HAK_RUNS_COMMON, run, 0)))
        hak_pages_put(run);
}

/* Each run is held by a thread, waits, or is free. */
static void expect_runs(void)
{
    unsigned n = held[1] + freed, gone = freed;
    while (hak_run_cache_take(HAK_RUNS_COMMON, 1))
        n++;
    MODEL_CHECK(n == WORLD_PAGES && hak_run_cache_waiting(HAK_RUNS_COMMON) == 0);
    model_reached(gone);
}

/* --- empty: two threads push where there is room for one, a third pops -------------------------------------------- */

static void setup_empty(void)
{
    setup(1, 0);
}

static void empty(unsigned self)
{
    if (self < 2) {
        hak_slab_empty(slabs[self]);
        hak_slab_cache_put(slabs[self]);
        return;
    }
    struct hak_slab *slab = hak_slab_cache_take_empty(cls);
    if (slab) {
        own(slab, self);
        model_reached(2);
    }
}

static void expect_empties(void)
{
    for (unsigned i = 0; i < WORLD_PAGES; i++)
        MODEL_CHECK(hak_slab_state(slabs[i]) == HAK_SLAB_EMPTY || slabs[i]->used == 2);
    model_reached(freed);
}

/* --- publish: an owner ends, the last block comes back, and a thread needs a slab -------------------------------- */

static void setup_publish(void)
{
    setup(8, 1);
}

static void publish(unsigned self)
{
    if (self == 0) {
        if (hak_slab_disown(slabs[0]) == HAK_SLAB_PARTIAL)
            hak_slab_cache_put(slabs[0]);
    } else if (self == 1) {
        if (world_free(slabs[0], blocks[0]) == HAK_REMOTE_EMPTY)
            hak_slab_cache_all_back(NULL, cls);
    } else {
        struct hak_slab *slab = hak_slab_cache_adopt(world_thread(self), cls);
        if (slab)
            model_reached(world_use_up(slab) - 1);
    }
}

/* The slab is not lost: if all its blocks are back it is swept, otherwise it is adopted. */
static void expect_published(void)
{
    bool idle = hak_slab_all_back(slabs[0]);
    hak_slab_cache_sweep(true, UINT_MAX);
    struct hak_slab *slab = idle ? hak_slab_cache_take_empty(cls) : hak_slab_cache_adopt(world_thread(0), cls);
    MODEL_CHECK(slab == slabs[0] || (!slab && hak_slab_state(slabs[0]) == HAK_SLAB_ACTIVE));
    if (!idle)
        hak_slab_collect(slabs[0]);
    MODEL_CHECK(slabs[0]->used + slabs[0]->free_count == slabs[0]->carved);
}

/* --- sweep: an idle slab is swept to EMPTY, or adopted, and reused
 * ----------------------------------------------------- */

static void setup_sweep(void)
{
    setup(8, 1);
    hak_slab_disown(slabs[0]);
    hak_slab_cache_put(slabs[0]);
}

static void sweep(unsigned self)
{
    if (self == 0) {
        if (world_free(slabs[0], blocks[0]) == HAK_REMOTE_EMPTY)
            hak_slab_cache_all_back(NULL, cls);
        hak_slab_cache_sweep(true, UINT_MAX);
    } else if (self == 1) {
        struct hak_slab *slab = hak_slab_cache_adopt(world_thread(self), cls);
        if (slab) {
            world_use_up(slab);
            model_reached(0);
        }
    } else {
        struct hak_slab *slab = hak_slab_cache_take_empty(cls);
        if (slab) {
            own(slab, self);
            model_reached(1);
        }
    }
}

static void expect_swept(void)
{
    enum hak_slab_state state = hak_slab_state(slabs[0]);
    MODEL_CHECK(state == HAK_SLAB_ACTIVE || state == HAK_SLAB_PARTIAL || state == HAK_SLAB_EMPTY);
    MODEL_CHECK(slabs[0]->used + slabs[0]->free_count == slabs[0]->carved);
    if (state == HAK_SLAB_PARTIAL)
        MODEL_CHECK(hak_slab_cache_adopt(world_thread(0), cls) == slabs[0]);
    if (state == HAK_SLAB_EMPTY)
        MODEL_CHECK(hak_slab_cache_take_empty(cls) == slabs[0]);
}

/* --- passes: a slab is put on its stack, and becomes idle, while another thread begins a pass ------------------- */

static void setup_passes(void)
{
    setup(8, 1);
    hak_slab_disown(slabs[0]);
}

static void begin_pass(unsigned self)
{
    if (self == 0) {
        hak_slab_cache_put(slabs[0]);
    } else if (self == 1) {
        MODEL_CHECK(world_free(slabs[0], blocks[0]) == HAK_REMOTE_EMPTY);
        hak_slab_cache_all_back(NULL, cls);
    } else {
        hak_slab_cache_sweep(true, 2);
        model_reached(hak_slab_state(slabs[0]) == HAK_SLAB_EMPTY);
    }
}

/* It is not missed: a complete sweep finds it. */
static void expect_empty(void)
{
    hak_slab_cache_sweep(true, UINT_MAX);
    MODEL_CHECK(hak_slab_state(slabs[0]) == HAK_SLAB_EMPTY);
}

/* --- two sweepers: one ends its pass while the other one turns, with a slab that became idle behind it ---------- */

static void setup_sweepers(void)
{
    setup(8, 1);
    hak_slab_disown(slabs[0]);
    hak_slab_cache_all_back(NULL, cls); /* another one, which is adopted by now */
    hak_slab_cache_sweep(true, 1);
    hak_slab_cache_all_back(NULL, cls);
    hak_slab_cache_sweep(true, 1);
    hak_slab_cache_put(slabs[0]);
}

static void sweep_by_two(unsigned self)
{
    if (self == 0) {
        hak_slab_cache_sweep(true, 1);
        model_reached(hak_slab_state(slabs[0]) == HAK_SLAB_EMPTY);
    } else {
        hak_slab_cache_sweep(true, 1);
        MODEL_CHECK(world_free(slabs[0], blocks[0]) == HAK_REMOTE_EMPTY);
        hak_slab_cache_all_back(NULL, cls);
        hak_slab_cache_sweep(true, 1);
    }
}

/* --- inside: a sweep purges inside a slab, whose last block comes back meanwhile ------------------------------- */

static void setup_inside(void)
{
    setup(8, 1);
    hak_slab_disown(slabs[0]);
    hak_slab_cache_put(slabs[0]);
    hak_slab_cache_all_back(NULL, cls); /* another one, which is adopted by now */
    sparse_is_due = true;
}

static void purge_inside(unsigned self)
{
    if (self == 0) {
        hak_slab_cache_sweep(true, 2);
        model_reached(hak_slab_state(slabs[0]) == HAK_SLAB_EMPTY);
    } else if (world_free(slabs[0], blocks[0]) == HAK_REMOTE_EMPTY) {
        hak_slab_cache_all_back(NULL, cls);
    }
}

const struct model models[] = {
    {"stack", 2, setup_stack, pop_and_push, expect_all, 2},
    {"take_all", 3, setup_stack, take_or_pop, expect_all, 2},
    {"runs", 3, setup_runs, take_or_flush, expect_runs, 3},
    {"empty", 3, setup_empty, empty, expect_empties, 3},
    {"publish", 3, setup_publish, publish, expect_published, 2},
    {"sweep", 3, setup_sweep, sweep, expect_swept, 2},
    {"passes", 3, setup_passes, begin_pass, expect_empty, 2},
    {"sweepers", 2, setup_sweepers, sweep_by_two, expect_empty, 2},
    {"inside", 2, setup_inside, purge_inside, expect_empty, 2},
    {0},
};
