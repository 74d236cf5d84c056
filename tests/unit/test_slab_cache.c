/* SPDX-License-Identifier: MIT
 * The stacks alone: which slabs are taken and adopted, how many EMPTY slabs stay, and when a sweep makes idle ones
 * EMPTY. */
#include "backends/shared_pool/slab_cache.h"

#include <limits.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/pages/run_cache.h"
#include "unit.h"

#define SIZE 2000 /* has no header in any build */
#define MANY 64
#define BURST 600

static struct hak_heap *t;
static unsigned cls;

static void start_with(const char *settings)
{
    t = unit_init_heap(settings);
    cls = hak_class_of(SIZE);
}

static void start(void)
{
    start_with(NULL);
}

/* --- EMPTY slabs ------------------------------------------------------------------------------------------- */

#define KEPT 3 /* pages that wait besides the last ones */

/* A class near to `from` with slabs of one page, or of more. */
static unsigned class_with(unsigned from, int step, bool one_page)
{
    while ((hak_slab_pages[from] == 1) != one_page)
        from += (unsigned)step;
    return from;
}

static void make_slabs(struct hak_slab **slabs, unsigned n, unsigned of)
{
    for (unsigned i = 0; i < n; i++)
        assert_non_null(slabs[i] = hak_parts_acquire_slab(t, of));
}

static void put_empty(struct hak_slab *slab)
{
    hak_parts_empty_slab(slab);
    hak_slab_cache_put(slab);
}

static void assert_empties(unsigned of, unsigned n, struct hak_slab **slabs)
{
    while (n--)
        assert_ptr_equal(hak_slab_cache_take_empty(of), slabs[n]);
    assert_null(hak_slab_cache_take_empty(of));
}

TEST(an_empty_slab_serves_classes_of_its_length_and_zone)
{
    struct hak_slab *long_one, *one;
    start();
    unsigned short_cls = class_with(cls, -1, true), other = class_with(short_cls - 1, -1, true);
    unsigned long_cls = class_with(cls, 1, false);
    make_slabs(&long_one, 1, long_cls);
    make_slabs(&one, 1, other);
    assert_empties(short_cls, 0, NULL);
    put_empty(long_one);
    assert_empties(short_cls, 0, NULL);
    put_empty(one);
    assert_empties(short_cls, 1, &one);
    assert_empties(long_cls, 1, &long_one);
    if (!hak_parts_has_header(0) || hak_slab_pages[0] != 1)
        return;
    put_empty(hak_parts_acquire_slab(t, 0));
    assert_empties(short_cls, 0, NULL); /* of the other zone */
}

static const struct {
    const char *settings;
    unsigned stay;
} rooms[] = {{"HAKMEM_SS_HOT_SLABS=4", KEPT + 1}, {"HAKMEM_SS_HOT_SLABS=1", 1}, {"HAKMEM_RELEASE=direct", 1}};

/* The one that was put last stays, of the others those that were put first. A flush takes all. */
TEST_EACH(so_many_empty_slabs_wait, rooms)
{
    struct hak_slab *slabs[KEPT + 3];
    start_with(row->settings);
    make_slabs(slabs, 1, cls);
    put_empty(slabs[0]);
    hak_run_cache_flush(); /* the page heap says now how much may wait */
    unsigned n = COUNT(slabs), stay = hak_parts.release->at_once ? 1 : row->stay;
    for (unsigned round = 0; round < 2; round++) { /* the count begins again */
        make_slabs(slabs, n, cls);
        for (unsigned i = 0; i < n; i++)
            put_empty(slabs[i]);
        for (unsigned i = 0; i < n; i++)
            assert_int_equal(hak_slab_state(slabs[i]) == HAK_SLAB_EMPTY, i < stay - 1 || i == n - 1);
        if (round == 0)
            hak_run_cache_flush();
        for (unsigned i = 0; i < n && round == 0; i++)
            assert_int_equal(hak_slab_state(slabs[i]), HAK_SLAB_UNUSED);
    }
    assert_ptr_equal(hak_slab_cache_take_empty(cls), slabs[n - 1]);
    assert_empties(cls, stay - 1, slabs);
}

/* Whatever HAKMEM_SS_HOT_SLABS says: after the last free of a burst the program may sleep. */
TEST(of_a_burst_as_many_wait_as_may_be_dirty)
{
    static struct hak_slab *slabs[BURST];
    start();
    unit_needs_delay();
    make_slabs(slabs, BURST, cls);
    fake_os_pass(3000); /* no pages were taken lately */
    put_empty(slabs[0]);
    hak_run_cache_flush();
    for (unsigned i = 1; i < BURST; i++)
        put_empty(slabs[i]);
    size_t least = hak_options.purge_delay_ms * HAK_DIRTY_UNWANTED_PER_MS;
    assert_true(hak_run_cache_waiting(HAK_RUNS_COMMON) * HAK_PAGE <= least + hak_slab_pages[cls] * HAK_PAGE);
}

/* --- PARTIAL slabs ----------------------------------------------------------------------------------------- */

/* Makes the slab PARTIAL, with one allocated block, which it returns. */
static struct hak_chain put_one(struct hak_slab **slab)
{
    *slab = hak_parts_acquire_slab(t, cls);
    assert_non_null(*slab);
    struct hak_chain block = hak_slab_take(*slab, 1);
    assert_int_equal(hak_slab_disown(*slab), HAK_SLAB_PARTIAL);
    return block;
}

static uint64_t became_empty(void)
{
    return unit_transitions(HAK_SLAB_ACTIVE, HAK_SLAB_EMPTY);
}

static void sweep(bool all)
{
    assert_false(hak_slab_cache_sweep(all, 1000));
}

static struct hak_slab *idle_slabs[MANY];

/* `n` slabs that wait with all blocks back. */
static void leave_idle(unsigned n)
{
    struct hak_chain blocks[MANY];
    for (unsigned i = 0; i < n; i++)
        blocks[i] = put_one(&idle_slabs[i]);
    for (unsigned i = 0; i < n; i++)
        hak_slab_cache_put(idle_slabs[i]);
    for (unsigned i = 0; i < n; i++) {
        assert_int_equal(hak_slab_remote_put(idle_slabs[i], blocks[i]), HAK_REMOTE_EMPTY);
        hak_slab_cache_all_back(NULL, cls);
    }
}

TEST(many_idle_slabs_are_swept)
{
    start();
    leave_idle(MANY);
    assert_in_range(became_empty(), MANY / 2, MANY);
}

TEST(a_few_idle_slabs_wait_for_a_sweep_even_if_counted_twice)
{
    start();
    leave_idle(2);
    for (unsigned i = 0; i < 5; i++)
        hak_slab_cache_all_back(NULL, cls);
    assert_int_equal(became_empty(), 0);
    sweep(true);
    assert_int_equal(became_empty(), 2);
    assert_null(hak_slab_cache_adopt(t, cls));
    leave_idle(3);
    assert_int_equal(became_empty(), 2);
}

TEST(a_class_that_served_an_idle_slab_is_spared_once)
{
    start();
    leave_idle(2);
    assert_non_null(hak_slab_cache_adopt(t, cls));
    sweep(false);
    assert_int_equal(became_empty(), 0);
    sweep(false);
    assert_int_equal(became_empty(), 1);
}

TEST(without_a_delay_each_tick_sweeps_all)
{
    start_with("HAKMEM_PURGE_DELAY_MS=0");
    fake_os_pass(1000);
    hak_purge_tick();
    leave_idle(2);
    assert_non_null(hak_slab_cache_adopt(t, cls));
    fake_os_pass(10);
    hak_purge_tick();
    assert_int_equal(became_empty(), 1);
}

/* Whatever the number of slabs with live blocks, a sweep continues where the last one ended. */
TEST(a_sweep_looks_at_so_many_slabs)
{
    struct hak_slab *live[MANY];
    start();
    for (unsigned i = 0; i < MANY; i++)
        put_one(&live[i]);
    leave_idle(2);
    for (unsigned i = 0; i < MANY; i++)
        hak_slab_cache_put(live[i]);
    unsigned sweeps = 1;
    for (; hak_slab_cache_sweep(true, 8) && became_empty() < 2; sweeps++)
        ;
    assert_int_equal(became_empty(), 2);
    assert_in_range(sweeps, MANY / 8, MANY / 8 + 2);
    while (hak_slab_cache_sweep(true, 8)) /* the rest of the pass */
        assert_in_range(++sweeps, 0, 2 * MANY / 8 + 2);
    assert_false(hak_slab_cache_sweep(true, 1)); /* no slab is idle, so none is checked */
}

/* In a program with few slow paths a tick does the work of some. */
TEST(a_tick_visits_more_slabs_after_a_gap)
{
    static struct hak_slab *slabs[BURST];
    struct hak_chain blocks[BURST];
    start();
    for (unsigned i = 0; i < BURST; i++)
        blocks[i] = put_one(&slabs[i]);
    for (unsigned i = 0; i < BURST; i++) {
        hak_slab_cache_put(slabs[i]);
        hak_slab_remote_put(slabs[i], blocks[i]);
    }
    fake_os_pass(1000);
    hak_purge_tick(); /* wants a pass */
    fake_os_pass(40);
    uint64_t before = became_empty();
    hak_purge_tick();
    assert_in_range(became_empty() - before, 1, BURST);
    assert_int_equal(became_empty(), BURST);
}

/* The next slab that is taken does not depend on when a sweep comes. */
TEST(a_sweep_without_idle_slabs_moves_none)
{
    struct hak_slab *live[3];
    start();
    for (unsigned i = 0; i < 3; i++)
        put_one(&live[i]);
    for (unsigned i = 0; i < 3; i++)
        hak_slab_cache_put(live[i]);
    sweep(true);
    for (unsigned i = 3; i--;)
        assert_ptr_equal(hak_slab_cache_adopt(t, cls), live[i]);
}

static void take_and_put(void)
{
    struct hak_slab *slab = hak_slab_cache_adopt(t, cls);
    if (!slab)
        return;
    assert_int_equal(hak_slab_disown(slab), HAK_SLAB_PARTIAL);
    hak_slab_cache_put(slab);
}

/* Slabs become idle, and are adopted, and sweeps stop anywhere: a whole one finds all that are idle. */
TEST(a_whole_sweep_finds_all_idle_slabs)
{
    struct hak_slab *slabs[MANY] = {NULL}, *slab;
    struct hak_chain blocks[MANY];
    uint64_t random = 1;
    start();
    for (unsigned round = 0; round < 200; round++) {
        for (unsigned i = 0; i < MANY; i++)
            if (!slabs[i])
                blocks[i] = put_one(&slabs[i]);
            else
                assert_int_equal(hak_slab_disown(slabs[i]), HAK_SLAB_PARTIAL);
        for (unsigned i = 0; i < MANY; i++)
            hak_slab_cache_put(slabs[i]);
        for (unsigned step = 0; step < 40; step++) {
            unsigned i = (unsigned)(unit_random(&random) % MANY), action = (unsigned)(unit_random(&random) % 4);
            if (action == 0)
                hak_slab_cache_sweep(unit_random(&random) % 2, 1 + (unsigned)(unit_random(&random) % 20));
            else if (action == 1)
                take_and_put();
            else if (hak_slab_state(slabs[i]) == HAK_SLAB_PARTIAL && !hak_slab_all_back(slabs[i])) {
                assert_int_equal(hak_slab_remote_put(slabs[i], blocks[i]), HAK_REMOTE_EMPTY);
                hak_slab_cache_all_back(NULL, cls);
            }
        }
        sweep(true);
        while ((slab = hak_slab_cache_adopt(t, cls)))
            assert_int_equal(slab->used, 1);
        for (unsigned i = 0; i < MANY; i++)
            if (hak_slab_state(slabs[i]) != HAK_SLAB_ACTIVE)
                slabs[i] = NULL;
    }
}

#if !HAK_SANITIZED /* a sanitizer's own locks do not outlive a fork among threads */
/* --- fork beside a sweep: the page heap's lock stops either of them ------------------------------------------ */

#define IDLE 4

static int status;

/* Until a thread waits for the page heap's lock, which this one has. */
static void await_waiting(void)
{
    while (!(HAK_LOAD_RELAXED(&hak_pages_lock.word) & 1))
        usleep(1000);
}

static void *sweep_all(void *unused)
{
    while (hak_slab_cache_sweep(true, UINT_MAX))
        hak_lock_let_fork();
    return unused;
}

/* Whether a slab is on no list of the pool: a trim would never end. */
static bool is_any_lost(void)
{
    sweep_all(NULL);
    hak_purge_all(0);
    for (unsigned i = 0; i < IDLE; i++)
        if (hak_slab_state(idle_slabs[i]) == HAK_SLAB_EMPTY || hak_slab_state(idle_slabs[i]) == HAK_SLAB_PARTIAL)
            return true;
    return false;
}

static void *fork_and_look(void *unused)
{
    pid_t pid = fork();
    if (pid == 0) {
        alarm(60);
        _exit(is_any_lost());
    }
    waitpid(pid, &status, 0);
    return unused;
}

static void start_beside_fork(void)
{
    start_with("HAKMEM_SS_HOT_SLABS=1");
    leave_idle(IDLE);
    alarm(60);
    status = -1;
    hak_lock_acquire(&hak_pages_lock);
}

static void end_beside_fork(pthread_t a, pthread_t b)
{
    hak_lock_release(&hak_pages_lock);
    unit_join(a);
    unit_join(b);
    assert_int_equal(status, 0);
    assert_false(is_any_lost());
}

TEST(a_fork_that_waits_for_a_sweep_has_no_lock)
{
    start_beside_fork();
    pthread_t sweeper = unit_begin(sweep_all, NULL);
    await_waiting();
    pthread_t forks = unit_begin(fork_and_look, NULL);
    while (!hak_lock_is_fork_waiting())
        usleep(1000);
    usleep(50000);
    assert_int_equal(HAK_LOAD_RELAXED(&hak_heaps_lock.word), 0);
    assert_int_equal(HAK_LOAD_RELAXED(&hak_meta_lock.word), 0);
    end_beside_fork(sweeper, forks);
}

TEST(a_sweep_that_comes_beside_a_fork_has_no_slab)
{
    start_beside_fork();
    pthread_t forks = unit_begin(fork_and_look, NULL);
    await_waiting();
    pthread_t sweeper = unit_begin(sweep_all, NULL);
    usleep(50000);
    end_beside_fork(forks, sweeper);
}
#endif
