/* SPDX-License-Identifier: MIT
 * The plan, its zones, and the two page tables. See zones.h.
 *
 *   descriptors ... granule 0 | metadata | tags: granule 0 ... | zone with headers ... | zone ...
 *
 * is the plan: how far each part may grow. In hardened builds the zones lie apart from the tables, which have fences
 * between them. Only the used parts are mapped, and never over a mapping of the program. Descriptors are rotated so
 * that those of the first 512 MiB (a granule) come last: they, the first metadata and the first tags are one mapping.
 * Each further granule is mapped with its first superslab. */
#include "zones.h"

#include <sys/auxv.h>
#include <sys/mman.h>

#include "core/base/kernel.h"
#include "core/base/layout.h"
#include "core/base/sealed.h"
#include "core/os/fence.h"
#include "core/os/huge_page.h"
#include "core/os/limit.h"
#include "core/os/meta.h"

#define QUARTER_MIN HAK_GIB
#define MAX_GRANULES (HAK_PLAN_MAX >> HAK_PAGE_LG >> HAK_GRANULE_LG)
#define FIRST_META (256 * HAK_KIB)
#define TIGHT_LG 4 /* under a tight limit, the plan and the first mapping of its tables are smaller by this shift */
#define STEP_FIRST (4 * HAK_MIB)
#define STEP_MAX (64 * HAK_MIB)
#define NAME_FROM (64 * HAK_MIB)
#define WRITABLE (PROT_READ | PROT_WRITE)

HAK_LOCK(hak_space_lock, HAK_RANK_RANGE);
struct hak_zone hak_zones[HAK_ZONES_MAX];
_Atomic(unsigned) hak_zone_count;
_Atomic(size_t) hak_zones_unmapped;
_Alignas(HAK_CACHELINE) struct hak_page_map hak_page_map;
static _Atomic(uint64_t) no_tag; /* before start it stands for all pages, and names no owner */
struct hak_tags hak_tags = {.table = &no_tag};
static size_t granule = HAK_GRANULE;
static size_t entries; /* the entries of each table, a power of two */
static uint64_t granule_bits[MAX_GRANULES / 64];

struct hak_zone *hak_zone_of(const void *p)
{
    unsigned n = HAK_LOAD_ACQUIRE(&hak_zone_count);
    for (unsigned i = 0; i < n; i++)
        if ((size_t)((const char *)p - hak_zones[i].base) < hak_zone_mapped(&hak_zones[i]))
            return &hak_zones[i];
    return NULL;
}

/* --- the plan ------------------------------------------------------------------------------------ */

static bool add_zone(char *base, size_t superslabs, bool header)
{
    unsigned n = HAK_LOAD_RELAXED(&hak_zone_count);
    uint64_t *bits = n < HAK_ZONES_MAX ? hak_meta_alloc(hak_align_up(superslabs, 64) / 8) : NULL;
    if (!bits)
        return false;
    hak_zones[n] = (struct hak_zone){.base = base, .superslabs = superslabs, .free_bits = bits, .header = header};
    HAK_STORE_RELEASE(&hak_zone_count, n + 1);
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
    granule = HAK_GRANULE >> less;
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
    HAK_SHOW_VARIABLE(hak_zones);
    HAK_SHOW_VARIABLE(hak_zone_count);
    HAK_SHOW_VARIABLE(entries);
    HAK_SHOW_SIZE(hak_zone);
    HAK_SHOW_FIELD(hak_zone, base);
    HAK_SHOW_FIELD(hak_zone, mapped);
    HAK_SHOW_FIELD(hak_zone, superslabs);
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
    unsigned n = HAK_LOAD_RELAXED(&hak_zone_count);
    for (unsigned i = 0; i < n; i++) {
        uint64_t pages = hak_zone_mapped(&hak_zones[i]) >> HAK_PAGE_LG;
        if (pages > modulus)
            return true;
        for (unsigned k = 0; k < i; k++)
            if (ranges_meet((uintptr_t)hak_zones[i].base >> HAK_PAGE_LG, pages,
                            (uintptr_t)hak_zones[k].base >> HAK_PAGE_LG, hak_zone_mapped(&hak_zones[k]) >> HAK_PAGE_LG,
                            modulus))
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

/* --- zones --------------------------------------------------------------------------------------- */

/* Records that the first `mapped` bytes of the pages are mapped. */
static void set_unmapped(const char *pages, size_t size, size_t mapped)
{
    for (size_t done = 0; done < size; done += HAK_PAGE) {
        size_t here = hak_min(mapped - hak_min(mapped, done), HAK_PAGE);
        HAK_ADD_RELAXED(&hak_zones_unmapped, hak_page_mapped(pages + done) - here);
        hak_page_at(pages + done)->unmapped = (uint16_t)((HAK_PAGE - here) / HAK_SYSTEM_PAGE);
    }
}

/* By default the parts decide for which of their regions huge pages pay; but a small program gets none. */
static void advise_huge(const struct hak_zone *z, size_t from, size_t to)
{
    uint32_t thp = hak_options.thp;
    if (thp != HAK_THP_AUTO)
        hak_os_advise(z->base + from, to - from, thp == HAK_THP_ALWAYS ? MADV_HUGEPAGE : MADV_NOHUGEPAGE,
                      HAK_CAUSE_huge_page);
    else if (from == 0 && HAK_SUPERSLAB >= HAK_HUGE_PAGE)
        hak_os_advise(z->base, HAK_SUPERSLAB, MADV_NOHUGEPAGE, HAK_CAUSE_superslab_map);
}

static void name_zone(const struct hak_zone *z, size_t from, size_t to)
{
    if (from < NAME_FROM)
        from = 0;
    if (to >= NAME_FROM)
        hak_os_name(z->base + from, to - from, "hakmem");
}

static int map_range(const struct hak_zone *z, size_t from, size_t end)
{
    int error = hak_os_map_at(z->base + from, end - from, WRITABLE, HAK_CAUSE_superslab_map);
    if (!error && !hak_limit_is_tight) {
        advise_huge(z, from, end);
        name_zone(z, from, end);
    }
    return error;
}

static int map_to(struct hak_zone *z, size_t end)
{
    size_t from = hak_zone_mapped(z);
    int error = map_descriptors(z->base + from, end - from);
    if (!error && hak_limit_is_tight)
        set_unmapped(z->base + from, end - from, 0);
    else if (!error)
        error = map_range(z, from, end);
    if (error)
        return error;
    HAK_STORE_RELEASE(&z->mapped, end);
    if (z == &hak_zones[0])
        hak_page_map_grow(end);
    if (z->header)
        HAK_STORE_RELAXED(&hak_tags.header_size, end);
    grow_tags();
    return 0;
}

static int open_part(const char *from, const char *end)
{
    const struct hak_zone *z = hak_zone_of(from);
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
    if (!HAK_LOAD_RELAXED(&hak_zones_unmapped))
        return 0;
    for (const char *page = base - (uintptr_t)base % HAK_PAGE; page < end && !error; page += HAK_PAGE) {
        const char *there = page + hak_page_mapped(page);
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
        for (n = here = hak_page_mapped(base + at); here == HAK_PAGE && at + n < size; n += here)
            here = hak_page_mapped(base + at + n);
        if (n && hak_os_unmap(base + at, n, cause))
            return false;
        set_unmapped(base + at, n, 0);
    }
    return true;
}

/* Nothing else can use the memory of a header zone, so it gets at most a quarter of what the process may have. */
static size_t most_bytes(const struct hak_zone *z)
{
    size_t planned = z->superslabs * HAK_SUPERSLAB;
    return z->header ? hak_min(planned, hak_limit() / 4 & ~(HAK_SUPERSLAB - 1)) : planned;
}

/* Zones double, which keeps calls few; near a limit they grow by no more than is needed. */
int hak_zone_grow(struct hak_zone *z, size_t end)
{
    size_t mapped = hak_zone_mapped(z), step = hak_min(hak_max(mapped, STEP_FIRST), STEP_MAX);
    if (end <= mapped)
        return 0;
    size_t most = most_bytes(z), want = hak_min(hak_align_up(hak_max(mapped + step, end), HAK_SUPERSLAB), most);
    int error = end <= most ? map_to(z, want) : -ENOMEM;
    return error && want > end ? map_to(z, end) : error;
}

void hak_zone_evade(struct hak_zone *z)
{
    size_t mapped = hak_zone_mapped(z), rest = z->superslabs - mapped / HAK_SUPERSLAB;
    z->superslabs -= rest;
    if (!z->header)
        add_zone(z->base + mapped + entries * HAK_PAGE, rest, false);
}
