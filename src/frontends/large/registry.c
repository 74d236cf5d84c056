/* SPDX-License-Identifier: MIT
 * See registry.h. Direct mappings are few and large, so a fixed number of short chains is enough. */
#include "registry.h"

#include "core/base/layout.h"
#include "core/os/meta.h"

#define BUCKETS 1024

static HAK_LOCK(registry_lock, HAK_RANK_FRONTEND_INNER);
static HAK_SELDOM struct mapping *buckets[BUCKETS];
static struct hak_meta_list recycled_mappings;
static size_t mappings, bytes;

static struct mapping **find_mapping(const void *block)
{
    uint64_t hash = ((uintptr_t)block >> 12) * 0x9e3779b97f4a7c15u;
    struct mapping **m = &buckets[hash >> 54];
    while (*m && (*m)->block != block)
        m = &(*m)->next;
    return m;
}

static void attach(struct mapping *entry)
{
    struct mapping **bucket = find_mapping(entry->block);
    HAK_CHECK(!*bucket);
    entry->next = NULL;
    *bucket = entry;
    mappings++;
    bytes += entry->usable;
}

static struct mapping *detach(const void *block)
{
    struct mapping **m = find_mapping(block), *entry = *m;
    if (entry) {
        *m = entry->next;
        mappings--;
        bytes -= entry->usable;
    }
    return entry;
}

bool hak_registry_add(struct mapping m)
{
    hak_lock_acquire(&registry_lock);
    struct mapping *entry = hak_meta_new(&recycled_mappings, sizeof *entry);
    if (entry) {
        *entry = m;
        attach(entry);
    }
    hak_lock_release(&registry_lock);
    return entry != NULL;
}

bool hak_registry_remove(const void *block, struct mapping *out)
{
    hak_lock_acquire(&registry_lock);
    struct mapping *entry = detach(block);
    if (entry) {
        *out = *entry;
        hak_meta_recycle(&recycled_mappings, entry);
    }
    hak_lock_release(&registry_lock);
    return entry != NULL;
}

struct mapping *hak_registry_detach(const void *block)
{
    hak_lock_acquire(&registry_lock);
    struct mapping *entry = detach(block);
    hak_lock_release(&registry_lock);
    return entry;
}

void hak_registry_attach(struct mapping *entry)
{
    hak_lock_acquire(&registry_lock);
    attach(entry);
    hak_lock_release(&registry_lock);
}

size_t hak_registry_usable(const void *block)
{
    hak_lock_acquire(&registry_lock);
    const struct mapping *entry = *find_mapping(block);
    size_t usable = entry ? entry->usable : 0;
    hak_lock_release(&registry_lock);
    return usable;
}

size_t hak_registry_bytes(size_t *count)
{
    HAK_SHOW_VARIABLE(buckets);
    HAK_SHOW_SIZE(mapping);
    HAK_SHOW_FIELD(mapping, base);
    HAK_SHOW_FIELD(mapping, size);
    HAK_SHOW_FIELD(mapping, usable);
    HAK_SHOW_FIELD(mapping, next);
    hak_lock_acquire(&registry_lock);
    size_t n = bytes;
    *count = mappings;
    hak_lock_release(&registry_lock);
    return n;
}
