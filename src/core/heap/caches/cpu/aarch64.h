/* SPDX-License-Identifier: MIT
 * The same as in x86_64.h, on aarch64. */
#ifndef HAK_CPU_AARCH64_H
#define HAK_CPU_AARCH64_H

#include "core/os/rseq.h"

/* Each instruction has a line. */
/* clang-format off */

/* The sequence lies between labels 1 and 2; label 0 is where it may restart. [b]: the address of the class's `top` in
 * the arrays of the CPU; [a]: its value, the last slot that holds a block. */
#define HAK_SEQUENCE_BEGIN(aborted)                               \
    ".pushsection .data.rel.ro.hak_rseq, \"aw\"\n"                \
    ".balign 32\n"                                                \
    "3: .word 0, 0\n"                                             \
    ".xword 1f, 2f - 1f, 4f\n"                                    \
    ".popsection\n"                                               \
    ".pushsection .text.hak_rseq, \"ax\"\n"                       \
    ".inst " HAK_RSEQ_SIGNATURE_AARCH64 "\n"                      \
    "4: " aborted                                                 \
    ".popsection\n"                                               \
    "0: adrp %[a], :gottprel:hak_rseq_none\n"                     \
    "ldr %[a], [%[a], :gottprel_lo12:hak_rseq_none]\n"            \
    "mrs %[b], tpidr_el0\n"                                       \
    "add %[a], %[a], %[b]\n"                                      \
    "adrp %[b], hak_rseq_distance\n"                              \
    "ldr %[b], [%[b], :lo12:hak_rseq_distance]\n"                 \
    "add %[a], %[a], %[b]\n"                                      \
    "adrp %[b], 3b\n"                                             \
    "add %[b], %[b], :lo12:3b\n"                                  \
    "str %[b], [%[a], %[cs]]\n"                                   \
    "1: ldrsw %[b], [%[a], %[cpu]]\n"                             \
    "add %[a], %[table], %[real]\n"                               \
    "ldr %[a], [%[a], %[b], lsl #3]\n"                            \
    "add %[b], %[a], %[cls], lsl #3\n"                            \
    "ldr %[a], [%[b]]\n"

#define HAK_SEQUENCE_BEGIN_SOME                         \
    HAK_SEQUENCE_BEGIN("subs %w[tries], %w[tries], #1\n" \
                       "b.ne 0f\n"                       \
                       "mov %[i], #0\n"                  \
                       "b 2f\n")

#define HAK_SEQUENCE_INPUTS                                                                                  \
    [cls] "r"((uint64_t)cls), [table] "r"(hak_arrays_of), [cs] "i"(HAK_RSEQ_CS), [cpu] "i"(HAK_RSEQ_CPU),    \
        [real] "i"(HAK_CPUS_UNREAL * sizeof(void *)), [end] "i"(offsetof(struct hak_arrays, end)),           \
        [room_of] "i"(offsetof(struct hak_arrays, room))

HAK_INLINE void *hak_rseq_pop(unsigned cls)
{
    void *p, *a, *b;
    __asm__ goto volatile(HAK_SEQUENCE_BEGIN("b %l[empty]\n")
                          "ldr %[p], [%[a]], #-8\n"
                          "cbz %[p], %l[empty]\n"
                          "str %[a], [%[b]]\n"
                          "2:"
                          : [p] "=&r"(p), [a] "=&r"(a), [b] "=&r"(b)
                          : HAK_SEQUENCE_INPUTS
                          : "memory"
                          : empty);
    return p;
empty:
    return NULL;
}

HAK_INLINE bool hak_rseq_push(uint64_t cls, void *p)
{
    void *a, *b;
    uint64_t room, *rooms;
    __asm__ goto volatile(HAK_SEQUENCE_BEGIN("b %l[due]\n") "ldr %[room], [%[a]]\n"
                                             "cmp %[room], %[p]\n"
                                             "b.eq %l[twice]\n"
                                             "sub %[rooms], %[b], %[cls], lsl #2\n" /* they are half as long */
                                             "ldr %w[room], [%[rooms], %[room_of]]\n"
                                             "subs %w[room], %w[room], #1\n"
                                             "str %w[room], [%[rooms], %[room_of]]\n"
                                             "b.mi %l[due]\n"
                                             "str %[p], [%[a], #8]!\n"
                                             "str %[a], [%[b]]\n"
                                             "2:"
                          : [a] "=&r"(a), [b] "=&r"(b), [room] "=&r"(room), [rooms] "=&r"(rooms)
                          : [p] "r"(p), HAK_SEQUENCE_INPUTS
                          : "memory", "cc"
                          : due, twice);
    return true;
due:
    return false;
twice:
    hak_cache_fail_twice(p);
}

HAK_INLINE uint32_t hak_rseq_pop_some(unsigned cls, void **blocks, uint64_t n)
{
    void *a, *b, *p;
    uint64_t i;
    uint32_t tries = HAK_RSEQ_TRIES;
    __asm__ volatile(HAK_SEQUENCE_BEGIN_SOME
                     "mov %[i], #0\n"
                     "5: ldr %[p], [%[a]]\n"
                     "cbz %[p], 6f\n"
                     "str %[p], [%[blocks], %[i], lsl #3]\n"
                     "sub %[a], %[a], #8\n"
                     "add %[i], %[i], #1\n"
                     "cmp %[i], %[n]\n"
                     "b.lo 5b\n"
                     "6: str %[a], [%[b]]\n"
                     "2:"
                     : [p] "=&r"(p), [a] "=&r"(a), [b] "=&r"(b), [i] "=&r"(i), [tries] "+r"(tries)
                     : [blocks] "r"(blocks), [n] "r"(n), HAK_SEQUENCE_INPUTS
                     : "memory", "cc");
    return (uint32_t)i;
}

HAK_INLINE uint32_t hak_rseq_push_some(unsigned cls, void *const *blocks, uint64_t n, uint64_t most)
{
    void *a, *b, *p;
    uint64_t i;
    uint32_t tries = HAK_RSEQ_TRIES;
    __asm__ volatile(HAK_SEQUENCE_BEGIN_SOME
                     "mov %[i], #0\n"
                     "5: cmp %[i], %[n]\n"
                     "b.hs 6f\n"
                     "ldr %[p], [%[b], %[end]]\n"
                     "cmp %[a], %[p]\n"
                     "b.eq 6f\n"
                     "ldr %[p], [%[blocks], %[i], lsl #3]\n"
                     "str %[p], [%[a], #8]!\n"
                     "add %[i], %[i], #1\n"
                     "b 5b\n"
                     "6: ldr %[p], [%[b], %[end]]\n"
                     "sub %[p], %[p], %[a]\n"
                     "lsr %[p], %[p], #3\n"
                     "cmp %[p], %[most]\n"
                     "csel %[p], %[p], %[most], lo\n"
                     "sub %[b], %[b], %[cls], lsl #2\n"
                     "str %w[p], [%[b], %[room_of]]\n"
                     "add %[b], %[b], %[cls], lsl #2\n"
                     "str %[a], [%[b]]\n"
                     "2:"
                     : [p] "=&r"(p), [a] "=&r"(a), [b] "=&r"(b), [i] "=&r"(i), [tries] "+r"(tries)
                     : [blocks] "r"(blocks), [n] "r"(n), [most] "r"(most), HAK_SEQUENCE_INPUTS
                     : "memory", "cc");
    return (uint32_t)i;
}

#endif
