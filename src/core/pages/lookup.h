/* SPDX-License-Identifier: MIT
 * From an address to its page, slab or span, and walks over all pages. */
#ifndef HAK_LOOKUP_H
#define HAK_LOOKUP_H

#include "slab.h"
#include "zones.h"

/* Whether p lies in a zone. If true, the page and its descriptor are visible as mapped; hak_space_page gives no such
 * ordering. */
bool hak_space_contains(const void *p);

/* The descriptor of the 64 KiB page of any address; NULL outside the mapped part of the zones. */
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

#endif
