/* SPDX-License-Identifier: MIT
 * See core/pages/zero.h. Blocks of zero bytes are addresses of a range that is mapped at the first such request. One
 * bit for each address is set while it is a block. Addresses are used in turn, so that each is reused as late as
 * possible. */
#include "core/pages/zero.h"

#include <sys/mman.h>

#include "core/base/log.h"
#include "core/os/os.h"

#define WORDS 1024u
#define UNIT 16u
#define BYTES (WORDS * 64 * UNIT)
#define TRIES 64u

static _Atomic(uint64_t) taken_addresses[WORDS];
static _Atomic(uint32_t) turn;
static _Atomic(char *) range;

/* If two threads map the range at the same time, one of them uses the other's. */
static char *get_range(void)
{
    char *is = HAK_LOAD_RELAXED(&range);
    void *base;
    if (is || hak_os_map(&base, BYTES, PROT_NONE, HAK_CAUSE_guard))
        return is;
    if (HAK_CAS_RELAXED(&range, &is, (char *)base))
        return base;
    hak_os_unmap(base, BYTES, HAK_CAUSE_guard);
    return is;
}

static bool take_address(uint32_t i)
{
    uint64_t bit = (uint64_t)1 << i % 64;
    return !(HAK_OR_RELAXED(&taken_addresses[i / 64], bit) & bit);
}

void *hak_zero_alloc(void)
{
    char *base = get_range();
    for (uint32_t tries = 0; base && tries < TRIES; tries++) {
        uint32_t i = HAK_ADD_RELAXED(&turn, 1) % (WORDS * 64);
        if (take_address(i))
            return base + i * UNIT;
    }
    return NULL;
}

static bool lies_there(const void *p)
{
    const char *base = HAK_LOAD_RELAXED(&range);
    return base && (size_t)((const char *)p - base) < BYTES;
}

bool hak_zero_is_block(const void *p, const char *call)
{
    if (!lies_there(p))
        return false;
    size_t offset = (size_t)((const char *)p - HAK_LOAD_RELAXED(&range));
    if (offset % UNIT || !(HAK_LOAD_RELAXED(&taken_addresses[offset / UNIT / 64]) >> offset / UNIT % 64 & 1))
        hak_log_fatal("invalid %s: %p lies among blocks of 0 bytes, and is none; freed twice, or never allocated", call,
                      p);
    return true;
}

bool hak_zero_free(void *p)
{
    if (!hak_zero_is_block(p, "free"))
        return false;
    size_t i = (size_t)((char *)p - HAK_LOAD_RELAXED(&range)) / UNIT;
    HAK_AND_RELAXED(&taken_addresses[i / 64], ~((uint64_t)1 << i % 64));
    return true;
}
