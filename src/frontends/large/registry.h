/* SPDX-License-Identifier: MIT
 * Direct mappings outside of the reserved range: a hash table from the address of the block. Own lock. */
#ifndef LARGE_REGISTRY_H
#define LARGE_REGISTRY_H

#include "core/plugin.h"

struct mapping {
    char *block;
    void *base; /* of the mapping; below block where alignment asked for it */
    size_t size;
    size_t usable;
    bool fenced; /* core/os/fence.h */
    struct mapping *next;
};

/* False without memory for the entry. */
bool hak_registry_add(struct mapping m);
/* Takes an entry out; false if the address is none. */
bool hak_registry_remove(const void *block, struct mapping *out);
/* The entry itself leaves the registry, for the caller to change, and comes back, which cannot fail. NULL: none. */
struct mapping *hak_registry_detach(const void *block);
void hak_registry_attach(struct mapping *entry);
bool hak_registry_find(const void *block, struct mapping *out);
/* Bytes usable in all of them, and their number. */
size_t hak_registry_bytes(size_t *count);

#endif
