/* SPDX-License-Identifier: MIT
 * The address space as it is (core/pages/space.c): a zone is added, and descriptors become writable, while another
 * thread looks an address up. What it finds must be filled in and writable. */
#include "core/pages/space.h"

#include <sys/mman.h>
#include <sys/resource.h>

#include "core/os/meta.h"
#include "core/os/os.h"
#include "world.h"

#define RANGE ((uintptr_t)1 << 45)
#define ROOM ((size_t)1 << 24)
#define LIMIT ((size_t)1 << 30) /* of RLIMIT_AS: two granules of descriptors, and zones of a 16th */

static uint64_t zone_bits[8][8];
static unsigned zone_bits_used;
static bool descriptors_writable; /* of the second zone */
static char *first, *second;

__attribute__((constructor)) static void map_range(void)
{
    if (mmap((void *)RANGE, ROOM, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) !=
        (void *)RANGE)
        __builtin_trap();
}

/* The first zone is handed out, all of it. */
static void setup(void)
{
    struct hak_space_stats stats;
    MODEL_CHECK(hak_space_init() == 0);
    first = hak_space_alloc(1, 1, false);
    hak_space_stats(&stats);
    while (stats.handed_out < stats.reserved) {
        MODEL_CHECK(hak_space_alloc(1, 1, false));
        hak_space_stats(&stats);
    }
    second = first - LIMIT / 16;
}

static void grow_or_look(unsigned self)
{
    if (self == 0) {
        MODEL_CHECK(hak_space_commit(first, HAK_PAGE, HAK_CAUSE_superslab_map) == 0);
        char *p = hak_space_alloc(1, 1, false);
        MODEL_CHECK(p == second && hak_space_commit(p, HAK_PAGE, HAK_CAUSE_superslab_map) == 0);
        return;
    }
    model_reached(hak_space_contains(second));
    if (hak_space_page(second)) {
        MODEL_CHECK(descriptors_writable);
        model_reached(2);
    }
}

static void expect_found(void)
{
    MODEL_CHECK(hak_space_contains(second) && hak_space_page(second));
}

/* --- what space.c calls ---------------------------------------------------------------------------------- */

/* Room for a small range alone. */
int hak_os_map(void **addr, size_t size, int prot, enum hak_cause cause)
{
    (void)prot, (void)cause;
    *addr = (void *)RANGE;
    return size <= ROOM ? 0 : -ENOMEM;
}

int hak_os_map_at(void *hint, size_t size, int prot, enum hak_cause cause)
{
    (void)size, (void)prot, (void)cause;
    return hint == second ? 0 : -ENOMEM;
}

int hak_os_unmap(void *addr, size_t size, enum hak_cause cause)
{
    (void)addr, (void)size, (void)cause;
    return 0;
}

int hak_os_protect(void *addr, size_t size, int prot, enum hak_cause cause)
{
    (void)size, (void)prot, (void)cause;
    if (second && addr == hak_page_map.descriptors)
        descriptors_writable = true;
    return 0;
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

int getrlimit(__rlimit_resource_t resource, struct rlimit *r)
{
    (void)resource;
    r->rlim_cur = LIMIT;
    return 0;
}

void hak_meta_give(void *chunk, size_t size)
{
    (void)chunk, (void)size;
}

void *hak_meta_alloc(size_t size)
{
    MODEL_CHECK(size <= sizeof zone_bits[0] && zone_bits_used < 8);
    return zone_bits[zone_bits_used++];
}

const struct model models[] = {
    {"zone", 2, setup, grow_or_look, expect_found, 3},
    {0},
};
