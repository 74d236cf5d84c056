/* SPDX-License-Identifier: MIT
 * See lock.h. A lock is one word, on which who waits sleeps in the kernel. */
#include "lock.h"

#include <limits.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "file.h"
#include "identity.h"
#include "log.h"

#define PATIENCE_NS 100000000L /* of who may borrow; no handler of a fork takes that long, unless it waits */

/* Of linux/futex.h, which is not beside every C library. The wait is the one whose timeout is a moment: a signal ends
 * it, and who begins it again has waited no less. */
enum { WAIT_UNTIL = 9, WAKE = 1, PRIVATE = 128 };
/* Of a lock: above these bits where its owner keeps `held`. AWAITED: somebody may sleep. */
enum { FREE, AWAITED = 1, OWNED = 2, OWNER_SHIFT = 2 };

/* One bit for each rank. A signal may come at any time: of the lock that is being taken or released its word tells. */
static HAK_THREAD_LOCAL unsigned held;
static HAK_THREAD_LOCAL const struct hak_lock *changing;
static HAK_THREAD_LOCAL bool owns_all;
static HAK_THREAD_LOCAL unsigned borrowed; /* how many locks, of those that a forking thread has; its own too */
static HAK_THREAD_LOCAL unsigned left_behind; /* of those, in a child, by calls that a signal's handler interrupted */

static _Atomic(uint64_t) forking; /* the process and the number in it of the thread that has all locks, or 0 */
static _Atomic(unsigned) loan;    /* of who uses them meanwhile, or looks whether it may: its process, and bits */
static _Atomic(bool) was_lent;    /* in this fork: others need not wait as long */

static _Atomic(unsigned) fork_waits; /* for locks */
enum { NO_FORK, FORK_WAITS, FORK_IS_LET }; /* FORK_IS_LET: somebody sleeps until it has them */

extern struct hak_lock *const __start_hak_locks[] __attribute__((weak)) HAK_HIDDEN;
extern struct hak_lock *const __stop_hak_locks[] __attribute__((weak)) HAK_HIDDEN;

/* WANTED: somebody may sleep. CHANGING: what the locks guard may be half changed. */
enum { HAD = 1, WANTED = 2, CHANGING = 4, PROCESS_SHIFT = 32 - HAK_IDENTITY_BITS };

/* --- the word ---------------------------------------------------------------------------------------- */

static struct timespec soon(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    t.tv_nsec += PATIENCE_NS;
    t.tv_sec += t.tv_nsec / 1000000000;
    t.tv_nsec %= 1000000000;
    return t;
}

/* False when it is later; NULL: never. A wake-up for nothing is one for the caller to look again. */
static bool sleep_on(_Atomic(unsigned) *word, unsigned value, const struct timespec *until)
{
    int saved = errno;
    bool late = syscall(SYS_futex, word, WAIT_UNTIL | PRIVATE, value, until, NULL, ~0u) < 0 && errno == ETIMEDOUT;
    errno = saved;
    return !late;
}

static void wake(_Atomic(unsigned) *word, int most)
{
    int saved = errno;
    syscall(SYS_futex, word, WAKE | PRIVATE, most);
    errno = saved;
}

static unsigned mine(void)
{
    return (unsigned)((uintptr_t)&held >> 4) << OWNER_SHIFT | OWNED; /* unique within 16 GiB */
}

static bool is_mine(const struct hak_lock *lock)
{
    return (HAK_LOAD_RELAXED(&lock->word) & ~(unsigned)AWAITED) == mine();
}

static bool try_word(_Atomic(unsigned) *word, unsigned *seen)
{
    *seen = FREE;
    return HAK_CAS_ACQUIRE(word, seen, mine());
}

/* With AWAITED, since others may sleep that the last owner's wake-up did not reach. *seen is what the word may be; without
 * success it is what to sleep on. */
static bool try_awaited(_Atomic(unsigned) *word, unsigned *seen)
{
    unsigned next;
    do /* also where AWAITED is set: what is swapped was the newest value */
        next = (*seen == FREE ? mine() : *seen) | AWAITED;
    while (!HAK_CAS_ACQUIRE(word, seen, next));
    bool taken = *seen == FREE;
    *seen = next;
    return taken;
}

static void acquire_word(_Atomic(unsigned) *word)
{
    unsigned seen;
    if (try_word(word, &seen))
        return;
    for (; !try_awaited(word, &seen); seen = FREE)
        sleep_on(word, seen, NULL);
}

static void release_word(_Atomic(unsigned) *word)
{
    if (HAK_EXCHANGE_RELEASE(word, FREE) & AWAITED)
        wake(word, 1);
}

/* --- a forking thread's locks -------------------------------------------------------------------------- */

/* Whether it does nothing for a while. Of a thread that does not get a processor this says the same. */
static bool is_at_rest(int thread)
{
    clockid_t used = (clockid_t)(~(unsigned)thread << 3 | 6); /* of a thread, as the kernel names them */
    struct timespec before, after, pause = {.tv_nsec = PATIENCE_NS / 10};
    if (clock_gettime(used, &before))
        return false;
    syscall(SYS_nanosleep, &pause, NULL);
    return !clock_gettime(used, &after) && before.tv_sec == after.tv_sec && before.tv_nsec == after.tv_nsec;
}

/* A thread that copies a large process runs, or waits for the kernel uninterruptibly. Without /proc, or without a file
 * descriptor to read it by, its use of the processor tells. */
static bool is_asleep(int thread)
{
    char path[64], text[128];
    hak_text_format(path, sizeof path, "/proc/self/task/%d/stat", thread);
    if (!hak_file_read(path, text, sizeof text))
        return is_at_rest(thread);
    const char *name_end = strrchr(text, ')');
    return name_end && name_end[1] == ' ' && name_end[2] == 'S';
}

/* Not while the forking thread may copy the process. In a child, where another library's handler may start threads
 * before ours is run, it has done so. */
static bool may_borrow(void)
{
    uint64_t thread = HAK_LOAD_ACQUIRE(&forking);
    return thread && (thread >> 32 != hak_identity() || is_asleep((int)thread));
}

/* In a child who had the loan is not there: a change could have been copied by half. Who waited for it, or looked
 * whether it might, changed nothing. */
static bool is_nobodys(unsigned word, unsigned process)
{
    if (word >> PROCESS_SHIFT == process)
        return false;
    if (word & CHANGING)
        hak_log_fatal("fork: a handler of pthread_atfork slept for long, and another thread was in malloc when the "
                      "process was copied; load the library before the one with the handler");
    return true;
}

static void acquire_loan(void)
{
    unsigned process = hak_identity(), own = process << PROCESS_SHIFT | HAD, word = HAK_LOAD_RELAXED(&loan);
    for (;;) {
        bool available = is_nobodys(word, process);
        unsigned next = available ? own : word | WANTED;
        if (!HAK_CAS_ACQUIRE(&loan, &word, next))
            continue;
        if (available)
            return;
        sleep_on(&loan, next, NULL);
        own |= WANTED; /* others may sleep that the wake-up did not reach */
        word = next;
    }
}

static void release_loan(void)
{
    if (HAK_EXCHANGE_RELEASE(&loan, FREE) & WANTED)
        wake(&loan, 1);
}

static void use_loan(void)
{
    if (!borrowed++)
        acquire_loan();
}

static void leave_loan(void)
{
    if (!--borrowed)
        release_loan();
}

/* Others may have had the loan for long: it looks again when its turn comes. */
static bool borrow(void)
{
    if (!may_borrow())
        return false;
    use_loan();
    bool may = may_borrow();
    if (may) {
        HAK_OR_ACQ_REL(&loan, CHANGING); /* before any change */
        HAK_STORE_RELAXED(&was_lent, true);
    } else {
        leave_loan();
    }
    return may;
}

void hak_lock_own_all(void)
{
    owns_all = true;
    HAK_STORE_RELEASE(&forking, (uint64_t)hak_identity() << 32 | (uint64_t)syscall(SYS_gettid));
    if (borrowed)
        return; /* by the handler of a signal that came inside of malloc: nobody else changes anything */
    acquire_loan(); /* who borrowed comes to an end; the next one looks whether this thread is asleep */
    release_loan();
}

void hak_lock_disown_all(void)
{
    acquire_loan();
    HAK_STORE_RELAXED(&forking, 0);
    HAK_STORE_RELAXED(&was_lent, false);
    owns_all = false;
    left_behind = borrowed;
    borrowed = 0;
    release_loan();
}

bool hak_lock_owns_all(void)
{
    return owns_all;
}

unsigned hak_lock_forks_in(void)
{
    return owns_all || borrowed ? hak_identity() : 0;
}

bool hak_lock_take_for_fork(struct hak_lock *lock)
{
    bool forks = hak_lock_forks_in() != 0;
    if (forks)
        HAK_STORE_RELAXED(&lock->word, mine());
    return forks;
}

/* --- locks --------------------------------------------------------------------------------------------- */

static bool is_held(const struct hak_lock *lock)
{
    return held >> lock->rank & 1;
}

/* As the handler of a signal sees it, which runs in the same thread. */
HAK_INLINE void keep_order(void)
{
    __asm__ volatile("" ::: "memory");
}

static const struct hak_lock *begin_change(const struct hak_lock *lock)
{
    const struct hak_lock *interrupted = changing;
    changing = lock;
    keep_order();
    return interrupted;
}

static void end_change(const struct hak_lock *interrupted)
{
    keep_order();
    changing = interrupted;
}

static HAK_COLD bool is_changing_own(void)
{
    return is_mine(changing);
}

static _Noreturn HAK_COLD void fail_held(const struct hak_lock *lock)
{
    if (borrowed || is_mine(lock))
        hak_log_fatal("malloc or free was called by the handler of a signal that came inside of malloc or free");
    hak_log_fatal("a thread asked for two locks of rank %u at once; a part's locks that are held together need ranks of "
                  "their own (core/base/lock.h)", lock->rank);
}

static void check_held(const struct hak_lock *lock)
{
    if (HAK_UNLIKELY(is_held(lock) || (changing == lock && is_changing_own())))
        fail_held(lock);
}

/* Written under the lock only; atomic because the statistics read it without. */
static void note_taken(struct hak_lock *lock)
{
    HAK_STORE_RELAXED(&lock->taken, HAK_LOAD_RELAXED(&lock->taken) + 1);
}

/* Who borrows one lock has borrowed all. */
static HAK_COLD void wait_for(struct hak_lock *lock, unsigned seen)
{
    struct timespec until = soon();
    bool late = HAK_LOAD_RELAXED(&was_lent);
    for (; !try_awaited(&lock->word, &seen); seen = FREE) {
        if (late && borrow())
            return;
        if (late)
            until = soon();
        late = !sleep_on(&lock->word, seen, &until);
    }
}

static void set_held(const struct hak_lock *lock)
{
    keep_order();
    held |= 1u << lock->rank;
}

static void clear_held(const struct hak_lock *lock)
{
    held &= ~(1u << lock->rank);
    keep_order();
}

static void acquire(struct hak_lock *lock)
{
    if (HAK_UNLIKELY(owns_all)) {
        use_loan();
        return;
    }
    unsigned seen;
    check_held(lock);
    const struct hak_lock *interrupted = begin_change(lock);
    if (HAK_UNLIKELY(borrowed))
        use_loan();
    else if (!try_word(&lock->word, &seen))
        wait_for(lock, seen);
    set_held(lock);
    end_change(interrupted);
    note_taken(lock);
}

void hak_lock_acquire(struct hak_lock *lock)
{
    HAK_ASSERT(owns_all || held >> lock->rank <= 1); /* 1: it fails with a message */
    acquire(lock);
}

bool hak_lock_try(struct hak_lock *lock)
{
    if (HAK_UNLIKELY(owns_all || borrowed)) {
        acquire(lock);
        return true;
    }
    unsigned seen;
    check_held(lock);
    const struct hak_lock *interrupted = begin_change(lock);
    bool taken = try_word(&lock->word, &seen);
    if (taken)
        set_held(lock);
    end_change(interrupted);
    if (taken)
        note_taken(lock);
    return taken;
}

void hak_lock_release(struct hak_lock *lock)
{
    if (HAK_UNLIKELY(owns_all)) {
        leave_loan();
        return;
    }
    if (HAK_UNLIKELY(left_behind && !is_held(lock))) {
        left_behind--;
        return;
    }
    HAK_ASSERT(is_held(lock));
    if (HAK_UNLIKELY(borrowed)) {
        leave_loan();
        clear_held(lock);
        return;
    }
    const struct hak_lock *interrupted = begin_change(lock);
    clear_held(lock);
    release_word(&lock->word);
    end_change(interrupted);
}

bool hak_lock_is_any_held(void)
{
    return held || borrowed || (changing && is_changing_own());
}

/* --- all at once, by fork ------------------------------------------------------------------------------- */

void hak_lock_acquire_sibling(struct hak_lock *lock)
{
    HAK_ASSERT(held >> lock->rank <= 1);
    const struct hak_lock *interrupted = begin_change(lock);
    acquire_word(&lock->word);
    set_held(lock);
    end_change(interrupted);
    note_taken(lock);
}

void hak_lock_release_sibling(struct hak_lock *lock)
{
    release_word(&lock->word);
    held &= ~(1u << lock->rank);
}

bool hak_lock_is_forking(void)
{
    return HAK_LOAD_RELAXED(&forking) != 0;
}

bool hak_lock_is_fork_waiting(void)
{
    return HAK_UNLIKELY(HAK_LOAD_RELAXED(&fork_waits) != NO_FORK);
}

void hak_lock_let_fork(void)
{
    unsigned seen;
    while ((seen = HAK_LOAD_RELAXED(&fork_waits)) != NO_FORK)
        if (seen == FORK_IS_LET || HAK_CAS_RELAXED(&fork_waits, &seen, FORK_IS_LET))
            sleep_on(&fork_waits, FORK_IS_LET, NULL);
}

static void acquire_rank(unsigned rank)
{
    for (struct hak_lock *const *lock = __start_hak_locks; lock < __stop_hak_locks; lock++)
        if ((*lock)->rank == rank)
            hak_lock_acquire_sibling(*lock);
}

void hak_lock_acquire_all(void (*acquire_processors)(void))
{
    acquire_rank(HAK_RANK_FORK);
    HAK_STORE_RELAXED(&fork_waits, FORK_WAITS);
    for (unsigned rank = HAK_RANK_FORK + 1; rank < HAK_NRANKS; rank++) {
        if (rank == HAK_RANK_PROCESSOR)
            acquire_processors();
        else if (rank != HAK_RANK_PURGE)
            acquire_rank(rank);
    }
    if (HAK_EXCHANGE_RELAXED(&fork_waits, NO_FORK) == FORK_IS_LET)
        wake(&fork_waits, INT_MAX);
    hak_lock_own_all();
}

void hak_lock_release_all(void)
{
    for (struct hak_lock *const *lock = __stop_hak_locks; lock-- > __start_hak_locks;)
        if ((*lock)->rank != HAK_RANK_PURGE)
            hak_lock_release_sibling(*lock);
}

void hak_lock_free_purges(void)
{
    for (struct hak_lock *const *lock = __start_hak_locks; lock < __stop_hak_locks; lock++)
        if ((*lock)->rank == HAK_RANK_PURGE)
            HAK_STORE_RELAXED(&(*lock)->word, FREE);
}
