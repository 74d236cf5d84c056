/* SPDX-License-Identifier: MIT
 * Behind the fast path: refills, large blocks, foreign blocks, alignment, resizing, and misuse. */
#include "slow.h"

#include <string.h>

#include "background.h"
#include "bin.h"
#include "dispatch.h"
#include "limit.h"
#include "log.h"

static void *alloc_from_orphan(unsigned bin)
{
    struct hak_thread *orphan = hak_thread_orphan_acquire();
    void *p = hak_bin_take_one(orphan, bin);
    hak_thread_orphan_release();
    return p;
}

static void *pop(unsigned bin)
{
    void *p = hak_self.head[bin];
    if (p)
        hak_self.head[bin] = hak_next_load(p);
    return p;
}

static void *alloc_small(unsigned bin, bool may_borrow)
{
    struct hak_thread *t = hak_thread_get();
    if (HAK_UNLIKELY(!t))
        return hak_init() ? alloc_from_orphan(bin) : NULL;
    void *p = pop(bin); /* a thread that has just started may have come with blocks */
    if (!p && may_borrow)
        p = hak_bin_borrow(t, bin);
    return p ? p : hak_bin_refill(t, bin);
}

static void *alloc_span(size_t size, size_t align, bool zero)
{
    if (size > PTRDIFF_MAX || align > PTRDIFF_MAX || !hak_init())
        return NULL;
    hak_thread_get(); /* a trim may have asked this thread for its bins */
    hak_limit_make_room(size);
    return hak_dispatch.large->span_alloc(hak_max(size, 1), align, zero);
}

void *hak_malloc_slow(size_t size)
{
    void *p = size <= HAK_SMALL_MAX ? alloc_small(hak_class_of(size), true) : NULL;
    if (!p) { /* for a small size: no slab is to be had, perhaps a page is */
        if (HAK_UNLIKELY(size <= HAK_SMALL_MAX && hak_init() && hak_dispatch.options.ace_trace))
            hak_log("ACE Exhaustion: %zu bytes, no slab of its class; a span of its own, if there is one", size);
        p = alloc_span(size, 1, false);
    }
    if (HAK_UNLIKELY(atomic_load_explicit(&hak_background_wanted, memory_order_relaxed)))
        hak_background_start();
    if (HAK_UNLIKELY(!p))
        errno = ENOMEM;
    return p;
}

static _Noreturn HAK_COLD void fail_foreign(const void *p, const char *verb)
{
    if (hak_space_contains(p))
        hak_log_fatal("invalid %s: %p lies in hakmem's range, but in no block; freed twice, or never allocated", verb, p);
    hak_log_fatal("invalid %s: %p was not allocated by hakmem", verb, p);
}

/* Of a slab whose blocks are all back, none can be freed. */
static bool holds_blocks(const struct hak_slab *slab)
{
    enum hak_slab_state state = hak_slab_state(slab);
    return state == HAK_SLAB_ACTIVE || state == HAK_SLAB_FULL ||
           (state == HAK_SLAB_PARTIAL && !hak_slab_all_back(slab));
}

/* A byte before a block of a header slab that is not the bin's: the block before it was written beyond its end. */
static void check_header(const struct hak_slab *slab, const void *p)
{
    if (!hak_class_has_header(slab->bin) || !hak_space_in_header_zone(p) || p == slab->base)
        return;
    unsigned byte = ((const uint8_t *)p)[-1];
    if (HAK_UNLIKELY(byte != hak_header_byte(slab->bin)))
        hak_log_fatal("corrupted header: the byte before block %p is 0x%02x, not 0x%02x: the block before it, %p of "
                      "%u bytes, was written beyond its end",
                      p, byte, hak_header_byte(slab->bin), (void *)((uintptr_t)p - slab->stride), slab->stride - 1);
}

static void free_small(struct hak_slab *slab, void *p)
{
    hak_slab_check_block(slab, p);
    check_header(slab, p);
    struct hak_thread *t = hak_thread_get();
    if (t && atomic_load_explicit(&slab->owner, memory_order_relaxed) == t)
        hak_slab_tag(slab, t->tag); /* its own block after all: the tag was lost when the table grew */
    if (t) {
        hak_bin_foreign_free(t, slab->bin, p);
    } else {
        hak_next_store(p, NULL);
        hak_bin_drain(NULL, p);
    }
}

static HAK_NOINLINE void free_by_slab(void *p)
{
    if (!p)
        return;
    int saved = errno;
    struct hak_slab *slab = hak_space_slab(p);
    if (slab && holds_blocks(slab))
        free_small(slab, p);
    else if (!hak_init() || !hak_dispatch.large->span_free(slab, p))
        fail_foreign(p, "free");
    if (HAK_UNLIKELY(atomic_load_explicit(&hak_background_wanted, memory_order_relaxed)))
        hak_background_start();
    errno = saved;
}

/* The tag of a page in use names the class, whoever owns it; what it cannot tell, the slab does. (A cleared tag
 * is 0, which is a class for page 0.) */
void hak_free_slow(void *p)
{
    uint64_t page = (uintptr_t)p >> HAK_PAGE_LG, bin = (uint32_t)(page ^ hak_tag_load(page));
    struct hak_thread *t = hak_self.thread;
    if (HAK_UNLIKELY(bin >= HAK_NBINS || !p || !t || !hak_class_starts_at(bin, p) ||
                     (HAK_HEADER_LIMIT && hak_space_in_header_zone(p)))) {
        free_by_slab(p);
        return;
    }
#if HAK_HARDENED
    hak_mark_set(p, (unsigned)bin);
#endif
    hak_bin_foreign_free(t, (unsigned)bin, p);
}

#if HAK_HARDENED
/* --- a freed block was freed again: it carries the mark, or the program happens to hold that value ------- */

uintptr_t hak_mark_secret = (uintptr_t)0x9e3779b97f4a7c15u;

static void find_twice(const void *p, unsigned bin, const void *list)
{
    uint32_t left = 65536;
    for (; list && left; list = hak_next_load(list), left--)
        if (list == p)
            hak_log_fatal("double free: block %p of %u bytes is free already", p, hak_strides[bin]);
}

void hak_mark_found(void *p, unsigned bin)
{
    struct hak_thread *t = hak_self.thread;
    struct hak_slab *slab = hak_space_slab(p);
    find_twice(p, bin, hak_self.head[bin]);
    if (t)
        find_twice(p, bin, t->bins[bin].foreign);
    if (!slab || atomic_load_explicit(&slab->owner, memory_order_relaxed) != t)
        return;
    find_twice(p, bin, slab->free);
    uint32_t i = hak_slab_bit_of(slab, p);
    if (slab->map_divisor && slab->map[i / 64] >> i % 64 & 1)
        hak_slab_fail_twice(slab, p);
}
#endif

/* --- size, alignment, resizing ------------------------------------------------------------------------ */

static size_t usable_or_zero(const void *p)
{
    struct hak_slab *slab = hak_space_slab(p);
    if (slab && holds_blocks(slab)) {
        hak_slab_check_block(slab, p);
        return hak_class_usable(slab->bin);
    }
    return hak_init() ? hak_dispatch.large->span_usable(slab, p) : 0;
}

size_t hak_usable_size(const void *p)
{
    if (!p)
        return 0;
    size_t usable = usable_or_zero(p);
    if (!usable)
        fail_foreign(p, "size query");
    return usable;
}

void *hak_alloc_zeroed(size_t size)
{
    if (size > HAK_SMALL_MAX)
        return alloc_span(size, 1, true);
    void *p = hak_malloc(size);
    return p ? memset(p, 0, size) : NULL;
}

/* The smallest class whose blocks are all aligned: slabs begin at 64 KiB, so a stride that is a multiple does. */
static unsigned aligned_class(size_t align, size_t size)
{
    for (unsigned bin = 0; bin < HAK_NBINS; bin++)
        if (hak_strides[bin] % align == 0 && hak_class_usable(bin) >= size)
            return bin;
    return HAK_NBINS;
}

static void *alloc_in_bin(unsigned bin)
{
    void *p = pop(bin);
    return p ? p : alloc_small(bin, false);
}

void *hak_alloc_aligned(size_t align, size_t size)
{
    if (align <= 16)
        return hak_malloc(size);
    unsigned bin = size <= HAK_SMALL_MAX && align <= HAK_PAGE ? aligned_class(align, size) : HAK_NBINS;
    return bin < HAK_NBINS ? alloc_in_bin(bin) : alloc_span(size, align, false);
}

static bool fits_in_place(size_t usable, size_t size)
{
    return size <= usable && (size >= usable / 2 || usable <= 64);
}

static void *move(void *p, size_t usable, size_t size)
{
    void *q = hak_malloc(size);
    if (!q)
        return NULL;
    memcpy(q, p, hak_min(usable, size));
    hak_free(p);
    return q;
}

static void *resize_slowly(void *p, size_t size)
{
    size_t usable = hak_usable_size(p);
    struct hak_slab *slab = hak_space_slab(p);
    if (slab && holds_blocks(slab)) /* another thread's */
        return fits_in_place(usable, size) ? p : move(p, usable, size);
    void *q = size > HAK_SMALL_MAX ? hak_dispatch.large->span_resize(slab, p, size) : NULL;
    return q ? q : move(p, usable, size);
}

void *hak_resize(void *p, size_t size)
{
    uint64_t bin = hak_bin_of(hak_cache_here(), p);
    if (size > PTRDIFF_MAX)
        return NULL;
    if (HAK_UNLIKELY(bin >= HAK_NBINS)) /* not a small block of this thread */
        return resize_slowly(p, size);
    size_t usable = hak_class_usable((unsigned)bin);
    return fits_in_place(usable, size) ? p : move(p, usable, size);
}

/* --- giving memory back -------------------------------------------------------------------------------- */

size_t hak_trim(size_t keep)
{
    if (!hak_init())
        return 0;
    hak_thread_ask_drain();
    hak_thread_get(); /* this thread's bins at once */
    return hak_give_back(keep);
}
