/* SPDX-License-Identifier: MIT
 * See lock.h. The first half of a lock's word is a futex; waiters sleep on it. */
#include "lock.h"

#include <limits.h>
#include <time.h>

#include "kernel.h"
#include "log.h"

#define PATIENCE_S 10
/* Looks at a lock before the thread sleeps: longer than most locks are held, shorter than to sleep and be woken. The
 * model of the lock (tests/models) looks once. */
#define SPINS (HAK_SANITIZED ? 1u : 100u)

/* From linux/futex.h, which not every C library comes with. This wait takes an absolute timeout, so that a signal does
 * not extend it. */
enum { WAIT_UNTIL = 9, WAKE = 1, PRIVATE = 128 };
/* A lock's word is the address of its owner's `self`, whole, since threads' storage may lie at any distance. AWAITED: a
 * thread may sleep. LOST, in a child: the owner does not exist, and has left the protected data in an inconsistent
 * state. */
enum { FREE, AWAITED = 1, LOST = AWAITED };

#define OWNS_ALL (1u << 31)

/* The thread's state. A signal may arrive at any time; for the lock that is being acquired or released, the word
 * decides. */
static HAK_THREAD_LOCAL struct {
    unsigned held; /* one bit for each rank, and OWNS_ALL */
    const struct hak_lock *changing;
} self;

static _Atomic(bool) all_taken;            /* some thread holds all locks */
static _Atomic(unsigned) fork_waits;       /* a fork waits for locks */
enum { NO_FORK, FORK_WAITS, FORK_IS_LET }; /* FORK_IS_LET: a thread sleeps until fork holds all locks */

extern struct hak_lock *const __start_hak_locks[] __attribute__((weak)) HAK_HIDDEN;
extern struct hak_lock *const __stop_hak_locks[] __attribute__((weak)) HAK_HIDDEN;

/* --- the word ---------------------------------------------------------------------------------------- */

static struct timespec after_patience(void)
{
    uint64_t ns = hak_kernel_clock(CLOCK_MONOTONIC); /* 0 if a seccomp filter refuses: times out at once */
    return (struct timespec){(time_t)(ns / 1000000000) + PATIENCE_S, (long)(ns % 1000000000)};
}

/* False after a timeout; `until` NULL: never times out. A spurious wakeup returns true; the caller checks again. */
static bool sleep_on(void *word, unsigned value, const struct timespec *until)
{
    return HAK_SYSCALL(SYS_futex, word, WAIT_UNTIL | PRIVATE, value, until, NULL, ~0u) != -ETIMEDOUT;
}

static HAK_COLD void wake(void *word, int most)
{
    HAK_SYSCALL(SYS_futex, word, WAKE | PRIVATE, most);
}

static uint64_t mine(void)
{
    return (uintptr_t)&self;
}

static bool is_mine(uint64_t word)
{
    return (word & ~(uint64_t)AWAITED) == mine();
}

static bool try_word(_Atomic(uint64_t) *word, uint64_t *seen)
{
    *seen = FREE;
    return HAK_CAS_ACQUIRE(word, seen, mine());
}

/* Tries to acquire with AWAITED set, since other threads may still sleep after the last owner woke one. *seen: the
 * expected word; on failure, the value to sleep on. */
static bool try_awaited(_Atomic(uint64_t) *word, uint64_t *seen)
{
    uint64_t next;
    do /* swaps even if AWAITED is set already: only a swap sees the newest value */
        next = (*seen == FREE ? mine() : *seen) | AWAITED;
    while (!HAK_CAS_ACQUIRE(word, seen, next));
    bool taken = *seen == FREE;
    *seen = next;
    return taken;
}

static HAK_COLD void tell_of_fork(void)
{
    static _Atomic(bool) told;
    if (HAK_LOAD_RELAXED(&all_taken) && !HAK_EXCHANGE_RELAXED(&told, true))
        hak_log("a thread has waited %d s for a thread that forks; if a fork handler of another library waits for it, "
                "load this library before that one",
                PATIENCE_S);
}

HAK_INLINE void pause_cpu(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("isb");
#endif
}

/* False: another thread had the lock whenever this one looked. */
static bool spin_on(_Atomic(uint64_t) *word, bool (*try)(_Atomic(uint64_t) *word, uint64_t *seen))
{
    for (unsigned i = 0; i < SPINS; i++) {
        uint64_t seen = FREE;
        pause_cpu();
        if (HAK_LOAD_RELAXED(word) == FREE && try(word, &seen))
            return true;
    }
    return false;
}

static HAK_COLD void wait_for(_Atomic(uint64_t) *word, uint64_t seen)
{
    if (is_mine(seen))
        hak_log_fatal("malloc or free was called by the handler of a signal that came inside of malloc or free");
    if (spin_on(word, try_word))
        return;
    struct timespec until = after_patience();
    for (bool late = false; !try_awaited(word, &seen); seen = FREE) {
        if (seen == LOST)
            hak_log_fatal(
                "fork was called by the handler of a signal that came inside of malloc or free, while another "
                "thread was inside, too; such a child may only call exec or _exit");
        if (late)
            tell_of_fork();
        late = !sleep_on(word, (unsigned)seen, late ? NULL : &until);
        if (spin_on(word, try_awaited)) /* a thread that takes the lock often may have it again by now */
            return;
    }
}

static void acquire_word(_Atomic(uint64_t) *word)
{
    uint64_t seen;
    if (!try_word(word, &seen))
        wait_for(word, seen);
}

static void release_word(_Atomic(uint64_t) *word)
{
    if (HAK_EXCHANGE_RELEASE(word, FREE) & AWAITED)
        wake(word, 1);
}

/* --- locks --------------------------------------------------------------------------------------------- */

static unsigned bit_of(const struct hak_lock *lock)
{
    return 1u << lock->rank;
}

static const struct hak_lock *begin_change(const struct hak_lock *lock)
{
    const struct hak_lock *interrupted = self.changing;
    self.changing = lock;
    HAK_KEEP_ORDER();
    return interrupted;
}

static void end_change(const struct hak_lock *interrupted)
{
    HAK_KEEP_ORDER();
    self.changing = interrupted;
}

/* Stops the process, unless the thread owns all. */
static HAK_COLD void check_owns_all(struct hak_lock *lock)
{
    if (self.held & OWNS_ALL)
        return;
    if (is_mine(HAK_LOAD_RELAXED(&lock->word)))
        wait_for(&lock->word, mine()); /* this stops the process */
    hak_log_fatal(
        "a thread asked for two locks of rank %u at once; a part's locks that are held together need ranks of "
        "their own (core/base/lock.h)",
        lock->rank);
}

/* `taken` is written under the lock only; atomic because the statistics read it without. */
static void note_taken(struct hak_lock *lock)
{
    HAK_KEEP_ORDER();
    self.held |= bit_of(lock);
    HAK_STORE_RELAXED(&lock->taken, HAK_LOAD_RELAXED(&lock->taken) + 1);
}

static void take_word(struct hak_lock *lock)
{
    const struct hak_lock *interrupted = begin_change(lock);
    acquire_word(&lock->word);
    note_taken(lock);
    end_change(interrupted);
}

void hak_lock_acquire(struct hak_lock *lock)
{
    if (HAK_UNLIKELY(self.held & (OWNS_ALL | bit_of(lock)))) {
        check_owns_all(lock);
        return;
    }
    HAK_ASSERT(self.held < bit_of(lock));
    take_word(lock);
}

bool hak_lock_try(struct hak_lock *lock)
{
    if (HAK_UNLIKELY(self.held & (OWNS_ALL | bit_of(lock)))) {
        check_owns_all(lock);
        return true;
    }
    uint64_t seen;
    const struct hak_lock *interrupted = begin_change(lock);
    bool taken = try_word(&lock->word, &seen);
    if (taken)
        note_taken(lock);
    end_change(interrupted);
    return taken;
}

/* In a child, a call that a signal handler's fork interrupted may release a lock that it no longer holds. */
void hak_lock_release(struct hak_lock *lock)
{
    if (HAK_UNLIKELY((self.held & (OWNS_ALL | bit_of(lock))) != bit_of(lock)))
        return;
    const struct hak_lock *interrupted = begin_change(lock);
    self.held &= ~bit_of(lock);
    HAK_KEEP_ORDER();
    release_word(&lock->word);
    end_change(interrupted);
}

const void *hak_lock_self(size_t *size)
{
    *size = sizeof self;
    return &self;
}

bool hak_lock_is_any_held(void)
{
    return self.held || (self.changing && is_mine(HAK_LOAD_RELAXED(&self.changing->word)));
}

/* --- all at once, by fork ------------------------------------------------------------------------------- */

void hak_lock_acquire_sibling(struct hak_lock *lock)
{
    HAK_ASSERT(self.held < bit_of(lock) * 2);
    take_word(lock);
}

void hak_lock_release_sibling(struct hak_lock *lock)
{
    release_word(&lock->word);
    self.held &= ~bit_of(lock);
}

void hak_lock_own_all(void)
{
    self.held |= OWNS_ALL;
    HAK_STORE_RELAXED(&all_taken, true);
}

void hak_lock_disown_all(void)
{
    HAK_STORE_RELAXED(&all_taken, false);
    self.held &= ~OWNS_ALL;
}

bool hak_lock_owns_all(void)
{
    return self.held & OWNS_ALL;
}

bool hak_lock_take_for_fork(struct hak_lock *lock)
{
    bool owns_all = hak_lock_owns_all();
    if (owns_all)
        HAK_STORE_RELAXED(&lock->word, mine());
    return owns_all;
}

bool hak_lock_is_forking(void)
{
    return HAK_LOAD_RELAXED(&all_taken);
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

void hak_lock_acquire_all(void (*acquire_cpu_heaps)(void))
{
    acquire_rank(HAK_RANK_FORK);
    HAK_STORE_RELAXED(&fork_waits, FORK_WAITS);
    for (unsigned rank = HAK_RANK_FORK + 1; rank < HAK_NRANKS; rank++) {
        if (rank == HAK_RANK_CPU_HEAP && acquire_cpu_heaps)
            acquire_cpu_heaps();
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

void hak_lock_lose(struct hak_lock *lock)
{
    uint64_t word = HAK_LOAD_RELAXED(&lock->word);
    if (word != FREE && !is_mine(word))
        HAK_STORE_RELAXED(&lock->word, lock->rank == HAK_RANK_PURGE ? FREE : LOST);
}

void hak_lock_lose_others(void)
{
    HAK_STORE_RELAXED(&fork_waits, NO_FORK);
    for (struct hak_lock *const *lock = __start_hak_locks; lock < __stop_hak_locks; lock++)
        hak_lock_lose(*lock);
}
