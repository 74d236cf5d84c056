/* SPDX-License-Identifier: MIT
 * See world.h. Compiled like the library, so that its accesses to blocks are seen. */
#include "world.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "core/base/counters.h"
#include "core/base/log.h"
#include "core/os/meta.h"
#include "core/pages/dirty.h"
#include "core/pages/space.h"

#define MEMORY ((char *)((uintptr_t)1 << 44))

static struct hak_slab descriptors[WORLD_PAGES];
static _Atomic(uint64_t) tags[WORLD_PAGES];
/* In space.c, where that is the model. */
__attribute__((weak)) struct hak_tags hak_tags = {.table = tags, .mask = WORLD_PAGES - 1};
__attribute__((weak)) struct hak_page_map hak_page_map; /* of size 0: all is looked up below */
struct hak_dirty_queue hak_dirty_queue;                 /* no model has dirty.c */

__attribute__((constructor)) static void map_memory(void)
{
    if (mmap(MEMORY, WORLD_PAGES * HAK_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE,
             -1, 0) != MEMORY)
        abort();
}

void world_setup(void)
{
    model_track(MEMORY, WORLD_PAGES * HAK_PAGE);
}

#define LARGE_STRIDE 1024u

/* A class whose slabs have no bitmap, or need none, and are one page long. */
static unsigned large_class(void)
{
    unsigned cls = 0;
    while (hak_slab_pages[cls] != 1 || hak_strides[cls] <= LARGE_STRIDE)
        cls++;
    return cls;
}

void world_format(struct hak_slab *slab, unsigned blocks, struct hak_heap *owner)
{
    hak_slab_format(slab, large_class(), owner);
    slab->capacity = blocks;
}

struct hak_slab *world_slab(unsigned page, unsigned blocks, struct hak_heap *owner, unsigned taken, void **out)
{
    struct hak_slab *slab = &descriptors[page];
    slab->base = MEMORY + page * HAK_PAGE;
    slab->pages = 1;
    world_format(slab, blocks, owner);
    for (unsigned i = 0; i < taken; i++)
        world_use(out[i] = hak_slab_take(slab, 1).head);
    return slab;
}

__attribute__((weak)) struct hak_slab *hak_space_slab(const void *p)
{
    return &descriptors[((uintptr_t)p - (uintptr_t)MEMORY) / HAK_PAGE];
}

void world_use(void *block)
{
    ((volatile uint64_t *)block)[0] = 1;
    ((volatile uint64_t *)block)[1] = 1;
}

unsigned world_use_up(struct hak_slab *slab)
{
    unsigned n = 0;
    for (; hak_slab_has_free(slab); n++)
        world_use(hak_slab_take(slab, 1).head);
    return n;
}

enum hak_remote world_free(struct hak_slab *slab, void *block)
{
    world_use(block);
    return hak_slab_remote_put(slab, (struct hak_chain){block, block, 1});
}

struct hak_heap *world_thread(unsigned number)
{
    return (struct hak_heap *)(uintptr_t)((number + 1) * 4096);
}

/* --- what the real files call --------------------------------------------------------------------------- */

const char *hak_log_file = "";

void hak_log_fatal(const char *format, ...)
{
    char line[256];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    model_fail("%s", line);
}

void hak_log(const char *format, ...)
{
    (void)format;
}

void hak_check_failed(const char *what, const char *file, int line)
{
    model_fail("%s:%d: not so: %s", file, line, what);
}

/* In counters.c, where that is part of the model. */
__attribute__((weak)) HAK_THREAD_LOCAL struct hak_counters *hak_counters_own;
__attribute__((weak)) struct hak_counters hak_counters_nobodys;

__attribute__((weak)) void hak_count_transition(unsigned from, unsigned to)
{
    (void)from, (void)to;
}
