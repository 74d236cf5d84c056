/* SPDX-License-Identifier: MIT
 * HAKMEM_THP=auto: which large mappings get huge pages. They get them if the program touched all of an earlier one. A
 * sample shows this: the first 2 MiB of an earlier mapping of the same kind, which keep small pages; when the next
 * mapping is made, the kernel is asked which of them are resident. The assumption is that a program uses blocks of
 * about the same length alike. */
#ifndef LARGE_HUGE_H
#define LARGE_HUGE_H

#include "core/plugin.h"

/* superslabs, by the block for which they were mapped; direct mappings; old pages that the kernel cleared for calloc */
enum huge_kind { HUGE_SHORT, HUGE_LONG, HUGE_DIRECT, HUGE_ZEROED, HUGE_KINDS };

#define HUGE_HEAD (2 * HAK_MIB)
#define HUGE_EVIDENCE_MIN (HAK_MIB / 2)          /* of a smaller sample */
#define HUGE_LONG_PAGES (4 * HAK_MIB / HAK_PAGE) /* a longer block is a HUGE_LONG one */

/* Whether a mapping of this size may get huge pages: in a small program, one would serve a single block. */
bool hak_huge_matters(size_t size);
/* The first bytes of an earlier mapping, up to HUGE_HEAD; the program was given `given` of them. */
struct huge_sample {
    char *head;
    size_t size, given;
};
void hak_huge_look(enum huge_kind kind, struct huge_sample sample);
/* Whether the program touched most of the last sample, or not; neither: none was seen. */
bool hak_huge_is_dense(enum huge_kind kind);
bool hak_huge_is_sparse(enum huge_kind kind);
/* Advises a new mapping of the kind, of a size that matters; its first bytes keep small pages, as the next sample. */
void hak_huge_advise(enum huge_kind kind, void *base, size_t size, size_t head);

#endif
