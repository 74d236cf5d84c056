/* SPDX-License-Identifier: MIT
 * The lock-free stack: order, take all, and many threads that push and pop the same slabs. */
#include "core/pages/slab_stack.h"

#include <pthread.h>

#include "unit.h"

#define SLABS 16
#define THREADS 4
#define ROUNDS 100000

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

/* A slab that was popped belongs to one thread: nobody else writes `used` meanwhile. */
static void *hold_in_turn(void *unused)
{
    for (unsigned i = 0; i < ROUNDS; i++) {
        struct hak_slab *a = hak_slab_stack_pop(&stack), *b = hak_slab_stack_pop(&stack);
        if (a)
            a->used++;
        if (b)
            b->used++;
        if (a)
            hak_slab_stack_push(&stack, a); /* the order changes: what ABA needs */
        if (b)
            hak_slab_stack_push(&stack, b);
    }
    return unused;
}

TEST(threads_hold_slabs_in_turn)
{
    pthread_t threads[THREADS];
    push_all();
    for (unsigned i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, hold_in_turn, NULL), 0);
    for (unsigned i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    uint64_t used = 0;
    unsigned n = 0;
    for (struct hak_slab *slab; (slab = hak_slab_stack_pop(&stack)); n++)
        used += slab->used;
    assert_int_equal(n, SLABS);
    assert_int_equal(used, 2 * THREADS * ROUNDS); /* never empty for two: 16 slabs, 4 threads */
}
