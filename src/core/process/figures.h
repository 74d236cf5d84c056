/* SPDX-License-Identifier: MIT
 * Single figures of the statistics, cheap enough to read a thousand times a second: no walk over slabs or threads. */
#ifndef HAK_FIGURES_H
#define HAK_FIGURES_H

#include "core/base/words.h"

/* In the order of enum hakmem_stat (hakmem.h, which explains them). */
enum hak_figure {
    HAK_FIGURE_LIVE,
    HAK_FIGURE_BINS,
    HAK_FIGURE_SLACK,
    HAK_FIGURE_DIRTY,
    HAK_FIGURE_METADATA,
    HAK_FIGURE_RESIDENT,
    HAK_FIGURE_MAPPED,
    HAK_FIGURE_PEAK,
    HAK_FIGURE_THREADS,
    HAK_FIGURE_LIMIT,
    HAK_NFIGURES
};

/* 0, -EINVAL, or -ENOSYS: the kernel does not tell. */
int hak_figure(unsigned figure, uint64_t *value);
/* Usable bytes in free blocks of the calling thread's bins and of those of CPUs. */
size_t hak_figure_bins(void);

#endif
