/* SPDX-License-Identifier: MIT
 * Which superslabs of the zones are free, by bitmaps. See space.h. */
#include "space.h"

#include <sys/mman.h>

#include "core/base/log.h"
#include "core/base/sealed.h"
#include "core/base/text.h"
#include "core/os/fence.h"
#include "core/os/limit.h"

#define LOOKS 256u

static size_t fenced; /* superslabs that nothing can use */

static bool is_free(const struct hak_zone *z, size_t i)
{
    return i >= z->top || z->free_bits[i / 64] >> i % 64 & 1;
}

static void set_free(struct hak_zone *z, size_t i, bool free)
{
    uint64_t bit = (uint64_t)1 << i % 64;
    z->free_bits[i / 64] = free ? z->free_bits[i / 64] | bit : z->free_bits[i / 64] & ~bit;
}

static size_t aligned_index(const struct hak_zone *z, size_t i, size_t align)
{
    size_t number = ((uintptr_t)z->base >> HAK_SUPERSLAB_LG) + i;
    return i + (hak_align_up(number, align) - number);
}

/* The descriptors of a run that is cut into slabs must be contiguous: it ends where their index wraps. Runs longer than
 * a granule are looked up by their first page only. */
static size_t before_wrap(const struct hak_zone *z, size_t i, size_t n)
{
    size_t first = (size_t)(hak_page_at(z->base + i * HAK_SUPERSLAB) - hak_page_map.descriptors);
    return n <= HAK_GRANULE / HAK_SUPERSLAB_PAGES ? hak_min(n, (hak_page_map.mask + 1 - first) / HAK_SUPERSLAB_PAGES)
                                                  : n;
}

/* The lowest run of `least` free superslabs, and up to *n, from there on, in so many steps. */
static size_t find_run(const struct hak_zone *z, size_t *from, size_t *n, size_t least, size_t align, size_t steps)
{
    size_t i = aligned_index(z, *from, align);
    for (; steps && i + least <= z->superslabs; steps--) {
        if (i < z->top && i % 64 == 0 && align == 1 && !z->free_bits[i / 64]) {
            i = hak_min(i + 64, z->top);
            continue;
        }
        size_t length = 0, most = before_wrap(z, i, hak_min(*n, z->superslabs - i));
        while (length < most && is_free(z, i + length))
            length++;
        if (length >= least) {
            *n = length;
            return i;
        }
        i = aligned_index(z, i + hak_max(length + (length < most), 1), align); /* behind what is taken, or the wrap */
    }
    *from = i;
    return SIZE_MAX;
}

/* Among those that were freed, of which each call looks at some, else in the untouched rest. */
static size_t choose_run(struct hak_zone *z, size_t *n, size_t least, size_t align)
{
    size_t i = z->free ? find_run(z, &z->looked, n, least, align, LOOKS) : SIZE_MAX, top = z->top;
    if (i != SIZE_MAX || z->looked >= z->top)
        z->looked = 0;
    return i != SIZE_MAX ? i : find_run(z, &top, n, least, align, SIZE_MAX);
}

static void *take_run(struct hak_zone *z, size_t i, size_t n)
{
    for (size_t k = z->top; k < i; k++) { /* the superslabs skipped for alignment */
        set_free(z, k, true);
        z->free++;
    }
    for (size_t k = i; k < i + n && k < z->top; k++) {
        set_free(z, k, false);
        z->free--;
    }
    z->top = hak_max(z->top, i + n);
    return z->base + i * HAK_SUPERSLAB;
}

#if HAK_HARDENED
/* If a new page is resident, the process has locked its future mappings (mlockall). */
static bool is_scarce(char *base)
{
    return hak_limit() != SIZE_MAX || hak_os_resident(base, hak_os_page_size(), HAK_CAUSE_guard) > 0;
}

/* Makes a superslab permanently inaccessible, as a fence between others. */
static void fence_zone(struct hak_zone *z, size_t i)
{
    char *base = z->base + i * HAK_SUPERSLAB;
    if (!hak_fence_is_wanted() || i >= z->superslabs || !is_free(z, i) || hak_zone_grow(z, (i + 1) * HAK_SUPERSLAB) ||
        is_scarce(base) || !hak_fence_close(base, HAK_SUPERSLAB))
        return;
    take_run(z, i, 1);
    fenced++;
}
#else
static void fence_zone(struct hak_zone *z, size_t i)
{
    (void)z, (void)i;
}
#endif

static void put_run(struct hak_zone *z, size_t i, size_t n)
{
    for (size_t k = i; k < i + n; k++) {
        HAK_CHECK(!is_free(z, k));
        set_free(z, k, true);
    }
    z->free += n;
}

static void *alloc_in(struct hak_zone *z, size_t *most, size_t least, size_t align)
{
    fence_zone(z, 0);
    size_t n = *most, i = choose_run(z, &n, least, align);
    int error = i == SIZE_MAX ? -ENOMEM : hak_zone_grow(z, (i + n) * HAK_SUPERSLAB);
    if (error == -EEXIST)
        hak_zone_evade(z);
    if (error)
        return NULL;
    void *p = take_run(z, i, n);
    if (!hak_limit_is_tight)
        error = hak_space_open(p, n * HAK_SUPERSLAB);
    if (error == -EEXIST) { /* the program has mapped something where a trim unmapped */
        fenced += n;
        return alloc_in(z, most, least, align);
    }
    if (error) {
        put_run(z, i, n);
        return NULL;
    }
    fence_zone(z, i + n);
    *most = n;
    return p;
}

void *hak_space_alloc_most(size_t *superslabs, size_t least, size_t align, bool header)
{
    void *p = NULL;
    hak_lock_acquire(&hak_space_lock);
    for (unsigned i = 0; !p && i < HAK_LOAD_RELAXED(&hak_zone_count); i++)
        if (hak_zones[i].header == header)
            p = alloc_in(&hak_zones[i], superslabs, least, align);
    hak_lock_release(&hak_space_lock);
    return p;
}

void hak_space_free(void *base, size_t superslabs, enum hak_cause cause)
{
    if (hak_limit_is_tight && !hak_space_close(base, superslabs * HAK_SUPERSLAB, cause))
        return;
    if (hak_options.thp == HAK_THP_ALWAYS) /* parts may have been advised against huge pages (parts/purge.c) */
        hak_os_advise(base, superslabs * HAK_SUPERSLAB, MADV_HUGEPAGE, HAK_CAUSE_huge_page);
    if (hak_pages_go_lazily() && !hak_limit_is_tight &&
        hak_os_advise(base, superslabs * HAK_SUPERSLAB, MADV_DONTNEED, cause))
        return;
    hak_lock_acquire(&hak_space_lock);
    struct hak_zone *z = hak_zone_of(base);
    HAK_CHECK(z);
    put_run(z, (size_t)((char *)base - z->base) / HAK_SUPERSLAB, superslabs);
    hak_lock_release(&hak_space_lock);
}

/* Whether the superslab is unmapped. */
static bool close_if_free(const struct hak_zone *z, size_t i, bool may_close)
{
    char *base = z->base + i * HAK_SUPERSLAB;
    hak_lock_acquire(&hak_space_lock);
    bool closed = hak_page_mapped(base) < HAK_PAGE ||
                  (may_close && is_free(z, i) && hak_space_close(base, HAK_SUPERSLAB, HAK_CAUSE_trim));
    hak_lock_release(&hak_space_lock);
    return closed;
}

/* The lock is held for one system call at a time, so a fork or a thread that maps waits for one call at most. */
void hak_space_trim(void)
{
    if (hak_limit_is_tight || hak_limit() == SIZE_MAX)
        return;
    int64_t holes = 0; /* each splits a mapping */
    for (struct hak_zone *z = hak_zones; z < &hak_zones[HAK_LOAD_ACQUIRE(&hak_zone_count)]; z++)
        for (size_t i = 0, in_hole = 0, closed; i < hak_zone_mapped(z) / HAK_SUPERSLAB; i++, in_hole = closed) {
            closed = close_if_free(z, i, in_hole || hak_limit_allows(holes));
            holes += closed && !in_hole;
        }
}

void hak_space_stats(struct hak_space_stats *stats)
{
    hak_lock_acquire(&hak_space_lock);
    hak_fill(stats, 0, sizeof *stats);
    stats->zones = HAK_LOAD_RELAXED(&hak_zone_count);
    for (size_t i = 0; i < stats->zones; i++) {
        stats->mapped += hak_zone_mapped(&hak_zones[i]);
        stats->handed_out += (hak_zones[i].top - hak_zones[i].free) * HAK_SUPERSLAB;
    }
    stats->mapped -= HAK_LOAD_RELAXED(&hak_zones_unmapped);
    stats->handed_out -= fenced * HAK_SUPERSLAB;
    hak_lock_release(&hak_space_lock);
}
