/* SPDX-License-Identifier: MIT
 * Several threads add, resize, look up and remove direct mappings (frontends/large/registry.c as it is). */
#include "frontends/large/registry.h"

#include "core/os/meta.h"
#include "world.h"

static struct mapping entries[MODEL_THREADS];
static unsigned entries_used;

static void *block_of(unsigned self)
{
    return (void *)(((uintptr_t)self + 1) << 25);
}

static void come_and_go(unsigned self)
{
    size_t count;
    MODEL_CHECK(hak_registry_add((struct mapping){.block = block_of(self), .size = HAK_MIB, .usable = HAK_MIB}));
    if (self == 0) {
        struct mapping *entry = hak_registry_detach(block_of(0));
        MODEL_CHECK(entry && !hak_registry_usable(block_of(0)));
        entry->size = entry->usable = 2 * HAK_MIB;
        hak_registry_attach(entry);
        MODEL_CHECK(hak_registry_usable(block_of(0)) == 2 * HAK_MIB);
    } else {
        size_t bytes = hak_registry_bytes(&count);
        MODEL_CHECK(count >= 1 && bytes >= HAK_MIB);
        model_reached(count - 1);
        struct mapping *entry = hak_registry_detach(block_of(self));
        MODEL_CHECK(entry && entry->size == HAK_MIB);
        hak_registry_forget(entry);
    }
}

static void expect_one(void)
{
    size_t count;
    MODEL_CHECK(hak_registry_bytes(&count) == 2 * HAK_MIB && count == 1 && entries_used <= 2);
}

void *hak_meta_alloc(size_t size)
{
    MODEL_CHECK(size == sizeof entries[0] && entries_used < MODEL_THREADS);
    return &entries[entries_used++];
}

const struct model models[] = {
    {"registry", 2, world_setup, come_and_go, expect_one, 2},
    {0},
};
