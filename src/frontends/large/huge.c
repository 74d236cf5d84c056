/* SPDX-License-Identifier: MIT
 * See huge.h. Before there is evidence, the kernel's setting decides. Any thread may call these functions without a
 * lock: two threads that sample at once may store the older result last, which does no harm. */
#include "huge.h"

#include <sys/mman.h>

#include "core/os/huge_page.h"
#include "core/plugin.h"

#define HUGE_FROM (8 * HAK_MIB)

enum use { UNKNOWN, SPARSE, DENSE };

static _Atomic(enum use) seen[HUGE_KINDS];

bool hak_huge_matters(size_t size)
{
    return size >= HUGE_FROM && hak_options.thp == HAK_THP_AUTO;
}

/* A sample that the program has not touched at all is no evidence. */
void hak_huge_look(enum huge_kind kind, struct huge_sample sample)
{
    if (sample.given < HUGE_EVIDENCE_MIN)
        return;
    int resident = hak_os_resident(sample.head, sample.size, HAK_CAUSE_huge_page);
    if (resident > 0)
        HAK_STORE_RELAXED(&seen[kind], hak_huge_page_is_dense((size_t)resident, sample.given) ? DENSE : SPARSE);
}

bool hak_huge_is_dense(enum huge_kind kind)
{
    return HAK_LOAD_RELAXED(&seen[kind]) == DENSE;
}

bool hak_huge_is_sparse(enum huge_kind kind)
{
    return HAK_LOAD_RELAXED(&seen[kind]) == SPARSE;
}

void hak_huge_advise(enum huge_kind kind, void *base, size_t size, size_t head)
{
    enum use use = HAK_LOAD_RELAXED(&seen[kind]);
    if (use == UNKNOWN)
        return;
    if (use == SPARSE)
        head = size;
    if (head)
        hak_os_advise(base, head, MADV_NOHUGEPAGE, HAK_CAUSE_huge_page);
    if (head < size)
        hak_huge_page_advise((char *)base + head, size - head);
}
