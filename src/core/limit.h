/* SPDX-License-Identifier: MIT
 * HAKMEM_LIMIT_MB: a soft limit on the bytes that hakmem holds. Held are pages that a slab, a span or a direct
 * mapping has, touched or not, and free pages with old content; whoever supplies pages tells it here. A request
 * that would pass the limit first gives back everything idle, and is served then: nothing fails by the limit. */
#ifndef HAK_LIMIT_H
#define HAK_LIMIT_H

#include "stats.h"

/* Clean pages were handed out, and pages went back to the kernel or were never touched. Any lock may be held. */
void hak_limit_take(size_t bytes);
void hak_limit_give(size_t bytes);
/* Before pages for a request are asked for; no lock of a part is held. */
void hak_limit_make_room(size_t bytes);
size_t hak_limit_held(void);
void hak_limit_stats(struct hak_stats_writer *w);

#endif
