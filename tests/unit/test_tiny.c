/* SPDX-License-Identifier: MIT */
#include <string.h>

#include "core/heap/decay.h"
#include "core/plugin.h"
#include "unit.h"

TEST(it_serves_16_bytes_but_nothing_beyond_its_limit)
{
    unit_init(NULL);
    assert_string_equal(hak_parts.by_class[hak_class_of(16)]->name, "tiny");
    for (unsigned cls = 0; cls < HAK_NCLASSES; cls++)
        if (hak_strides[cls] > HAK_TINY_MAX)
            assert_string_not_equal(hak_parts.by_class[cls]->name, "tiny");
}

/* In header builds the byte before each block names its bin, unless the block begins a slab. */
TEST(headers_name_the_bin)
{
    unit_start(NULL);
    for (unsigned cls = 0; cls < HAK_NCLASSES && hak_strides[cls] <= HAK_TINY_MAX; cls++) {
        struct unit_block *blocks = unit_blocks(hak_class_usable(cls), 2 * unit_slab_capacity(hak_class_usable(cls)));
        for (struct unit_block *b = blocks; b; b = b->next) {
            assert_int_equal(hak_tag_in_header_zone(b), hak_class_has_header(cls));
            assert_int_equal((uintptr_t)b % 16, 0);
            if (hak_class_has_header(cls) && (uintptr_t)b % HAK_PAGE)
                assert_int_equal(((uint8_t *)b)[-1], hak_header_byte(cls));
            assert_int_equal(hak_class_of_block(hak_cache_here(), b), cls);
        }
        unit_free_blocks(blocks);
    }
}

/* Of two blocks one that does not begin a slab, where no header is. Hardened builds choose blocks by chance. */
static struct unit_block *with_header(struct unit_block *blocks)
{
    return (uintptr_t)blocks % HAK_PAGE ? blocks : blocks->next;
}

static void *block;
static uint64_t answer;

static void *ask(void *unused)
{
    hak_free(hak_malloc(30));
    answer = hak_class_of_block(hak_cache_here(), block);
    hak_free(block);
    return unused;
}

TEST(a_foreign_block_goes_to_the_callers_bin_only_with_a_header_or_one_tag)
{
    unit_start(NULL);
    struct unit_block *blocks = unit_blocks(40, 2);
    block = with_header(blocks);
    unit_in_thread(ask, NULL);
    if (hak_class_has_header(hak_class_of(40)))
        assert_int_equal(answer, hak_class_of(40));
    else
        assert_true(answer >= HAK_NCLASSES);
    hak_free(blocks = hak_malloc(40));
    hak_bins_flush(unit_thread());
    assert_int_equal(unit_census().used, 1);
}

#if HAK_HEADER_LIMIT
TEST(an_overwritten_header_is_found)
{
    unit_start(NULL);
    struct unit_block *blocks = unit_blocks(40, 3);
    struct unit_block *overwritten = with_header(blocks);
    ((uint8_t *)overwritten)[-1] = 0;
    assert_dies(hak_free(overwritten), "corrupted header: the byte before block");
}
#endif

TEST(capacities_of_the_original_classes)
{
    unit_start("HAKMEM_TINY_FAST_CAP_C1=11 HAKMEM_TINY_FAST_CAP_C3=13 HAKMEM_TINY_FAST_CAP_C5=15 "
               "HAKMEM_TINY_FAST_CAP_C7=17");
    assert_true(hak_init());
    for (unsigned cls = 0; cls < HAK_NCLASSES; cls++) {
        if (strcmp(hak_parts.by_class[cls]->name, "tiny")) /* a part from outside may have some of the range */
            continue;
        uint32_t s = hak_strides[cls], limit = hak_parts.capacity[cls];
        uint32_t wanted = s <= 16                ? 11
                          : s > 32 && s <= 64    ? 13
                          : s > 128 && s <= 256  ? 15
                          : s > 512 && s <= 1024 ? 17
                                                 : 0;
        assert_in_range(limit, wanted ? wanted : 1, wanted ? wanted : 4096);
    }
}

static const char *const prewarms[] = {"HAKMEM_TINY_PREWARM=0", "HAKMEM_TINY_PREWARM=1"};

TEST_EACH(prewarm_fills_the_common_bins, prewarms)
{
    bool prewarmed = row > prewarms;
    struct hak_heap *t = unit_init_heap(*row);
    assert_int_equal(t->counters.prewarmed > 0, prewarmed);
    assert_int_equal(unit_bin_length(hak_class_of(40)) > 0, prewarmed);
    uint64_t refills = t->counters.refills;
    hak_free(hak_malloc(40));
    assert_int_equal(t->counters.refills == refills, prewarmed);
}
