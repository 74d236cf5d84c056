/* SPDX-License-Identifier: MIT
 * Zones of reserved addresses, the bitmaps of their free superslabs, and the two page tables. See space.h.
 *
 *   | descriptors ... granule 0 | metadata | tags: granule 0 ... | zone, aligned to a superslab ... |
 *
 * is one mapping. Descriptors are rotated so that those of the zone's first 512 MiB (a granule) come last:
 * they, the first metadata and the first tags become writable by one call. Further granules do so when the
 * first superslab of theirs is handed out; nothing is charged or touched before it is used. */
#include "space.h"

#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "core/base/log.h"
#include "core/base/sealed.h"
#include "core/os/meta.h"

#define LG_MAX 40
#define LG_MIN 22
#define MAX_ZONES 32
#define GRANULE_LG 13 /* pages whose descriptors become writable together: 512 MiB of range */
#define GRANULE ((size_t)1 << GRANULE_LG)
#define MAX_GRANULES ((size_t)1 << (LG_MAX - HAK_PAGE_LG - GRANULE_LG))
#define GRANULE_BYTES (GRANULE * sizeof(struct hak_slab))
#define FIRST_META (256 * HAK_KIB)
#define COMMIT_FIRST HAK_MIB
#define COMMIT_MAX (64 * HAK_MIB)
#define NAME_FROM (16 * HAK_MIB)
#define WRITABLE (PROT_READ | PROT_WRITE)

struct zone {
    char *base;
    size_t superslabs;
    size_t top;       /* superslabs ever handed out */
    size_t committed; /* writable bytes from base */
    size_t free;      /* superslabs below top that came back */
    uint64_t *free_bits;
    bool header, named;
};

struct hak_lock hak_space_lock = HAK_LOCK_INIT(HAK_RANK_RANGE);

static struct zone zones[MAX_ZONES];
static _Atomic(unsigned) zone_count; /* published after the zone is filled in */
_Alignas(HAK_CACHELINE) struct hak_page_map hak_page_map;
static uint64_t entries; /* of both tables, a power of two */
static uint64_t granule_bits[MAX_GRANULES / 64];
static size_t limit = SIZE_MAX; /* RLIMIT_AS, once a reservation has failed */

static uint64_t descriptor_index(const void *p)
{
    return (((uintptr_t)p >> HAK_PAGE_LG) + hak_page_map.rotation) & hak_page_map.mask;
}

static struct hak_slab *descriptor(const void *p)
{
    return &hak_page_map.descriptors[descriptor_index(p)];
}

static struct zone *zone_of(const void *p)
{
    unsigned n = HAK_LOAD_ACQUIRE(&zone_count);
    for (unsigned i = 0; i < n; i++)
        if ((size_t)((const char *)p - zones[i].base) < zones[i].superslabs * HAK_SUPERSLAB)
            return &zones[i];
    return NULL;
}

static size_t address_space_limit(void)
{
    struct rlimit r;
    if (getrlimit(RLIMIT_AS, &r) || r.rlim_cur == RLIM_INFINITY)
        return SIZE_MAX;
    return r.rlim_cur;
}

/* --- zones --------------------------------------------------------------------------------------- */

static bool add_zone(char *base, size_t superslabs, bool header)
{
    unsigned n = HAK_LOAD_RELAXED(&zone_count);
    uint64_t *bits = hak_meta_alloc(hak_align_up(superslabs, 64) / 8);
    if (n == MAX_ZONES || !bits)
        return false;
    zones[n] = (struct zone){.base = base, .superslabs = superslabs, .free_bits = bits, .header = header};
    HAK_STORE_RELEASE(&zone_count, n + 1);
    return true;
}

/* Maps `size` inaccessible bytes, aligned to a superslab, with `before` bytes before them: below the last zone
 * if there is one, so that no address is wasted on alignment, else anywhere with one superslab to spare. */
static char *reserve(size_t before, size_t size)
{
    unsigned n = HAK_LOAD_RELAXED(&zone_count);
    if (n && !before && size < (uintptr_t)zones[n - 1].base) {
        char *below = zones[n - 1].base - size;
        if (hak_os_map_at(below, size, PROT_NONE, HAK_CAUSE_reserve) == 0)
            return below;
    }
    void *p;
    if (hak_os_map(&p, before + size + HAK_SUPERSLAB, PROT_NONE, HAK_CAUSE_reserve))
        return NULL;
    return (char *)hak_align_up((uintptr_t)p + before, HAK_SUPERSLAB);
}

static bool ranges_meet(uint64_t a, uint64_t a_length, uint64_t b, uint64_t b_length, uint64_t modulus)
{
    return ((b - a) & (modulus - 1)) < a_length || ((a - b) & (modulus - 1)) < b_length;
}

/* Two zones must not share an entry of the tables. */
static bool collides(const char *base, size_t size)
{
    uint64_t first = (uintptr_t)base >> HAK_PAGE_LG, pages = size >> HAK_PAGE_LG;
    unsigned n = HAK_LOAD_RELAXED(&zone_count);
    for (unsigned i = 0; i < n; i++)
        if (ranges_meet(first, pages, (uintptr_t)zones[i].base >> HAK_PAGE_LG,
                        zones[i].superslabs * HAK_SUPERSLAB_PAGES, entries))
            return true;
    return pages > entries;
}

/* Blocks with headers have the first third: then, whatever the mask of the tags, the two zones' first pages
 * have indexes a third of the table apart. */
static bool add_first_zones(char *base, size_t size)
{
    size_t superslabs = size / HAK_SUPERSLAB;
    if (!HAK_HEADER_LIMIT || superslabs < 3)
        return add_zone(base, superslabs, false);
    size_t third = superslabs / 3;
    if (!add_zone(base, third, true) || !add_zone(base + third * HAK_SUPERSLAB, superslabs - third, false))
        return false;
    hak_tags.header_base = (uintptr_t)base;
    hak_tags.header_size = third * HAK_SUPERSLAB;
    return true;
}

static size_t entries_for(size_t size)
{
    size_t n = size >> HAK_PAGE_LG;
    if (limit != SIZE_MAX) /* room for the zones that come later */
        while (n < limit >> HAK_PAGE_LG)
            n *= 2;
    return hak_max(n, GRANULE);
}

/* One rung of the ladder: the range with its tables, or only the tables for size 0. */
static bool try_reserve(size_t size)
{
    size_t n = entries_for(size), tags_size = n * sizeof(uint64_t);
    size_t meta_size = FIRST_META + size / HAK_SUPERSLAB / 8;
    meta_size = hak_align_up(meta_size, HAK_PAGE);
    size_t before = n * sizeof(struct hak_slab) + meta_size + tags_size;
    char *base = reserve(before, size);
    if (!base)
        return false;
    char *meta = base - tags_size - meta_size;
    if (hak_os_protect(meta - GRANULE_BYTES, GRANULE_BYTES + meta_size + GRANULE * sizeof(uint64_t), WRITABLE,
                       HAK_CAUSE_metadata)) {
        hak_os_unmap(base - before, before + size, HAK_CAUSE_reserve);
        return false;
    }
    hak_meta_give(meta, meta_size);
    entries = n;
    hak_page_map.descriptors = (struct hak_slab *)(base - before);
    hak_page_map.mask = n - 1;
    hak_page_map.rotation = n - GRANULE - ((uintptr_t)base >> HAK_PAGE_LG);
    hak_page_map.base = (uintptr_t)base;
    granule_bits[(n / GRANULE - 1) / 64] |= (uint64_t)1 << (n / GRANULE - 1) % 64;
    hak_tags.table = (_Atomic(uint64_t) *)(base - tags_size);
    HAK_STORE_RELAXED(&hak_tags.mask, GRANULE - 1);
    return size == 0 || add_first_zones(base, size);
}

int hak_space_init(void)
{
    if (try_reserve((size_t)1 << LG_MAX))
        return 0;
    limit = address_space_limit();
    unsigned lg = LG_MAX - 2;
    while (lg > LG_MIN && (size_t)1 << lg > limit / 4)
        lg--;
    for (; lg >= LG_MIN; lg -= lg > 36 ? 2 : 1)
        if (try_reserve((size_t)1 << lg))
            return 0;
    return try_reserve(0) ? 0 : -ENOMEM; /* no range: every block gets a mapping of its own */
}

/* A further zone for `superslabs`; larger where the limits leave room. */
static bool grow(size_t superslabs)
{
    size_t most = limit == SIZE_MAX ? HAK_GIB : hak_max(limit / 16, HAK_SUPERSLAB);
    for (size_t n = hak_max(superslabs, most / HAK_SUPERSLAB);; n = hak_max(superslabs, n / 2)) {
        char *base = reserve(0, n * HAK_SUPERSLAB);
        if (base) {
            if (!collides(base, n * HAK_SUPERSLAB) && add_zone(base, n, false))
                return true;
            hak_os_unmap(base, n * HAK_SUPERSLAB, HAK_CAUSE_reserve);
        }
        if (n == superslabs)
            return false;
    }
}

/* --- superslabs ---------------------------------------------------------------------------------- */

static bool is_free(const struct zone *z, size_t i)
{
    return i >= z->top || z->free_bits[i / 64] >> i % 64 & 1;
}

static void set_free(struct zone *z, size_t i, bool free)
{
    uint64_t bit = (uint64_t)1 << i % 64;
    z->free_bits[i / 64] = free ? z->free_bits[i / 64] | bit : z->free_bits[i / 64] & ~bit;
}

static size_t aligned_index(const struct zone *z, size_t i, size_t align)
{
    size_t number = ((uintptr_t)z->base >> HAK_SUPERSLAB_LG) + i;
    return i + (hak_align_up(number, align) - number);
}

/* The descriptors of a run that is cut into slabs must be contiguous: it may not lie across the place where
 * their index wraps. Longer runs than a chunk can be are looked up by their first page only. */
static bool wraps(const struct zone *z, size_t i, size_t n)
{
    const char *base = z->base + i * HAK_SUPERSLAB;
    return n <= GRANULE / HAK_SUPERSLAB_PAGES &&
           descriptor_index(base + n * HAK_SUPERSLAB - 1) < descriptor_index(base);
}

/* The lowest run of n free superslabs, from what came back first, else from the untouched rest. */
static size_t find_run(const struct zone *z, size_t n, size_t align)
{
    size_t i = z->free ? aligned_index(z, 0, align) : aligned_index(z, z->top, align);
    while (i + n <= z->superslabs) {
        if (i < z->top && i % 64 == 0 && align == 1 && !z->free_bits[i / 64]) {
            i = hak_min(i + 64, z->top);
            continue;
        }
        size_t length = 0;
        while (length < n && is_free(z, i + length))
            length++;
        if (length == n && !wraps(z, i, n))
            return i;
        if (length == n)
            length = 0;
        i = aligned_index(z, i + length + 1, align);
    }
    return SIZE_MAX;
}

static void *take_run(struct zone *z, size_t i, size_t n)
{
    for (size_t k = z->top; k < i; k++) { /* skipped for alignment */
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

static void *alloc_in_zones(size_t n, size_t align, bool header)
{
    unsigned count = HAK_LOAD_RELAXED(&zone_count);
    for (unsigned k = 0; k < count; k++) {
        struct zone *z = &zones[k];
        if (z->header != header || n > z->superslabs)
            continue;
        size_t i = find_run(z, n, align);
        if (i != SIZE_MAX)
            return take_run(z, i, n);
    }
    return NULL;
}

void *hak_space_alloc(size_t superslabs, size_t align, bool header)
{
    hak_lock_acquire(&hak_space_lock);
    void *p = alloc_in_zones(superslabs, align, header);
    if (!p && !header && grow(superslabs + align - 1))
        p = alloc_in_zones(superslabs, align, false);
    hak_lock_release(&hak_space_lock);
    return p;
}

void hak_space_free(void *base, size_t superslabs, enum hak_cause cause)
{
    if (hak_pages_go_lazily() && hak_os_advise(base, superslabs * HAK_SUPERSLAB, MADV_DONTNEED, cause))
        return;
    hak_lock_acquire(&hak_space_lock);
    struct zone *z = zone_of(base);
    HAK_CHECK(z);
    size_t first = (size_t)((char *)base - z->base) / HAK_SUPERSLAB;
    for (size_t i = first; i < first + superslabs; i++) {
        HAK_CHECK(!is_free(z, i));
        set_free(z, i, true);
    }
    z->free += superslabs;
    hak_lock_release(&hak_space_lock);
}

/* --- making memory writable ---------------------------------------------------------------------- */

static int commit_granule(const char *p)
{
    uint64_t first = descriptor_index(p) & ~(GRANULE - 1), g = first / GRANULE;
    if (granule_bits[g / 64] >> g % 64 & 1)
        return 0;
    if (hak_os_protect(&hak_page_map.descriptors[first], GRANULE_BYTES, WRITABLE, HAK_CAUSE_metadata))
        return -ENOMEM;
    __atomic_store_n(&granule_bits[g / 64], granule_bits[g / 64] | (uint64_t)1 << g % 64, __ATOMIC_RELEASE);
    return 0;
}

static int commit_descriptors(const char *base, size_t size)
{
    int error = commit_granule(base + size - 1);
    for (size_t done = 0; done < size && !error; done += GRANULE * HAK_PAGE)
        error = commit_granule(base + done);
    return error;
}

static bool tags_collide(void)
{
    uint64_t modulus = HAK_LOAD_RELAXED(&hak_tags.mask) + 1;
    unsigned n = HAK_LOAD_RELAXED(&zone_count);
    for (unsigned i = 0; i < n; i++) {
        uint64_t pages = zones[i].committed >> HAK_PAGE_LG;
        if (pages > modulus)
            return true;
        for (unsigned k = 0; k < i; k++)
            if (zones[k].committed && pages &&
                ranges_meet((uintptr_t)zones[i].base >> HAK_PAGE_LG, pages, (uintptr_t)zones[k].base >> HAK_PAGE_LG,
                            zones[k].committed >> HAK_PAGE_LG, modulus))
                return true;
    }
    return false;
}

/* Doubles the tags in use until no two writable pages share one. Without memory they go on sharing: frees of
 * such pages take the slow path, nothing else. */
static void grow_tags(void)
{
    uint64_t used = HAK_LOAD_RELAXED(&hak_tags.mask) + 1;
    while (used < entries && tags_collide()) {
        if (hak_os_protect(&hak_tags.table[used], used * sizeof(uint64_t), WRITABLE, HAK_CAUSE_metadata))
            return;
        used *= 2;
        HAK_STORE_RELAXED(&hak_tags.mask, used - 1);
    }
}

static void name_zone(struct zone *z)
{
    if (z->named || z->committed < NAME_FROM)
        return;
    z->named = true;
    hak_os_name(z->base, z->superslabs * HAK_SUPERSLAB, "hakmem");
}

/* By default the parts know better for which of their regions huge pages pay. */
static void advise_huge(char *base, size_t size)
{
    uint32_t thp = hak_options.thp;
    if (thp != HAK_THP_AUTO)
        hak_os_advise(base, size, thp == HAK_THP_ALWAYS ? MADV_HUGEPAGE : MADV_NOHUGEPAGE, HAK_CAUSE_huge_page);
}

/* Zones become writable from their start; steps double, so that few calls are made, and begin below the
 * size of a huge page, so that a small program does not get one. */
static int commit_zone(struct zone *z, size_t end, enum hak_cause cause)
{
    if (end <= z->committed)
        return 0;
    size_t step = hak_min(hak_max(3 * z->committed, COMMIT_FIRST), COMMIT_MAX);
    size_t want = hak_min(hak_max(z->committed + step, end), z->superslabs * HAK_SUPERSLAB);
    if (hak_os_protect(z->base + z->committed, want - z->committed, WRITABLE, cause)) {
        want = end; /* near a limit: no more than is needed */
        if (hak_os_protect(z->base + z->committed, want - z->committed, WRITABLE, cause))
            return -ENOMEM;
    }
    advise_huge(z->base + z->committed, want - z->committed);
    z->committed = want;
    if (z == &zones[0]) /* released: whoever finds the size finds the descriptors writable */
        HAK_STORE_RELEASE(&hak_page_map.size, want);
    grow_tags();
    name_zone(z);
    return 0;
}

int hak_space_commit(void *base, size_t size, enum hak_cause cause)
{
    hak_lock_acquire(&hak_space_lock);
    struct zone *z = zone_of(base);
    int error = commit_descriptors(base, size);
    if (!error)
        error = commit_zone(z, (size_t)((char *)base - z->base) + size, cause);
    hak_lock_release(&hak_space_lock);
    return error;
}

/* --- looking up ---------------------------------------------------------------------------------- */

bool hak_space_contains(const void *p)
{
    return zone_of(p) != NULL;
}

static bool granule_is_writable(const void *p)
{
    uint64_t g = descriptor_index(p) / GRANULE;
    return __atomic_load_n(&granule_bits[g / 64], __ATOMIC_ACQUIRE) >> g % 64 & 1;
}

struct hak_slab *hak_space_page(const void *p)
{
    return zone_of(p) && granule_is_writable(p) ? descriptor(p) : NULL;
}

struct hak_slab *hak_space_slab(const void *p)
{
    struct hak_slab *page = hak_space_page(p);
    if (!page)
        return NULL;
    struct hak_slab *slab = page - page->head_offset;
    return slab->base ? slab : NULL;
}

void hak_space_describe(struct hak_slab *run, size_t from, size_t to)
{
    for (size_t i = from; i < hak_min(to, HAK_SUPERSLAB_PAGES); i++)
        run[i].head_offset = (uint32_t)i;
}

void hak_space_forget(struct hak_slab *run, size_t from, size_t to)
{
    for (size_t i = from; i < hak_min(to, HAK_SUPERSLAB_PAGES); i++) {
        run[i].head_offset = 0;
        run[i].base = NULL;
        run[i].region = NULL;
        HAK_STORE_RELAXED(&run[i].word, HAK_SLAB_UNUSED);
    }
}

HAK_SNAPSHOT void hak_space_each_page(void (*visit)(struct hak_slab *page, void *context), void *context)
{
    unsigned n = HAK_LOAD_ACQUIRE(&zone_count);
    for (unsigned i = 0; i < n; i++)
        for (size_t offset = 0; offset < hak_min(zones[i].committed, zones[i].top * HAK_SUPERSLAB); offset += HAK_PAGE)
            if (granule_is_writable(zones[i].base + offset))
                visit(descriptor(zones[i].base + offset), context);
}

void hak_space_stats(struct hak_space_stats *stats)
{
    hak_lock_acquire(&hak_space_lock);
    memset(stats, 0, sizeof *stats);
    unsigned n = HAK_LOAD_RELAXED(&zone_count);
    for (unsigned i = 0; i < n; i++) {
        stats->reserved += zones[i].superslabs * HAK_SUPERSLAB;
        stats->handed_out += (zones[i].top - zones[i].free) * HAK_SUPERSLAB;
        stats->committed += zones[i].committed;
    }
    stats->zones = n;
    hak_lock_release(&hak_space_lock);
}
