/* SPDX-License-Identifier: MIT
 * How many calls a thread makes before it reads the clock, whatever their sizes: a thread of 1000 calls a second, by
 * the test's clock. */
#include "unit.h"

/* 77 classes that would each tick after the same call took up to 4800 calls. */
enum { MOST = 1500, EACH = 300, CALLS = HAK_NCLASSES * EACH };

static void *live[HAK_NCLASSES][EACH];
static unsigned held[HAK_NCLASSES], calls;

static void allocate(unsigned cls)
{
    if (held[cls] == EACH)
        return;
    live[cls][held[cls]++] = hak_malloc(hak_class_usable(cls));
    calls++;
}

static void release(unsigned cls)
{
    if (!held[cls])
        return;
    hak_free(live[cls][--held[cls]]);
    calls++;
}

static void pair(unsigned cls)
{
    hak_free(hak_malloc(hak_class_usable(cls)));
    calls++;
}

static unsigned in_turn(unsigned i)
{
    return i % HAK_NCLASSES;
}

static unsigned few_in_turn(unsigned i)
{
    return i % 40;
}

static unsigned by_chance(unsigned i)
{
    static uint64_t state = 7;
    (void)i;
    return (unsigned)(unit_random(&state) % HAK_NCLASSES);
}

static void play(void (*call)(unsigned cls), unsigned (*next)(unsigned i))
{
    unsigned last = calls;
    for (unsigned i = 0; i < CALLS; i++) {
        uint64_t read_ms = HAK_LOAD_RELAXED(&hak_awake_ms);
        fake_os_pass(1);
        call(next(i));
        if (HAK_LOAD_RELAXED(&hak_awake_ms) != read_ms)
            last = calls;
        if (calls - last > MOST)
            fail_msg("step %u: the clock was not read in %u calls", i, calls - last);
    }
}

/* The same while the clock stands still. */
static void play_fast(void (*call)(unsigned cls), unsigned (*next)(unsigned i))
{
    for (unsigned i = 0; i < CALLS; i++)
        call(next(i));
}

static void start(void)
{
    unit_start(NULL);
    unit_thread();
}

static void use_each_alone(void)
{
    for (unsigned cls = 0; cls < HAK_NCLASSES; cls++)
        for (unsigned i = 0; i < 1000; i++)
            pair(cls);
}

static void *hold_all(void *unused)
{
    play_fast(allocate, in_turn);
    return unused;
}

TEST(pairs_from_the_start)
{
    start();
    play(pair, in_turn);
    play(pair, by_chance);
    play(pair, few_in_turn);
}

TEST(pairs_after_each_class_was_used_alone)
{
    start();
    use_each_alone();
    play(pair, in_turn);
    use_each_alone();
    play(pair, by_chance);
}

TEST(pairs_after_many_calls_in_turn)
{
    start();
    play_fast(pair, in_turn);
    play(pair, in_turn);
    play_fast(pair, few_in_turn);
    play(pair, few_in_turn);
}

TEST(allocations_and_frees)
{
    start();
    play(allocate, by_chance);
    play(allocate, in_turn); /* the rest */
    use_each_alone();
    play(release, in_turn);
    play(allocate, in_turn);
    use_each_alone();
    play(release, by_chance);
}

TEST(frees_of_another_thread_s_blocks)
{
    start();
    unit_in_thread(hold_all, NULL);
    play(release, in_turn);
}
