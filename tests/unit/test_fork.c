/* SPDX-License-Identifier: MIT */
#include "core/process/fork.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/heap/decay.h"
#include "core/heap/drain.h"
#include "core/heap/heaps.h"
#include "core/heap/refill.h"
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
    for (size_t size = 8; size < 80 * HAK_MIB; size *= 2)
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
static void *remote;

/* Owns slabs, has blocks in bins, and one in its remote cache. */
static void *own_slabs(void *in_slow_path)
{
    others = unit_blocks(SIZE, 10);
    unit_free_blocks(unit_blocks(100, 10));
    unit_free_blocks(unit_blocks(SIZE, 2));
    hak_free(remote);
    if (in_slow_path)
        hak_heap_begin_change(unit_thread());
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    hak_heap_end_change(unit_thread());
    unit_free_blocks(others);
    return NULL;
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

/* What the other thread had free serves the child, or goes back. */
static int others_are_taken_over(void)
{
    hak_trim(0);
    unit_free_blocks(others);
    hak_bins_flush(unit_thread());
    int result = use_everything();
    hak_bins_flush(unit_thread());
    return result ? result : unit_census().used != 0;
}

static void *allocate(void *unused)
{
    unit_free_blocks(unit_blocks(SIZE, 2));
    return unused;
}

static int next_thread_continues(void)
{
    unit_join(unit_begin(allocate, NULL));
    return unit_totals().pinned_slabs || fork_again();
}

/* Forks while another thread waits. */
static void fork_beside(bool in_slow_path, int (*in_child)(void))
{
    unit_start(NULL);
    mine = unit_blocks(SIZE, 100);
    remote = hak_malloc(SIZE);
    pthread_barrier_init(&barrier, NULL, 2);
    pthread_t thread = unit_begin(own_slabs, in_slow_path ? &barrier : NULL);
    pthread_barrier_wait(&barrier);
    pinned = (unsigned)hak_space_slab(others)->owner->slabs;
    assert_true(pinned >= 2);
    pinned = in_slow_path ? pinned : 0;
    unit_in_child(in_child);
    pthread_barrier_wait(&barrier);
    unit_join(thread);
    pinned = 0;
    use_everything();
    hak_bins_flush(unit_thread());
    assert_int_equal(unit_census().used, 0);
}

TEST(slabs_of_a_thread_in_a_slow_path_are_pinned_and_counted)
{
    fork_beside(true, others_are_pinned);
}

TEST(a_child_takes_over_the_heap_of_a_thread_outside_of_slow_paths)
{
    if (!HAK_BLOCKS_ARE_BARE)
        skip();
    fork_beside(false, others_are_taken_over);
}

TEST(a_childs_first_thread_continues_with_such_a_heap)
{
    /* a sanitizer, or qemu-user: a thread in the child of a process with threads */
    if (!HAK_BLOCKS_ARE_BARE || HAK_SANITIZED || getenv("UNIT_RUN_BY"))
        skip();
    fork_beside(false, next_thread_continues);
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

/* --- among threads that allocate ----------------------------------------------------------------------------- */

#define BUSY 3u
#define HELD 256u
#define FORKS 20u
#define TAKEN (64 * HAK_KIB) /* of each size, by a child: more than those threads have free */

/* Blocks that a thread holds, each filled with its own number: it is stored here after it is filled, and until it is
 * freed. */
static unsigned char *_Atomic shown[BUSY][HELD];

static size_t size_held(unsigned thread, unsigned i)
{
    static const size_t sizes[] = {8, 40, 100, 300, 700, 1500, 3000, 9000, 30000};
    return sizes[(thread + i) % COUNT(sizes)];
}

static unsigned char number_of(unsigned thread, unsigned i)
{
    return (unsigned char)(1 + thread * 7 + i);
}

static bool is_filled(const unsigned char *block, size_t size, unsigned char with)
{
    return block[0] == with && !memcmp(block, block + 1, size - 1);
}

/* Every fourth block is freed by the next thread. */
static void *allocate_and_free(void *number)
{
    static void *_Atomic passed[BUSY];
    unsigned thread = (unsigned)(uintptr_t)number, random = thread;
    while (!stop) {
        random = random * 1664525u + 1013904223u;
        unsigned i = random >> 8 & (HELD - 1);
        void *block = HAK_EXCHANGE_ACQUIRE(&shown[thread][i], NULL);
        if (block && random >> 30 == 0)
            block = atomic_exchange(&passed[(thread + 1) % BUSY], block);
        hak_free(block);
        if (random >> 29 & 1) {
            hak_free(atomic_exchange(&passed[thread], NULL));
            block = memset(hak_malloc(size_held(thread, i)), number_of(thread, i), size_held(thread, i));
            HAK_STORE_RELEASE(&shown[thread][i], block);
        }
    }
    return number;
}

static bool all_are_whole(void)
{
    for (unsigned i = 0; i < BUSY * HELD; i++) {
        const unsigned char *block = shown[i / HELD][i % HELD];
        if (block && !is_filled(block, size_held(i / HELD, i % HELD), number_of(i / HELD, i % HELD)))
            return false;
    }
    return true;
}

/* Takes blocks of each size, which nobody else may have: it fills each, and looks at all when the last one is filled.
 */
static void *take_all_sizes(void *unused)
{
    struct {
        unsigned char *block;
        size_t size;
    } *taken = hak_malloc(HAK_NCLASSES * TAKEN / 8 * sizeof *taken);
    unsigned n = 0;
    (void)unused;
    for (unsigned cls = 0; cls < HAK_NCLASSES; cls++)
        for (size_t bytes = 0; bytes < TAKEN; bytes += hak_strides[cls], n++) {
            taken[n].size = hak_class_usable(cls);
            taken[n].block = memset(hak_malloc(taken[n].size), (unsigned char)n, taken[n].size);
        }
    for (unsigned i = 0; i < n; i++)
        if (!is_filled(taken[i].block, taken[i].size, (unsigned char)i))
            _exit(4);
    return NULL;
}

static int take_and_look(void)
{
    take_all_sizes(NULL);
    return all_are_whole() ? 0 : 5;
}

/* One child in two starts with threads, which continue with heaps of the parent's threads; the other with a trim. */
static int take_among_whole(void)
{
    static unsigned depth;
    if (!all_are_whole())
        return 3;
    if (getpid() % 2 && !getenv("UNIT_RUN_BY")) { /* qemu-user dies of a thread in a forked child */
        pthread_t threads[] = {unit_begin(take_all_sizes, NULL), unit_begin(take_all_sizes, NULL)};
        for (unsigned i = 0; i < COUNT(threads); i++)
            unit_join(threads[i]);
    } else {
        hak_trim(0);
    }
    int result = take_and_look();
    if (!result && !depth++)
        unit_in_child(take_among_whole);
    return result;
}

TEST(no_block_serves_twice_in_children_of_threads_that_allocate)
{
    unit_start(NULL);
    pthread_t busy[BUSY];
    alarm(120);
    for (unsigned i = 0; i < BUSY; i++)
        busy[i] = unit_begin(allocate_and_free, (void *)(uintptr_t)i);
    for (unsigned i = 0; i < FORKS; i++)
        unit_in_child(take_among_whole);
    stop = true;
    for (unsigned i = 0; i < BUSY; i++)
        unit_join(busy[i]);
    assert_int_equal(all_are_whole(), true);
}

/* --- storage of a thread that ended by the system call --------------------------------------------------------- */

#define STACK (256 * HAK_KIB)

static struct hak_cache *storage;
static size_t page_size;

static void *end_without_destructors(void *unused)
{
    unit_free_blocks(unit_blocks(SIZE, 10));
    unit_free_blocks(unit_blocks(40, 100));
    storage = &hak_self;
    syscall(SYS_exit, 0);
    return unused;
}

/* What programs do with the addresses of such a thread's stack. The page is one that has a part of the storage. */
static void close_page(char *at)
{
    assert_int_equal(mprotect(at, page_size, PROT_NONE), 0);
}

static void unmap_page(char *at)
{
    assert_int_equal(munmap(at, page_size), 0);
}

static void keep_page_from_children(char *at)
{
    assert_int_equal(madvise(at, page_size, MADV_DONTFORK), 0);
}

static void wipe_page_in_children(char *at)
{
    assert_int_equal(madvise(at, page_size, MADV_WIPEONFORK), 0);
}

static void map_end_of_file(char *at)
{
    int file = memfd_create("empty", 0);
    assert_true(mmap(at, page_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED, file, 0) == at);
    close(file);
}

static void write_numbers(char *unused)
{
    struct hak_heap *heap = storage->heap;
    (void)unused;
    memset(storage, 0x5a, sizeof *storage);
    storage->heap = heap;
}

static void fork_after(void (*use)(char *at), size_t shift, bool last)
{
    pthread_t thread;
    pthread_attr_t attr;
    char *stack = mmap(NULL, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    pthread_attr_init(&attr);
    assert_int_equal(pthread_attr_setstack(&attr, stack, STACK - shift), 0);
    assert_int_equal(pthread_create(&thread, &attr, end_without_destructors, NULL), 0);
    pthread_attr_destroy(&attr);
    unit_join(thread);
    use((char *)((uintptr_t)(last ? (char *)(storage + 1) - 1 : (char *)storage) & ~(page_size - 1)));
    unit_in_child(take_and_look);
}

/* The storage lies in one page; or it begins in one, which the program uses, or the other, and ends in the next. */
TEST(a_child_survives_whatever_has_become_of_an_ended_threads_storage)
{
    static void (*const uses[])(char *) = {
        close_page, unmap_page, keep_page_from_children, wipe_page_in_children, map_end_of_file, write_numbers};
#if !defined(__GLIBC__)
    skip(); /* musl's pthread_join waits for such a thread forever */
#endif
    unit_start(NULL);
    page_size = hak_os_page_size();
    for (unsigned i = 0; i < COUNT(uses); i++) {
        fork_after(uses[i], 0, false);
        size_t shift = ((uintptr_t)storage + sizeof *storage / 2) % page_size & ~(size_t)63;
        fork_after(uses[i], shift, false);
        fork_after(uses[i], shift, true);
    }
}

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
    uint64_t alone = HAK_LOAD_RELAXED(&lock->word);
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
