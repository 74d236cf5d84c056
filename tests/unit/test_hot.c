/* SPDX-License-Identifier: MIT
 * The stacks alone: slabs go in and come out, and too many come out together. */
#include "backends/shared_pool/hot.h"

#include "core/pages/slab_stack.h"
#include "unit.h"

static unsigned cls, other_bin, long_bin; /* two classes of one-page slabs, and one of longer ones */

static void start(const char *settings)
{
    unit_start(settings);
    assert_true(hak_init());
    for (cls = hak_class_of(2000); hak_slab_pages[cls] != 1; cls--)
        ;
    for (other_bin = cls - 1; hak_slab_pages[other_bin] != 1; other_bin--)
        ;
    for (long_bin = cls; hak_slab_pages[long_bin] == 1; long_bin++)
        ;
}

static struct hak_slab *empty_slab(unsigned b)
{
    bool zeroed;
    struct hak_slab *slab = unit_run(hak_slab_pages[b], 1, &zeroed);
    assert_non_null(slab);
    slab->cls = (uint8_t)b;
    return slab;
}

static size_t length(const struct hak_slab *list)
{
    size_t n = 0;
    for (; list; list = hak_slab_stack_next(list))
        n++;
    return n;
}

TEST(the_most_recent_of_the_class_comes_first)
{
    start("HAKMEM_RELEASE=batch");
    struct hak_slab *a = empty_slab(cls), *b = empty_slab(cls), *c = empty_slab(other_bin);
    assert_null(hak_hot_pop(cls));
    assert_true(hak_hot_push(a));
    assert_true(hak_hot_push(b));
    assert_true(hak_hot_push(c));
    assert_ptr_equal(hak_hot_pop(cls), b);
    assert_ptr_equal(hak_hot_pop(cls), a);
    assert_null(hak_hot_pop(cls));
    assert_ptr_equal(hak_hot_pop(other_bin), c);
}

TEST(a_similar_one_has_the_same_length)
{
    start("HAKMEM_RELEASE=batch");
    struct hak_slab *long_one = empty_slab(long_bin), *one = empty_slab(other_bin);
    hak_hot_push(long_one);
    assert_null(hak_hot_pop_similar(1, false));
    hak_hot_push(one);
    assert_null(hak_hot_pop_similar(1, true));
    assert_ptr_equal(hak_hot_pop_similar(1, false), one);
    assert_ptr_equal(hak_hot_pop_similar(hak_slab_pages[long_bin], false), long_one);
}

TEST(too_many_come_out_together)
{
    start("HAKMEM_SS_HOT_SLABS=3 HAKMEM_RELEASE=batch");
    struct hak_slab *last;
    for (unsigned i = 0; i < 3; i++)
        assert_true(hak_hot_push(empty_slab(cls)));
    last = empty_slab(cls);
    assert_false(hak_hot_push(last));
    assert_int_equal(length(hak_hot_take(cls)), 3);
    assert_true(hak_hot_push(last));
    assert_ptr_equal(hak_hot_pop(cls), last);
    assert_null(hak_hot_pop(cls));
}

TEST(all_are_taken_class_by_class)
{
    start("HAKMEM_SS_HOT_SLABS=4 HAKMEM_RELEASE=batch");
    for (unsigned i = 0; i < 2; i++) {
        hak_hot_push(empty_slab(cls));
        hak_hot_push(empty_slab(other_bin));
    }
    unsigned from = 0;
    for (unsigned i = 0; i < 2; i++)
        assert_int_equal(length(hak_hot_take_all(&from)), 2);
    assert_null(hak_hot_take_all(&from));
    assert_int_equal(from, HAK_NCLASSES);
    assert_null(hak_hot_pop(cls));
    for (unsigned i = 0; i < 4; i++) /* the count began again */
        assert_true(hak_hot_push(empty_slab(cls)));
}

TEST(one_waits_where_pages_go_back_at_once)
{
    start("HAKMEM_SS_HOT_SLABS=3 HAKMEM_RELEASE=direct");
    assert_true(hak_hot_push(empty_slab(cls)));
    assert_false(hak_hot_push(empty_slab(cls)));
}

TEST(what_comes_out_is_counted_no_more)
{
    start("HAKMEM_SS_HOT_SLABS=3 HAKMEM_RELEASE=batch");
    for (unsigned i = 0; i < 3; i++)
        assert_true(hak_hot_push(empty_slab(cls)));
    struct hak_slab *one = hak_hot_pop(cls);
    assert_true(hak_hot_push(one));
    assert_false(hak_hot_push(empty_slab(cls)));
}

UNIT_MAIN(T(what_comes_out_is_counted_no_more), T(one_waits_where_pages_go_back_at_once),
          T(the_most_recent_of_the_class_comes_first), T(a_similar_one_has_the_same_length),
          T(too_many_come_out_together), T(all_are_taken_class_by_class))
