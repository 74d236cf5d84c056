/* SPDX-License-Identifier: MIT */
#include "core/heap/heap.h"

#include "unit.h"

#define SIZE 2000 /* has no header in any build: remote blocks go home */

static struct hak_thread *t;
static unsigned cls;

static void start(const char *settings)
{
    unit_start(settings);
    t = unit_thread();
    assert_non_null(t);
    cls = hak_class_of(SIZE);
}

TEST(draining_gives_up_every_slab_without_live_blocks)
{
    start(NULL);
    for (unsigned b = 0; b < HAK_NCLASSES; b++)
        unit_free_blocks(unit_blocks(hak_class_usable(b), 50));
    void *live = hak_malloc(SIZE);
    assert_true(t->slabs > 10);
    hak_heap_drain(t);
    for (unsigned b = 0; b < HAK_NCLASSES; b++)
        assert_null(hak_cache_first(b));
    struct hak_census c = unit_census();
    assert_int_equal(c.used, 1);
    assert_int_equal(t->slabs, 1);
    assert_int_equal(unit_pages_in_use(&c), hak_slab_pages[cls]);
    hak_free(live);
}

UNIT_MAIN(T(draining_gives_up_every_slab_without_live_blocks))
