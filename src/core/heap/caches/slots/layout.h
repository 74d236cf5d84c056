/* SPDX-License-Identifier: MIT
 * What a heap has for arrays of pointers (slots.h). */
#ifndef HAK_CACHES_SLOTS_LAYOUT_H
#define HAK_CACHES_SLOTS_LAYOUT_H

#define HAK_SLOTS_LG_MAX 13u /* log2 of the longest array, which holds the largest capacity that a setting allows */

#define HAK_HEAP_SLOTS_FIELDS                                                                                    \
    void **spare_slots[HAK_SLOTS_LG_MAX + 1]; /* outgrown arrays, by log2 of their length; slot 0 is the link */ \
    struct hak_slots_region *regions;         /* regions from which slots are cut, the newest first */           \
    uint32_t first_region_bytes;              /* the length of the oldest region */                              \
    uint32_t slots_refused;                   /* requests still to be refused at once */

typedef void **hak_remote_blocks; /* NULL: there is no array yet */

#endif
