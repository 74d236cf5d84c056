/* SPDX-License-Identifier: MIT
 * A bump allocator from both ends of a chunk: structures at its beginning, whole pages at its end. The first chunk
 * comes with the page tables, so that a small program needs no mapping for it. See meta.h. */
#include "meta.h"

#include "core/base/layout.h"
#include "core/os/fence.h"
#include "limit.h"

#define CHUNK (256 * HAK_KIB)
#define CHUNK_TIGHT (32 * HAK_KIB)
#define LOOKED_AT 8u /* spare pages */
#define NOTED 64u

struct pages {
    struct pages *next;
    size_t size;
};

/* The mappings besides the first chunk, for tools that inspect the process. Usually the kernel places a mapping
 * directly below the last one, and both are recorded as one. */
static struct noted {
    char *base;
    size_t size;
} noted[NOTED];
static unsigned noted_count;
static struct pages *spare;
static char *next_byte;
static size_t room, total;
HAK_LOCK(hak_meta_lock, HAK_RANK_META);

static void note(char *base, size_t size)
{
    HAK_SHOW_VARIABLE(noted);
    HAK_SHOW_VARIABLE(noted_count);
    struct noted *last = noted_count ? &noted[noted_count - 1] : NULL;
    if (last && base + size == last->base)
        *last = (struct noted){base, last->size + size};
    else if (noted_count < NOTED)
        noted[noted_count++] = (struct noted){base, size};
}

/* Abandons the rest of the old chunk; chunks are large compared to requests. */
static bool new_chunk(size_t size)
{
    void *p;
    bool fenced;
    if (hak_fence_map(&p, size, &fenced, HAK_CAUSE_metadata))
        return false;
    note(p, size);
    next_byte = p;
    room = size;
    return true;
}

void hak_meta_give(void *chunk, size_t size)
{
    next_byte = chunk;
    room = size;
}

static bool chunk_has_room(size_t size)
{
    return size <= room || new_chunk(hak_align_up(size, hak_limit_is_tight ? CHUNK_TIGHT : CHUNK)) ||
           new_chunk(hak_align_up(size, HAK_SYSTEM_PAGE));
}

void *hak_meta_alloc(size_t size)
{
    void *p = NULL;
    size = hak_align_up(size, HAK_CACHELINE);
    hak_lock_acquire(&hak_meta_lock);
    if (chunk_has_room(size)) {
        p = next_byte;
        next_byte += size;
        room -= size;
        total += size;
    }
    hak_lock_release(&hak_meta_lock);
    return p;
}

/* Searches the first few; nearly all have one size. */
static void *take_spare(size_t size)
{
    struct pages **link = &spare;
    for (unsigned i = 0; i < LOOKED_AT && *link; i++, link = &(*link)->next)
        if ((*link)->size == size) {
            struct pages *p = *link;
            *link = p->next;
            return p;
        }
    return NULL;
}

static void *cut_pages(size_t size)
{
    size_t beyond = (uintptr_t)(next_byte + room) % hak_os_page_size(); /* only in the chunk given at start */
    room -= hak_min(room, beyond);
    if (!chunk_has_room(size))
        return NULL;
    room -= size;
    total += size;
    return next_byte + room;
}

void *hak_meta_alloc_pages(size_t size)
{
    size = hak_align_up(size, hak_os_page_size());
    hak_lock_acquire(&hak_meta_lock);
    void *p = take_spare(size);
    if (!p)
        p = cut_pages(size);
    hak_lock_release(&hak_meta_lock);
    return p;
}

void hak_meta_free_pages(void *pages, size_t size)
{
    struct pages *p = pages;
    hak_lock_acquire(&hak_meta_lock);
    *p = (struct pages){spare, hak_align_up(size, hak_os_page_size())};
    spare = p;
    hak_lock_release(&hak_meta_lock);
}

size_t hak_meta_bytes(void)
{
    hak_lock_acquire(&hak_meta_lock);
    size_t bytes = total;
    hak_lock_release(&hak_meta_lock);
    return bytes;
}
