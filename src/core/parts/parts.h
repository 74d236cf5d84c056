/* SPDX-License-Identifier: MIT
 * The table of parts: which frontend serves a class, which backend supplies pages, how pages go back. Filled once by
 * process/start.c, then read-only memory; consulted on slow paths only. */
#ifndef HAK_PARTS_H
#define HAK_PARTS_H

#include "core/base/sealed.h"
#include "core/plugin.h"

struct hak_part_table {
    const struct hak_frontend *by_class[HAK_NCLASSES];
    const struct hak_frontend *large; /* the one that hands out spans */
    const struct hak_backend *backend;
    const struct hak_release *release;
    uint16_t capacity[HAK_NCLASSES]; /* blocks that a bin keeps */
    uint16_t batch[HAK_NCLASSES];    /* blocks of a refill, at most */
};
_Static_assert(HAK_SEALED_PARTS + sizeof(struct hak_part_table) <= HAK_SEALED_SIZE, "the sealed pages hold both");

#define hak_parts (*(struct hak_part_table *)(hak_sealed.bytes + HAK_SEALED_PARTS))

/* Fills the table from the settings. */
void hak_parts_choose(void);
/* Calls each one's init. False without memory. */
bool hak_parts_init(void);

/* A slab without a block outstanding, on no list: to EMPTY, and to its frontend. */
void hak_parts_release_slab(struct hak_slab *slab);
/* The same for a PARTIAL one that a backend has taken off its list. */
void hak_parts_reap_slab(struct hak_slab *slab);

/* Whether slabs of the class belong in the zone of blocks with headers. */
HAK_INLINE bool hak_parts_has_header(unsigned cls)
{
    return hak_class_has_header(cls) && hak_parts.by_class[cls]->headers;
}

/* After how long what is free is idle. */
HAK_INLINE uint64_t hak_purge_delay_ms(void)
{
    return hak_parts.release->at_once ? 0 : hak_options.purge_delay_ms;
}

#endif
