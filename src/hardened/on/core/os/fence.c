/* SPDX-License-Identifier: MIT
 * See core/os/fence.h. */
#include "core/os/fence.h"

#include "core/base/secret.h"
#include "core/os/limit.h"

static _Atomic(uint32_t) fences;

static void give_number(uint32_t n)
{
    HAK_SUB_RELAXED(&fences, n);
    hak_limit_split(-2);
}

/* One fence splits a mapping in three, as do two at the ends of one. */
static bool take_number(uint32_t n)
{
    if (!hak_limit_split(2))
        return false;
    bool room = HAK_ADD_RELAXED(&fences, n) + n <= hak_options.guard_pages;
    if (!room)
        give_number(n);
    return room;
}

/* Maps one range, and makes all of it accessible except for its first and last page. */
static int map_between(void **addr, size_t size, enum hak_cause cause)
{
    size_t page = hak_os_page_size(), total;
    void *base;
    if (__builtin_add_overflow(size, 2 * page, &total) || hak_os_map(&base, total, PROT_NONE, cause))
        return -ENOMEM;
    *addr = (char *)base + page;
    int error = hak_os_protect(*addr, size, PROT_READ | PROT_WRITE, HAK_CAUSE_guard);
    if (error)
        hak_os_unmap(base, total, cause);
    return error;
}

int hak_fence_map(void **addr, size_t size, bool *fenced, enum hak_cause cause)
{
    size = hak_align_up(size, hak_os_page_size());
    *fenced = take_number(2);
    if (*fenced && !map_between(addr, size, cause))
        return 0;
    if (*fenced)
        give_number(2);
    *fenced = false;
    return hak_os_map(addr, size, PROT_READ | PROT_WRITE, cause);
}

int hak_fence_unmap(void *addr, size_t size, bool fenced, enum hak_cause cause)
{
    size_t page = hak_os_page_size();
    if (!fenced)
        return hak_os_unmap(addr, size, cause);
    int error = hak_os_unmap((char *)addr - page, size + 2 * page, cause);
    if (!error)
        give_number(2);
    return error;
}

/* The mapping between the fences has moved away: its addresses may be in use again by now. */
static void unmap_fences(char *addr, size_t size, enum hak_cause cause)
{
    size_t page = hak_os_page_size();
    if (!hak_os_unmap(addr - page, page, cause) && !hak_os_unmap(addr + size, page, cause))
        give_number(2);
}

/* Moves the pages between two new fences, since the old ones prevent growing in place. */
int hak_fence_remap(void **addr, size_t size, size_t new_size, bool *fenced, enum hak_cause cause)
{
    void *to;
    bool between;
    if (!*fenced)
        return hak_os_remap(addr, size, new_size, true, cause);
    int error = hak_fence_map(&to, new_size, &between, cause);
    if (error)
        return error;
    error = hak_os_move(*addr, size, to, new_size, cause);
    if (error) {
        hak_fence_unmap(to, new_size, between, cause);
        return error;
    }
    unmap_fences(*addr, size, cause);
    *addr = to;
    *fenced = between;
    return 0;
}

bool hak_fence_is_wanted(void)
{
    return HAK_LOAD_RELAXED(&fences) < hak_options.guard_pages;
}

bool hak_fence_close(void *addr, size_t size)
{
    if (!take_number(1))
        return false;
    bool closed = hak_os_protect(addr, size, PROT_NONE, HAK_CAUSE_guard) == 0;
    if (!closed)
        give_number(1);
    return closed;
}

/* Each attempt draws again; the numbers drawn reveal nothing about the keys. */
struct hak_places hak_fence_draw(uintptr_t quarter, size_t zones, size_t tables, uint64_t random)
{
    size_t room = (quarter + quarter / 2 - zones) >> HAK_SUPERSLAB_LG, table_room = (quarter / 2 - tables) / HAK_PAGE;
    uint64_t other = hak_secret_mix(quarter + 2) ^ random;
    random ^= hak_secret_mix(quarter + 1);
    return (struct hak_places){(char *)quarter + (random % room << HAK_SUPERSLAB_LG),
                               (char *)quarter - other % table_room * HAK_PAGE};
}

size_t hak_fence_gap(void)
{
    return hak_limit() == SIZE_MAX ? HAK_PAGE : 0;
}

void hak_fence_close_gaps(char *a, char *b)
{
    if (hak_fence_gap()) {
        hak_fence_close(a, HAK_PAGE);
        hak_fence_close(b, HAK_PAGE);
    }
}
