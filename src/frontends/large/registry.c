/* SPDX-License-Identifier: MIT
 * See registry.h. Direct mappings are large, so not many, and a fixed number of chains is enough. Spares are among
 * them, with no usable bytes, and on a list of those of about their length. */
#include "registry.h"

#include "core/base/layout.h"
#include "core/os/meta.h"

#define BUCKETS_LG 13
#define SCAN 8u /* spares of a list that a request looks at */

static HAK_LOCK(registry_lock, HAK_RANK_FRONTEND_INNER);
static HAK_SELDOM struct mapping *buckets[1 << BUCKETS_LG];
static struct hak_meta_list recycled_mappings;
static size_t mappings, bytes;
static struct mapping *spares[64]; /* by the logarithm of their size */
static uint64_t lengths;           /* bit i: list i is not empty */
static size_t spare_bytes;

static struct mapping **find_mapping(const void *block)
{
    uint64_t hash = ((uintptr_t)block >> 12) * 0x9e3779b97f4a7c15u;
    struct mapping **m = &buckets[hash >> (64 - BUCKETS_LG)];
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
    mappings += entry->usable != 0;
    bytes += entry->usable;
}

static struct mapping *detach(const void *block, bool spare)
{
    struct mapping **m = find_mapping(block), *entry = *m;
    if (entry && spare == !entry->usable) {
        *m = entry->next;
        mappings -= entry->usable != 0;
        bytes -= entry->usable;
        return entry;
    }
    return NULL;
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

struct mapping *hak_registry_detach(const void *block)
{
    hak_lock_acquire(&registry_lock);
    struct mapping *entry = detach(block, false);
    hak_lock_release(&registry_lock);
    return entry;
}

void hak_registry_attach(struct mapping *entry)
{
    hak_lock_acquire(&registry_lock);
    attach(entry);
    hak_lock_release(&registry_lock);
}

void hak_registry_forget(struct mapping *entry)
{
    hak_lock_acquire(&registry_lock);
    hak_meta_recycle(&recycled_mappings, entry);
    hak_lock_release(&registry_lock);
}

/* --- spares ------------------------------------------------------------------------------------------- */

static unsigned spare_list_of(size_t size)
{
    return 63 - (unsigned)__builtin_clzll(size);
}

void hak_registry_add_spare(struct mapping *entry)
{
    unsigned i = spare_list_of(entry->size);
    hak_lock_acquire(&registry_lock);
    entry->block = entry->base;
    entry->usable = 0;
    attach(entry);
    entry->prev_spare = NULL;
    entry->next_spare = spares[i];
    if (spares[i])
        spares[i]->prev_spare = entry;
    spares[i] = entry;
    lengths |= (uint64_t)1 << i;
    spare_bytes += entry->size;
    hak_lock_release(&registry_lock);
}

static struct mapping *detach_spare(const void *base)
{
    struct mapping *entry = detach(base, true);
    if (entry) {
        unsigned i = spare_list_of(entry->size);
        *(entry->prev_spare ? &entry->prev_spare->next_spare : &spares[i]) = entry->next_spare;
        if (entry->next_spare)
            entry->next_spare->prev_spare = entry->prev_spare;
        lengths &= ~((uint64_t)!spares[i] << i);
        spare_bytes -= entry->size;
    }
    return entry;
}

static struct mapping *first_fit(size_t size, bool zero)
{
    for (uint64_t rows = lengths >> spare_list_of(size) << spare_list_of(size); rows; rows &= rows - 1) {
        unsigned scan = SCAN;
        for (struct mapping *m = spares[__builtin_ctzll(rows)]; m && scan; m = m->next_spare, scan--)
            if (m->size >= size && (m->clean || !zero))
                return m;
    }
    return NULL;
}

struct mapping *hak_registry_spare(size_t size, bool zero)
{
    hak_lock_acquire(&registry_lock);
    struct mapping *entry = first_fit(size, zero);
    if (entry)
        detach_spare(entry->base);
    hak_lock_release(&registry_lock);
    return entry;
}

struct mapping *hak_registry_spare_at(const void *base)
{
    hak_lock_acquire(&registry_lock);
    struct mapping *entry = lengths ? detach_spare(base) : NULL;
    hak_lock_release(&registry_lock);
    return entry;
}

size_t hak_registry_spare_bytes(void)
{
    hak_lock_acquire(&registry_lock);
    size_t n = spare_bytes;
    hak_lock_release(&registry_lock);
    return n;
}

/* --- figures ------------------------------------------------------------------------------------------ */

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
