/* SPDX-License-Identifier: MIT
 * What a heap has for arrays of pointers (slots.h). */
#ifndef HAK_CACHES_SLOTS_LAYOUT_H
#define HAK_CACHES_SLOTS_LAYOUT_H

#define HAK_SLOTS_LG_MAX 13u /* of an array; holds the largest capacity that a setting can ask for */

#define HAK_HEAP_SLOTS_FIELDS                                                                                   \
    void **spare_slots[HAK_SLOTS_LG_MAX + 1]; /* outgrown, by log2 of their number; linked through the first */ \
    struct hak_slots_region *regions;         /* what slots are cut from, the last one first, */                \
    uint32_t first_region_bytes;              /* and the length of the oldest */                                \
    uint32_t slots_refused;                   /* requests that are refused at once */

typedef void **hak_remote_blocks; /* NULL: no array yet */

#endif
