/* SPDX-License-Identifier: MIT */
#include "core/malloc/block.h"

#include "unit.h"

TEST(what_is_no_block_stops_the_process)
{
    static _Alignas(16) char text[64];
    unit_start(NULL);
    char *small = hak_malloc(2000), *span = hak_malloc(200000), *direct = hak_malloc(80 * HAK_MIB);
    assert_dies(unit_usable(text + 32), "invalid malloc_usable_size: ");
    assert_dies(unit_usable(small + 16), "is not the start of a block");
    assert_dies(hak_free(text + 32), "invalid free: ");
    assert_dies(hak_free(span + 4096), "invalid free: ");
    assert_dies(hak_free(direct + 4096), "was not allocated by hakmem");
    hak_free(span);
    assert_dies(hak_free(span), "freed twice, or never allocated");
    hak_free(direct);
    assert_dies(hak_free(direct), "was not allocated by hakmem");
    hak_free(small);
}

TEST(where_the_library_cannot_start_there_are_no_blocks)
{
    unit_start(NULL);
    fake_os_refuse_places(ENOMEM);
    assert_dies(unit_usable(&(int){0}), "malloc_usable_size");
    assert_false(hak_init());
}
