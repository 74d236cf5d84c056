/* SPDX-License-Identifier: MIT */
#include "core/malloc/block.h"

#include "unit.h"

static char *bad;

static void size_bad(void)
{
    unit_usable(bad);
}

TEST(what_is_no_block_stops_the_process)
{
    static _Alignas(16) char text[64];
    unit_start(NULL);
    char *small = hak_malloc(2000), *span = hak_malloc(200000), *direct = hak_malloc(40 * HAK_MIB);
    bad = text + 32;
    assert_dies(size_bad, "invalid malloc_usable_size: ");
    bad = small + 16;
    assert_dies(size_bad, "is not the start of a block");
    assert_free_dies(text + 32, "invalid free: ");
    assert_free_dies(span + 4096, "invalid free: ");
    assert_free_dies(direct + 4096, "was not allocated by hakmem");
    hak_free(span);
    assert_free_dies(span, "freed twice, or never allocated");
    hak_free(direct);
    assert_free_dies(direct, "was not allocated by hakmem");
    hak_free(small);
}

static void ask_for_none(void)
{
    unit_usable(&(int){0});
}

TEST(where_the_library_cannot_start_there_are_no_blocks)
{
    unit_start(NULL);
    fake_os_refuse_places(ENOMEM);
    assert_dies(ask_for_none, "malloc_usable_size");
    assert_false(hak_init());
}
