/* SPDX-License-Identifier: MIT
 * See slab_stack.h. */
#include "slab_stack.h"

#define UNIT_LG 7 /* descriptors are aligned to their size */
#define VERSION_SHIFT HAK_SLAB_STACK_VERSION_SHIFT
_Static_assert(sizeof(struct hak_slab) == 1 << UNIT_LG && VERSION_SHIFT + UNIT_LG == 48,
               "user addresses have at most 48 bits");

static struct hak_slab *top(uint64_t head)
{
    return (struct hak_slab *)((head << (64 - VERSION_SHIFT)) >> (64 - VERSION_SHIFT - UNIT_LG));
}

/* The head that follows `old`: a slab, and the next version. */
static uint64_t successor(uint64_t old, const struct hak_slab *slab)
{
    return ((old >> VERSION_SHIFT) + 1) << VERSION_SHIFT | (uintptr_t)slab >> UNIT_LG;
}

void hak_slab_stack_push(struct hak_slab_stack *stack, struct hak_slab *slab)
{
    uint64_t head = HAK_LOAD_RELAXED(&stack->head);
    do
        HAK_STORE_RELAXED(&slab->below, top(head));
    while (!HAK_CAS_WEAK_RELEASE(&stack->head, &head, successor(head, slab)));
}

/* Acquire: the link was written before the push that is seen here. */
struct hak_slab *hak_slab_stack_pop(struct hak_slab_stack *stack)
{
    uint64_t head = HAK_LOAD_ACQUIRE(&stack->head);
    struct hak_slab *slab;
    do {
        slab = top(head);
        if (!slab)
            return NULL;
    } while (!HAK_CAS_WEAK_ACQUIRE(&stack->head, &head, successor(head, hak_slab_stack_next(slab))));
    return slab;
}

struct hak_slab *hak_slab_stack_take_all(struct hak_slab_stack *stack)
{
    uint64_t head = HAK_LOAD_ACQUIRE(&stack->head);
    while (top(head) && !HAK_CAS_WEAK_ACQUIRE(&stack->head, &head, successor(head, NULL)))
        ;
    return top(head);
}
