/* SPDX-License-Identifier: MIT */
#include "core/process/fork.h"

#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/malloc/malloc.h"
#include "core/heap/bin.h"
#include "core/heap/drain.h"
#include "core/heap/remote_cache.h"
#include "core/heap/heap.h"
#include "unit.h"

#define SIZE 2000

/* fn in a forked child; its result is what the child exits with. */
static void in_fork(int (*fn)(void))
{
    int status = -1;
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        alarm(60);
        _exit(fn());
    }
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    assert_int_equal(status, 0);
}

static struct unit_block *mine;
static unsigned pinned;

/* Everything that takes a lock, in a process that must not wait for one. */
static int use_everything(void)
{
    struct hak_thread_totals totals;
    unit_free_blocks(mine);
    for (size_t size = 8; size < 40 * HAK_MIB; size *= 2)
        unit_free_blocks(unit_blocks(size, 3));
    hak_trim(0);
    free(unit_stats_text(true));
    hak_thread_totals(&totals);
    if (totals.pinned_slabs != pinned || totals.threads != 1)
        return 2;
    struct hak_census c;
    hak_stats_census(&c);
    return c.violations != 0;
}

TEST(a_child_is_served)
{
    unit_start(NULL);
    mine = unit_blocks(SIZE, 100);
    in_fork(use_everything);
    use_everything();
}

TEST(fork_as_the_first_thing)
{
    unit_start(NULL);
    in_fork(use_everything);
    use_everything();
}

static int fork_again(void)
{
    in_fork(use_everything);
    return use_everything();
}

TEST(a_child_of_a_child)
{
    unit_start(NULL);
    mine = unit_blocks(SIZE, 100);
    in_fork(fork_again);
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
    unit_free_blocks(others); /* to a slab whose owner is gone: kept, never an error */
    hak_remote_cache_flush(unit_thread());
    hak_trim(0);
    return result ? result : hak_slab_state(slab) != HAK_SLAB_ACTIVE;
}

TEST(other_threads_slabs_are_pinned_and_counted)
{
    unit_start(NULL);
    pthread_t thread;
    mine = unit_blocks(SIZE, 100);
    pthread_barrier_init(&barrier, NULL, 2);
    assert_int_equal(pthread_create(&thread, NULL, own_slabs, NULL), 0);
    pthread_barrier_wait(&barrier);
    pinned = (unsigned)hak_space_slab(others)->owner->slabs;
    assert_true(pinned >= 2);
    in_fork(others_are_pinned);
    pthread_barrier_wait(&barrier);
    pthread_join(thread, NULL);
    pinned = 0;
    use_everything();
    hak_heap_drain(unit_thread());
    assert_int_equal(unit_census().used, 0);
}

static int go_on(void)
{
    hak_lock_release(&hak_thread_lock); /* what was interrupted comes to its end in the child, too */
    return use_everything();
}

/* As the handler of a signal does that came inside of malloc. */
TEST(a_fork_by_who_holds_a_lock_waits_for_nobody)
{
    unit_start(NULL);
    mine = unit_blocks(SIZE, 100);
    hak_lock_acquire(&hak_thread_lock);
    in_fork(go_on);
    assert_true(hak_lock_is_any_held());
    hak_lock_release(&hak_thread_lock);
    use_everything();
}

#if !HAK_SANITIZED /* a sanitizer's own locks do not outlive a fork among threads */
static _Atomic(bool) stop;

static void *churn(void *unused)
{
    uint64_t random = 1;
    while (!stop)
        unit_free_blocks(unit_blocks(16 + unit_random(&random) % 60000, 4));
    return unused;
}

TEST(fork_while_threads_allocate)
{
    unit_start(NULL);
    pthread_t threads[2];
    for (unsigned i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, churn, NULL), 0);
    for (unsigned i = 0; i < 30; i++) {
        pid_t pid = fork();
        if (pid == 0) {
            alarm(20);
            unit_free_blocks(unit_blocks(100, 500));
            unit_free_blocks(unit_blocks(100000, 20));
            _exit(0);
        }
        int status;
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_int_equal(status, 0);
    }
    stop = true;
    for (unsigned i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    unit_census();
}
#define WHILE_THREADS , T(fork_while_threads_allocate)
#else
#define WHILE_THREADS
#endif

TEST(without_memory_fork_goes_on)
{
    unit_start(NULL);
    fake_os_refuse_any(1, ENOMEM, true);
    pid_t pid = fork();
    if (pid == 0)
        _exit(hak_malloc(10) != NULL);
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    fake_os_allow();
    use_everything();
}

UNIT_MAIN(T(a_child_is_served), T(fork_as_the_first_thing), T(a_child_of_a_child),
          T(other_threads_slabs_are_pinned_and_counted), T(a_fork_by_who_holds_a_lock_waits_for_nobody),
          T(without_memory_fork_goes_on) WHILE_THREADS)
