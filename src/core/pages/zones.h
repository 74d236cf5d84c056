/* SPDX-License-Identifier: MIT
 * The zones of the address space, and two tables with an entry for each 64 KiB page of them: slab descriptors, and the
 * page tags that every free reads. A plan, made once, says how far each may grow. Planned addresses cost nothing and
 * are not reserved; a zone is mapped from its start, and no mapping moves. Where a limit on the address space was tight
 * at start (os/limit.h), pages are mapped only when blocks are carved from them, and unmapped where they would
 * otherwise be purged. Superslabs are handed out by space.c, under hak_space_lock. */
#ifndef HAK_ZONES_H
#define HAK_ZONES_H

#include "core/base/lock.h"
#include "core/os/os.h"
#include "page_map.h"
#include "tags.h"

#define HAK_PLAN_MAX ((size_t)1 << 40) /* bytes */
#define HAK_SUPERSLAB ((size_t)1 << HAK_SUPERSLAB_LG)
#define HAK_SUPERSLAB_PAGES (HAK_SUPERSLAB / HAK_PAGE)
#define HAK_GRANULE_LG 13 /* pages whose descriptors are mapped together: 512 MiB of the plan */
#define HAK_GRANULE ((size_t)1 << HAK_GRANULE_LG)
#define HAK_ZONES_MAX 16

struct hak_zone {
    char *base;
    size_t superslabs;      /* most superslabs that it may have */
    size_t top;             /* superslabs below this index were handed out at some time */
    _Atomic(size_t) mapped; /* bytes from base, never fewer; stored with release after their descriptors were mapped */
    size_t free;            /* superslabs below top that are free */
    size_t looked;          /* where a search among them ended that found nothing yet */
    uint64_t *free_bits;
    bool header;
};

extern struct hak_lock hak_space_lock;
extern HAK_HIDDEN struct hak_zone hak_zones[HAK_ZONES_MAX];
extern HAK_HIDDEN _Atomic(unsigned) hak_zone_count;   /* published after the zone is filled in */
extern HAK_HIDDEN _Atomic(size_t) hak_zones_unmapped; /* bytes of zones that are not mapped */

HAK_INLINE size_t hak_zone_mapped(const struct hak_zone *z)
{
    return HAK_LOAD_ACQUIRE(&z->mapped);
}

/* The bytes of a 64 KiB page that are mapped, from its start. */
HAK_INLINE size_t hak_page_mapped(const char *page)
{
    return HAK_PAGE - hak_page_at(page)->unmapped * HAK_SYSTEM_PAGE;
}

/* Makes the plan and maps the first part of its tables; -ENOMEM if the kernel refuses. */
int hak_space_init(void);
/* The zone whose mapped part an address lies in; NULL if there is none. */
struct hak_zone *hak_zone_of(const void *p);
/* Maps at least the first `end` bytes of a zone. */
int hak_zone_grow(struct hak_zone *z, size_t end);
/* The program has mapped something where the zone would have grown: the rest of the zone is planned elsewhere, where
 * its pages have the same indexes in the tables. Blocks with headers must lie in one range, so their zone just ends. */
void hak_zone_evade(struct hak_zone *z);

/* Maps the unmapped parts of pages that the caller owns. */
int hak_space_open(const char *base, size_t size);
/* Unmaps unused 64 KiB pages; false if the kernel refused some. */
bool hak_space_close(char *base, size_t size, enum hak_cause cause);

#endif
