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

static void use_each_alone(void)
{
    for (unsigned cls = 0; cls < HAK_NCLASSES; cls++)
        for (unsigned i = 0; i < 1000; i++)
            pair(cls);
}

static void *hold_all(void *unused)
{
    for (unsigned i = 0; i < CALLS; i++)
        allocate(in_turn(i));
    return unused;
}

struct step {
    void (*call)(unsigned cls);
    unsigned (*next)(unsigned i);
    enum { SLOW, FAST /* the clock stands still */, AFTER_EACH_ALONE, AFTER_ANOTHER_THREAD } how;
};

static void play(const struct step *s)
{
    if (s->how == AFTER_EACH_ALONE)
        use_each_alone();
    if (s->how == AFTER_ANOTHER_THREAD)
        unit_in_thread(hold_all, NULL);
    unsigned last = calls;
    for (unsigned i = 0; i < CALLS; i++) {
        uint64_t read_ms = HAK_LOAD_RELAXED(&hak_awake_ms);
        fake_os_pass(s->how != FAST);
        s->call(s->next(i));
        if (HAK_LOAD_RELAXED(&hak_awake_ms) != read_ms)
            last = calls;
        if (s->how != FAST && calls - last > MOST)
            fail_msg("call %u: the clock was not read in %u calls", i, calls - last);
    }
}

static const struct step scripts[][5] = {
    {{pair, in_turn, SLOW}, {pair, by_chance, SLOW}, {pair, few_in_turn, SLOW}},
    {{pair, in_turn, AFTER_EACH_ALONE}, {pair, by_chance, AFTER_EACH_ALONE}},
    {{pair, in_turn, FAST}, {pair, in_turn, SLOW}, {pair, few_in_turn, FAST}, {pair, few_in_turn, SLOW}},
    {{allocate, by_chance, SLOW},
     {allocate, in_turn, SLOW}, /* the rest */
     {release, in_turn, AFTER_EACH_ALONE},
     {allocate, in_turn, SLOW},
     {release, by_chance, AFTER_EACH_ALONE}},
    {{release, in_turn, AFTER_ANOTHER_THREAD}},
};

TEST_EACH(the_clock_is_read_in_time, scripts)
{
    unit_start(NULL);
    unit_thread();
    for (unsigned i = 0; i < COUNT(*row) && (*row)[i].call; i++)
        play(&(*row)[i]);
}
