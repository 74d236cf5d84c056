/* SPDX-License-Identifier: MIT
 * The stacks alone: who is adopted, and when a sweep makes idle slabs EMPTY. */
#include "backends/shared_pool/partial.h"

#include <limits.h>
#include <sys/wait.h>
#include <unistd.h>

#include "unit.h"

#define SIZE 2000 /* has no header in any build */
#define MANY 64

static struct hak_thread *t;
static unsigned cls;

static void start(void)
{
    unit_start(NULL);
    t = unit_thread();
    assert_non_null(t);
    cls = hak_class_of(SIZE);
}

/* PARTIAL, with one block away, which it returns. */
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
    assert_false(hak_partial_sweep(all, 1000));
}

TEST(a_slab_of_the_class_is_adopted)
{
    struct hak_slab *slab;
    start();
    assert_null(hak_partial_take(t, cls));
    put_one(&slab);
    hak_partial_put(slab);
    assert_null(hak_partial_take(t, cls + 1));
    assert_ptr_equal(hak_partial_take(t, cls), slab);
    assert_ptr_equal(slab->owner, t);
    assert_int_equal(slab->used, 1);
    assert_null(hak_partial_take(t, cls));
}

/* `n` slabs that wait with all blocks back. */
static void leave_idle(unsigned n)
{
    struct hak_slab *slabs[MANY];
    struct hak_chain blocks[MANY];
    for (unsigned i = 0; i < n; i++)
        blocks[i] = put_one(&slabs[i]);
    for (unsigned i = 0; i < n; i++)
        hak_partial_put(slabs[i]);
    for (unsigned i = 0; i < n; i++) {
        assert_int_equal(hak_slab_remote_put(slabs[i], blocks[i]), HAK_REMOTE_EMPTY);
        hak_partial_note_idle(cls);
    }
}

TEST(a_few_idle_slabs_wait_for_a_sweep)
{
    start();
    leave_idle(2);
    assert_int_equal(became_empty(), 0);
    sweep(true);
    assert_int_equal(became_empty(), 2);
    assert_null(hak_partial_take(t, cls));
}

TEST(many_idle_slabs_are_swept)
{
    start();
    leave_idle(MANY);
    assert_in_range(became_empty(), MANY / 2, MANY);
}

TEST(slabs_counted_twice_do_not_stay_counted)
{
    start();
    leave_idle(2);
    for (unsigned i = 0; i < 5; i++)
        hak_partial_note_idle(cls);
    sweep(true);
    assert_int_equal(became_empty(), 2);
    leave_idle(3);
    assert_int_equal(became_empty(), 2);
}

TEST(a_class_that_served_an_idle_slab_is_spared_once)
{
    start();
    leave_idle(2);
    assert_non_null(hak_partial_take(t, cls));
    sweep(false);
    assert_int_equal(became_empty(), 0);
    sweep(false);
    assert_int_equal(became_empty(), 1);
}

TEST(without_a_delay_each_tick_sweeps_all)
{
    unit_start("HAKMEM_PURGE_DELAY_MS=0");
    t = unit_thread();
    cls = hak_class_of(SIZE);
    fake_os_pass(1000);
    hak_purge_tick();
    leave_idle(2);
    assert_non_null(hak_partial_take(t, cls));
    fake_os_pass(10);
    hak_purge_tick();
    assert_int_equal(became_empty(), 1);
}

TEST(a_sweep_leaves_slabs_with_live_blocks)
{
    struct hak_slab *live;
    start();
    put_one(&live);
    leave_idle(2);
    hak_partial_put(live);
    sweep(true);
    assert_int_equal(became_empty(), 2);
    assert_ptr_equal(hak_partial_take(t, cls), live);
}

/* Whatever the number of slabs with live blocks: a sweep goes on where the last one ended. */
TEST(a_sweep_looks_at_so_many_slabs)
{
    struct hak_slab *live[MANY];
    start();
    for (unsigned i = 0; i < MANY; i++)
        put_one(&live[i]);
    leave_idle(2);
    for (unsigned i = 0; i < MANY; i++)
        hak_partial_put(live[i]);
    unsigned sweeps = 1;
    for (; hak_partial_sweep(true, 8) && became_empty() < 2; sweeps++)
        ;
    assert_int_equal(became_empty(), 2);
    assert_in_range(sweeps, MANY / 8, MANY / 8 + 2);
    while (hak_partial_sweep(true, 8)) /* the rest of the pass */
        assert_in_range(++sweeps, 0, 2 * MANY / 8 + 2);
    assert_false(hak_partial_sweep(true, 1)); /* nothing is idle: nothing is looked at */
}

/* What is taken next does not depend on when a sweep comes. */
TEST(a_sweep_without_idle_slabs_moves_none)
{
    struct hak_slab *live[3];
    start();
    for (unsigned i = 0; i < 3; i++)
        put_one(&live[i]);
    for (unsigned i = 0; i < 3; i++)
        hak_partial_put(live[i]);
    sweep(true);
    for (unsigned i = 3; i--;)
        assert_ptr_equal(hak_partial_take(t, cls), live[i]);
}

static void take_and_put(void)
{
    struct hak_slab *slab = hak_partial_take(t, cls);
    if (!slab)
        return;
    assert_int_equal(hak_slab_disown(slab), HAK_SLAB_PARTIAL);
    hak_partial_put(slab);
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
            hak_partial_put(slabs[i]);
        for (unsigned step = 0; step < 40; step++) {
            unsigned i = (unsigned)(unit_random(&random) % MANY), action = (unsigned)(unit_random(&random) % 4);
            if (action == 0)
                hak_partial_sweep(unit_random(&random) % 2, 1 + (unsigned)(unit_random(&random) % 20));
            else if (action == 1)
                take_and_put();
            else if (hak_slab_state(slabs[i]) == HAK_SLAB_PARTIAL && !hak_slab_all_back(slabs[i])) {
                assert_int_equal(hak_slab_remote_put(slabs[i], blocks[i]), HAK_REMOTE_EMPTY);
                hak_partial_note_idle(cls);
            }
        }
        sweep(true);
        while ((slab = hak_partial_take(t, cls)))
            assert_int_equal(slab->used, 1);
        for (unsigned i = 0; i < MANY; i++)
            if (hak_slab_state(slabs[i]) != HAK_SLAB_ACTIVE)
                slabs[i] = NULL;
    }
}

#if !HAK_SANITIZED /* a sanitizer's own locks do not outlive a fork among threads */
/* --- fork beside a sweep: the page heap's lock stops either of them ------------------------------------------------ */

#define IDLE 4

static struct hak_slab *idle_slabs[IDLE];
static int status;

static pthread_t start_thread(void *(*fn)(void *))
{
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, fn, NULL), 0);
    return thread;
}

/* Until a thread waits for the page heap's lock, which this one has. */
static void await_waiting(void)
{
    while (!(HAK_LOAD_RELAXED(&hak_pages_lock.word) & 1))
        usleep(1000);
}

static void *sweep_all(void *unused)
{
    while (hak_partial_sweep(true, UINT_MAX))
        hak_lock_let_fork();
    return unused;
}

/* Whether one of the slabs is on no list of the pool: a trim has no end of it. */
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
        alarm(20);
        _exit(is_any_lost());
    }
    waitpid(pid, &status, 0);
    return unused;
}

static void start_beside_fork(void)
{
    struct hak_chain blocks[IDLE];
    unit_start("HAKMEM_SS_HOT_SLABS=1");
    t = unit_thread();
    cls = hak_class_of(SIZE);
    for (unsigned i = 0; i < IDLE; i++)
        blocks[i] = put_one(&idle_slabs[i]);
    for (unsigned i = 0; i < IDLE; i++)
        hak_partial_put(idle_slabs[i]);
    for (unsigned i = 0; i < IDLE; i++) {
        assert_int_equal(hak_slab_remote_put(idle_slabs[i], blocks[i]), HAK_REMOTE_EMPTY);
        hak_partial_note_idle(cls);
    }
    alarm(60);
    status = -1;
    hak_lock_acquire(&hak_pages_lock);
}

static void end_beside_fork(pthread_t a, pthread_t b)
{
    hak_lock_release(&hak_pages_lock);
    pthread_join(a, NULL);
    pthread_join(b, NULL);
    assert_int_equal(status, 0);
    assert_false(is_any_lost());
}

TEST(a_fork_that_waits_for_a_sweep_has_no_lock)
{
    start_beside_fork();
    pthread_t sweeper = start_thread(sweep_all);
    await_waiting();
    pthread_t forks = start_thread(fork_and_look);
    while (!hak_lock_is_fork_waiting())
        usleep(1000);
    usleep(50000);
    assert_int_equal(HAK_LOAD_RELAXED(&hak_thread_lock.word), 0);
    assert_int_equal(HAK_LOAD_RELAXED(&hak_meta_lock.word), 0);
    end_beside_fork(sweeper, forks);
}

TEST(a_sweep_that_comes_beside_a_fork_has_no_slab)
{
    start_beside_fork();
    pthread_t forks = start_thread(fork_and_look);
    await_waiting();
    pthread_t sweeper = start_thread(sweep_all);
    usleep(50000);
    end_beside_fork(forks, sweeper);
}
#define BESIDE_FORK , T(a_fork_that_waits_for_a_sweep_has_no_lock), T(a_sweep_that_comes_beside_a_fork_has_no_slab)
#else
#define BESIDE_FORK
#endif

UNIT_MAIN(T(a_slab_of_the_class_is_adopted), T(a_few_idle_slabs_wait_for_a_sweep), T(many_idle_slabs_are_swept),
          T(slabs_counted_twice_do_not_stay_counted), T(a_class_that_served_an_idle_slab_is_spared_once),
          T(without_a_delay_each_tick_sweeps_all), T(a_sweep_leaves_slabs_with_live_blocks),
          T(a_sweep_looks_at_so_many_slabs), T(a_sweep_without_idle_slabs_moves_none),
          T(a_whole_sweep_finds_all_idle_slabs) BESIDE_FORK)
