/* SPDX-License-Identifier: MIT
 * In place of x86_64.h where no sequences are written, or for the thread sanitizer, which does not see them. */
#ifndef HAK_CPU_NONE_H
#define HAK_CPU_NONE_H

HAK_INLINE void *hak_rseq_pop(unsigned cls)
{
    (void)cls;
    return NULL;
}

HAK_INLINE bool hak_rseq_push(uint64_t cls, void *p)
{
    (void)cls, (void)p;
    return false;
}

HAK_INLINE uint32_t hak_rseq_pop_some(unsigned cls, void **blocks, uint64_t n)
{
    (void)cls, (void)blocks, (void)n;
    return 0;
}

HAK_INLINE uint32_t hak_rseq_push_some(unsigned cls, void *const *blocks, uint64_t n, uint64_t most)
{
    (void)cls, (void)blocks, (void)n, (void)most;
    return 0;
}

#endif
