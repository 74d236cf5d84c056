/* SPDX-License-Identifier: MIT
 * See lookup.h. */
#include "lookup.h"

bool hak_space_contains(const void *p)
{
    return hak_zone_of(p) != NULL;
}

struct hak_slab *hak_space_page(const void *p)
{
    bool in_first = (uintptr_t)p - hak_page_map.base < HAK_LOAD_RELAXED(&hak_page_map.size);
    return HAK_LIKELY(in_first) || hak_zone_of(p) ? hak_page_at(p) : NULL;
}

static bool lies_in(const struct hak_slab *slab, const void *p)
{
    return slab->base && (size_t)((const char *)p - slab->base) / HAK_PAGE < slab->pages;
}

/* Only the first page of a span leads to its descriptor, so this searches backwards for it. */
static HAK_COLD struct hak_slab *span_of(const char *p)
{
    struct hak_slab *page;
    for (unsigned i = 1; i < HAK_SUPERSLAB_PAGES && (page = hak_space_page(p -= HAK_PAGE)); i++)
        if (page->base)
            return lies_in(page, p + i * HAK_PAGE) ? page : NULL;
    return NULL;
}

struct hak_slab *hak_space_slab(const void *p)
{
    struct hak_slab *page = hak_space_page(p);
    if (!page)
        return NULL;
    struct hak_slab *slab = page - page->head_offset; /* without a slab, this is a former one */
    return HAK_LIKELY(lies_in(slab, p)) ? slab : span_of(p);
}

HAK_SNAPSHOT void hak_space_each_page(void (*visit)(struct hak_slab *page, void *context), void *context)
{
    unsigned n = HAK_LOAD_ACQUIRE(&hak_zone_count);
    for (unsigned i = 0; i < n; i++)
        for (size_t offset = 0; offset < hak_min(hak_zone_mapped(&hak_zones[i]), hak_zones[i].top * HAK_SUPERSLAB);
             offset += HAK_PAGE)
            visit(hak_page_at(hak_zones[i].base + offset), context);
}

void hak_space_each_superslab(void (*visit)(char *base))
{
    unsigned n = HAK_LOAD_ACQUIRE(&hak_zone_count);
    for (unsigned i = 0; i < n; i++)
        for (size_t k = 0; k < hak_min(hak_zone_mapped(&hak_zones[i]) / HAK_SUPERSLAB, hak_zones[i].top); k++)
            visit(hak_zones[i].base + k * HAK_SUPERSLAB);
}

size_t hak_space_before(const char *p)
{
    return (size_t)(p - hak_zone_of(p)->base) / HAK_SUPERSLAB;
}

size_t hak_space_untag_open(size_t first, size_t most)
{
    size_t before = 0; /* pages in the zones visited so far */
    bool open = false;
    unsigned n = HAK_LOAD_ACQUIRE(&hak_zone_count);
    for (unsigned i = 0; i < n; i++) {
        size_t pages = hak_zone_mapped(&hak_zones[i]) / HAK_PAGE;
        for (size_t page = first - hak_min(first, before); page < pages; page++) {
            const char *p = hak_zones[i].base + page * HAK_PAGE;
            if (!most--)
                return before + page;
            enum hak_slab_state state = hak_slab_state(hak_page_at(p));
            if (state != HAK_SLAB_UNUSED) /* later pages of a slab are UNUSED, so the first one's answer stands */
                open = state == HAK_SLAB_ACTIVE || state == HAK_SLAB_PARTIAL;
            if (open)
                hak_tag_clear(p);
        }
        before += pages;
    }
    return 0;
}
