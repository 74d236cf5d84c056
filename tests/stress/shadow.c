/* SPDX-License-Identifier: MIT
 *
 * A page that lies wholly inside an extent is claimed by its word alone, a
 * page at the extent's edge by the bits of its granules and by adding one to
 * its word. So a big block costs one step a page, and every overlap is seen by
 * one of the two sides, whichever comes second.
 *
 * All steps are relaxed. The atomic operations on one word are ordered among themselves, and the order between words
 * does not matter: a release is made before the block is freed, a claim after the block was returned, and the allocator
 * must order these two.
 */
#include "shadow.h"

#include <stdatomic.h>
#include <stdint.h>
#include <sys/mman.h>

enum {
    GRANULE_LG = 4,
    PAGE_LG = 12,
    LEAF_LG = 30, /* one leaf table covers 1 GiB */
    WORDS_PER_PAGE = (1 << (PAGE_LG - GRANULE_LG)) / 64,
    PAGES_PER_LEAF = 1 << (LEAF_LG - PAGE_LG),
    LEAVES = 1 << (48 - LEAF_LG),
    PATIENCE_MS = 2000,
};

#define PAGE ((uintptr_t)1 << PAGE_LG)
#define WHOLE 0x80000000u /* in a page's word: inside one extent; else the number of edges in it */

struct page {
    _Atomic(uint64_t) granules[WORDS_PER_PAGE];
    _Atomic(uint32_t) state;
};

static _Atomic(struct page *) leaves[LEAVES];

/* A test limits the address space only for a moment. */
static void *map_patiently(size_t bytes)
{
    for (int turn = 0; turn < PATIENCE_MS; turn++, usleep(1000)) {
        void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (p != MAP_FAILED)
            return p;
    }
    stress_fail("stress: no memory for the shadow map");
}

static struct page *page_of(uintptr_t addr)
{
    uintptr_t leaf = addr >> LEAF_LG;
    if (leaf >= LEAVES)
        stress_fail("stress: %#zx is no address of this machine", (size_t)addr);
    struct page *pages = atomic_load_explicit(&leaves[leaf], memory_order_acquire);
    if (pages == NULL) {
        size_t bytes = sizeof(struct page) * PAGES_PER_LEAF;
        struct page *fresh = map_patiently(bytes);
        /* Release: a thread that sees the table sees it mapped and zero. */
        if (atomic_compare_exchange_strong_explicit(&leaves[leaf], &pages, fresh, memory_order_acq_rel,
                                                    memory_order_acquire))
            pages = fresh;
        else
            munmap(fresh, bytes);
    }
    return &pages[(addr >> PAGE_LG) % PAGES_PER_LEAF];
}

/* The bits of word `w` of a page that the granules [first, end) cover. */
static uint64_t word_mask(unsigned w, unsigned first, unsigned end)
{
    unsigned low = first > w * 64 ? first - w * 64 : 0;
    unsigned high = end < (w + 1) * 64 ? end - w * 64 : 64;
    uint64_t below_high = high == 64 ? ~(uint64_t)0 : ((uint64_t)1 << high) - 1;
    return below_high & ~(((uint64_t)1 << low) - 1);
}

static void claim_edge(struct page *page, uintptr_t from, uintptr_t to)
{
    unsigned first = (unsigned)((from & (PAGE - 1)) >> GRANULE_LG);
    unsigned end = first + (unsigned)((to - from) >> GRANULE_LG);
    if (atomic_fetch_add_explicit(&page->state, 1, memory_order_relaxed) & WHOLE)
        stress_fail("stress: overlap: [%#zx, %#zx) lies inside a live block", (size_t)from, (size_t)to);
    for (unsigned w = first / 64; w * 64 < end; w++) {
        uint64_t mask = word_mask(w, first, end);
        if (atomic_fetch_or_explicit(&page->granules[w], mask, memory_order_relaxed) & mask)
            stress_fail("stress: overlap: [%#zx, %#zx) meets a live block", (size_t)from, (size_t)to);
    }
}

static void release_edge(struct page *page, uintptr_t from, uintptr_t to)
{
    unsigned first = (unsigned)((from & (PAGE - 1)) >> GRANULE_LG);
    unsigned end = first + (unsigned)((to - from) >> GRANULE_LG);
    for (unsigned w = first / 64; w * 64 < end; w++)
        atomic_fetch_and_explicit(&page->granules[w], ~word_mask(w, first, end), memory_order_relaxed);
    atomic_fetch_sub_explicit(&page->state, 1, memory_order_relaxed);
}

static void claim_whole(struct page *page, uintptr_t at)
{
    if (atomic_fetch_add_explicit(&page->state, WHOLE, memory_order_relaxed) != 0)
        stress_fail("stress: overlap: the page at %#zx holds a live block", (size_t)at);
}

static void release_whole(struct page *page)
{
    atomic_fetch_sub_explicit(&page->state, WHOLE, memory_order_relaxed);
}

static void walk(const void *p, size_t size, int claiming)
{
    uintptr_t at = (uintptr_t)p;
    uintptr_t end = (at + size + 15) & ~(uintptr_t)15;
    while (at < end) {
        uintptr_t next = (at | (PAGE - 1)) + 1;
        if (next > end)
            next = end;
        struct page *page = page_of(at);
        int whole = next - at == PAGE;
        if (claiming && whole)
            claim_whole(page, at);
        else if (claiming)
            claim_edge(page, at, next);
        else if (whole)
            release_whole(page);
        else
            release_edge(page, at, next);
        at = next;
    }
}

void shadow_claim(const void *p, size_t size)
{
    if ((uintptr_t)p % 16 != 0)
        stress_fail("stress: %p is not aligned to 16", p);
    walk(p, size, 1);
}

void shadow_release(const void *p, size_t size)
{
    walk(p, size, 0);
}
