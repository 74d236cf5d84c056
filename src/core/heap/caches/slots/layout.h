/* SPDX-License-Identifier: MIT
 * What a heap has for arrays of pointers (slots.h). */
#ifndef HAK_CACHES_SLOTS_LAYOUT_H
#define HAK_CACHES_SLOTS_LAYOUT_H

#define HAK_SLOTS_LG_MAX 13u /* of the longest array, which holds the largest capacity that a setting can ask for */

#define HAK_HEAP_SLOTS_FIELDS                                                                           \
    void **spare_slots[HAK_SLOTS_LG_MAX + 1]; /* outgrown, by log2 of their length; linked by slot 0 */ \
    struct hak_slots_region *regions;         /* from which slots are cut, the newest first, */         \
    uint32_t first_region_bytes;              /* and the length of the oldest */                        \
    uint32_t slots_refused;                   /* requests still to be refused at once */

typedef void **hak_remote_blocks; /* NULL: no array yet */

#endif
