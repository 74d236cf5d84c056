/* SPDX-License-Identifier: MIT
 * The plain reference backend. */
#include "core/plugin.h"
#include "unit.h"

extern const struct hak_backend hak_backend_legacy;

static const struct hak_backend *legacy = &hak_backend_legacy;
static struct hak_heap *t;
static unsigned cls;

static void start(void)
{
    t = unit_init_heap(NULL);
    cls = hak_class_of(2000);
}

static uintptr_t superslab_of(const struct hak_slab *slab)
{
    return (uintptr_t)slab->base / HAK_SUPERSLAB;
}

static uint64_t dirty(void)
{
    return unit_stat("page_heap", "dirty_bytes");
}

static void release(struct hak_slab *slab)
{
    hak_slab_empty(slab);
    legacy->release_slab(slab);
}

TEST(one_class_in_a_superslab)
{
    start();
    unsigned fit = (unsigned)HAK_SUPERSLAB_PAGES / hak_slab_pages[cls];
    struct hak_slab *other = legacy->acquire_slab(t, cls + 1, HAK_ACQUIRE_ANY), *all[65];
    for (unsigned i = 0; i <= fit; i++) {
        all[i] = legacy->acquire_slab(t, cls, HAK_ACQUIRE_ANY);
        assert_int_equal(hak_slab_state(all[i]), HAK_SLAB_ACTIVE);
        assert_int_not_equal(superslab_of(all[i]), superslab_of(other));
        assert_int_equal(superslab_of(all[i]) == superslab_of(all[0]), i != fit);
    }
    assert_int_equal(unit_space().handed_out, 3 * HAK_SUPERSLAB);
    assert_int_equal(unit_stat("stages", "map"), 3);
    all[fit]->base[0] = 1;
    char *content = all[fit]->base;
    release(all[fit]); /* wholly free: its pages return to the kernel at once */
    assert_int_equal(content[0], 0);
    assert_int_equal(dirty(), 0);
    assert_int_equal(unit_stat("lru", "cached"), 0);
    assert_int_equal(unit_cause_calls(hak_parts.release->cause), 1);
    assert_ptr_equal(legacy->acquire_slab(t, cls + 2, HAK_ACQUIRE_ANY)->base, content); /* and any class may take it */
    assert_int_equal(unit_space().handed_out, 3 * HAK_SUPERSLAB);
    release(all[1]);
    assert_ptr_equal(legacy->acquire_slab(t, cls, HAK_ACQUIRE_ANY)->base,
                     all[0]->base + hak_slab_pages[cls] * HAK_PAGE);
}

TEST(partial_slabs_come_first)
{
    start();
    struct hak_slab *slab = legacy->acquire_slab(t, cls, HAK_ACQUIRE_ANY);
    void *block = hak_slab_take(slab, 1).head;
    assert_int_equal(hak_slab_disown(slab), HAK_SLAB_PARTIAL);
    legacy->release_slab(slab);
    assert_null(legacy->acquire_slab(t, cls + 1, HAK_ACQUIRE_PARTIAL));
    assert_ptr_equal(legacy->acquire_slab(t, cls, HAK_ACQUIRE_ANY), slab);
    assert_int_equal(unit_stat("stages", "partial"), 1);
    assert_int_equal(hak_slab_disown(slab), HAK_SLAB_PARTIAL);
    legacy->release_slab(slab);
    legacy->all_back(slab, cls); /* it is not: nothing happens */
    assert_int_equal(hak_slab_state(slab), HAK_SLAB_PARTIAL);
    assert_int_equal(hak_slab_remote_put(slab, (struct hak_chain){block, block, 1}), HAK_REMOTE_EMPTY);
    legacy->all_back(slab, cls);
    assert_int_equal(hak_slab_state(slab), HAK_SLAB_UNUSED);
    assert_null(legacy->acquire_slab(t, cls, HAK_ACQUIRE_PARTIAL));
}

TEST(without_memory_null_and_later_served)
{
    start();
    fake_os_refuse_any(1, ENOMEM, true);
    assert_null(legacy->acquire_slab(t, cls, HAK_ACQUIRE_ANY));
    fake_os_allow();
    assert_non_null(legacy->acquire_slab(t, cls, HAK_ACQUIRE_ANY));
}
