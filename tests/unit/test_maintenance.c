/* SPDX-License-Identifier: MIT */
#include "core/process/maintenance.h"

#include <unistd.h>

#include "unit.h"

/* Little work is not worth a read of the clock: the count goes on. */
TEST(a_pulse_comes_with_enough_work_or_while_memory_waits)
{
    unit_start(NULL);
    unit_thread();
    hak_work = 0;
    hak_work_add(HAK_WORK_MAX - 1);
    hak_maintain();
    assert_int_equal(hak_work, HAK_WORK_MAX - 1);
    hak_work_add(1);
    hak_maintain();
    assert_int_equal(hak_work, 0);
    hak_work = 1; /* while memory waits, the next call maintains at once */
    HAK_STORE_RELAXED(&hak_purge_waits, true);
    hak_maintain();
    assert_int_equal(hak_work, 0);
    assert_false(HAK_LOAD_RELAXED(&hak_purge_waits)); /* no page is dirty, so none waits any more */
}

TEST(pulses_look_at_bins_that_nobody_needs)
{
    unit_start(NULL);
    if (!unit_thread())
        skip(); /* CPUs have the bins */
    unit_free_blocks(unit_blocks(2000, 10));
    for (unsigned i = 0; i < 3 * HAK_NCLASSES; i++) {
        fake_os_pass(hak_options.purge_delay_ms / 10 + 10);
        hak_work_add(HAK_WORK_MAX);
        hak_maintain();
    }
    assert_true(unit_stat("bins", "idle_classes") > 0);
}

TEST(room_is_made_by_giving_back_what_is_idle)
{
    unit_start("HAKMEM_LIMIT_MB=1 HAKMEM_PURGE_DELAY_MS=3600000");
    unit_free_blocks(unit_blocks(10000, 1000));
    uint64_t purges = unit_stat("budget", "purges");
    hak_thread_request_flush();
    unit_thread();
    uint64_t held = unit_stat("budget", "held_bytes");
    hak_make_room(HAK_MIB + 1);
    assert_int_equal(unit_stat("budget", "purges"), purges + 1);
    assert_true(unit_stat("budget", "held_bytes") <= held);
    assert_int_equal(hak_purge_all(0), 0);
}

static void maintain_for(unsigned rounds)
{
    for (unsigned i = 0; i < rounds; i++) {
        fake_os_pass(1000);
        hak_maintain_now();
    }
}

/* So programs that drop rights at their start have none meanwhile. */
TEST(the_background_thread_starts_when_the_heap_has_grown)
{
    if (!HAK_OWN_THREADS)
        skip();
    unit_start("HAKMEM_BACKGROUND=1");
    unit_thread();
    maintain_for(100);
    assert_int_equal(unit_stat("background", "started"), 0);
    struct unit_block *blocks = unit_blocks(100000, 60);
    maintain_for(1);
    assert_int_equal(unit_stat("background", "started"), 1);
    unit_free_blocks(blocks);
}

/* Waits until the background thread has begun and ended a round. It ends when nothing is left to do. */
static void let_it_work(void)
{
    uint64_t rounds = unit_stat("background", "rounds");
    while (unit_stat("background", "rounds") < rounds + 3) {
        hak_maintenance_background();
        usleep(1000);
    }
}

TEST(the_background_thread_asks_once_in_each_sleep)
{
    unit_start("HAKMEM_BACKGROUND=1 HAKMEM_PURGE_DELAY_MS=20");
    if (!HAK_OWN_THREADS)
        skip(); /* no tag is cleared; there is no thread */
    unit_thread();
    void *p = hak_malloc(2000), *beside = hak_malloc(2000); /* of a class without headers in any build */
    uint64_t tag = unit_tag_of(p);
    fake_os_pass(1000);
    hak_purge_tick();
    hak_maintenance_background();
    for (unsigned sleep = 0; sleep < 3; sleep++) {
        let_it_work();
        assert_int_equal(unit_tag_of(p), tag); /* no thread sleeps */
        fake_os_pass(20);
        let_it_work();
        assert_int_not_equal(unit_tag_of(p), tag);
        hak_free(beside);
        beside = hak_malloc(2000);
        assert_int_equal(unit_tag_of(p), tag);
        let_it_work();
        assert_int_equal(unit_tag_of(p), tag); /* it has already requested a flush in this sleep */
        hak_purge_tick();
    }
}
