/* SPDX-License-Identifier: MIT
 * A hash table of the direct mappings, which lie outside of the plan, by the address of the block. It has a lock of
 * its own. */
#ifndef LARGE_REGISTRY_H
#define LARGE_REGISTRY_H

#include "core/plugin.h"

struct mapping {
    char *block;
    void *base; /* of the mapping; below the block if alignment required it */
    size_t size;
    size_t usable; /* less than mapped if it is aligned, or has grown */
    bool fenced;   /* core/os/fence.h */
    struct mapping *next;
};

/* Adds an entry; false without memory for it. */
bool hak_registry_add(struct mapping m);
/* Removes an entry; false if the address has none. */
bool hak_registry_remove(const void *block, struct mapping *out);
/* Detaches an entry, for the caller to change; NULL if there is none. Attaching it again cannot fail. */
struct mapping *hak_registry_detach(const void *block);
void hak_registry_attach(struct mapping *entry);
/* Usable bytes of a block; 0 if the address has no entry. */
size_t hak_registry_usable(const void *block);
/* Usable bytes of all mappings, and their number. */
size_t hak_registry_bytes(size_t *count);

#endif
