/* SPDX-License-Identifier: MIT
 * A lock-free stack of slabs; any thread pushes and pops. The head holds a descriptor's address and a version in one
 * word, so a swap fails when the slab was popped and pushed again meanwhile. Descriptors are never unmapped, so a late
 * reader finds valid memory. A slab stands on one stack at most. */
#ifndef HAK_SLAB_STACK_H
#define HAK_SLAB_STACK_H

#include "slab.h"

#define HAK_SLAB_STACK_UNIT_LG 7 /* descriptors are aligned to their size */
#define HAK_SLAB_STACK_VERSION_SHIFT 41
_Static_assert(sizeof(struct hak_slab) == 1 << HAK_SLAB_STACK_UNIT_LG &&
                   HAK_SLAB_STACK_VERSION_SHIFT + HAK_SLAB_STACK_UNIT_LG == 48,
               "user addresses have at most 48 bits");

struct hak_slab_stack {
    _Atomic(uint64_t) head; /* 0..40 address / 128 | 41..63 version; all zero: empty */
};

HAK_INLINE struct hak_slab *hak_slab_stack_top(uint64_t head)
{
    return (struct hak_slab *)(head << (64 - HAK_SLAB_STACK_VERSION_SHIFT) >>
                               (64 - HAK_SLAB_STACK_VERSION_SHIFT - HAK_SLAB_STACK_UNIT_LG));
}

/* The head that follows `old`: a slab, and the next version. */
HAK_INLINE uint64_t hak_slab_stack_successor(uint64_t old, const struct hak_slab *slab)
{
    return ((old >> HAK_SLAB_STACK_VERSION_SHIFT) + 1) << HAK_SLAB_STACK_VERSION_SHIFT |
           (uintptr_t)slab >> HAK_SLAB_STACK_UNIT_LG;
}

/* The next slab in a list that was taken. Call it before the slab is pushed again. */
HAK_INLINE struct hak_slab *hak_slab_stack_next(const struct hak_slab *slab)
{
    return HAK_LOAD_RELAXED(&slab->below);
}

/* The compiler may keep one copy of the next three in a file that calls them often. */
static inline void hak_slab_stack_push(struct hak_slab_stack *stack, struct hak_slab *slab)
{
    uint64_t head = HAK_LOAD_RELAXED(&stack->head);
    do
        HAK_STORE_RELAXED(&slab->below, hak_slab_stack_top(head));
    while (!HAK_CAS_WEAK_RELEASE(&stack->head, &head, hak_slab_stack_successor(head, slab)));
}

/* The slab that was pushed last; NULL from an empty stack. Acquire: the link was written before the push that is seen
 * here. */
static inline struct hak_slab *hak_slab_stack_pop(struct hak_slab_stack *stack)
{
    uint64_t head = HAK_LOAD_ACQUIRE(&stack->head);
    struct hak_slab *slab;
    do {
        slab = hak_slab_stack_top(head);
        if (!slab)
            return NULL;
    } while (!HAK_CAS_WEAK_ACQUIRE(&stack->head, &head, hak_slab_stack_successor(head, hak_slab_stack_next(slab))));
    return slab;
}

/* All slabs at once, as a list for the caller alone; see hak_slab_stack_next. */
static inline struct hak_slab *hak_slab_stack_take_all(struct hak_slab_stack *stack)
{
    uint64_t head = HAK_LOAD_ACQUIRE(&stack->head);
    while (hak_slab_stack_top(head) && !HAK_CAS_WEAK_ACQUIRE(&stack->head, &head, hak_slab_stack_successor(head, NULL)))
        ;
    return hak_slab_stack_top(head);
}

HAK_INLINE bool hak_slab_stack_is_empty(const struct hak_slab_stack *stack)
{
    return !hak_slab_stack_top(HAK_LOAD_RELAXED(&stack->head));
}

#endif
