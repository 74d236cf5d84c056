/* SPDX-License-Identifier: MIT
 * A lock-free stack of slabs; any thread pushes and pops. The head holds a descriptor's address and a version in one
 * word, so a swap fails when the slab was popped and pushed again meanwhile. Descriptors are never unmapped, so a late
 * reader finds valid memory. A slab stands on one stack at most. */
#ifndef HAK_SLAB_STACK_H
#define HAK_SLAB_STACK_H

#include "slab.h"

#define HAK_SLAB_STACK_VERSION_SHIFT 41

struct hak_slab_stack {
    _Atomic(uint64_t) head; /* 0..40 address / 128 | 41..63 version; all zero: empty */
};

void hak_slab_stack_push(struct hak_slab_stack *stack, struct hak_slab *slab);
/* The slab that was pushed last; NULL from an empty stack. */
struct hak_slab *hak_slab_stack_pop(struct hak_slab_stack *stack);
/* All slabs at once, as a list for the caller alone; see hak_slab_stack_next. */
struct hak_slab *hak_slab_stack_take_all(struct hak_slab_stack *stack);
/* The next slab in a list that was taken. Call it before the slab is pushed again. */
HAK_INLINE struct hak_slab *hak_slab_stack_next(const struct hak_slab *slab)
{
    return HAK_LOAD_RELAXED(&slab->below);
}

HAK_INLINE bool hak_slab_stack_is_empty(const struct hak_slab_stack *stack)
{
    return !(HAK_LOAD_RELAXED(&stack->head) << (64 - HAK_SLAB_STACK_VERSION_SHIFT));
}

#endif
