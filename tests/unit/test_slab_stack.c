/* SPDX-License-Identifier: MIT
 * The order of the lock-free stack. tests/models/lists.c checks it with threads. */
#include "core/pages/slab_stack.h"

#include "unit.h"

#define SLABS 16

static struct hak_slab slabs[SLABS];
static struct hak_slab_stack stack;

static void push_all(void)
{
    for (unsigned i = 0; i < SLABS; i++)
        hak_slab_stack_push(&stack, &slabs[i]);
}

TEST(last_in_first_out)
{
    assert_true(hak_slab_stack_is_empty(&stack));
    assert_null(hak_slab_stack_pop(&stack));
    push_all();
    assert_false(hak_slab_stack_is_empty(&stack));
    for (unsigned i = SLABS; i-- > 0;)
        assert_ptr_equal(hak_slab_stack_pop(&stack), &slabs[i]);
    assert_null(hak_slab_stack_pop(&stack));
    assert_true(hak_slab_stack_is_empty(&stack));
}

TEST(all_at_once)
{
    push_all();
    struct hak_slab *slab = hak_slab_stack_take_all(&stack);
    assert_true(hak_slab_stack_is_empty(&stack));
    assert_null(hak_slab_stack_take_all(&stack));
    for (unsigned i = SLABS; i-- > 0; slab = hak_slab_stack_next(slab))
        assert_ptr_equal(slab, &slabs[i]);
    assert_null(slab);
}
