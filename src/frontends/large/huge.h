/* SPDX-License-Identifier: MIT
 * HAKMEM_THP=auto: which large mappings get huge pages. Those of a program that touches all of what it was given
 * before, as the kernel tells of a sample: 2 MiB at the start of an earlier mapping of the kind, which keep small
 * pages and are looked at when the next one is made. Blocks of about the same length are taken to be used alike. */
#ifndef LARGE_HUGE_H
#define LARGE_HUGE_H

#include "core/plugin.h"

enum huge_kind { HUGE_SHORT, HUGE_LONG, HUGE_DIRECT, HUGE_KINDS }; /* superslabs by the block they were mapped for; direct mappings */

#define HUGE_HEAD (2 * HAK_MIB)
#define HUGE_LONG_PAGES (4 * HAK_MIB / HAK_PAGE) /* a longer block is a HUGE_LONG one */

/* Only such a size may get huge pages: in a small program one would be there for a single block. */
bool hak_huge_matters(size_t size);
/* The first bytes of an earlier mapping, up to HUGE_HEAD; `given` of them the program was given. */
struct huge_sample {
    char *head;
    size_t size, given;
};
void hak_huge_look(enum huge_kind kind, struct huge_sample sample);
/* A fresh mapping of the kind, of a size that matters; its first bytes keep small pages, as the next sample. */
void hak_huge_advise(enum huge_kind kind, void *base, size_t size, size_t head);

#endif
