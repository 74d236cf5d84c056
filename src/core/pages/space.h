/* SPDX-License-Identifier: MIT
 * The address space: a plan of up to 2^40 bytes of addresses, handed out as superslabs, and two tables with an entry
 * for each 64 KiB page of it: slab descriptors, and the page tags that every free reads. Planned addresses cost nothing
 * and are not reserved; they are mapped when the heap grows. A mapping never moves. Only free superslabs are unmapped,
 * by a trim under a limit on the address space: no tag names them, and the kernel places no mapping at planned
 * addresses unless a program asks for them. Where that limit was tight at start (os/limit.h), pages are mapped only
 * when blocks are carved from them, and unmapped where they would otherwise be purged. */
#ifndef HAK_SPACE_H
#define HAK_SPACE_H

#include "core/os/os.h"
#include "page_map.h"
#include "slab.h"
#include "tags.h"

#define HAK_PLAN_MAX ((size_t)1 << 40) /* bytes */
#define HAK_SUPERSLAB ((size_t)1 << HAK_SUPERSLAB_LG)
#define HAK_SUPERSLAB_PAGES (HAK_SUPERSLAB / HAK_PAGE)

/* Makes the plan and maps the first part of its tables; -ENOMEM if the kernel refuses. */
int hak_space_init(void);
/* Contiguous superslabs, aligned to `align` superslabs (a power of two), readable and writable: at least `least`, and
 * at most *superslabs, which becomes their number. NULL if there are none, and then nothing has changed. Pages that
 * were not handed out before read as zero. `header`: from the zone for blocks with a header byte, which is one range;
 * if that is full, callers use slabs without headers. */
void *hak_space_alloc_most(size_t *superslabs, size_t least, size_t align, bool header);
HAK_INLINE void *hak_space_alloc(size_t superslabs, size_t align, bool header)
{
    return hak_space_alloc_most(&superslabs, superslabs, align, header);
}
/* Takes back superslabs whose pages were purged. Pages that were purged lazily are now purged eagerly, for `cause`; if
 * the kernel refuses, the superslabs are never used again. */
void hak_space_free(void *base, size_t superslabs, enum hak_cause cause);
/* Whether p lies in a zone. If true, the page and its descriptor are visible as mapped; hak_space_page gives no such
 * ordering. */
bool hak_space_contains(const void *p);

/* Maps the unmapped parts of pages that the caller owns. */
int hak_space_open(const char *base, size_t size);
/* Unmaps unused 64 KiB pages; false if the kernel refused some. */
bool hak_space_close(char *base, size_t size, enum hak_cause cause);
/* Unmaps free superslabs, if the address space is limited. */
void hak_space_trim(void);

/* The descriptor of the 64 KiB page of an address that lies in a zone. */
HAK_INLINE struct hak_slab *hak_page_at(const void *p)
{
    return &hak_page_map.descriptors[(((uintptr_t)p >> HAK_PAGE_LG) + hak_page_map.rotation) & hak_page_map.mask];
}

/* The same for any address; NULL outside the mapped part of the zones. */
struct hak_slab *hak_space_page(const void *p);

/* The descriptor of the span that begins at p; NULL if none does. */
HAK_INLINE struct hak_slab *hak_space_span(const void *p)
{
    bool in_first = (uintptr_t)p - hak_page_map.base < HAK_LOAD_RELAXED(&hak_page_map.size);
    struct hak_slab *page = HAK_LIKELY(in_first) ? hak_page_at(p) : hak_space_page(p);
    return page && page->base == p && hak_slab_state(page) == HAK_SLAB_SPAN ? page : NULL;
}

/* The same where it lies in the first zone, and its owner has noted nothing in its word. */
HAK_INLINE struct hak_slab *hak_space_span_usual(const void *p)
{
    if (HAK_UNLIKELY((uintptr_t)p - hak_page_map.base >= HAK_LOAD_RELAXED(&hak_page_map.size)))
        return NULL;
    struct hak_slab *page = hak_page_at(p);
    return page->base == p && HAK_LOAD_ACQUIRE(&page->word) == HAK_SLAB_SPAN ? page : NULL;
}

/* The descriptor of the slab or span that an address lies in; NULL if there is none. */
struct hak_slab *hak_space_slab(const void *p);
/* The same for an address whose page has a tag. */
HAK_INLINE struct hak_slab *hak_space_slab_of_tagged(const void *p)
{
    struct hak_slab *page = hak_page_at(p);
    return page - page->head_offset;
}

/* The same, inline, for an address from a list of free blocks: it lies in a slab, unless the program overwrote the
 * link. */
HAK_INLINE struct hak_slab *hak_space_slab_of_block(const void *p)
{
    if (HAK_UNLIKELY((uintptr_t)p - hak_page_map.base >= HAK_LOAD_RELAXED(&hak_page_map.size)))
        return hak_space_slab(p);
    return hak_space_slab_of_tagged(p);
}

/* Calls `visit` for the descriptor of each 64 KiB page that was ever handed out. */
void hak_space_each_page(void (*visit)(struct hak_slab *page, void *context), void *context);
/* The same for each superslab; the caller holds no lock. */
void hak_space_each_superslab(void (*visit)(char *base));
/* How many superslabs of its zone lie before the one of p, which a zone contains. */
size_t hak_space_before(const char *p);

/* Clears the tags of ACTIVE and PARTIAL slabs among the next `most` pages, beginning at page `first`. A free of a block
 * there then takes the slow path, where the owner sets its tags again. FULL slabs have no owner to do so, and keep
 * their tags. Returns where to continue; 0 after the last page. */
size_t hak_space_untag_open(size_t first, size_t most);

struct hak_space_stats {
    size_t mapped, handed_out, zones;
};
void hak_space_stats(struct hak_space_stats *stats);

extern struct hak_lock hak_space_lock;

#endif
