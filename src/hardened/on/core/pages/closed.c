/* SPDX-License-Identifier: MIT
 * See core/pages/closed.h. A table has one bit for each page of the plan; it is mapped when the first page closes. Each
 * border of closed and open pages is that of a mapping, and counts towards the mappings that the library may split. */
#include "core/pages/closed.h"

#include <sys/mman.h>

#include "core/base/lock.h"
#include "core/base/sealed.h"
#include "core/os/limit.h"
#include "core/os/os.h"
#include "core/pages/space.h"

static _Atomic(_Atomic(uint64_t) *) table;
static HAK_LOCK(turning, HAK_RANK_CLOSED); /* held while pages change, so that borders are counted exactly */

/* If two threads map the table at the same time, one of them uses the other's. */
static _Atomic(uint64_t) *get_table(void)
{
    _Atomic(uint64_t) *is = HAK_LOAD_ACQUIRE(&table);
    size_t size = hak_align_up((hak_page_map.mask + 1) / 8, hak_os_page_size());
    void *base;
    if (is || hak_os_map(&base, size, PROT_READ | PROT_WRITE, HAK_CAUSE_guard))
        return is;
    if (HAK_CAS_ACQ_REL(&table, &is, (_Atomic(uint64_t) *)base))
        return base;
    hak_os_unmap(base, size, HAK_CAUSE_guard);
    return is;
}

static uint64_t index_of_page(const char *p)
{
    return (((uintptr_t)p >> HAK_PAGE_LG) + hak_page_map.rotation) & hak_page_map.mask;
}

static bool is_closed(const _Atomic(uint64_t) *closed, const char *p)
{
    uint64_t i = index_of_page(p);
    return HAK_LOAD_RELAXED(&closed[i / 64]) >> i % 64 & 1;
}

static void set_closed(_Atomic(uint64_t) *closed, const char *p, bool is)
{
    uint64_t i = index_of_page(p), bit = (uint64_t)1 << i % 64;
    if (is)
        HAK_OR_RELAXED(&closed[i / 64], bit);
    else
        HAK_AND_RELAXED(&closed[i / 64], ~bit);
}

/* How many bytes from `p` on, at most `most`, lie in pages that are closed (`is`), or open. */
static size_t length_of(const _Atomic(uint64_t) *closed, const char *p, size_t most, bool is)
{
    size_t n = 0;
    while (n < most && is_closed(closed, p + n) == is)
        n += HAK_PAGE;
    return n;
}

static int64_t new_borders(const _Atomic(uint64_t) *closed, const char *p, const char *end, bool is)
{
    return 2 - 2 * ((is_closed(closed, p - HAK_PAGE) == is) + (is_closed(closed, end) == is));
}

/* Changes the protection of pages that are all closed, or all open. With too many borders, none close, and those that
 * open take the closed pages on both sides along: these are free, too. */
static bool turn_run(_Atomic(uint64_t) *closed, char *p, char *end, bool is)
{
    int64_t borders = new_borders(closed, p, end, is);
    if (borders > 0 && !hak_limit_split(borders)) {
        if (is)
            return true;
        while (is_closed(closed, p - HAK_PAGE) && hak_space_contains(p - HAK_PAGE))
            p -= HAK_PAGE;
        while (is_closed(closed, end) && hak_space_contains(end))
            end += HAK_PAGE;
        borders = -2;
    }
    bool done = !hak_os_protect(p, (size_t)(end - p), is ? PROT_NONE : PROT_READ | PROT_WRITE, HAK_CAUSE_guard);
    for (; done && p < end; p += HAK_PAGE)
        set_closed(closed, p, is);
    if (done ? borders < 0 : borders > 0)
        hak_limit_split(done ? borders : -borders);
    return done;
}

/* Changes the protection of those pages that differ from `is`. */
static bool turn(_Atomic(uint64_t) *closed, char *base, size_t size, bool is)
{
    bool done = true;
    for (size_t at = 0, n; done && at < size; at += n) {
        hak_lock_acquire(&turning);
        at += length_of(closed, base + at, size - at, is);
        n = length_of(closed, base + at, size - at, !is);
        done = !n || turn_run(closed, base + at, base + at + n, is);
        hak_lock_release(&turning);
    }
    return done;
}

void hak_closed_shut(char *base, size_t size)
{
    _Atomic(uint64_t) *closed = hak_options.close_free && !hak_limit_is_tight ? get_table() : NULL;
    if (closed)
        turn(closed, base, size, true);
}

bool hak_closed_open(char *base, size_t size)
{
    _Atomic(uint64_t) *closed = HAK_LOAD_ACQUIRE(&table);
    return !closed || turn(closed, base, size, false);
}
