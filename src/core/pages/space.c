/* SPDX-License-Identifier: MIT
 * The plan, its zones, the bitmaps of their free superslabs, and the two page tables. See space.h.
 *
 *   descriptors ... granule 0 | metadata | tags: granule 0 ... | zone with headers ... | zone ...
 *
 * is the plan: how far each part may grow. In hardened builds the zones lie apart from the tables, which have fences
 * between them. Only the used parts are mapped, and never over a mapping of the program. Descriptors are rotated so
 * that those of the first 512 MiB (a granule) come last: they, the first metadata and the first tags are one mapping.
 * Each further granule is mapped with its first superslab. */
#include "space.h"

#include <sys/auxv.h>
#include <sys/mman.h>

#include "core/base/kernel.h"
#include "core/base/layout.h"
#include "core/base/log.h"
#include "core/base/sealed.h"
#include "core/base/text.h"
#include "core/os/fence.h"
#include "core/os/huge_page.h"
#include "core/os/limit.h"
#include "core/os/meta.h"

#define QUARTER_MIN HAK_GIB
#define MAX_ZONES 16
#define GRANULE_LG 13 /* pages whose descriptors are mapped together: 512 MiB of the plan */
#define GRANULE ((size_t)1 << GRANULE_LG)
#define MAX_GRANULES (HAK_PLAN_MAX >> HAK_PAGE_LG >> GRANULE_LG)
#define FIRST_META (256 * HAK_KIB)
#define TIGHT_LG 4 /* under a tight limit, the plan and the first mapping of its tables are smaller by this shift */
#define STEP_FIRST (4 * HAK_MIB)
#define STEP_MAX (64 * HAK_MIB)
#define LOOKS 256u
#define NAME_FROM (64 * HAK_MIB)
#define WRITABLE (PROT_READ | PROT_WRITE)

struct zone {
    char *base;
    size_t superslabs;      /* most superslabs that it may have */
    size_t top;             /* superslabs below this index were handed out at some time */
    _Atomic(size_t) mapped; /* bytes from base, never fewer; stored with release after their descriptors were mapped */
    size_t free;            /* superslabs below top that are free */
    size_t looked;          /* where a search among them ended that found nothing yet */
    uint64_t *free_bits;
    bool header;
};

HAK_LOCK(hak_space_lock, HAK_RANK_RANGE);

static struct zone zones[MAX_ZONES];
static _Atomic(unsigned) zone_count; /* published after the zone is filled in */
_Alignas(HAK_CACHELINE) struct hak_page_map hak_page_map;
static size_t fenced;            /* superslabs that nothing can use */
static _Atomic(size_t) unmapped; /* bytes of zones that are not mapped */
static size_t granule = GRANULE;
static size_t entries; /* the entries of each table, a power of two */
static uint64_t granule_bits[MAX_GRANULES / 64];

static size_t mapped_bytes(const struct zone *z)
{
    return HAK_LOAD_ACQUIRE(&z->mapped);
}

static struct zone *zone_of(const void *p)
{
    unsigned n = HAK_LOAD_ACQUIRE(&zone_count);
    for (unsigned i = 0; i < n; i++)
        if ((size_t)((const char *)p - zones[i].base) < mapped_bytes(&zones[i]))
            return &zones[i];
    return NULL;
}

/* --- the plan ------------------------------------------------------------------------------------ */

static bool add_zone(char *base, size_t superslabs, bool header)
{
    unsigned n = HAK_LOAD_RELAXED(&zone_count);
    uint64_t *bits = n < MAX_ZONES ? hak_meta_alloc(hak_align_up(superslabs, 64) / 8) : NULL;
    if (!bits)
        return false;
    zones[n] = (struct zone){.base = base, .superslabs = superslabs, .free_bits = bits, .header = header};
    HAK_STORE_RELEASE(&zone_count, n + 1);
    return true;
}

/* Blocks with headers have the first third. Then the tag indexes of the two zones' first pages lie a third of the table
 * apart, whatever the mask. */
static bool add_first_zones(char *base, size_t superslabs)
{
    size_t third = HAK_HEADER_LIMIT ? superslabs / 3 : 0;
    hak_tags.header_base = (uintptr_t)base;
    return (!third || add_zone(base, third, true)) && add_zone(base + third * HAK_SUPERSLAB, superslabs - third, false);
}

/* Plans within the second quarter of the address space, or of a smaller one, and the gaps that hak_fence_draw adds. The
 * kernel maps nothing there unless a program asks for it. */
static bool plan(uintptr_t quarter, uint64_t random)
{
    unsigned less = hak_limit_is_tight ? TIGHT_LG : 0;
    size_t size = hak_min(HAK_PLAN_MAX >> less, quarter / 2), n = size >> HAK_PAGE_LG, tags_size = n * sizeof(uint64_t);
    size_t meta_size = hak_align_up((FIRST_META >> less) + size / HAK_SUPERSLAB / 8, HAK_PAGE);
    size_t gap = hak_fence_gap(), tables = n * sizeof(struct hak_slab) + meta_size + tags_size + 2 * gap;
    struct hak_places at = hak_fence_draw(quarter, size, hak_align_up(tables, HAK_SUPERSLAB), random);
    char *base = at.zones, *tags = at.tables_end - tags_size, *meta = tags - gap - meta_size;
    granule = GRANULE >> less;
    size_t before = granule * sizeof(struct hak_slab) + gap + meta_size + gap;
    if (hak_os_map_at(tags - before, before + granule * sizeof(uint64_t), WRITABLE, HAK_CAUSE_metadata))
        return false;
    hak_fence_close_gaps(meta - gap, tags - gap);
    hak_meta_give(meta, meta_size);
    entries = n;
    hak_page_map.descriptors = (struct hak_slab *)(meta - gap) - n;
    hak_page_map.mask = n - 1;
    hak_page_map.rotation = n - granule - ((uintptr_t)base >> HAK_PAGE_LG);
    hak_page_map.base = (uintptr_t)base;
    granule_bits[(n / granule - 1) / 64] |= (uint64_t)1 << (n / granule - 1) % 64;
    hak_tags.table = (_Atomic(uint64_t) *)tags;
    HAK_STORE_RELAXED(&hak_tags.mask, granule - 1);
    return add_first_zones(base, size / HAK_SUPERSLAB);
}

static void show_pages(void)
{
    HAK_SHOW_VARIABLE(zones);
    HAK_SHOW_VARIABLE(zone_count);
    HAK_SHOW_VARIABLE(entries);
    HAK_SHOW_SIZE(zone);
    HAK_SHOW_FIELD(zone, base);
    HAK_SHOW_FIELD(zone, mapped);
    HAK_SHOW_FIELD(zone, superslabs);
}

/* The stack lies near the end of the address space. The kernel chose its address and the library's at random, which
 * seeds `random`. */
int hak_space_init(void)
{
    show_pages();
    uintptr_t stack = hak_kernel_auxv(AT_RANDOM), quarter;
    if (!stack)
        stack = (uintptr_t)__builtin_frame_address(0);
    uint64_t random = ((uintptr_t)&hak_page_map ^ stack * 0x9e3779b97f4a7c15u) * 0x94d049bb133111ebu >> 32;
    do {
        for (quarter = (uintptr_t)1 << (62 - __builtin_clzll(stack)); quarter >= QUARTER_MIN; quarter /= 2)
            if (plan(quarter, random))
                return 0;
    } while (hak_limit_tighten());
    return -ENOMEM;
}

/* --- tables -------------------------------------------------------------------------------------- */

static int map_granule(const char *p)
{
    uint64_t first = (uint64_t)(hak_page_at(p) - hak_page_map.descriptors) & ~(granule - 1), g = first / granule,
             bit = (uint64_t)1 << g % 64;
    int error = 0;
    if (!(granule_bits[g / 64] & bit))
        error = hak_os_map_at(&hak_page_map.descriptors[first], granule * sizeof(struct hak_slab), WRITABLE,
                              HAK_CAUSE_metadata);
    if (!error)
        granule_bits[g / 64] |= bit;
    return error;
}

static int map_descriptors(const char *base, size_t size)
{
    int error = map_granule(base + size - 1);
    for (size_t done = 0; done < size && !error; done += granule * HAK_PAGE)
        error = map_granule(base + done);
    return error;
}

static bool ranges_meet(uint64_t a, uint64_t a_length, uint64_t b, uint64_t b_length, uint64_t modulus)
{
    return a_length && b_length && (((b - a) & (modulus - 1)) < a_length || ((a - b) & (modulus - 1)) < b_length);
}

static bool tags_collide(void)
{
    uint64_t modulus = HAK_LOAD_RELAXED(&hak_tags.mask) + 1;
    unsigned n = HAK_LOAD_RELAXED(&zone_count);
    for (unsigned i = 0; i < n; i++) {
        uint64_t pages = mapped_bytes(&zones[i]) >> HAK_PAGE_LG;
        if (pages > modulus)
            return true;
        for (unsigned k = 0; k < i; k++)
            if (ranges_meet((uintptr_t)zones[i].base >> HAK_PAGE_LG, pages, (uintptr_t)zones[k].base >> HAK_PAGE_LG,
                            mapped_bytes(&zones[k]) >> HAK_PAGE_LG, modulus))
                return true;
    }
    return false;
}

/* Doubles the tag table until no two pages share a tag. Where it cannot grow, pages share tags: then frees of their
 * blocks take the slow path, and nothing else changes. */
static void grow_tags(void)
{
    uint64_t used = HAK_LOAD_RELAXED(&hak_tags.mask) + 1;
    while (used < entries && tags_collide()) {
        if (hak_os_map_at(&hak_tags.table[used], used * sizeof(uint64_t), WRITABLE, HAK_CAUSE_metadata))
            return;
        used *= 2;
        HAK_STORE_RELEASE(&hak_tags.mask, used - 1);
    }
}

/* --- partly mapped pages ------------------------------------------------------------------------- */

static size_t mapped_of(const char *page)
{
    return HAK_PAGE - hak_page_at(page)->unmapped * HAK_SYSTEM_PAGE;
}

/* Records that the first `mapped` bytes of the pages are mapped. */
static void set_unmapped(const char *pages, size_t size, size_t mapped)
{
    for (size_t done = 0; done < size; done += HAK_PAGE) {
        size_t here = hak_min(mapped - hak_min(mapped, done), HAK_PAGE);
        HAK_ADD_RELAXED(&unmapped, mapped_of(pages + done) - here);
        hak_page_at(pages + done)->unmapped = (uint16_t)((HAK_PAGE - here) / HAK_SYSTEM_PAGE);
    }
}

/* --- zones --------------------------------------------------------------------------------------- */

/* By default the parts decide for which of their regions huge pages pay; but a small program gets none. */
static void advise_huge(const struct zone *z, size_t from, size_t to)
{
    uint32_t thp = hak_options.thp;
    if (thp != HAK_THP_AUTO)
        hak_os_advise(z->base + from, to - from, thp == HAK_THP_ALWAYS ? MADV_HUGEPAGE : MADV_NOHUGEPAGE,
                      HAK_CAUSE_huge_page);
    else if (from == 0 && HAK_SUPERSLAB >= HAK_HUGE_PAGE)
        hak_os_advise(z->base, HAK_SUPERSLAB, MADV_NOHUGEPAGE, HAK_CAUSE_superslab_map);
}

static void name_zone(const struct zone *z, size_t from, size_t to)
{
    if (from < NAME_FROM)
        from = 0;
    if (to >= NAME_FROM)
        hak_os_name(z->base + from, to - from, "hakmem");
}

static int map_range(const struct zone *z, size_t from, size_t end)
{
    int error = hak_os_map_at(z->base + from, end - from, WRITABLE, HAK_CAUSE_superslab_map);
    if (!error && !hak_limit_is_tight) {
        advise_huge(z, from, end);
        name_zone(z, from, end);
    }
    return error;
}

static int map_to(struct zone *z, size_t end)
{
    size_t from = mapped_bytes(z);
    int error = map_descriptors(z->base + from, end - from);
    if (!error && hak_limit_is_tight)
        set_unmapped(z->base + from, end - from, 0);
    else if (!error)
        error = map_range(z, from, end);
    if (error)
        return error;
    HAK_STORE_RELEASE(&z->mapped, end);
    if (z == &zones[0])
        hak_page_map_grow(end);
    if (z->header)
        HAK_STORE_RELAXED(&hak_tags.header_size, end);
    grow_tags();
    return 0;
}

static int open_part(const char *from, const char *end)
{
    const struct zone *z = zone_of(from);
    const char *page = from - (uintptr_t)from % HAK_PAGE;
    int error = map_range(z, (size_t)(from - z->base), (size_t)(end - z->base));
    if (!error)
        set_unmapped(page, (size_t)(end - page), (size_t)(end - page));
    return error;
}

int hak_space_open(const char *base, size_t size)
{
    const char *end = (const char *)hak_align_up((uintptr_t)base + size, HAK_SYSTEM_PAGE), *from = NULL;
    int error = 0;
    if (!HAK_LOAD_RELAXED(&unmapped))
        return 0;
    for (const char *page = base - (uintptr_t)base % HAK_PAGE; page < end && !error; page += HAK_PAGE) {
        const char *there = page + mapped_of(page);
        if (from && there > page) {
            error = open_part(from, page);
            from = NULL;
        }
        if (!from && there < end && there < page + HAK_PAGE)
            from = there;
    }
    return error || !from ? error : open_part(from, end);
}

bool hak_space_close(char *base, size_t size, enum hak_cause cause)
{
    for (size_t at = 0, n, here; at < size; at = hak_align_up(at + n + 1, HAK_PAGE)) {
        for (n = here = mapped_of(base + at); here == HAK_PAGE && at + n < size; n += here)
            here = mapped_of(base + at + n);
        if (n && hak_os_unmap(base + at, n, cause))
            return false;
        set_unmapped(base + at, n, 0);
    }
    return true;
}

/* Nothing else can use the memory of a header zone, so it gets at most a quarter of what the process may have. */
static size_t most_bytes(const struct zone *z)
{
    size_t planned = z->superslabs * HAK_SUPERSLAB;
    return z->header ? hak_min(planned, hak_limit() / 4 & ~(HAK_SUPERSLAB - 1)) : planned;
}

/* Zones double, which keeps calls few; near a limit they grow by no more than is needed. */
static int grow_zone(struct zone *z, size_t end)
{
    size_t mapped = mapped_bytes(z), step = hak_min(hak_max(mapped, STEP_FIRST), STEP_MAX);
    if (end <= mapped)
        return 0;
    size_t most = most_bytes(z), want = hak_min(hak_align_up(hak_max(mapped + step, end), HAK_SUPERSLAB), most);
    int error = end <= most ? map_to(z, want) : -ENOMEM;
    return error && want > end ? map_to(z, end) : error;
}

/* The program has mapped something where the zone would have grown: the rest of the zone is planned elsewhere, where
 * its pages have the same indexes in the tables. Blocks with headers must lie in one range, so their zone just ends. */
static void evade(struct zone *z)
{
    size_t mapped = mapped_bytes(z), rest = z->superslabs - mapped / HAK_SUPERSLAB;
    z->superslabs -= rest;
    if (!z->header)
        add_zone(z->base + mapped + entries * HAK_PAGE, rest, false);
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

/* The descriptors of a run that is cut into slabs must be contiguous: it ends where their index wraps. Runs longer than
 * a granule are looked up by their first page only. */
static size_t before_wrap(const struct zone *z, size_t i, size_t n)
{
    size_t first = (size_t)(hak_page_at(z->base + i * HAK_SUPERSLAB) - hak_page_map.descriptors);
    return n <= GRANULE / HAK_SUPERSLAB_PAGES ? hak_min(n, (entries - first) / HAK_SUPERSLAB_PAGES) : n;
}

/* The lowest run of `least` free superslabs, and up to *n, from there on, in so many steps. */
static size_t find_run(const struct zone *z, size_t *from, size_t *n, size_t least, size_t align, size_t steps)
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
static size_t choose_run(struct zone *z, size_t *n, size_t least, size_t align)
{
    size_t i = z->free ? find_run(z, &z->looked, n, least, align, LOOKS) : SIZE_MAX, top = z->top;
    if (i != SIZE_MAX || z->looked >= z->top)
        z->looked = 0;
    return i != SIZE_MAX ? i : find_run(z, &top, n, least, align, SIZE_MAX);
}

static void *take_run(struct zone *z, size_t i, size_t n)
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
static void fence_zone(struct zone *z, size_t i)
{
    char *base = z->base + i * HAK_SUPERSLAB;
    if (!hak_fence_is_wanted() || i >= z->superslabs || !is_free(z, i) || grow_zone(z, (i + 1) * HAK_SUPERSLAB) ||
        is_scarce(base) || !hak_fence_close(base, HAK_SUPERSLAB))
        return;
    take_run(z, i, 1);
    fenced++;
}
#else
static void fence_zone(struct zone *z, size_t i)
{
    (void)z, (void)i;
}
#endif

static void put_run(struct zone *z, size_t i, size_t n)
{
    for (size_t k = i; k < i + n; k++) {
        HAK_CHECK(!is_free(z, k));
        set_free(z, k, true);
    }
    z->free += n;
}

static void *alloc_in(struct zone *z, size_t *most, size_t least, size_t align)
{
    fence_zone(z, 0);
    size_t n = *most, i = choose_run(z, &n, least, align);
    int error = i == SIZE_MAX ? -ENOMEM : grow_zone(z, (i + n) * HAK_SUPERSLAB);
    if (error == -EEXIST)
        evade(z);
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
    for (unsigned i = 0; !p && i < HAK_LOAD_RELAXED(&zone_count); i++)
        if (zones[i].header == header)
            p = alloc_in(&zones[i], superslabs, least, align);
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
    struct zone *z = zone_of(base);
    HAK_CHECK(z);
    put_run(z, (size_t)((char *)base - z->base) / HAK_SUPERSLAB, superslabs);
    hak_lock_release(&hak_space_lock);
}

/* Whether the superslab is unmapped. */
static bool close_if_free(const struct zone *z, size_t i, bool may_close)
{
    char *base = z->base + i * HAK_SUPERSLAB;
    hak_lock_acquire(&hak_space_lock);
    bool closed = mapped_of(base) < HAK_PAGE ||
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
    for (struct zone *z = zones; z < &zones[HAK_LOAD_ACQUIRE(&zone_count)]; z++)
        for (size_t i = 0, in_hole = 0, closed; i < mapped_bytes(z) / HAK_SUPERSLAB; i++, in_hole = closed) {
            closed = close_if_free(z, i, in_hole || hak_limit_allows(holes));
            holes += closed && !in_hole;
        }
}

/* --- looking up ---------------------------------------------------------------------------------- */

bool hak_space_contains(const void *p)
{
    return zone_of(p) != NULL;
}

struct hak_slab *hak_space_page(const void *p)
{
    bool in_first = (uintptr_t)p - hak_page_map.base < HAK_LOAD_RELAXED(&hak_page_map.size);
    return HAK_LIKELY(in_first) || zone_of(p) ? hak_page_at(p) : NULL;
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
    unsigned n = HAK_LOAD_ACQUIRE(&zone_count);
    for (unsigned i = 0; i < n; i++)
        for (size_t offset = 0; offset < hak_min(mapped_bytes(&zones[i]), zones[i].top * HAK_SUPERSLAB);
             offset += HAK_PAGE)
            visit(hak_page_at(zones[i].base + offset), context);
}

void hak_space_each_superslab(void (*visit)(char *base))
{
    unsigned n = HAK_LOAD_ACQUIRE(&zone_count);
    for (unsigned i = 0; i < n; i++)
        for (size_t k = 0; k < hak_min(mapped_bytes(&zones[i]) / HAK_SUPERSLAB, zones[i].top); k++)
            visit(zones[i].base + k * HAK_SUPERSLAB);
}

size_t hak_space_before(const char *p)
{
    return (size_t)(p - zone_of(p)->base) / HAK_SUPERSLAB;
}

size_t hak_space_untag_open(size_t first, size_t most)
{
    size_t before = 0; /* pages in the zones visited so far */
    bool open = false;
    unsigned n = HAK_LOAD_ACQUIRE(&zone_count);
    for (unsigned i = 0; i < n; i++) {
        size_t pages = mapped_bytes(&zones[i]) / HAK_PAGE;
        for (size_t page = first - hak_min(first, before); page < pages; page++) {
            const char *p = zones[i].base + page * HAK_PAGE;
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

void hak_space_stats(struct hak_space_stats *stats)
{
    hak_lock_acquire(&hak_space_lock);
    hak_fill(stats, 0, sizeof *stats);
    stats->zones = HAK_LOAD_RELAXED(&zone_count);
    for (size_t i = 0; i < stats->zones; i++) {
        stats->mapped += mapped_bytes(&zones[i]);
        stats->handed_out += (zones[i].top - zones[i].free) * HAK_SUPERSLAB;
    }
    stats->mapped -= HAK_LOAD_RELAXED(&unmapped);
    stats->handed_out -= fenced * HAK_SUPERSLAB;
    hak_lock_release(&hak_space_lock);
}
