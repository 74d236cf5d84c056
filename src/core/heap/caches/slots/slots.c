/* SPDX-License-Identifier: MIT
 * A heap keeps its first region, which is enough for a thread that does little; further ones serve any thread again.
 * Without memory for slots, every call takes a slow path; so not every call asks the kernel again. See slots.h. */
#include "slots.h"

#include <sys/mman.h>

#include "core/base/text.h"
#include "core/os/meta.h"
#include "core/os/os.h"

#define SLOTS_LG_MIN 2u
#define FIRST_BYTES (16 * HAK_KIB)
#define MORE_BYTES (32 * HAK_KIB)
#define REFUSED 64u /* requests that fail without a system call after the kernel has refused one */

void *const hak_cache_no_slots[1] = {NULL};

struct hak_slots_region {
    /* the thread's next older region; NULL: this is the first one, and `bytes` is not set */
    struct hak_slots_region *next;
    size_t bytes;
    size_t used; /* bytes behind this header; 0 while its pages are new */
    _Alignas(32) void *slots[];
};

unsigned hak_slots_lg(uint32_t pointers)
{
    unsigned lg = 32 - (unsigned)__builtin_clz((hak_max(pointers, 1) - 1) | ((1u << SLOTS_LG_MIN) - 1));
    return (unsigned)hak_min(lg, HAK_SLOTS_LG_MAX);
}

static size_t region_bytes(const struct hak_heap *heap, const struct hak_slots_region *r)
{
    return r->next ? r->bytes : heap->own.first_bytes;
}

static bool fits(const struct hak_heap *heap, size_t bytes)
{
    const struct hak_slots_region *r = heap->own.regions;
    return r && sizeof *r + r->used + bytes <= region_bytes(heap, r);
}

static bool add_region(struct hak_heap *heap, size_t bytes)
{
    bytes = hak_align_up(bytes, hak_os_page_size());
    struct hak_slots_region *r = hak_meta_alloc_pages(bytes);
    if (!r)
        return false;
    if (!heap->own.regions)
        heap->own.first_bytes = (uint32_t)bytes;
    *r = (struct hak_slots_region){.next = heap->own.regions, .bytes = bytes};
    heap->own.regions = r;
    return true;
}

/* Maps a new region; if the kernel refuses that, one no larger than the array needs. */
static bool make_region_room(struct hak_heap *heap, size_t bytes)
{
    size_t least = sizeof *heap->own.regions + bytes, most = heap->own.regions ? MORE_BYTES : FIRST_BYTES;
    if (heap->own.refused) {
        heap->own.refused--;
        return false;
    }
    if (add_region(heap, hak_max(least, most)) || add_region(heap, least))
        return true;
    heap->own.refused = REFUSED;
    return false;
}

static void **cut_slots(struct hak_heap *heap, size_t bytes)
{
    if (!fits(heap, bytes) && !make_region_room(heap, bytes))
        return NULL;
    struct hak_slots_region *r = heap->own.regions;
    void **slots = r->slots + r->used / sizeof *slots;
    r->used += bytes;
    return slots;
}

void **hak_slots_get(struct hak_heap *heap, unsigned lg)
{
    void **slots = heap->own.spare[lg];
    if (!slots)
        return cut_slots(heap, sizeof *slots << lg);
    heap->own.spare[lg] = slots[0];
    return slots;
}

void hak_slots_put(struct hak_heap *heap, void **slots, unsigned lg)
{
    slots[0] = heap->own.spare[lg];
    heap->own.spare[lg] = slots;
}

static bool release_region(struct hak_slots_region *r, size_t bytes)
{
    return hak_os_advise(r, bytes, MADV_DONTNEED, HAK_CAUSE_metadata) == 0;
}

void hak_slots_release(struct hak_heap *heap)
{
    struct hak_slots_region *r = heap->own.regions;
    while (r && r->next) {
        size_t bytes = r->bytes;
        heap->own.regions = r->next;
        release_region(r, bytes);
        hak_meta_free_pages(r, bytes);
        r = heap->own.regions;
    }
    if (r && !release_region(r, heap->own.first_bytes))
        r->used = 0;
    hak_fill(heap->own.spare, 0, sizeof heap->own.spare);
}
