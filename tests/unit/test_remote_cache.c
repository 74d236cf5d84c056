/* SPDX-License-Identifier: MIT */
#include "core/heap/remote_cache.h"
#include "core/heap/thread.h"
#include "core/pages/mark.h"

#include "unit.h"

#define SIZE 2000 /* has no header in any build: remote blocks return to their slabs */

static struct hak_heap *t;
static unsigned cls;
static size_t capacity;

static void start(const char *settings)
{
    t = unit_init_heap(settings);
    cls = hak_class_of(SIZE);
    capacity = unit_slab_capacity(SIZE);
}

static struct unit_block *shared, *shared_rest;

TEST(remote_blocks_serve_the_next_refill)
{
    start(NULL);
    shared = unit_blocks_of_other(SIZE, 2 * capacity);
    struct unit_block *mine = unit_blocks(SIZE, 1), *next = shared->next->next->next;
    void *one = shared->next->next; /* freed last, so the first to be used again */
    shared->next->next->next = NULL;
    while (hak_cache_first(cls))
        unit_blocks(SIZE, 1);
    unit_free_blocks(shared);
    assert_ptr_equal(hak_malloc(SIZE), one);
    assert_int_equal(t->counters.remote_reused, 3);
    assert_int_equal(t->counters.remote_blocks, 0);
    unit_free_blocks(next);
    unit_free_blocks(mine);
}

/* Nothing is carved while the cache has blocks; too few remote blocks of the slab to collect do not change that. */
TEST(a_remote_block_of_the_first_slab_does_not_keep_the_cache_from_serving)
{
    start(NULL);
    if (HAK_HEADER_LIMIT)
        skip(); /* others' blocks go to the caller's bin */
    if (HAK_HARDENED)
        skip(); /* the bitmap has the blocks of a new page */
    unsigned small = hak_class_of(512);
    struct unit_block *mine = unit_blocks(512, 1);
    while (hak_cache_first(small))
        unit_blocks(512, 1);
    shared = unit_blocks_of_other(512, 12);
    unit_free_by_other(mine);
    unit_free_blocks(shared);
    const struct hak_slab *slab = t->bins[small].slabs;
    uint32_t carved = slab->carved;
    assert_int_equal(hak_slab_remote_count(slab), 1);
    assert_non_null(hak_malloc(512));
    assert_int_equal(t->counters.remote_reused, 12);
    assert_int_equal(slab->carved, carved);
}

static void *only_free_remote(void *n)
{
    struct hak_heap *me = unit_thread();
    hak_free(shared); /* it waits in the remote cache */
    hak_thread_request_flush();
    struct unit_block *block = shared_rest, *next;
    for (size_t i = 0; i < *(size_t *)n; i++, block = next) {
        next = block->next;
        hak_free(block);
    }
    assert_int_equal(me->flush_done, 1);
    return NULL;
}

TEST(a_thread_that_only_frees_remote_blocks_hears_of_a_trim)
{
    start(NULL);
    size_t n = hak_parts.capacity[cls] + 1;
    shared = unit_blocks(SIZE, n + 1);
    shared_rest = shared->next;
    unit_in_thread(only_free_remote, &n);
}

static uint64_t returned(void)
{
    return t->counters.remote_blocks + t->counters.drained_blocks;
}

static const char *const capacities[] = {NULL, "HAKMEM_TINY_FAST_CAP_C3=1 HAKMEM_TINY_FAST_CAP_C4=1",
                                         "HAKMEM_TINY_FAST_CAP_C3=2 HAKMEM_TINY_FAST_CAP_C4=2"};
TEST_EACH(a_free_returns_few_blocks, capacities)
{
    start(*row);
    unsigned small = hak_class_of(64);
    const struct hak_bin *b = &t->bins[small];
    struct unit_block *block = unit_blocks_of_other(64, 1000), *next;
    for (; block; block = next) {
        uint64_t before = returned();
        next = block->next;
        hak_mark_set(block, small);
        hak_remote_cache_put(t, small, block);
        assert_in_range(returned() - before, 0, 32);
        assert_in_range(b->remote_count, 1, 64);
    }
    assert_int_equal(returned() + b->remote_count, 1000);
}
