/* SPDX-License-Identifier: MIT */
#include "core/heap/owned.h"

#include "core/heap/drain.h"
#include "core/heap/remote_cache.h"
#include "unit.h"

#define SIZE 2000 /* has no header in any build: remote blocks return to their slabs */

/* The owner frees one block of each slab, and another thread frees the rest. The owner makes no call after that. */
static struct unit_block *pinned;

static void *free_pinned(void *unused)
{
    unit_free_blocks(pinned);
    hak_remote_cache_flush(unit_thread());
    return unused;
}

TEST(slabs_beyond_a_few_are_nobodys_and_empty_themselves)
{
    const unsigned sizes[] = {64, SIZE, 20000};
    struct hak_heap *t = unit_init_heap(NULL);
    for (unsigned i = 0; i < COUNT(sizes); i++) {
        unsigned c = hak_class_of(sizes[i]);
        size_t in_slab = unit_slab_capacity(sizes[i]), slabs = 4 * HAK_OWNED_PAGES / hak_slab_pages[c];
        struct unit_block *block = unit_blocks(sizes[i], slabs * in_slab), *mine = NULL;
        pinned = NULL;
        for (size_t n = 0; block; n++) {
            struct unit_block *next = block->next, **list = n % in_slab == 0 ? &mine : &pinned;
            block->next = *list;
            *list = block;
            block = next;
        }
        unit_free_blocks(mine);
        hak_cache_drain(t, c);
        assert_in_range(t->bins[c].owned_pages, 1, HAK_OWNED_PAGES);
        unit_in_thread(free_pinned, NULL);
        unit_sweep();
        struct hak_census census = unit_census();
        if (unit_pages_in_use(&census) > (i + 1) * HAK_OWNED_PAGES)
            fail_msg("%u-byte blocks: %zu pages stay", sizes[i], (size_t)unit_pages_in_use(&census));
    }
}
