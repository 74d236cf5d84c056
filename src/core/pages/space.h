/* SPDX-License-Identifier: MIT
 * The address space: a plan of up to 2^40 bytes of addresses, handed out as superslabs, and two tables with an
 * entry for each 64 KiB page of it: slab descriptors, and the page tags that every free reads. Planned addresses cost
 * nothing and are nobody's; they are mapped when the heap grows. Nothing that was mapped is ever moved, and only free
 * superslabs are unmapped, at a trim under a limit on addresses: no tag names them, and the kernel gives planned
 * addresses to nobody who does not ask for them.
 * Where that limit was tight at the start (os/limit.h), pages are mapped no sooner than blocks of them are cut, and
 * unmapped where others are purged. */
#ifndef HAK_SPACE_H
#define HAK_SPACE_H

#include "core/os/os.h"
#include "page_map.h"
#include "slab.h"
#include "tags.h"

#define HAK_SUPERSLAB ((size_t)1 << HAK_SUPERSLAB_LG)
#define HAK_SUPERSLAB_PAGES (HAK_SUPERSLAB / HAK_PAGE)

/* Makes the plan and maps the first part of its tables; -ENOMEM where that cannot be had. */
int hak_space_init(void);
/* Contiguous superslabs, aligned to `align` superslabs (a power of two), to read and write; NULL when there are none,
 * and nothing has changed then. Pages that were not handed out before read as zero. `header`: from the zone of header
 * blocks, which is one range; without room there, callers take a slab whose blocks have none. */
void *hak_space_alloc(size_t superslabs, size_t align, bool header);
/* Takes superslabs back whose pages have been given back to the kernel; those that went lazily are made to go now, for
 * `cause`, and never used again where the kernel refuses. */
void hak_space_free(void *base, size_t superslabs, enum hak_cause cause);
/* Who finds that it does also finds its page and descriptor mapped; hak_space_page orders nothing. */
bool hak_space_contains(const void *p);

/* Maps what is not mapped of pages that the caller has. */
int hak_space_open(const char *base, size_t size);
/* Unmaps pages of 64 KiB that nobody uses; false if the kernel refused some. */
bool hak_space_close(char *base, size_t size, enum hak_cause cause);
/* Unmaps what is free, if there is a limit. */
void hak_space_trim(void);

/* The descriptor of the 64 KiB page of an address that lies in a zone. */
HAK_INLINE struct hak_slab *hak_page_at(const void *p)
{
    return &hak_page_map.descriptors[(((uintptr_t)p >> HAK_PAGE_LG) + hak_page_map.rotation) & hak_page_map.mask];
}

/* The same for any address; NULL outside of what is mapped of the zones. */
struct hak_slab *hak_space_page(const void *p);
/* The descriptor of the slab or span that an address lies in; NULL if there is none. */
struct hak_slab *hak_space_slab(const void *p);
/* The same for an address whose page has a tag. */
HAK_INLINE struct hak_slab *hak_space_slab_of_tagged(const void *p)
{
    struct hak_slab *page = hak_page_at(p);
    return page - page->head_offset;
}

/* The same for an address that a list of free blocks holds, inline; such a one lies in a slab, or was overwritten. */
HAK_INLINE struct hak_slab *hak_space_slab_of_block(const void *p)
{
    if (HAK_UNLIKELY((uintptr_t)p - hak_page_map.base >= HAK_LOAD_RELAXED(&hak_page_map.size)))
        return hak_space_slab(p);
    return hak_space_slab_of_tagged(p);
}

/* Calls `visit` for the descriptor of each 64 KiB page that was ever handed out. */
void hak_space_each_page(void (*visit)(struct hak_slab *page, void *context), void *context);

/* Clears the tags of ACTIVE and PARTIAL slabs among so many pages, of whole superslabs, from the first one on. Who
 * frees a block there takes the slow path, and sets its own again; FULL ones have no owner who would, and keep theirs.
 * Returns where the next pages begin; 0 after the last one. */
size_t hak_space_untag_open(size_t first, size_t most);

struct hak_space_stats {
    size_t mapped, handed_out, zones;
};
void hak_space_stats(struct hak_space_stats *stats);

extern struct hak_lock hak_space_lock;

#endif
