/* SPDX-License-Identifier: MIT
 * The test makes a slab of each class by hand. Its blocks return in batches, and the free bitmap records them. */
#include "core/pages/block_batch.h"

#include <string.h>

#include "unit.h"

static struct hak_slab slab;
static _Alignas(65536) char memory[64 * 65536];
static struct hak_batcher batcher;

static void *block_at(uint32_t i)
{
    return slab.base + (size_t)i * slab.stride;
}

/* A slab of the class whose blocks are all out. */
static void make(unsigned cls)
{
    memset(&slab, 0, sizeof slab);
    slab.base = memory;
    slab.pages = hak_slab_pages[cls];
    hak_slab_format(&slab, cls, NULL);
    slab.carved = slab.used = slab.capacity;
}

/* The first n blocks return to the slab, in no particular order. */
static void send_home(uint32_t n)
{
    uint32_t first = 4099 % n; /* a prime beyond all capacities */
    batcher = hak_batcher_start(&slab, block_at(first));
    for (uint32_t i = 2; i <= n; i++)
        hak_batcher_add(&batcher, block_at((uint64_t)i * 4099 % n), (uint32_t)((uint64_t)i * 4099 % n), false);
    assert_int_equal(hak_slab_remote_put(&slab, hak_batcher_end(&batcher)), HAK_REMOTE_DONE);
    assert_int_equal(hak_slab_collect(&slab), n);
}

static bool is_marked(uint32_t i)
{
    return slab.bitmap[i / 64] >> i % 64 & 1;
}

TEST(blocks_of_each_class_go_to_the_map)
{
    unit_start(NULL);
    for (unsigned cls = 0; cls < HAK_NCLASSES; cls++) {
        make(cls);
        for (uint32_t n = 1; n <= slab.capacity; n += slab.capacity / 3 + 1) {
            send_home(n);
            assert_int_equal(slab.free_count, n);
            assert_true(hak_block_batches_open(&slab));
            assert_null(slab.free);
            assert_int_equal(slab.marked, n);
            for (uint32_t i = 0; i < slab.capacity; i++)
                assert_int_equal(is_marked(i), i < n);
            void *slots[4096];
            assert_int_equal(hak_slab_take_to_slots(&slab, n, slots), n);
        }
    }
}

TEST(one_block_of_many_is_written_to)
{
    unit_start(NULL);
    make(hak_class_of(400));
    memset(memory, 0xee, HAK_PAGE);
    send_home(slab.capacity);
    unsigned touched = 0;
    for (uint32_t i = 0; i < slab.capacity; i++)
        touched += *(unsigned char *)block_at(i) != 0xee;
    assert_int_equal(touched, 1);
}

TEST(without_memory_for_a_map_the_list_serves)
{
    unit_start(NULL);
    make(0);
    send_home(100);
    while (hak_meta_alloc(64 * HAK_KIB) && fake_os_count(HAK_OS_mmap) < 2) {
    }
    fake_os_refuse(HAK_OS_mmap, 1, ENOMEM, true);
    while (hak_meta_alloc(64)) {
    }
    assert_false(hak_block_batches_open(&slab));
    assert_int_equal(slab.free_count, 100);
    void *got[60];
    uint32_t used = slab.used;
    assert_int_equal(hak_block_batches_take_closed(&slab, 60, got), 60);
    assert_int_equal(slab.used, used + 60);
    fake_os_allow();
    assert_true(hak_block_batches_open(&slab));
    assert_int_equal(slab.marked, 40);
    for (unsigned i = 0; i < COUNT(got); i++) {
        uint32_t number = (uint32_t)(((char *)got[i] - slab.base) / slab.stride);
        assert_ptr_equal(got[i], block_at(number));
        assert_true(number < 100 && !is_marked(number));
        hak_slab_mark_number(&slab, number); /* fails if the slab handed one out twice */
    }
}

static void *few[HAK_BLOCK_BATCH_FEW];

TEST(a_few_blocks_go_past_the_map)
{
    unit_start(NULL);
    for (unsigned cls = 0; cls < HAK_NCLASSES; cls++)
        for (uint32_t n = 1; n <= HAK_BLOCK_BATCH_FEW; n++) {
            make(cls);
            if (n > slab.capacity)
                break;
            send_home(n);
            assert_false(hak_block_batches_are_few(&slab, n - 1));
            assert_true(hak_block_batches_are_few(&slab, n));
            uint32_t used = slab.used, seen = 0;
            assert_int_equal(hak_block_batches_take_few(&slab, few), n);
            assert_int_equal(slab.used, used + n);
            assert_int_equal(hak_slab_free_blocks(&slab), 0);
            for (uint32_t i = 0; i < n; i++)
                seen |= 1u << (uint32_t)(((char *)few[i] - slab.base) / slab.stride);
            assert_int_equal(seen, (1u << n) - 1);
        }
    make(hak_class_of(400));
    send_home(HAK_BLOCK_BATCH_FEW + 1);
    assert_false(hak_block_batches_are_few(&slab, 100));
    assert_true(hak_block_batches_open(&slab));
    send_home(1);
    assert_false(hak_block_batches_are_few(&slab, 100)); /* the bitmap has some */
}

static void open_batches(void)
{
    hak_block_batches_open(&slab);
}

static void take_few(void)
{
    hak_block_batches_take_few(&slab, few);
}

static struct hak_block_batch *spoiled(void)
{
    make(hak_class_of(400));
    send_home(HAK_BLOCK_BATCH_FEW);
    return slab.free;
}

static void expect_found_by(void (*reader)(void), const char *number, const char *count)
{
    struct hak_block_batch *b = spoiled();
    b->numbers[3] = b->numbers[6];
    assert_dies(reader(), "double free");
    b = spoiled();
    b->numbers[3] = (uint16_t)slab.capacity;
    assert_dies(reader(), number);
    b = spoiled();
    b->numbers[3] = 30; /* which is still in use */
    assert_dies(reader(), "other blocks");
    b = spoiled();
    b->count = UINT16_MAX;
    assert_dies(reader(), count);
    b = spoiled();
    b->count--;
    assert_dies(reader(), count);
    b = spoiled();
    hak_next_store(b, (char *)block_at(30) + 8);
    assert_dies(reader(), reader == take_few ? count : "is not the start of a block");
    b = spoiled();
    b->next = NULL; /* cleared */
    assert_dies(reader(), "was written to");
    b = spoiled();
    hak_next_store(b, b);
    assert_dies(reader(), reader == take_few ? count : "double free");
}

TEST(what_was_written_after_free_is_found)
{
    static const char another[] = "another number of blocks";
    unit_start(NULL);
    expect_found_by(open_batches, "is not the start of a block", another);
    expect_found_by(take_few, another, another);
}

/* Some blocks wait on the free list when others return. */
TEST(links_are_looked_at_before_they_are_followed)
{
    static struct hak_block_batch no_block;
    unit_start(NULL);
    make(hak_class_of(400));
    send_home(2);
    for (uint32_t i = 4; i < 6; i++) {
        batcher = hak_batcher_start(&slab, block_at(i));
        hak_slab_remote_put(&slab, hak_batcher_end(&batcher));
    }
    hak_next_store(block_at(5), &no_block);
    assert_dies(hak_slab_collect(&slab), "was written to");
}
