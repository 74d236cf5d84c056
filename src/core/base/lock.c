/* SPDX-License-Identifier: MIT
 * See lock.h. A lock is one word, on which who waits sleeps in the kernel. */
#include "lock.h"

#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "file.h"
#include "log.h"

#define PATIENCE_NS 100000000L /* of who may borrow; no handler of a fork takes that long, unless it waits */

/* Of linux/futex.h, which is not beside every C library. The wait is the one whose timeout is a moment: a signal ends
 * it, and who begins it again has waited no less. */
enum { WAIT_UNTIL = 9, WAKE = 1, PRIVATE = 128 };
enum { FREE, TAKEN, AWAITED }; /* AWAITED: somebody may sleep */

/* One bit for each rank. A signal may come at any time: set before the lock is taken, cleared after it is released. */
static HAK_THREAD_LOCAL unsigned held;
static HAK_THREAD_LOCAL bool owns_all;
static HAK_THREAD_LOCAL unsigned borrowed; /* how many locks, of those that a forking thread has; its own too */

static _Atomic(int) forking;   /* the thread that has all locks, or 0 */
static _Atomic(unsigned) loan; /* the word of who uses them meanwhile, or looks whether it may */
static _Atomic(bool) lent;     /* another thread uses them: what they guard may be half changed */
static _Atomic(bool) was_lent; /* in this fork: others need not wait as long */

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
static bool sleep_on(_Atomic(unsigned) *word, const struct timespec *until)
{
    int saved = errno;
    bool late = syscall(SYS_futex, word, WAIT_UNTIL | PRIVATE, AWAITED, until, NULL, ~0u) < 0 && errno == ETIMEDOUT;
    errno = saved;
    return !late;
}

static bool try_word(_Atomic(unsigned) *word)
{
    unsigned expected = FREE;
    return HAK_CAS_ACQUIRE(word, &expected, TAKEN);
}

/* With AWAITED, since others may sleep that the last owner's wake-up did not reach. */
static bool try_awaited(_Atomic(unsigned) *word)
{
    return HAK_EXCHANGE_ACQUIRE(word, AWAITED) == FREE;
}

static void acquire_word(_Atomic(unsigned) *word)
{
    if (!try_word(word))
        while (!try_awaited(word))
            sleep_on(word, NULL);
}

static void release_word(_Atomic(unsigned) *word)
{
    int saved = errno;
    if (HAK_EXCHANGE_RELEASE(word, FREE) == AWAITED)
        syscall(SYS_futex, word, WAKE | PRIVATE, 1);
    errno = saved;
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

/* In a child who borrowed is not there: a change of the heap could have been copied by half. Who waited for the loan,
 * or looked whether it might, is not there either, and changed nothing. */
static void take_back_in_child(void)
{
    if (HAK_LOAD_ACQUIRE(&lent))
        hak_log_fatal("fork: a handler of pthread_atfork slept for long, and another thread was in malloc when the "
                      "process was copied; load the library before the one with the handler");
    HAK_STORE_RELAXED(&loan, FREE);
}

/* The forking thread has another number in the child, where another library's handler may call us before ours is run. */
static void notice_child(void)
{
    int self = (int)syscall(SYS_gettid);
    if (HAK_LOAD_RELAXED(&forking) == self)
        return;
    take_back_in_child();
    HAK_STORE_RELEASE(&forking, self);
}

static void use_loan(void)
{
    if (borrowed++)
        return;
    if (owns_all)
        notice_child();
    acquire_word(&loan);
}

static void leave_loan(void)
{
    if (--borrowed)
        return;
    HAK_STORE_RELEASE(&lent, false);
    release_word(&loan);
}

/* Others may have had the loan for long: it looks again when its turn comes. */
static bool borrow(void)
{
    int thread = HAK_LOAD_ACQUIRE(&forking);
    if (!thread || !is_asleep(thread))
        return false;
    use_loan();
    bool may = HAK_LOAD_ACQUIRE(&forking) == thread && is_asleep(thread);
    if (may) {
        (void)HAK_EXCHANGE_ACQ_REL(&lent, true); /* before any change */
        HAK_STORE_RELAXED(&was_lent, true);
    } else {
        leave_loan();
    }
    return may;
}

void hak_lock_own_all(void)
{
    owns_all = true;
    HAK_STORE_RELEASE(&forking, (int)syscall(SYS_gettid));
}

void hak_lock_disown_all(bool in_child)
{
    if (in_child)
        take_back_in_child();
    acquire_word(&loan);
    HAK_STORE_RELAXED(&forking, 0);
    HAK_STORE_RELAXED(&was_lent, false);
    owns_all = false;
    release_word(&loan);
}

bool hak_lock_owns_all(void)
{
    return owns_all;
}

bool hak_lock_take_for_fork(struct hak_lock *lock)
{
    bool forks = owns_all || borrowed;
    if (forks)
        HAK_STORE_RELAXED(&lock->word, TAKEN);
    return forks;
}

/* --- locks --------------------------------------------------------------------------------------------- */

static bool is_held(const struct hak_lock *lock)
{
    return held >> lock->rank & 1;
}

static void check_rank(const struct hak_lock *lock)
{
    if (HAK_UNLIKELY(is_held(lock)))
        hak_log_fatal("malloc or free was called by the handler of a signal that came inside of malloc or free");
    HAK_ASSERT(held >> lock->rank == 0);
}

/* Written under the lock only; atomic because the statistics read it without. */
static void note_taken(struct hak_lock *lock)
{
    HAK_STORE_RELAXED(&lock->taken, HAK_LOAD_RELAXED(&lock->taken) + 1);
}

/* Who borrows one lock has borrowed all. */
static HAK_COLD void wait_for(struct hak_lock *lock)
{
    struct timespec until = soon();
    for (bool late = HAK_LOAD_RELAXED(&was_lent); !try_awaited(&lock->word); late = !sleep_on(&lock->word, &until)) {
        if (late && borrow())
            return;
        if (late)
            until = soon();
    }
}

void hak_lock_acquire(struct hak_lock *lock)
{
    if (HAK_UNLIKELY(owns_all)) {
        use_loan();
        return;
    }
    check_rank(lock);
    held |= 1u << lock->rank;
    if (HAK_UNLIKELY(borrowed))
        use_loan();
    else if (!try_word(&lock->word))
        wait_for(lock);
    note_taken(lock);
}

bool hak_lock_try(struct hak_lock *lock)
{
    if (HAK_UNLIKELY(owns_all || borrowed)) {
        hak_lock_acquire(lock);
        return true;
    }
    check_rank(lock);
    held |= 1u << lock->rank;
    if (!try_word(&lock->word)) {
        held &= ~(1u << lock->rank);
        return false;
    }
    note_taken(lock);
    return true;
}

void hak_lock_release(struct hak_lock *lock)
{
    if (HAK_UNLIKELY(owns_all)) {
        leave_loan();
        return;
    }
    HAK_ASSERT(is_held(lock));
    if (HAK_UNLIKELY(borrowed))
        leave_loan();
    else
        release_word(&lock->word);
    held &= ~(1u << lock->rank);
}

void hak_lock_acquire_sibling(struct hak_lock *lock)
{
    HAK_ASSERT(held >> lock->rank <= 1);
    held |= 1u << lock->rank;
    acquire_word(&lock->word);
    note_taken(lock);
}

void hak_lock_release_sibling(struct hak_lock *lock)
{
    release_word(&lock->word);
    held &= ~(1u << lock->rank);
}

bool hak_lock_is_any_held(void)
{
    return held != 0;
}
