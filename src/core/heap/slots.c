/* SPDX-License-Identifier: MIT
 * A descriptor keeps its first region, which is enough for a thread that does little; further ones serve any thread
 * again. See slots.h. */
#include "slots.h"

#include <string.h>
#include <sys/mman.h>

#include "core/os/meta.h"
#include "core/os/os.h"

#define SLOTS_LG_MIN 2u
#define FIRST_BYTES (16 * HAK_KIB)
#define MORE_BYTES (sizeof(void *) << (HAK_SLOTS_LG_MAX + 1)) /* any array fits */

#if HAK_CACHE_SLOTS
struct hak_slots_region {
    struct hak_slots_region *next; /* an older one of the thread; NULL: this is the first one */
    size_t used;                   /* bytes behind this; 0 when its pages are new */
    void *slots[];
};

unsigned hak_slots_lg(uint32_t pointers)
{
    unsigned lg = SLOTS_LG_MIN;
    while (lg < HAK_SLOTS_LG_MAX && 1u << lg < pointers)
        lg++;
    return lg;
}

static size_t region_bytes(const struct hak_slots_region *r)
{
    return hak_align_up(r->next ? MORE_BYTES : FIRST_BYTES, hak_os_page_size());
}

static bool add_region(struct hak_thread *t)
{
    struct hak_slots_region *r = hak_meta_alloc_pages(t->regions ? MORE_BYTES : FIRST_BYTES);
    if (!r)
        return false;
    r->next = t->regions;
    r->used = 0;
    t->regions = r;
    return true;
}

static bool fits(const struct hak_slots_region *r, size_t bytes)
{
    return r && sizeof *r + r->used + bytes <= region_bytes(r);
}

static void **cut(struct hak_thread *t, size_t bytes)
{
    while (!fits(t->regions, bytes))
        if (!add_region(t))
            return NULL;
    struct hak_slots_region *r = t->regions;
    void **slots = r->slots + r->used / sizeof *slots;
    r->used += bytes;
    return slots;
}

void **hak_slots_get(struct hak_thread *t, unsigned lg)
{
    void **slots = t->spare_slots[lg];
    if (!slots)
        return cut(t, sizeof *slots << lg);
    t->spare_slots[lg] = slots[0];
    return slots;
}

void hak_slots_put(struct hak_thread *t, void **slots, unsigned lg)
{
    slots[0] = t->spare_slots[lg];
    t->spare_slots[lg] = slots;
}

static bool release(struct hak_slots_region *r)
{
    return hak_os_advise(r, region_bytes(r), MADV_DONTNEED, HAK_CAUSE_metadata) == 0;
}

void hak_slots_release(struct hak_thread *t)
{
    struct hak_slots_region *r = t->regions;
    while (r && r->next) {
        t->regions = r->next;
        release(r);
        hak_meta_free_pages(r, MORE_BYTES);
        r = t->regions;
    }
    if (r && !release(r))
        r->used = 0;
    memset(t->spare_slots, 0, sizeof t->spare_slots);
}
#endif
