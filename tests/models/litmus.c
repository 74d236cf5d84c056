/* SPDX-License-Identifier: MIT
 * Is the checker right? Small programs whose outcomes C11 settles: those that may happen must be reached, and those
 * that may not are failures. The last ones are deliberately wrong: each must be detected. */
#include "checker.h"

#include <pthread.h>
#include <stdatomic.h>

static _Atomic(unsigned) x, y, seen[4];
static int plain;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

#define GET(a, order) atomic_load_explicit(&(a), memory_order_##order)
#define SET(a, v, order) atomic_store_explicit(&(a), v, memory_order_##order)

static void nothing(void)
{
}

/* Message passing with release and acquire: it transfers a plain value. */
static void message(unsigned self)
{
    if (self == 0) {
        plain = 1;
        SET(x, 1, release);
    } else if (GET(x, acquire)) {
        MODEL_CHECK(plain == 1);
        model_reached(1);
    } else {
        model_reached(0);
    }
}

/* Without them the second value may come first. */
static void relaxed_message(unsigned self)
{
    if (self == 0) {
        SET(x, 1, relaxed);
        SET(y, 1, relaxed);
    } else {
        unsigned b = GET(y, relaxed), a = GET(x, relaxed);
        model_reached(b * 2 + a);
    }
}

/* Both may miss the other's store, acquire and release or not. */
static void store_buffer(unsigned self)
{
    SET(*(self ? &x : &y), 1, release);
    SET(seen[self], GET(*(self ? &y : &x), acquire), relaxed);
}

static void any_of_four(void)
{
    model_reached(GET(seen[0], relaxed) * 2 + GET(seen[1], relaxed));
}

/* Two readers may see two writes in different orders. */
static void two_readers(unsigned self)
{
    if (self < 2) {
        SET(*(self ? &y : &x), 1, release);
        return;
    }
    unsigned a = GET(*(self == 2 ? &x : &y), acquire), b = GET(*(self == 2 ? &y : &x), acquire);
    SET(seen[self], a && !b, relaxed);
}

static void whether_both(void)
{
    model_reached(GET(seen[2], relaxed) && GET(seen[3], relaxed));
}

/* Reads of one location never go back in time. */
static void coherence(unsigned self)
{
    if (self == 0) {
        SET(x, 1, relaxed);
        SET(x, 2, relaxed);
        return;
    }
    unsigned a = GET(x, relaxed), b = GET(x, relaxed);
    MODEL_CHECK(a <= b);
    model_reached(a);
}

/* Read-modify-writes see the newest value, and carry on what a release began. */
static void sequence(unsigned self)
{
    if (self == 0) {
        plain = 1;
        SET(x, 1, release);
    } else if (self == 1) {
        atomic_fetch_add_explicit(&x, 1, memory_order_relaxed);
    } else if (GET(x, acquire) == 2) {
        MODEL_CHECK(plain == 1);
        model_reached(0);
    }
}

static void whether_two(void)
{
    unsigned v = GET(x, relaxed);
    MODEL_CHECK(v == 1 || v == 2);
}

/* A compare that fails may have seen an old value. */
static void compare(unsigned self)
{
    unsigned expected = 0;
    if (self == 0)
        model_reached(
            !atomic_compare_exchange_strong_explicit(&x, &expected, 5, memory_order_relaxed, memory_order_relaxed));
    else
        model_reached(
            2 + !atomic_compare_exchange_strong_explicit(&x, &expected, 6, memory_order_relaxed, memory_order_relaxed));
}

static void whether_one(void)
{
    MODEL_CHECK(GET(x, relaxed) == 5 || GET(x, relaxed) == 6);
}

static void locked(unsigned self)
{
    pthread_mutex_lock(&mutex);
    plain++;
    pthread_mutex_unlock(&mutex);
    model_reached(self);
}

static void whether_three(void)
{
    MODEL_CHECK(plain == 3);
}

/* A thread that is about to sleep when the word changes does not sleep, and a thread that sleeps is woken. */
static void woken(unsigned self)
{
    if (self == 0) {
        MODEL_CHECK(!model_sleep(&x, 0, 0));
    } else {
        SET(x, 1, relaxed);
        model_reached((unsigned)model_is_waiting(0));
        model_wake(&x);
    }
}

static void late(unsigned self)
{
    if (self == 0)
        model_reached((unsigned)model_sleep(&x, 0, 1));
    else
        SET(x, 1, relaxed);
}

/* --- wrong ------------------------------------------------------------------------------------------------ */

static void race(unsigned self)
{
    if (self == 0)
        plain = 1;
    else if (GET(x, relaxed) == 0)
        plain = 2;
}

static void lost_update(unsigned self)
{
    (void)self;
    SET(x, GET(x, acquire) + 1, release);
}

static void whether_all(void)
{
    MODEL_CHECK(GET(x, relaxed) == 2);
}

static void unreleased(unsigned self)
{
    if (self == 0) {
        plain = 1;
        SET(x, 1, relaxed);
    } else if (GET(x, acquire)) {
        MODEL_CHECK(plain == 1);
    }
}

static void deadlock(unsigned self)
{
    static pthread_mutex_t other = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(self ? &mutex : &other);
    pthread_mutex_lock(self ? &other : &mutex);
}

static void unwoken(unsigned self)
{
    if (self == 0)
        model_sleep(&x, 0, 0);
    else
        SET(x, 1, relaxed);
}

static void unreached(unsigned self)
{
    model_reached(self);
}

const struct model models[] = {
    {"message", 2, nothing, message, nothing, 2},
    {"relaxed_message", 2, nothing, relaxed_message, nothing, 4},
    {"store_buffer", 2, nothing, store_buffer, any_of_four, 4},
    {"two_readers", 4, nothing, two_readers, whether_both, 2},
    {"coherence", 2, nothing, coherence, nothing, 3},
    {"sequence", 3, nothing, sequence, whether_two, 1},
    {"compare", 2, nothing, compare, whether_one, 4},
    {"locked", 3, nothing, locked, whether_three, 3},
    {"woken", 2, nothing, woken, nothing, 2},
    {"late", 2, nothing, late, nothing, 2},
    {"wrong_race", 2, nothing, race, nothing, 0},
    {"wrong_lost_update", 2, nothing, lost_update, whether_all, 0},
    {"wrong_unreleased", 2, nothing, unreleased, nothing, 0},
    {"wrong_deadlock", 2, nothing, deadlock, nothing, 0},
    {"wrong_unwoken", 2, nothing, unwoken, nothing, 0},
    {"wrong_unreached", 2, nothing, unreached, nothing, 3},
    {0},
};
