/* SPDX-License-Identifier: MIT
 * Slabs made by hand on static memory: states, the word that packs them, and which threads may change what. */
#include "core/pages/slab.h"

#include <string.h>

#include "core/base/secret.h"
#include "unit.h"

#define BIN 3 /* 64-byte blocks */

static struct hak_slab slab;
static struct hak_heap *me, *other; /* only compared */

static void make(unsigned cls)
{
    static _Alignas(65536) char memory[64 * 65536];
    if (HAK_HARDENED) { /* where links may lead */
        hak_page_map.base = (uintptr_t)memory;
        hak_page_map_grow(sizeof memory);
    }
    me = (struct hak_heap *)(uintptr_t)0x1000;
    other = (struct hak_heap *)(uintptr_t)0x2000;
    memset(&slab, 0, sizeof slab);
    slab.base = memory;
    slab.pages = hak_slab_pages[cls];
    hak_slab_format(&slab, cls, me);
}

static void assert_state(enum hak_slab_state state, struct hak_heap *owner)
{
    assert_int_equal(hak_slab_state(&slab), state);
    assert_ptr_equal(slab.owner, owner);
}

/* All blocks, one by one, as chains of one. */
static uint32_t take_all(struct hak_chain *out)
{
    uint32_t n = 0;
    while (hak_slab_has_free(&slab))
        out[n++] = hak_slab_take(&slab, 1);
    assert_int_equal(n, slab.capacity);
    assert_int_equal(slab.used, n);
    return n;
}

static struct hak_chain all[4096];

static void make_full(void)
{
    make(BIN);
    take_all(all);
    assert_true(hak_slab_retire(&slab));
    assert_state(HAK_SLAB_FULL, NULL);
}

TEST(carving_touches_no_page_ahead)
{
    for (unsigned cls = 0; cls < HAK_NCLASSES; cls++) {
        make(cls);
        while (slab.carved < slab.capacity) {
            size_t first = (size_t)slab.carved * slab.stride;
            struct hak_chain chain = hak_slab_take(&slab, 100000);
            size_t end = hak_align_up(first + slab.stride, 4096);
            for (const char *b = chain.head; b; b = hak_next_load(b))
                assert_in_range(b - slab.base, first, end - 1);
            assert_int_equal(slab.used, slab.carved);
        }
    }
}

/* Carves 12 KiB or a little more into blocks of `size`, returns them, and makes the slab one of 64-byte blocks. Returns
 * how many of these fit there. */
static uint32_t use_before(size_t size, enum hak_slab_state state)
{
    make(hak_class_of(size));
    while ((size_t)slab.carved * slab.stride < 3 * 4096)
        hak_slab_take(&slab, 1);
    uint32_t bytes = slab.carved * slab.stride;
    slab.used = 0;
    hak_slab_empty(&slab);
    atomic_store(&slab.word, state);
    hak_slab_format(&slab, BIN, me);
    return bytes / slab.stride;
}

TEST(pages_that_had_blocks_are_cut_without_a_stop)
{
    uint32_t in_page = 4096 / hak_strides[BIN], before = use_before(1024, HAK_SLAB_EMPTY);
    assert_true(before >= 3 * in_page);
    assert_int_equal(hak_slab_take(&slab, 100000).count, before);
    assert_true(hak_slab_take(&slab, 100000).count <= in_page);
    use_before(1024, HAK_SLAB_UNUSED); /* their pages are gone */
    assert_int_equal(hak_slab_take(&slab, 100000).count, in_page);
    use_before(8192, HAK_SLAB_EMPTY); /* not every page had one */
    assert_int_equal(hak_slab_take(&slab, 100000).count, in_page);
}

TEST(blocks_put_back_are_taken_first)
{
    make(BIN);
    struct hak_chain chain = hak_slab_take(&slab, 10);
    hak_slab_take(&slab, 5);
    hak_slab_put(&slab, chain);
    assert_int_equal(slab.used, 5);
    assert_int_equal(slab.free_count, 10);
    struct hak_chain again = hak_slab_take(&slab, 4);
    assert_ptr_equal(again.head, chain.head);
    assert_int_equal(again.count, 4);
    assert_null(hak_next_load(again.tail));
    assert_int_equal(hak_slab_take(&slab, 100).count, 6); /* the list alone: no carving on top */
    assert_int_equal(slab.free_count, 0);
}

/* As a drain does. */
static void put_back(void *block)
{
    hak_slab_mark(&slab, block);
    slab.marked++;
    slab.used--;
}

TEST(small_blocks_go_out_in_address_order)
{
    unit_start(NULL);
    if (HAK_HARDENED)
        skip();
    for (unsigned cls = 0; cls < HAK_NCLASSES && hak_strides[cls] <= HAK_BITMAP_STRIDE; cls++) {
        make(cls);
        uint32_t n = take_all(all), seen = 0;
        hak_slab_make_bitmap(&slab);
        for (uint32_t i = 0; i < n; i++)
            put_back(all[(uint64_t)i * 4099 % n].head); /* a prime beyond all capacities */
        assert_int_equal(slab.marked, n);
        assert_int_equal(slab.used, 0);
        while (hak_slab_has_free(&slab))
            for (char *block = hak_slab_take(&slab, 10).head; block; block = hak_next_load(block))
                assert_ptr_equal(block, slab.base + (size_t)seen++ * slab.stride);
        assert_int_equal(seen, n);
        assert_int_equal(slab.used, n);
    }
}

/* Of `n` chains in a row, how many begin beyond the one before. */
static uint32_t ascending(const struct hak_chain *chains, uint32_t n)
{
    uint32_t up = 0;
    for (uint32_t i = 1; i < n; i++)
        up += (char *)chains[i].head > (char *)chains[i - 1].head;
    return up;
}

TEST(hardened_builds_give_blocks_out_by_chance)
{
    static struct hak_chain again[4096];
    unit_start(NULL);
    if (!HAK_HARDENED)
        skip();
    hak_secret_draw();
    make(BIN);
    uint32_t n = take_all(all);
    assert_in_range(ascending(all, n), n / 4, 3 * n / 4);
    hak_slab_make_bitmap(&slab);
    for (uint32_t i = 0; i < n; i++)
        put_back(all[i].head);
    for (uint32_t i = 0, k = 0; i < n; i += 64)
        for (char *b = hak_slab_take(&slab, 64).head; b; b = hak_next_load(b))
            again[k++].head = b;
    assert_in_range(ascending(again, n), n / 4, 3 * n / 4);
    assert_int_equal(slab.used, n);
}

TEST(those_that_come_meanwhile_have_their_turn)
{
    unit_start(NULL);
    make(BIN);
    uint32_t n = take_all(all);
    hak_slab_make_bitmap(&slab);
    for (uint32_t i = 0; i < n; i += 2)
        put_back(all[i].head);
    for (uint32_t i = 0; i < n / 4; i++)
        hak_slab_take(&slab, 1);
    put_back(all[1].head); /* before the place where the last one was taken */
    put_back(all[n - 1].head);
    void *last = NULL;
    uint32_t taken = 0;
    for (; slab.marked; taken++)
        last = hak_slab_take(&slab, 1).head;
    assert_int_equal(taken, n / 4 + 2);
    assert_ptr_equal(last, all[1].head);
}

TEST(the_list_is_used_up_before_the_map)
{
    unit_start(NULL);
    make(BIN);
    take_all(all);
    hak_slab_make_bitmap(&slab);
    put_back(all[7].head);
    hak_slab_put(&slab, all[9]);
    assert_int_equal(hak_slab_free_blocks(&slab), 2);
    assert_ptr_equal(hak_slab_take(&slab, 5).head, all[9].head);
    assert_ptr_equal(hak_slab_take(&slab, 5).head, all[7].head);
    assert_false(hak_slab_has_free(&slab));
}

TEST(a_map_grows_once)
{
    unit_start(NULL);
    make(BIN);
    assert_int_equal(slab.bitmap_divisor, 0);
    hak_slab_make_bitmap(&slab);
    const uint64_t *first = slab.bitmap;
    hak_slab_format(&slab, hak_class_of(1000), me);
    assert_int_equal(slab.bitmap_divisor, 0);
    hak_slab_make_bitmap(&slab);
    assert_ptr_equal(slab.bitmap, first);
    hak_slab_format(&slab, 0, me);
    hak_slab_make_bitmap(&slab);
    const uint64_t *second = slab.bitmap;
    assert_ptr_not_equal(second, first);
    for (unsigned cls = 0; cls < HAK_NCLASSES && hak_strides[cls] <= HAK_BITMAP_STRIDE; cls++) {
        slab.bitmap[0] = ~(uint64_t)0;
        hak_slab_format(&slab, cls, me);
        hak_slab_make_bitmap(&slab);
        assert_ptr_equal(slab.bitmap, second);
        assert_int_equal(slab.bitmap[0], 0);
    }
}

TEST(more_blocks_back_than_away_is_a_double_free)
{
    unit_start(NULL);
    make(BIN);
    hak_slab_take(&slab, 3);
    assert_dies(hak_slab_put(&slab, (struct hak_chain){slab.base, slab.base, slab.used + 1}), "double free");
}

TEST(full_is_without_owner_and_reclaimed)
{
    make_full();
    assert_true(hak_slab_reclaim(&slab, other));
    assert_state(HAK_SLAB_ACTIVE, other);
    assert_false(hak_slab_reclaim(&slab, me)); /* no thread may take an ACTIVE slab */
    assert_state(HAK_SLAB_ACTIVE, other);
    assert_int_equal(unit_transitions(HAK_SLAB_ACTIVE, HAK_SLAB_FULL), 1);
    assert_int_equal(unit_transitions(HAK_SLAB_FULL, HAK_SLAB_ACTIVE), 1);
}

/* A visitor puts blocks into a slab without an owner, whatever other threads do meanwhile. */
TEST(visits)
{
    make_full();
    assert_true(hak_slab_visit(&slab));
    assert_false(hak_slab_visit(&slab));
    assert_false(hak_slab_reclaim(&slab, me));
    hak_slab_put(&slab, all[0]);
    assert_int_equal(hak_slab_leave(&slab), HAK_REMOTE_PUBLISH);
    assert_state(HAK_SLAB_PARTIAL, NULL);

    assert_true(hak_slab_visit(&slab));
    assert_false(hak_slab_adopt(&slab, me)); /* off its list: the visitor will publish it */
    assert_state(HAK_SLAB_FULL, NULL);
    hak_slab_put(&slab, all[1]);
    assert_int_equal(hak_slab_remote_put(&slab, all[2]), HAK_REMOTE_PUBLISH); /* unless another thread does so */
    assert_int_equal(hak_slab_leave(&slab), HAK_REMOTE_DONE);
    assert_int_equal(hak_slab_remote_count(&slab), 1);

    uint32_t n = slab.capacity;
    assert_true(hak_slab_visit(&slab));
    for (uint32_t i = 3; i < n - 1; i++)
        hak_slab_put(&slab, all[i]);
    assert_int_equal(hak_slab_leave(&slab), HAK_REMOTE_DONE);
    assert_true(hak_slab_visit(&slab));
    hak_slab_put(&slab, all[n - 1]);
    assert_false(hak_slab_all_back(&slab));
    assert_int_equal(hak_slab_collect(&slab), 1);
    assert_int_equal(hak_slab_leave(&slab), HAK_REMOTE_EMPTY);
    assert_true(hak_slab_all_back(&slab));
    assert_false(hak_slab_visit(&slab)); /* a block that comes now was freed twice */
}

TEST(only_the_last_remote_free_says_empty)
{
    make_full();
    uint32_t n = slab.capacity;
    assert_int_equal(hak_slab_remote_put(&slab, all[0]), HAK_REMOTE_PUBLISH);
    assert_state(HAK_SLAB_PARTIAL, NULL);
    assert_false(hak_slab_reclaim(&slab, me));
    for (uint32_t i = 1; i < n - 1; i++)
        assert_int_equal(hak_slab_remote_put(&slab, all[i]), HAK_REMOTE_DONE);
    assert_false(hak_slab_all_back(&slab));
    assert_int_equal(hak_slab_remote_put(&slab, all[n - 1]), HAK_REMOTE_EMPTY);
    assert_true(hak_slab_all_back(&slab));
    hak_slab_adopt(&slab, NULL);
    assert_int_equal(slab.used, 0);
    assert_int_equal(unit_transitions(HAK_SLAB_FULL, HAK_SLAB_PARTIAL), 1);
    assert_int_equal(unit_transitions(HAK_SLAB_PARTIAL, HAK_SLAB_ACTIVE), 1);
    hak_slab_empty(&slab);
    assert_state(HAK_SLAB_EMPTY, NULL);
    hak_slab_format(&slab, BIN + 1, me);
    assert_state(HAK_SLAB_ACTIVE, me);
    assert_int_equal(unit_transitions(HAK_SLAB_ACTIVE, HAK_SLAB_EMPTY), 1);
    assert_int_equal(unit_transitions(HAK_SLAB_EMPTY, HAK_SLAB_ACTIVE), 1);
}

TEST(a_remote_free_beats_retirement)
{
    make(BIN);
    take_all(all);
    assert_int_equal(hak_slab_remote_put(&slab, all[9]), HAK_REMOTE_DONE);
    assert_false(hak_slab_retire(&slab));
    assert_state(HAK_SLAB_ACTIVE, me);
    assert_int_equal(hak_slab_collect(&slab), 1);
    assert_int_equal(hak_slab_collect(&slab), 0);
    assert_ptr_equal(hak_slab_take(&slab, 1).head, all[9].head);
    assert_true(hak_slab_retire(&slab));
}

TEST(disowning_gives_the_state_that_is_left)
{
    make(BIN);
    assert_int_equal(hak_slab_disown(&slab), HAK_SLAB_PARTIAL);
    assert_true(hak_slab_all_back(&slab)); /* no block is allocated */
    assert_true(hak_slab_adopt(&slab, me));

    hak_slab_take(&slab, 1);
    assert_int_equal(hak_slab_disown(&slab), HAK_SLAB_PARTIAL);
    assert_state(HAK_SLAB_PARTIAL, NULL);

    make(BIN);
    take_all(all);
    assert_int_equal(hak_slab_disown(&slab), HAK_SLAB_FULL);
    assert_state(HAK_SLAB_FULL, NULL);

    make(BIN);
    take_all(all);
    hak_slab_remote_put(&slab, all[0]);
    assert_int_equal(hak_slab_disown(&slab), HAK_SLAB_PARTIAL);
    assert_int_equal(slab.free_count, 1);
    for (uint32_t i = 1; i < slab.capacity - 1; i++)
        assert_int_equal(hak_slab_remote_put(&slab, all[i]), HAK_REMOTE_DONE);
    assert_int_equal(hak_slab_remote_put(&slab, all[slab.capacity - 1]), HAK_REMOTE_EMPTY);
}

TEST(the_word_holds_each_count_and_offset_of_each_class)
{
    for (unsigned cls = 0; cls < HAK_NCLASSES; cls++) {
        make(cls);
        uint32_t n = take_all(all);
        for (uint32_t i = 0; i < n; i++)
            all[i].head = all[i].tail = slab.base + (size_t)i * slab.stride;
        assert_true(hak_slab_retire(&slab));
        for (uint32_t i = 0; i < n; i++) {
            assert_int_equal(hak_slab_remote_count(&slab), i);
            hak_slab_remote_put(&slab, all[n - 1 - i]); /* the highest offset first */
        }
        assert_true(hak_slab_all_back(&slab));
        hak_slab_adopt(&slab, me);
        assert_int_equal(slab.free_count, n);
        char *b = slab.free;
        for (uint32_t i = 0; i < n; i++, b = hak_next_load(b))
            assert_ptr_equal(b, slab.base + (size_t)i * slab.stride);
        assert_null(b);
    }
}

TEST(a_remote_free_to_no_slab_is_misuse)
{
    unit_start(NULL);
    make(BIN);
    hak_slab_empty(&slab);
    all[0] = (struct hak_chain){slab.base, slab.base, 1};
    assert_dies(hak_slab_remote_put(&slab, all[0]), "double free or corruption");
    make_full();
    for (uint32_t i = 0; i < slab.capacity; i++)
        hak_slab_remote_put(&slab, all[i]);
    assert_dies(hak_slab_remote_put(&slab, all[0]), "double free or corruption");
}

TEST(a_block_that_comes_back_in_two_chains_is_misuse)
{
    if (HAK_HARDENED) /* there a link that leads out of the space, where this slab is, ends the process first */
        skip();
    unit_start(NULL);
    make(BIN);
    take_all(all);
    hak_slab_put(&slab, all[1]);
    struct hak_chain two = {all[2].head, all[3].head, 2};
    hak_next_store(two.head, two.tail);
    hak_slab_remote_put(&slab, two);
    hak_slab_remote_put(&slab, all[3]); /* a circle of one */
    assert_dies(hak_slab_collect(&slab), "double free or corruption");

    if (HAK_BLOCK_BATCHES)
        return; /* test_block_batch.c is about it */
    make(BIN);
    take_all(all);
    hak_slab_put(&slab, all[1]);
    for (unsigned i = 2; i < 5; i++)
        hak_slab_remote_put(&slab, all[i]);
    hak_next_store(all[3].head, NULL); /* written to after free */
    assert_dies(hak_slab_collect(&slab), "double free or corruption");
}

static size_t offset;

static void check_offset(void)
{
    hak_slab_check_block(&slab, slab.base + offset, "free");
}

static void mark_offset(void)
{
    hak_slab_mark(&slab, slab.base + offset);
}

static void push_offset(void)
{
    hak_slab_push(&slab, slab.base + offset);
}

TEST(only_starts_of_blocks_that_were_cut_are_blocks)
{
    static void (*const uses[])(void) = {check_offset, push_offset, mark_offset};
    static const size_t past[] = {1, 8, 16};
    unit_start(NULL);
    make(BIN);
    while (slab.carved < slab.capacity)
        hak_slab_take(&slab, slab.capacity);
    for (offset = 0; offset < (size_t)slab.capacity * slab.stride; offset += slab.stride)
        check_offset();
    assert_dies(check_offset(), "is not the start of a block");

    make(BIN);
    hak_slab_take(&slab, 3);
    assert_true(hak_slab_make_bitmap(&slab));
    for (size_t i = 0; i < COUNT(uses); i++) {
        for (size_t k = 0; k < COUNT(past); k++) {
            offset = slab.stride + past[k];
            assert_dies(uses[i](), "is not the start of a block");
        }
        offset = (size_t)slab.carved * slab.stride;
        assert_dies(uses[i](), "was never handed out");
    }
    offset -= slab.stride;
    for (size_t i = 0; i < COUNT(uses); i++)
        uses[i]();
    assert_dies(mark_offset(), "is free already");
}

TEST(tags_name_the_bin_to_the_owner_and_vanish)
{
    unit_start(NULL);
    unit_free_blocks(unit_blocks(64, 1));
    make(BIN); /* not of the reserved range, which the table of tags does not mind */
    uint64_t page = (uintptr_t)slab.base >> HAK_PAGE_LG, tag = (uint64_t)77 << 32;
    hak_slab_tag(&slab, tag);
    assert_int_equal(page ^ hak_tag_load(page) ^ tag, BIN);
    assert_true((page ^ hak_tag_load(page) ^ (tag + ((uint64_t)1 << 32))) >= HAK_NCLASSES);
    char *neighbour = slab.base + slab.pages * HAK_PAGE;
    hak_tag_set(neighbour, tag, BIN);
    hak_slab_empty(&slab);
    assert_int_equal(hak_tag_load(page), 0);
    assert_int_not_equal(hak_tag_load((uintptr_t)neighbour >> HAK_PAGE_LG), 0);
}
