/* SPDX-License-Identifier: MIT
 * The restartable sequences of the cache `cpu` on x86-64, for cpu.h alone. Each announces itself to the kernel, then
 * loads the arrays of its CPU, and ends with one instruction that commits. If it is interrupted before, the kernel
 * continues in its abort handler: what it has written lies behind the last block of an array, where it has no meaning,
 * or has only reduced the array's room. */
#ifndef HAK_CPU_X86_64_H
#define HAK_CPU_X86_64_H

#include "core/os/rseq.h"

/* Each instruction has a line. */
/* clang-format off */

/* The sequence lies between labels 1 and 2; label 0 is where it may restart. The abort handler lies in a section of its
 * own, since the compiler could otherwise place it before the sequence. [a]: the arrays of the CPU; [b] is scratch. */
#define HAK_SEQUENCE_BEGIN_AT(area, aborted)                                \
    ".pushsection .data.rel.ro.hak_rseq, \"aw\"\n"                          \
    ".balign 32\n"                                                          \
    "3: .long 0, 0\n"                                                       \
    ".quad 1f, 2f - 1f, 4f\n"                                               \
    ".popsection\n"                                                         \
    ".pushsection .text.hak_rseq, \"ax\"\n"                                 \
    ".byte 0x0f, 0xb9, 0x3d\n" /* with the signature, an instruction that no program runs */ \
    ".long " HAK_RSEQ_SIGNATURE_X86_64 "\n"                                 \
    "4: " aborted                                                           \
    ".popsection\n"                                                         \
    "0: leaq 3b(%%rip), %[a]\n"                                             \
    area                                                                    \
    "movq %[a], %%fs:%c[cs](%[b])\n"                                        \
    "1: movslq %%fs:%c[cpu](%[b]), %[a]\n"                                  \
    "movq %c[real](%[table], %[a], 8), %[a]\n"

#define HAK_SEQUENCE_BEGIN(aborted)                                       \
    HAK_SEQUENCE_BEGIN_AT("movq hak_rseq_none@gottpoff(%%rip), %[b]\n"    \
                          "addq hak_rseq_distance(%%rip), %[b]\n", aborted)

/* The beginning of a sequence that moves several blocks. */
#define HAK_SEQUENCE_BEGIN_SOME              \
    HAK_SEQUENCE_BEGIN("decl %[tries]\n"     \
                       "jnz 0f\n"            \
                       "xorl %k[i], %k[i]\n" \
                       "jmp 2f\n")

#define HAK_SEQUENCE_INPUTS                                                                                  \
    [cls] "r"((uint64_t)cls), [table] "r"(hak_arrays_of), [cs] "i"(HAK_RSEQ_CS), [cpu] "i"(HAK_RSEQ_CPU),    \
        [real] "i"(HAK_CPUS_UNREAL * sizeof(void *)), [end] "i"(offsetof(struct hak_arrays, end)),           \
        [room] "i"(offsetof(struct hak_arrays, room))

/* The block in the last slot; NULL from an empty array, or if interrupted. */
HAK_INLINE void *hak_rseq_pop(unsigned cls)
{
    void *p, *a, *b;
    __asm__ goto volatile(HAK_SEQUENCE_BEGIN("jmp %l[empty]\n")
                          "movq (%[a], %[cls], 8), %[b]\n"
                          "movq (%[b]), %[p]\n"
                          "testq %[p], %[p]\n"
                          "jz %l[empty]\n"
                          "subq $8, (%[a], %[cls], 8)\n"
                          "2:"
                          : [p] "=&a"(p), [a] "=&r"(a), [b] "=&r"(b)
                          : HAK_SEQUENCE_INPUTS
                          : "memory", "cc"
                          : empty);
    if (!p)
        __builtin_unreachable(); /* without this the caller would test p again */
    return p;
empty:
    return NULL;
}

/* False: the array is due to be checked, or the sequence was interrupted. The block's page has a tag, so the library
 * has started: one load gives the rseq area's offset. */
HAK_INLINE bool hak_rseq_push(uint64_t cls, void *p)
{
    void *a, *b;
    __asm__ goto volatile(
        HAK_SEQUENCE_BEGIN_AT("movq hak_rseq_offset(%%rip), %[b]\n", "jmp %l[due]\n")
        "movq (%[a], %[cls], 8), %[b]\n"
        "cmpq (%[b]), %[p]\n"
        "je %l[twice]\n"
        "subl $1, %c[room](%[a], %[cls], 4)\n"
        "js %l[due]\n"
        "movq %[p], 8(%[b])\n"
        "addq $8, (%[a], %[cls], 8)\n"
        "2:"
        : [a] "=&r"(a), [b] "=&r"(b)
        : [p] "r"(p), HAK_SEQUENCE_INPUTS
        : "memory", "cc"
        : due, twice);
    return true;
due:
    return false;
twice:
    hak_cache_fail_twice(p);
}

/* Pops up to n blocks, the one in the last slot first. */
HAK_INLINE uint32_t hak_rseq_pop_some(unsigned cls, void **blocks, uint64_t n)
{
    void *a, *b, *p;
    uint64_t i;
    uint32_t tries = HAK_RSEQ_TRIES;
    __asm__ volatile(HAK_SEQUENCE_BEGIN_SOME
                     "movq (%[a], %[cls], 8), %[b]\n"
                     "xorl %k[i], %k[i]\n"
                     "5: movq (%[b]), %[p]\n"
                     "testq %[p], %[p]\n"
                     "jz 6f\n"
                     "movq %[p], (%[blocks], %[i], 8)\n"
                     "subq $8, %[b]\n"
                     "incq %[i]\n"
                     "cmpq %[n], %[i]\n"
                     "jb 5b\n"
                     "6: movq %[b], (%[a], %[cls], 8)\n"
                     "2:"
                     : [p] "=&r"(p), [a] "=&r"(a), [b] "=&r"(b), [i] "=&r"(i), [tries] "+r"(tries)
                     : [blocks] "r"(blocks), [n] "r"(n), HAK_SEQUENCE_INPUTS
                     : "memory", "cc");
    return (uint32_t)i;
}

/* Pushes as many of n blocks as the array has slots for; returns how many. The last one of them is popped first. Gives
 * the array room for up to `most` frees. */
HAK_INLINE uint32_t hak_rseq_push_some(unsigned cls, void *const *blocks, uint64_t n, uint64_t most)
{
    void *a, *b, *p;
    uint64_t i;
    uint32_t tries = HAK_RSEQ_TRIES;
    __asm__ volatile(HAK_SEQUENCE_BEGIN_SOME
                     "movq (%[a], %[cls], 8), %[b]\n"
                     "xorl %k[i], %k[i]\n"
                     "5: cmpq %[n], %[i]\n"
                     "jae 6f\n"
                     "cmpq %c[end](%[a], %[cls], 8), %[b]\n"
                     "je 6f\n"
                     "movq (%[blocks], %[i], 8), %[p]\n"
                     "addq $8, %[b]\n"
                     "movq %[p], (%[b])\n"
                     "incq %[i]\n"
                     "jmp 5b\n"
                     "6: movq %c[end](%[a], %[cls], 8), %[p]\n"
                     "subq %[b], %[p]\n"
                     "shrq $3, %[p]\n"
                     "cmpq %[most], %[p]\n"
                     "cmovaq %[most], %[p]\n"
                     "movl %k[p], %c[room](%[a], %[cls], 4)\n" /* until `top` moves, less room than there is */
                     "movq %[b], (%[a], %[cls], 8)\n"
                     "2:"
                     : [p] "=&r"(p), [a] "=&r"(a), [b] "=&r"(b), [i] "=&r"(i), [tries] "+r"(tries)
                     : [blocks] "r"(blocks), [n] "r"(n), [most] "r"(most), HAK_SEQUENCE_INPUTS
                     : "memory", "cc");
    return (uint32_t)i;
}

#endif
