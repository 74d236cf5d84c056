/* SPDX-License-Identifier: MIT */
#include "core/process/fork.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/heap/bin.h"
#include "core/heap/bins.h"
#include "core/heap/drain.h"
#include "core/heap/heaps.h"
#include "core/heap/remote_cache.h"
#include "core/malloc/malloc.h"
#include "core/pages/budget.h"
#include "unit.h"

#define SIZE 2000

static struct unit_block *mine;
static unsigned pinned;

/* Takes every lock, in a process that must not wait for one. */
static int use_everything(void)
{
    struct hak_heaps_totals totals;
    unit_free_blocks(mine);
    for (size_t size = 8; size < 40 * HAK_MIB; size *= 2)
        unit_free_blocks(unit_blocks(size, 3));
    hak_trim(0);
    free(unit_stats_text(true));
    hak_heaps_totals(&totals);
    if (totals.pinned_slabs != pinned || totals.used != 1)
        return 2;
    struct hak_census c;
    hak_stats_census(&c);
    return c.violations != 0;
}

static int fork_again(void)
{
    unit_in_child(use_everything);
    return use_everything();
}

TEST(a_child_of_a_child)
{
    unit_start(NULL);
    mine = unit_blocks(SIZE, 100);
    unit_in_child(fork_again);
}

static pthread_barrier_t barrier;
static struct unit_block *others;

static void *own_slabs(void *unused)
{
    others = unit_blocks(SIZE, 10);
    unit_free_blocks(unit_blocks(100, 10));
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    unit_free_blocks(others);
    return unused;
}

static int others_are_pinned(void)
{
    int result = use_everything();
    struct hak_slab *slab = hak_space_slab(others);
    unit_free_blocks(others); /* into a slab whose owner is not in the child: it stays, without an error */
    hak_remote_cache_flush(unit_thread());
    hak_trim(0);
    return result ? result : hak_slab_state(slab) != HAK_SLAB_ACTIVE;
}

TEST(other_threads_slabs_are_pinned_and_counted)
{
    unit_start(NULL);
    mine = unit_blocks(SIZE, 100);
    pthread_barrier_init(&barrier, NULL, 2);
    pthread_t thread = unit_begin(own_slabs, NULL);
    pthread_barrier_wait(&barrier);
    pinned = (unsigned)hak_space_slab(others)->owner->slabs;
    assert_true(pinned >= 2);
    unit_in_child(others_are_pinned);
    pthread_barrier_wait(&barrier);
    unit_join(thread);
    pinned = 0;
    use_everything();
    hak_bins_flush(unit_thread());
    assert_int_equal(unit_census().used, 0);
}

static int go_on(void)
{
    hak_lock_release(&hak_heaps_lock); /* the interrupted call also completes in the child */
    return use_everything();
}

/* A signal handler does that if it interrupts malloc. */
TEST(a_fork_by_who_holds_a_lock_waits_for_nobody)
{
    unit_start(NULL);
    mine = unit_blocks(SIZE, 100);
    hak_lock_acquire(&hak_heaps_lock);
    unit_in_child(go_on);
    assert_true(hak_lock_is_any_held());
    hak_lock_release(&hak_heaps_lock);
    use_everything();
}

#if !HAK_SANITIZED /* a sanitizer's own locks do not outlive a fork among threads */
static _Atomic(bool) stop;

/* --- a purge by another thread ----------------------------------------------------------------------------- */

#define LARGE (1 * HAK_MIB)

static _Atomic(bool) in_purge, may_purge;

/* Stops the first thread that comes here. */
static void stop_before_advice(void)
{
    if (HAK_EXCHANGE_ACQUIRE(&in_purge, true))
        return;
    while (!may_purge)
        usleep(1000);
}

static void *trim_all(void *unused)
{
    hak_trim(0);
    return unused;
}

/* No run stays claimed: all become clean, and leave the cache. */
static int trim_whole(void)
{
    hak_trim(0);
    unit_census();
    return unit_stat("page_heap", "dirty_bytes") != 0 || unit_stat("lru", "cached") != 0;
}

static void start_lazy(void)
{
    unit_init("HAKMEM_PURGE_DELAY_MS=600000");
    if (hak_parts.release->at_once)
        skip();
    alarm(60);
}

/* Starts a thread that trims, and that stops during its purge. */
static pthread_t begin_trim(void (*before_advice)(void))
{
    fake_os_before_advice(before_advice);
    pthread_t t = unit_begin(trim_all, NULL);
    while (!in_purge)
        usleep(1000);
    return t;
}

TEST(fork_waits_for_no_purge)
{
    start_lazy();
    mine = unit_blocks(LARGE, 24);
    unit_free_blocks(mine);
    pthread_t t = begin_trim(stop_before_advice);
    unit_in_child(trim_whole);
    unit_free_blocks(unit_blocks(LARGE, 2));
    may_purge = true;
    unit_join(t);
    assert_int_equal(trim_whole(), 0);
    /* The forking thread begins no purge: another may be purging, and its lock is not lent. */
    unit_free_blocks(unit_blocks(LARGE, 4));
    uint64_t dirty = unit_stat("page_heap", "dirty_bytes");
    assert_true(dirty > 0);
    hak_lock_own_all();
    hak_trim(0);
    assert_true(unit_stat("page_heap", "dirty_bytes") >= dirty);
    hak_lock_disown_all();
    assert_int_equal(trim_whole(), 0);
}

/* If the kernel refuses pages, the purge settles its claims page by page. */
static void stop_amid_batch(void)
{
    static _Atomic(unsigned) calls;
    if (HAK_ADD_RELAXED(&calls, 1) == 6)
        stop_before_advice();
}

static int trim_without_locked(void)
{
    fake_os_unlock_pages();
    hak_trim(0);
    return trim_whole();
}

TEST(a_child_ends_a_purge_that_is_settled_in_part)
{
    start_lazy();
    char *block = hak_malloc(LARGE);
    memset(block, 1, LARGE);
    fake_os_lock_page(block + LARGE - 1);
    hak_free(block);
    size_t held = hak_budget_held();
    pthread_t t = begin_trim(stop_amid_batch);
    unit_in_child(trim_without_locked);
    may_purge = true;
    unit_join(t);
    assert_in_range(hak_budget_held(), 1, held);
    fake_os_unlock_pages();
    hak_trim(0);
    assert_int_equal(trim_whole(), 0);
}

/* --- a thread that waits for a lock, and whose signal's handler forks --------------------------------------- */

static _Atomic(bool) in_handler;
static volatile sig_atomic_t handlers_child = -1;

static void fork_in_handler(int signal)
{
    (void)signal;
    in_handler = true;
    handlers_child = fork();
    if (handlers_child == 0)
        alarm(60);
}

/* The child continues where its parent waited. */
static void *wait_for_lock(void *unused)
{
    static struct hak_heaps_totals totals;
    hak_heaps_totals(&totals);
    if (handlers_child)
        return unused;
    unit_free_blocks(unit_blocks(SIZE, 100));
    hak_trim(0);
    _exit(hak_lock_is_any_held());
}

/* Takes the lock, and starts a thread that waits for it and is interrupted. */
static pthread_t interrupt_waiter(struct hak_lock *lock, void *(*wait)(void *))
{
    struct sigaction action = {.sa_handler = fork_in_handler};
    sigaction(SIGUSR1, &action, NULL);
    alarm(60);
    hak_lock_acquire(lock);
    unsigned alone = HAK_LOAD_RELAXED(&lock->word);
    pthread_t t = unit_begin(wait, NULL);
    while (HAK_LOAD_RELAXED(&lock->word) == alone)
        usleep(1000);
    pthread_kill(t, SIGUSR1);
    return t;
}

TEST(a_thread_that_waits_for_a_lock_has_none)
{
    int status = -1;
    unit_start(NULL);
    assert_true(hak_init());
    pthread_t t = interrupt_waiter(&hak_heaps_lock, wait_for_lock);
    while (!in_handler)
        usleep(1000);
    usleep(20000); /* in the handler it waits for the same lock */
    hak_lock_release(&hak_heaps_lock);
    unit_join(t);
    assert_true(handlers_child > 0);
    assert_int_equal(waitpid(handlers_child, &status, 0), handlers_child);
    assert_int_equal(status, 0);
}

static HAK_LOCK(second, HAK_RANK_FRONTEND);

/* Owns one lock and waits for another, whose owner is not in the handler's child. */
static void *wait_for_second_lock(void *unused)
{
    hak_lock_acquire(&hak_heaps_lock);
    hak_lock_acquire(&second);
    return unused;
}

static void fork_while_waiting_for_second(void)
{
    int status = -1;
    interrupt_waiter(&second, wait_for_second_lock);
    while (handlers_child <= 0)
        usleep(1000);
    if (waitpid(handlers_child, &status, 0) == handlers_child && WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT)
        abort();
}

TEST(a_handlers_child_that_needs_a_lost_lock_stops)
{
    unit_start(NULL);
    assert_true(hak_init());
    assert_dies(fork_while_waiting_for_second(), "such a child may only call exec or _exit");
}

/* --- locks of parts ------------------------------------------------------------------------------------------ */

/* The locks of two external frontends. */
static HAK_LOCK(lock_of_one, HAK_RANK_FRONTEND);
static HAK_LOCK(lock_of_other, HAK_RANK_FRONTEND);
static unsigned guarded[2];

static void change(struct hak_lock *lock, unsigned *word)
{
    hak_lock_acquire(lock);
    ++*(volatile unsigned *)word;
    unit_free_blocks(NULL);
    ++*(volatile unsigned *)word;
    hak_lock_release(lock);
}

static void change_both(void)
{
    change(&lock_of_one, &guarded[0]);
    change(&lock_of_other, &guarded[1]);
}

static void *change_often(void *unused)
{
    while (!stop)
        change_both();
    return unused;
}

/* No update is half done, and no lock is taken. */
static int change_in_child(void)
{
    if (guarded[0] % 2 || guarded[1] % 2)
        return 1;
    change_both();
    return 0;
}

static void *fork_often(void *unused)
{
    for (unsigned i = 0; i < 30; i++)
        unit_in_child(change_in_child);
    return unused;
}

TEST(locks_of_two_parts_may_have_one_rank)
{
    unit_start(NULL);
    assert_true(hak_init());
    pthread_t busy[] = {unit_begin(change_often, NULL), unit_begin(change_often, NULL)};
    pthread_t forks[] = {unit_begin(fork_often, NULL), unit_begin(fork_often, NULL)};
    for (unsigned i = 0; i < COUNT(forks); i++)
        unit_join(forks[i]);
    stop = true;
    for (unsigned i = 0; i < COUNT(busy); i++)
        unit_join(busy[i]);
}
#endif

static int allocate_nothing(void)
{
    return hak_malloc(10) != NULL;
}

TEST(without_memory_fork_goes_on)
{
    unit_start(NULL);
    fake_os_refuse_any(1, ENOMEM, true);
    unit_in_child(allocate_nothing);
    fake_os_allow();
    use_everything();
}
