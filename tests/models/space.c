/* SPDX-License-Identifier: MIT
 * The address space as it is (core/pages/space.c, zones.c): a zone grows, continues elsewhere, or its superslabs change
 * hands, while another thread looks up addresses and tags. The page and descriptor that it finds must be mapped and
 * filled in, and a tag names the right class or none. The plan has two granules, and its first zone begins almost full
 * up to the second: growing it maps descriptors, memory and tags. */
#include "core/pages/space.h"

#include <sys/auxv.h>
#include <sys/mman.h>

#include "core/base/kernel.h"
#include "core/os/limit.h"
#include "core/os/meta.h"
#include "world.h"

#define STACK ((unsigned long)1 << 32) /* as if: the plan gets the quarter below, half of it is 1 GiB */
#define PLANNED (HAK_GIB / HAK_PAGE)   /* pages */
#define FIRST (510 * HAK_MIB / HAK_SUPERSLAB)
#define MOVED ((char *)(PLANNED / 2 * HAK_PAGE)) /* a page whose tag has another index when the table has doubled */
#define OWNER ((uint64_t)7 << 32)
#define OLD_CLASS 5u
#define NEW_CLASS 3u

static uint64_t zone_bits[4][64];
static unsigned zone_bits_used;
static bool tags_mapped, descriptors_mapped, memory_mapped, in_the_way; /* plain: only their owner may access them */
static char *first, *next;
static _Atomic(char *) handed_over;
static _Atomic(unsigned) taken[FIRST + 1];

static void setup(void)
{
    MODEL_CHECK(hak_space_init() == 0);
    first = hak_space_alloc(FIRST, 1, false);
    MODEL_CHECK(first);
    next = first + FIRST * HAK_SUPERSLAB;
    tags_mapped = descriptors_mapped = memory_mapped = false;
    hak_tag_set(MOVED, OWNER, OLD_CLASS);
}

/* The computation of free: the class, or more than any class. */
static uint64_t class_by_tag(const char *p)
{
    uint64_t page = (uintptr_t)p >> HAK_PAGE_LG;
    return page ^ hak_tag_load(page) ^ OWNER;
}

static void look(const char *p)
{
    uint64_t found = class_by_tag(MOVED);
    if (found != OLD_CLASS) { /* missed once: the table grew */
        MODEL_CHECK(found >= HAK_NCLASSES && tags_mapped);
        model_reached(2);
    }
    bool contained = hak_space_contains(p);
    model_reached(contained);
    if (contained)
        MODEL_CHECK(memory_mapped && descriptors_mapped && hak_space_page(p));
}

/* --- grow: the zone gets its next step, which needs descriptors and tags of the next granule -----------------------
 */

static void grow(unsigned self)
{
    if (self == 1) {
        look(next);
        char *p = HAK_LOAD_ACQUIRE(&handed_over);
        if (!p)
            return;
        model_reached(3);
        MODEL_CHECK(class_by_tag(p) == NEW_CLASS); /* a thread that has a block has seen the mask of its tag */
        MODEL_CHECK(hak_space_slab_of_block(p) == hak_space_page(p));
        return;
    }
    char *p = hak_space_alloc(1, 1, false);
    MODEL_CHECK(p == next);
    hak_tag_set(p, OWNER, NEW_CLASS);
    HAK_STORE_RELEASE(&handed_over, p);
}

static void expect_grown(void)
{
    MODEL_CHECK(tags_mapped && memory_mapped && descriptors_mapped);
    MODEL_CHECK(hak_tags.mask == PLANNED - 1 && class_by_tag(next) == NEW_CLASS && hak_space_contains(next));
}

/* --- retag: the owner of a slab sets its tag once more, while the table grows ---------------------------------------
 */

static void retag(unsigned self)
{
    if (self == 0) {
        MODEL_CHECK(hak_space_alloc(1, 1, false) == next);
        return;
    }
    hak_tag_set(MOVED, OWNER, OLD_CLASS);
    bool in_new_half = HAK_LOAD_RELAXED(&hak_tags.table[PLANNED / 2]);
    model_reached(in_new_half);
    if (in_new_half)
        MODEL_CHECK(tags_mapped);
}

static void expect_tagged(void)
{
    bool in_new_half = HAK_LOAD_RELAXED(&hak_tags.table[PLANNED / 2]);
    MODEL_CHECK(in_new_half ? class_by_tag(MOVED) == OLD_CLASS : class_by_tag(MOVED) >= HAK_NCLASSES);
}

/* --- evade: the program has mapped what comes next, so a new zone is published
 * -----------------------------------------
 */

static void setup_in_the_way(void)
{
    setup();
    in_the_way = true;
}

static void evade(unsigned self)
{
    char *elsewhere = next + HAK_GIB;
    if (self == 1)
        look(elsewhere);
    else
        MODEL_CHECK(hak_space_alloc(1, 1, false) == elsewhere);
}

static void expect_elsewhere(void)
{
    struct hak_space_stats stats;
    hak_space_stats(&stats);
    MODEL_CHECK(stats.zones == 2 && stats.handed_out == (FIRST + 1) * HAK_SUPERSLAB && !hak_space_contains(next));
}

/* --- exchange: superslabs are freed and taken, each by one thread at a time
 * --------------------------------------------
 */

static void exchange(unsigned self)
{
    hak_space_free(first + self * HAK_SUPERSLAB, 1, HAK_CAUSE_trim);
    char *p = hak_space_alloc(1, 1, false);
    MODEL_CHECK(p && p < next);
    size_t i = (size_t)(p - first) / HAK_SUPERSLAB;
    MODEL_CHECK(i < 2 && atomic_fetch_add_explicit(&taken[i], 1, memory_order_relaxed) == 0);
    model_reached(i == self);
}

static void expect_all_taken(void)
{
    struct hak_space_stats stats;
    hak_space_stats(&stats);
    MODEL_CHECK(stats.handed_out == FIRST * HAK_SUPERSLAB && taken[0] == 1 && taken[1] == 1);
}

/* --- what they call ---------------------------------------------------------------------------------------------
 */

bool hak_limit_is_tight;

bool hak_limit_allows(int64_t mappings)
{
    (void)mappings;
    return true;
}

size_t hak_limit(void)
{
    return SIZE_MAX;
}

bool hak_limit_tighten(void)
{
    return false;
}

uintptr_t hak_kernel_auxv(uintptr_t type)
{
    (void)type;
    return STACK;
}

/* Tables are made anew in each run; what a zone has is never touched. */
int hak_os_map_at(void *hint, size_t size, int prot, enum hak_cause cause)
{
    if (cause == HAK_CAUSE_superslab_map) {
        if (in_the_way && hint == next)
            return -EEXIST;
        memory_mapped = true;
        return 0;
    }
    bool tags = hint == &hak_tags.table[PLANNED / 2];
    *(tags ? &tags_mapped : &descriptors_mapped) = true;
    return mmap(hint, size, prot, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0) == hint ? 0 : -ENOMEM;
}

int hak_os_advise(void *addr, size_t size, int advice, enum hak_cause cause)
{
    (void)addr, (void)size, (void)advice, (void)cause;
    return 0;
}

void hak_os_name(void *addr, size_t size, const char *name)
{
    (void)addr, (void)size, (void)name;
}

void hak_meta_give(void *chunk, size_t size)
{
    (void)chunk, (void)size;
}

void *hak_meta_alloc(size_t size)
{
    MODEL_CHECK(size <= sizeof zone_bits[0] && zone_bits_used < 4);
    return zone_bits[zone_bits_used++];
}

const struct model models[] = {
    {"grow", 2, setup, grow, expect_grown, 4},
    {"retag", 2, setup, retag, expect_tagged, 2},
    {"evade", 2, setup_in_the_way, evade, expect_elsewhere, 3},
    {"exchange", 2, setup, exchange, expect_all_taken, 2},
    {0},
};
