/* SPDX-License-Identifier: MIT
 * The plain reference, and as the oracle of the shared pool. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/heap/bins.h"
#include "core/malloc/malloc.h"
#include "core/pages/page_heap.h"
#include "core/parts/purge.h"
#include "core/plugin.h"
#include "unit.h"

extern const struct hak_backend hak_backend_legacy;

static const struct hak_backend *legacy = &hak_backend_legacy;
static struct hak_heap *t;
static unsigned cls;

static void start(void)
{
    unit_start(NULL);
    t = unit_thread();
    assert_non_null(t);
    cls = hak_class_of(2000);
}

static size_t handed_out(void)
{
    struct hak_space_stats s;
    hak_space_stats(&s);
    return s.handed_out;
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
    assert_int_equal(handed_out(), 3 * HAK_SUPERSLAB);
    assert_int_equal(unit_stat("stages", "map"), 3);
    all[fit]->base[0] = 1;
    char *content = all[fit]->base;
    release(all[fit]); /* wholly free: its pages go back at once */
    assert_int_equal(content[0], 0);
    assert_int_equal(dirty(), 0);
    assert_int_equal(unit_stat("lru", "cached"), 0);
    assert_int_equal(unit_cause_calls(hak_parts.release->cause), 1);
    assert_ptr_equal(legacy->acquire_slab(t, cls + 2, HAK_ACQUIRE_ANY)->base, content); /* and it is any class's */
    assert_int_equal(handed_out(), 3 * HAK_SUPERSLAB);
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
    assert_null(legacy->acquire_slab(t, cls, HAK_ACQUIRE_KEPT));
    fake_os_allow();
    assert_non_null(legacy->acquire_slab(t, cls, HAK_ACQUIRE_ANY));
}

/* --- the oracle -------------------------------------------------------------------------------------------- */

static uint64_t hash;

static void mix(uint64_t value)
{
    hash = (hash ^ value) * UINT64_C(0x100000001b3);
}

static size_t some_size(uint64_t *random)
{
    static const size_t most[] = {64, 64, 600, 8000, 60000, 300000, 3000000};
    return unit_random(random) % most[unit_random(random) % COUNT(most)];
}

/* What a program can see of a random sequence of operations, as one number: sizes, contents, results. */
TEST(visible_results)
{
    if (!unit_argument)
        return;
    enum { SLOTS = 300, OPERATIONS = HAK_SANITIZED ? 8000 : 20000 };
    static char *slots[SLOTS];
    static size_t size[SLOTS];
    uint64_t random = strtoull(unit_argument, NULL, 10);
    unit_start(NULL);
    for (unsigned i = 0; i < OPERATIONS; i++) {
        unsigned k = unit_random(&random) % SLOTS;
        size_t n = hak_max(some_size(&random), 1);
        if (slots[k]) {
            mix((uint8_t)slots[k][0]);
            mix((uint8_t)slots[k][size[k] - 1]);
        }
        switch (unit_random(&random) % 4) {
        case 0:
            hak_free(slots[k]);
            slots[k] = NULL;
            continue;
        case 1:
            if (slots[k]) {
                slots[k] = hak_resize(slots[k], n);
                break;
            } /* fall through */
        case 2:
            hak_free(slots[k]);
            slots[k] = hak_alloc_zeroed(n);
            mix((uint8_t)slots[k][n / 2]);
            break;
        case 3:
            hak_free(slots[k]);
            slots[k] = hak_alloc_aligned((size_t)16 << unit_random(&random) % 14, n);
            break;
        }
        assert_non_null(slots[k]);
        size[k] = n; /* how much more is usable depends on what is free */
        mix(unit_usable(slots[k]) >= size[k]);
        slots[k][0] = (char)i;
        slots[k][size[k] - 1] = (char)(i >> 8);
    }
    for (unsigned k = 0; k < SLOTS; k++)
        hak_free(slots[k]);
    hak_bins_flush(unit_thread());
    struct hak_census c = unit_census();
    mix(c.used - c.remote);
    mix(c.live_large);
    dprintf(unit_out, "%016llx", (unsigned long long)hash);
}

TEST(both_backends_give_the_same_results)
{
    static const char *const seeds[] = {"1", "2", "3"};
    for (unsigned i = 0; i < COUNT(seeds); i++) {
        char mine[32], theirs[32];
        assert_int_equal(unit_spawn("visible_results", seeds[i], mine, sizeof mine), 0);
        assert_int_equal(strlen(mine), 16);
        if (!BOTH_BACKENDS)
            continue;
        setenv("HAKMEM_BACKEND", "shared_pool", 1);
        assert_int_equal(unit_spawn("visible_results", seeds[i], theirs, sizeof theirs), 0);
        setenv("HAKMEM_BACKEND", "legacy", 1);
        assert_string_equal(mine, theirs);
    }
}
