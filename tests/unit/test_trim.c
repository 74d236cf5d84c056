/* SPDX-License-Identifier: MIT */
#include "core/malloc/trim.h"

#include <string.h>

#include "unit.h"

static uint64_t bytes_given_back(void)
{
    uint64_t bytes = 0;
    for (unsigned cause = 0; cause < HAK_NCAUSES; cause++)
        bytes += hak_ledger[cause][HAK_OS_madvise].bytes + hak_ledger[cause][HAK_OS_process_madvise].bytes;
    return bytes;
}

TEST(trim_gives_back_and_says_how_much)
{
    unit_start("HAKMEM_PURGE_DELAY_MS=3600000");
    struct unit_block *blocks = unit_blocks(10000, 1000);
    void *span = hak_malloc(5 * HAK_MIB);
    memset(span, 1, 5 * HAK_MIB);
    unit_free_blocks(blocks);
    hak_free(span);
    uint64_t before = bytes_given_back(); /* most of it by legacy and direct */
    size_t back = hak_trim(0);
    assert_true(before + back >= 10 * HAK_MIB);
    assert_true(bytes_given_back() >= before + back);
    assert_int_equal(hak_trim(0), 0);
    struct hak_census c = unit_census();
    assert_int_equal(c.used, 0);
    assert_int_equal(c.pages[HAK_SLAB_EMPTY], 0);
    unit_free_blocks(unit_blocks(10000, 1000));
}

static void *use_each_class(void *kept)
{
    for (unsigned cls = 0; cls < HAK_NCLASSES; cls++)
        ((void **)kept)[cls] = hak_malloc(hak_class_usable(cls));
    for (unsigned cls = 0; cls < HAK_NCLASSES; cls++)
        hak_free(hak_malloc(hak_class_usable(cls)));
    return NULL;
}

/* Also of slabs whose thread has ended, and whose last blocks others freed. */
TEST(a_trim_leaves_nothing_to_a_second_one)
{
    static void *kept[HAK_NCLASSES];
    unit_start("HAKMEM_PURGE_DELAY_MS=3600000");
    for (unsigned round = 0; round < 3; round++) {
        unit_in_thread(use_each_class, kept);
        if (round == 1)
            hak_trim(0); /* its slabs have no owner now */
        for (unsigned cls = 0; cls < HAK_NCLASSES; cls++)
            hak_free(kept[cls]);
        hak_trim(0);
        struct hak_census c = unit_census();
        assert_int_equal(c.used, 0);
        assert_int_equal(c.pages[HAK_SLAB_PARTIAL], 0);
        assert_int_equal(hak_trim(0), 0);
    }
}
