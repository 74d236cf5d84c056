/* SPDX-License-Identifier: MIT
 * A bump allocator. Its first chunk comes with the page tables, so that a small program needs no mapping for
 * it. See meta.h. */
#include "meta.h"

#include "fence.h"

#define CHUNK (256 * HAK_KIB)

static char *next;
static size_t room, total;
struct hak_lock hak_meta_lock = HAK_LOCK_INIT(HAK_RANK_META);

/* The rest of the old chunk is given up; chunks are large against what is asked for. */
static bool new_chunk(size_t size)
{
    void *p;
    bool fenced;
    if (hak_fence_map(&p, size, &fenced, HAK_CAUSE_metadata))
        return false;
    next = p;
    room = size;
    return true;
}

void hak_meta_give(void *chunk, size_t size)
{
    next = chunk;
    room = size;
}

void *hak_meta_alloc(size_t size)
{
    void *p = NULL;
    size = hak_align_up(size, HAK_CACHELINE);
    hak_lock_acquire(&hak_meta_lock);
    if (size <= room || new_chunk(hak_align_up(size, CHUNK)) || new_chunk(hak_align_up(size, HAK_SYSTEM_PAGE))) {
        p = next;
        next += size;
        room -= size;
        total += size;
    }
    hak_lock_release(&hak_meta_lock);
    return p;
}

size_t hak_meta_bytes(void)
{
    hak_lock_acquire(&hak_meta_lock);
    size_t bytes = total;
    hak_lock_release(&hak_meta_lock);
    return bytes;
}
