/* SPDX-License-Identifier: MIT
 * A hash table of the direct mappings, which lie outside of the plan, by the address of the block; and of spares, by
 * their own (spares.h). It has a lock of its own. */
#ifndef LARGE_REGISTRY_H
#define LARGE_REGISTRY_H

#include "core/plugin.h"

struct mapping {
    char *block;
    void *base; /* of the mapping; below the block if alignment required it */
    size_t size;
    size_t usable; /* less than mapped if it is aligned, or has grown */
    bool fenced;   /* core/os/fence.h */
    bool clean;    /* a spare's pages read as zero */
    struct mapping *next, *next_spare, *prev_spare;
};

/* Adds an entry; false without memory for it. */
bool hak_registry_add(struct mapping m);
/* Detaches an entry, for the caller to change; NULL if there is none. Attaching it again cannot fail. */
struct mapping *hak_registry_detach(const void *block);
void hak_registry_attach(struct mapping *entry);
/* The mapping of a detached entry is gone. */
void hak_registry_forget(struct mapping *entry);
/* A detached mapping becomes a spare. */
void hak_registry_add_spare(struct mapping *entry);
/* Detaches a spare of at least `size` bytes, which reads as zero if `zero`; NULL: none fits. */
struct mapping *hak_registry_spare(size_t size, bool zero);
/* Detaches the spare that begins there, or NULL. */
struct mapping *hak_registry_spare_at(const void *base);
/* Bytes of the addresses of all spares. */
size_t hak_registry_spare_bytes(void);
/* Usable bytes of a block; 0 if the address has no entry. */
size_t hak_registry_usable(const void *block);
/* Usable bytes of all mappings, and their number. */
size_t hak_registry_bytes(size_t *count);

#endif
