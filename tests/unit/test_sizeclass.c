/* SPDX-License-Identifier: MIT
 * Brute force over all sizes, in the header mode of this build. */
#include "core/sizeclass.h"

#include "unit.h"

static bool has_byte(size_t stride)
{
    return stride <= HAK_HEADER_LIMIT;
}

TEST(strides_rise_in_steps_of_16)
{
    assert_int_equal(hak_strides[0], 16);
    assert_int_equal(hak_strides[HAK_NBINS - 1], HAK_SMALL_MAX);
    for (unsigned bin = 0; bin < HAK_NBINS; bin++) {
        assert_int_equal(hak_strides[bin] % 16, 0);
        if (bin)
            assert_true(hak_strides[bin] > hak_strides[bin - 1]);
    }
}

TEST(every_size_fits_its_class_without_much_waste)
{
    for (size_t size = 0; size <= HAK_SMALL_MAX; size++) {
        unsigned bin = hak_class_of(size);
        assert_true(bin < HAK_NBINS);
        if (hak_class_usable(bin) < size || hak_strides[bin] - size > size / 8 + 16 + has_byte(hak_strides[bin]))
            fail_msg("size %zu got stride %u", size, hak_strides[bin]);
    }
}

TEST(every_size_gets_the_smallest_class_up_to_one_index_step)
{
    for (size_t size = 1; size <= HAK_SMALL_MAX; size++) {
        unsigned bin = hak_class_of(size);
        /* Sizes share an index of the map with at most 15 neighbours: the largest of them decides. */
        if (bin && hak_class_usable(bin - 1) >= hak_align_up(size, 16))
            fail_msg("size %zu got stride %u, %u would hold it", size, hak_strides[bin], hak_strides[bin - 1]);
    }
}

TEST(the_map_is_monotone)
{
    for (size_t size = 1; size <= HAK_SMALL_MAX; size++)
        assert_true(hak_class_of(size) >= hak_class_of(size - 1));
}

TEST(headers_cover_the_strides_up_to_the_limit)
{
    for (unsigned bin = 0; bin < HAK_NBINS; bin++) {
        assert_int_equal(hak_class_has_header(bin), has_byte(hak_strides[bin]));
        assert_int_equal(hak_class_usable(bin), hak_strides[bin] - has_byte(hak_strides[bin]));
        if (hak_class_has_header(bin))
            assert_in_range(hak_header_byte(bin), 0xa0, 0xbf);
    }
}

TEST(slabs_waste_little_and_fit_the_word)
{
    for (unsigned bin = 0; bin < HAK_NBINS; bin++) {
        size_t size = hak_slab_pages[bin] * HAK_PAGE, blocks = size / hak_strides[bin];
        assert_true(blocks >= 4);
        assert_true((size - blocks * hak_strides[bin]) * 8 <= size);
        assert_true(blocks < 1 << 14); /* the width of a count in the slab's word */
        assert_true(hak_slab_pages[bin] <= HAK_SUPERSLAB_PAGES);
    }
}

TEST(power_of_two_strides_exist_for_alignment)
{
    for (size_t align = 32; align <= 32768; align *= 2) {
        unsigned found = 0;
        for (unsigned bin = 0; bin < HAK_NBINS; bin++)
            found += hak_strides[bin] == align;
        assert_int_equal(found, 1);
    }
}

TEST(an_address_tells_whether_a_block_may_begin_there)
{
    for (unsigned bin = 0; bin < HAK_NBINS; bin++)
        for (uint32_t offset = 0; offset < HAK_PAGE; offset += 1) {
            bool begins = hak_slab_pages[bin] == 1 && offset % hak_strides[bin] == 0 &&
                          offset / hak_strides[bin] < HAK_PAGE / hak_strides[bin];
            if (hak_class_starts_at(bin, (void *)(HAK_PAGE + offset)) != begins)
                fail_msg("offset %u of blocks of %u bytes", offset, hak_strides[bin]);
        }
}

UNIT_MAIN(T(strides_rise_in_steps_of_16), T(every_size_fits_its_class_without_much_waste),
          T(every_size_gets_the_smallest_class_up_to_one_index_step), T(the_map_is_monotone),
          T(headers_cover_the_strides_up_to_the_limit), T(slabs_waste_little_and_fit_the_word),
          T(power_of_two_strides_exist_for_alignment),
          T(an_address_tells_whether_a_block_may_begin_there))
