/* SPDX-License-Identifier: MIT
 * Free pages are inaccessible, and open before they serve. */
#include "core/pages/closed.h"

#include <string.h>

#include "core/malloc/aligned.h"
#include "core/malloc/resize.h"
#include "core/malloc/trim.h"
#include "core/os/limit.h"
#include "unit.h"

#define SPAN (256 * HAK_KIB)

#if HAK_HARDENED
static void start_closing(void)
{
    unit_init("HAKMEM_CLOSE_FREE=1");
}

static char *new_span(size_t size)
{
    return memset(hak_malloc(size), 1, size);
}

TEST(a_freed_span_is_closed_until_it_serves)
{
    start_closing();
    char *p = new_span(SPAN), *beside = new_span(SPAN);
    hak_free(p);
    assert_false(unit_is_open(p));
    assert_false(unit_is_open(p + SPAN - 1));
    assert_true(unit_is_open(beside));
    for (int i = 0; i < 8; i++)
        new_span(SPAN); /* one of them there */
    assert_true(unit_is_open(p) && unit_is_open(p + SPAN - 1));
}

TEST(what_went_back_is_closed_and_calloc_shows_zeros)
{
    start_closing();
    char *p = new_span(SPAN);
    hak_free(p);
    hak_trim(0);
    assert_false(unit_is_open(p));
    for (int i = 0; i < 64; i++) {
        const char *q = hak_alloc_zeroed(SPAN);
        for (size_t k = 0; k < SPAN; k++)
            assert_int_equal(q[k], 0);
    }
}

TEST(closed_pages_split_few_mappings)
{
    char *p[200];
    unsigned closed = 0;
    start_closing();
    for (unsigned i = 0; i < COUNT(p); i++)
        p[i] = new_span(SPAN);
    HAK_STORE_RELAXED(&hak_limit_mappings, 50);
    for (unsigned i = 0; i < COUNT(p); i += 2)
        hak_free(p[i]);
    for (unsigned i = 0; i < COUNT(p); i += 2)
        closed += !unit_is_open(p[i]);
    assert_in_range(closed, 1, 25);
    for (unsigned i = 0; i < COUNT(p); i += 2)
        new_span(SPAN);
}

TEST(pages_that_would_split_too_many_open_with_their_neighbours)
{
    start_closing();
    char *p = new_span(64 * SPAN);
    hak_free(p);
    hak_trim(0);
    assert_false(unit_is_open(p + 63 * SPAN));
    HAK_STORE_RELAXED(&hak_limit_mappings, 1);
    assert_ptr_equal(new_span(SPAN), p);
    assert_false(unit_is_open(p + SPAN));
    char *q = hak_alloc_aligned(8 * SPAN, SPAN);
    assert_true(q > p + SPAN && q + SPAN < p + 64 * SPAN);
    assert_true(unit_is_open(p + SPAN) && unit_is_open(q) && unit_is_open(p + 63 * SPAN));
}

TEST(what_realloc_cuts_off_is_closed_and_opens_again)
{
    start_closing();
    char *p = new_span(4 * SPAN);
    assert_ptr_equal(hak_resize(p, SPAN), p);
    assert_true(unit_is_open(p + SPAN - 1));
    assert_false(unit_is_open(p + 2 * SPAN));
    char *q = hak_resize(p, 4 * SPAN);
    memset(q, 2, 4 * SPAN);
}

TEST(a_kernel_that_refuses_to_close_leaves_them_open)
{
    start_closing();
    char *p = new_span(SPAN);
    fake_os_refuse(HAK_OS_mprotect, 1, ENOMEM, true);
    hak_free(p);
    assert_true(unit_is_open(p));
    assert_ptr_equal(new_span(SPAN), p);
}

TEST(a_kernel_that_refuses_to_open_takes_no_block_away)
{
    start_closing();
    char *p = new_span(SPAN);
    hak_free(p);
    fake_os_refuse(HAK_OS_mprotect, 1, ENOMEM, true);
    char *q = hak_malloc(SPAN); /* from elsewhere, or none */
    assert_ptr_not_equal(p, q);
    fake_os_allow();
    memset(hak_malloc(SPAN), 3, SPAN);
}

/* As it does if addresses are limited. The code that maps it next touches it before it is taken. */
TEST(a_superslab_that_leaves_the_page_heap_opens)
{
    start_closing();
    hak_free(new_span(2 * HAK_SUPERSLAB));
    if (!unit_limit_addresses())
        skip();
    hak_purge_all(0);
    const char *p = hak_space_alloc(1, 1, false);
    assert_true(p && unit_is_open(p) && unit_is_open(p + HAK_SUPERSLAB - 1));
}

#else
TEST(other_builds_protect_nothing)
{
    unit_start(NULL);
    char *p = hak_malloc(SPAN);
    hak_free(p);
    assert_true(hak_closed_open(p, SPAN));
    assert_true(unit_is_open(p));
}

#endif
