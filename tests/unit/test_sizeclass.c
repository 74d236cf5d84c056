/* SPDX-License-Identifier: MIT
 * Checks all classes and all sizes, in the header mode of this build. */
#include "core/base/sizeclass.h"

#include "unit.h"

static bool has_byte(size_t stride)
{
    return stride <= HAK_HEADER_LIMIT;
}

TEST(each_class)
{
    assert_int_equal(hak_strides[0], 16);
    assert_int_equal(hak_strides[HAK_NCLASSES - 1], HAK_SMALL_MAX);
    for (unsigned cls = 0; cls < HAK_NCLASSES; cls++) {
        size_t size = hak_slab_pages[cls] * HAK_PAGE, blocks = size / hak_strides[cls];
        assert_int_equal(hak_strides[cls] % 16, 0);
        if (cls)
            assert_true(hak_strides[cls] > hak_strides[cls - 1]);
        assert_int_equal(hak_class_has_header(cls), has_byte(hak_strides[cls]));
        assert_int_equal(hak_class_usable(cls), hak_strides[cls] - has_byte(hak_strides[cls]));
        if (hak_class_has_header(cls))
            assert_in_range(hak_header_byte(cls), 0xa0, 0xbf);
        assert_in_range(blocks, 4, (1 << 14) - 1); /* the width of a count in the slab's word */
        assert_true((size - blocks * hak_strides[cls]) * 8 <= size);
        assert_true(hak_slab_pages[cls] <= HAK_SUPERSLAB_PAGES);
    }
}

TEST(every_size_gets_the_smallest_class_up_to_one_index_step_without_much_waste)
{
    for (size_t size = 0; size <= HAK_SMALL_MAX; size++) {
        unsigned cls = hak_class_of(size);
        assert_true(cls < HAK_NCLASSES);
        assert_true(!size || cls >= hak_class_of(size - 1));
        if (hak_class_usable(cls) < size || hak_strides[cls] - size > size / 8 + 16 + has_byte(hak_strides[cls]))
            fail_msg("size %zu got stride %u", size, hak_strides[cls]);
        /* Sizes share an index of the map with at most 15 neighbours: the largest of them decides. */
        if (size && cls && hak_class_usable(cls - 1) >= hak_align_up(size, 16))
            fail_msg("size %zu got stride %u, %u would hold it", size, hak_strides[cls], hak_strides[cls - 1]);
    }
}

TEST(power_of_two_strides_exist_for_alignment)
{
    for (size_t align = 32; align <= 32768; align *= 2) {
        unsigned found = 0;
        for (unsigned cls = 0; cls < HAK_NCLASSES; cls++)
            found += hak_strides[cls] == align;
        assert_int_equal(found, 1);
    }
}

static unsigned scan_for_aligned(size_t align, size_t size)
{
    unsigned cls = 0;
    while (cls < HAK_NCLASSES && (hak_strides[cls] % align || hak_class_usable(cls) < size))
        cls++;
    return cls;
}

TEST(an_aligned_request_gets_the_smallest_class_of_aligned_blocks)
{
    for (size_t align = 32; align <= 2 * HAK_PAGE; align *= 2)
        for (size_t size = 0; size <= HAK_SMALL_MAX + 1; size++)
            if (hak_class_of_aligned(align, size) != scan_for_aligned(align, size))
                fail_msg("%zu bytes aligned to %zu: class %u instead of %u", size, align,
                         hak_class_of_aligned(align, size), scan_for_aligned(align, size));
}

TEST(an_address_tells_whether_a_block_may_begin_there)
{
    for (unsigned cls = 0; cls < HAK_NCLASSES; cls++)
        for (uint32_t offset = 0; offset < HAK_PAGE; offset += 1) {
            bool begins = hak_slab_pages[cls] == 1 && offset % hak_strides[cls] == 0 &&
                          offset / hak_strides[cls] < HAK_PAGE / hak_strides[cls];
            if (hak_class_starts_at(cls, (void *)(HAK_PAGE + offset)) != begins)
                fail_msg("offset %u of blocks of %u bytes", offset, hak_strides[cls]);
        }
}
