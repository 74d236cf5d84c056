/* SPDX-License-Identifier: MIT
 * The large frontend: every size that no other frontend takes. Up to HAK_SMALL_MAX bytes it supplies plain
 * slabs; above, spans of 64 KiB pages (spans.h), and beyond SPAN_MAX mappings of their own, which
 * realloc resizes without copying (registry.h). */
#include <string.h>
#include <sys/mman.h>

#include "core/os/fence.h"
#include "core/os/limit.h"
#include "core/pages/zero.h"
#include "core/parts/purge.h"
#include "core/plugin.h"
#include "huge.h"
#include "registry.h"
#include "spans.h"
#include "spares.h"
#include "trace.h"

#define SPAN_MAX (SPAN_MAX_PAGES * HAK_PAGE) /* longer blocks are direct mappings */
/* realloc moves a growing block of this size to a direct mapping, and never copies again; where fences prevent that a
 * mapping grows in place, only a long one */
#define GROWING_DIRECT_MIN (4 * HAK_MIB)
#define MOVED_DIRECT_MIN (HAK_HARDENED ? GROWING_DIRECT_MIN : 256 * HAK_KIB) /* if it has moved before */
#define CUT_MIN (16 * HAK_KIB)                                               /* a shorter end stays with the block */
#define SAMPLE_EVERY 8u
/* The old pages of a block that grows and moves serve no block of its size soon, so longer ones go back at once. */
#define MOVED_DISCARD_PAGES 4u

static _Atomic(uint64_t) directs, in_place, remaps;
static _Atomic(char *) sample; /* the direct mapping that serves as the sample, while it exists */
static _Atomic(unsigned) since_sample;

/* --- direct mappings ---------------------------------------------------------------------------------- */

static size_t whole_pages(size_t size)
{
    return hak_align_up(size, hak_os_page_size());
}

/* One mapping in SAMPLE_EVERY keeps small pages and shows whether the program uses what it gets; it is checked when
 * others are made, and when it is unmapped. All of a mapping is advised alike, since mremap would refuse it otherwise.
 * Another thread may unmap the sample in the meantime; then nothing is learned. */
static void choose_mapping_pages(const struct mapping *m)
{
    uint32_t thp = hak_options.thp;
    int advice = thp == HAK_THP_ALWAYS ? MADV_HUGEPAGE : MADV_NOHUGEPAGE;
    if (thp != HAK_THP_AUTO)
        hak_os_advise(m->block, m->usable, advice, HAK_CAUSE_huge_page);
    if (!hak_huge_matters(m->usable) || !hak_limit_allows(0)) /* the kernel joins mappings that are advised alike */
        return;
    char *last = HAK_LOAD_RELAXED(&sample);
    if (last)
        hak_huge_look(HUGE_DIRECT, (struct huge_sample){last, HUGE_HEAD, HUGE_HEAD});
    if (HAK_ADD_RELAXED(&since_sample, 1) % SAMPLE_EVERY == 0)
        HAK_STORE_RELAXED(&sample, m->block);
    else
        hak_huge_advise(HUGE_DIRECT, m->block, m->usable, 0);
}

/* If the block is the sample, replaces it by `by`, or by none (NULL). True if it was. */
static bool replace_sample(char *block, char *by)
{
    return HAK_CAS_RELAXED(&sample, &block, by);
}

static char *start_of(void *base, size_t slack)
{
    return slack ? (char *)hak_align_up((uintptr_t)base + 1, slack) : base;
}

/* A spare is longer than the block, which has all of it. */
static char *from_spare(size_t size, size_t total, size_t slack, bool zero)
{
    struct mapping *m = hak_spares_take(total, zero);
    if (!m)
        return NULL;
    m->block = start_of(m->base, slack);
    m->usable = whole_pages(size);
    hak_budget_take(m->usable);
    hak_registry_attach(m);
    return m->block;
}

/* Alignment beyond a page costs as much address space around the block, and no further call unless there are fences. */
static char *map_direct(size_t size, size_t total, size_t slack)
{
    void *base;
    bool fenced;
    int error = hak_fence_map(&base, total, &fenced, HAK_CAUSE_large_map);
    if (error) {
        TRACE_MAP_FAIL(size, -error, "the request fails");
        return NULL;
    }
    char *block = start_of(base, slack);
    struct mapping m = {.block = block, .base = base, .size = total, .usable = whole_pages(size), .fenced = fenced};
    if (!hak_registry_add(m)) {
        TRACE_MAP_FAIL(size, ENOMEM, "no memory for its entry, the request fails");
        hak_fence_unmap(base, total, fenced, HAK_CAUSE_large_unmap);
        return NULL;
    }
    if (fenced && slack) { /* the fences stand at the block, not at the mapping's ends */
        char *end = block + m.usable;
        if (block > (char *)base)
            hak_os_protect(base, (size_t)(block - (char *)base), PROT_NONE, HAK_CAUSE_guard);
        if (end < (char *)base + total)
            hak_os_protect(end, (size_t)((char *)base + total - end), PROT_NONE, HAK_CAUSE_guard);
    }
    hak_limit_note(1);
    choose_mapping_pages(&m);
    hak_budget_take(m.usable);
    return block;
}

static void *direct_alloc(size_t size, size_t align, bool zero)
{
    size_t slack = align > HAK_SYSTEM_PAGE ? align : 0, total;
    if (__builtin_add_overflow(whole_pages(size), slack, &total))
        return NULL;
    char *block = from_spare(size, total, slack, zero);
    if (!block)
        block = map_direct(size, total, slack);
    if (block)
        HAK_ADD_RELAXED(&directs, 1);
    return block;
}

static HAK_NOINLINE bool direct_free(void *p)
{
    struct mapping *m = hak_registry_detach(p);
    if (!m)
        return false;
    if (replace_sample(p, NULL))
        hak_huge_look(HUGE_DIRECT, (struct huge_sample){p, HUGE_HEAD, HUGE_HEAD});
    hak_budget_give(m->usable);
    hak_spares_put(m);
    return true;
}

static int remap(struct mapping *m, size_t size)
{
    void *base = m->base;
    int error = hak_fence_remap(&base, m->size, size, &m->fenced, HAK_CAUSE_realloc_remap);
    if (error)
        return error;
    replace_sample(m->block, base);
    m->block = m->base = base;
    m->size = size;
    HAK_ADD_RELAXED(&remaps, 1);
    return 0;
}

static void note_usable(struct mapping *m, size_t wanted)
{
    hak_budget_give(m->usable);
    hak_budget_take(wanted);
    m->usable = wanted;
}

/* A block that grows gets an eighth more addresses, so that the next calls only use up the room. The program touches
 * none of it, so it takes no memory. Where a fence follows, or addresses are limited, only small steps get a little. */
static int grow(struct mapping *m, size_t wanted)
{
    size_t room = wanted / 8;
    if (m->fenced || hak_limit_is_tight)
        room = wanted - m->usable < HAK_PAGE ? hak_min(room, HAK_PAGE) : 0;
    if (wanted <= m->size || hak_spares_extend(m, wanted))
        return 0;
    int error = remap(m, whole_pages(wanted + room));
    return error && room ? remap(m, wanted) : error;
}

static int resize_mapping(struct mapping *m, size_t wanted)
{
    if (m->base != m->block)
        return -EINVAL;
    int error = wanted < m->usable ? remap(m, wanted) : grow(m, wanted);
    if (error)
        return error;
    note_usable(m, wanted);
    return 0;
}

/* A mapping grows up to where the kernel has placed another one. */
static bool direct_expand(void *p, size_t size)
{
    struct mapping *m = hak_registry_detach(p);
    size_t wanted = whole_pages(size);
    if (!m)
        return false;
    int error = m->base != m->block ? -EINVAL : 0;
    if (!error && wanted > m->size)
        error = m->fenced ? -ENOMEM : hak_os_remap(&m->base, m->size, wanted, false, HAK_CAUSE_realloc_remap);
    if (!error) {
        m->size = hak_max(m->size, wanted);
        note_usable(m, wanted);
    }
    hak_registry_attach(m);
    return !error;
}

static void *direct_resize(void *p, size_t size)
{
    struct mapping *m;
    if ((size < MOVED_DIRECT_MIN / 2 && !hak_limit_is_tight) || !(m = hak_registry_detach(p)))
        return NULL;
    int error = resize_mapping(m, whole_pages(size));
    void *block = m->block;
    if (!error && hak_zeroes_on_free())
        memset((char *)block + size, 0, m->usable - size);
    hak_registry_attach(m);
    if (error)
        TRACE_MAP_FAIL(size, -error, "realloc copies");
    return error ? NULL : block;
}

/* --- spans -------------------------------------------------------------------------------------------- */

static unsigned pages_for(size_t size)
{
    return (unsigned)(hak_align_up(size, HAK_PAGE) / HAK_PAGE);
}

/* A canary stands at the end of all pages, so that a write just before the next block overwrites one, too. */
static void note_size(struct hak_slab *slab, size_t size)
{
    slab->requested = HAK_CANARY ? slab->pages * HAK_PAGE : hak_align_up(size, HAK_SYSTEM_PAGE);
}

static void trace_fit(size_t size, enum span_fit fit, bool served)
{
    if (!served)
        TRACE("Exhaustion", size, "no pages are free for a span; mapped directly");
    else if (fit == SPAN_EXHAUSTED)
        TRACE("Exhaustion", size, "no span of its class is free; one of its exact pages");
    else if (fit == SPAN_THRESHOLD)
        TRACE("Threshold", size, "rounding to its class wastes more than HAKMEM_ACE_WASTE_PCT; exact pages");
}

/* Returns the pages of a block to the kernel, which are not free, or are about to be; false if it refuses. */
static bool discard(char *base, size_t bytes)
{
    return !hak_os_advise(base, bytes, MADV_DONTNEED, HAK_CAUSE_discard);
}

enum { CLEARED = 8, MOVED = 16, CUT = 32 }; /* in the word of a span; its free comes here then */
/* The block that the kernel cleared last, until it is freed: what the program touches of it shows how it uses more. */
static _Atomic(char *) cleared;

static void look_at_cleared(char *block)
{
    hak_huge_look(HUGE_ZEROED, (struct huge_sample){block, HUGE_EVIDENCE_MIN, HUGE_EVIDENCE_MIN});
}

/* Up to where the kernel shall clear a block's old pages. They cost no memory then until the program touches them, but
 * a fault each: where the program touches most of them, it clears only the sample, of one block of SAMPLE_EVERY. A huge
 * page would make all of it resident at the first touch, and the sample would look dense. */
static size_t kernel_clears(char *block, size_t size)
{
    static _Atomic(unsigned) turn;
    if (size < HUGE_EVIDENCE_MIN)
        return 0;
    char *last = HAK_LOAD_RELAXED(&cleared);
    if (last)
        look_at_cleared(last);
    bool dense = hak_huge_is_dense(HUGE_ZEROED);
    if (dense && HAK_ADD_RELAXED(&turn, 1) % SAMPLE_EVERY)
        return 0;
    hak_pages_keep_small(block, hak_huge_is_sparse(HUGE_ZEROED) ? size : HUGE_EVIDENCE_MIN);
    HAK_STORE_RELAXED(&cleared, block);
    return dense ? HUGE_EVIDENCE_MIN : SIZE_MAX;
}

static bool is_dirty(const struct span_request *r, unsigned page)
{
    return r->dirty[page / 64] >> page % 64 & 1;
}

static void clear_dirty(char *block, size_t size, const struct span_request *r)
{
    size_t by_kernel = kernel_clears(block, size);
    for (unsigned i = 0, n; i < r->pages; i += n + 1) {
        for (n = 0; i + n < r->pages && is_dirty(r, i + n); n++)
            ;
        size_t at = i * HAK_PAGE, bytes = n * HAK_PAGE, first = hak_min(bytes, by_kernel - hak_min(by_kernel, at));
        if (first && !discard(block + at, first))
            first = 0;
        if (first < hak_min(bytes, size - hak_min(size, at)))
            memset(block + at + first, 0, hak_min(bytes, size - at) - first);
    }
}

/* A span becomes a block. */
static struct hak_slab *hand_out(struct hak_slab *slab, size_t size)
{
    size_t before = slab->requested; /* of a span that waited */
    note_size(slab, size);
    hak_count_allocated(slab->requested - before);
    HAK_COUNT_HERE(transitions[HAK_SLAB_UNUSED][HAK_SLAB_SPAN]);
    HAK_STORE_RELEASE(&slab->word, HAK_SLAB_SPAN);
    return slab;
}

static HAK_NOINLINE void *span_from_pages(size_t size, struct span_request *r)
{
    struct hak_slab *slab = hak_spans_take(r);
    trace_fit(size, r->fit, slab);
    if (!slab)
        return NULL;
    hand_out(slab, size);
    if (r->zero)
        clear_dirty(slab->base, size, r);
    unsigned known = (HAK_LOAD_RELAXED(&cleared) == slab->base ? CLEARED : 0) | (r->growing ? MOVED : 0);
    if (known)
        HAK_STORE_RELEASE(&slab->word, HAK_SLAB_SPAN | known);
    return slab->base;
}

static HAK_NOINLINE void *span_or_direct(size_t size, size_t align, bool zero, bool missed)
{
    struct span_request r; /* not `dirty`, which is a result */
    void *block = NULL;
    if (size <= SPAN_MAX && align <= SPAN_MAX && !hak_limit_is_tight) {
        r.pages = pages_for(size);
        r.align = (unsigned)hak_max(1, align / HAK_PAGE);
        r.missed = missed;
        r.growing = false;
        r.zero = zero;
        block = span_from_pages(size, &r);
    }
    return block ? block : direct_alloc(size, align, zero);
}

static void *span_alloc(size_t size, size_t align, bool zero)
{
    if (HAK_UNLIKELY(zero || size > SPAN_MAX || align > HAK_PAGE || hak_limit_is_tight))
        return span_or_direct(size, align, zero, false);
    struct hak_slab *slab = hak_spans_take_cached(pages_for(size));
    return HAK_LIKELY(slab) ? hand_out(slab, size)->base : span_or_direct(size, 1, false, true);
}

static bool is_span(const struct hak_slab *slab, const void *p)
{
    return slab && hak_slab_state(slab) == HAK_SLAB_SPAN && slab->base == p;
}

static bool span_free(struct hak_slab *slab, void *p)
{
    if (!is_span(slab, p))
        return !slab && direct_free(p);
    if (HAK_UNLIKELY(HAK_LOAD_RELAXED(&cleared) == p)) {
        look_at_cleared(p);
        HAK_STORE_RELAXED(&cleared, NULL);
    }
    if (hak_zeroes_on_free())
        memset(p, 0, slab->requested);
    hak_run_cache_uncount(slab);
    HAK_COUNT_HERE(transitions[HAK_SLAB_SPAN][HAK_SLAB_UNUSED]);
    HAK_STORE_RELEASE(&slab->word, HAK_SLAB_UNUSED); /* the run cache may keep its descriptor */
    return hak_spans_put(slab);
}

static size_t span_usable(struct hak_slab *slab, const void *p)
{
    if (is_span(slab, p))
        return slab->requested;
    return slab ? 0 : hak_registry_usable(p);
}

static bool is_zero(const char *p, size_t size)
{
    return !*p && memcmp(p, p + 1, size - 1) == 0;
}

/* To pages that read as zero: pages of zeros are not touched, so that a sparse block stays sparse. What is between them
 * is copied at once: memcpy is faster for long copies. */
static void copy_sparse(char *to, const char *from, size_t size)
{
    size_t done = 0, at = 0;
    while (at < size) {
        size_t n = hak_min(size - at, HAK_SYSTEM_PAGE);
        if (is_zero(from + at, n)) {
            memcpy(to + done, from + done, at - done);
            done = at + n;
        }
        at += n;
    }
    memcpy(to + done, from + done, size - done);
}

/* Moves a block that cannot grow in place to where it can: with free pages behind it, or in a direct mapping. The
 * kernel does not join mappings that it has moved, so there are not too many. */
static void *move_growing(struct hak_slab *slab, void *p, size_t size)
{
    struct span_request r = {.pages = pages_for(size), .align = 1, .growing = true};
    bool again = HAK_LOAD_RELAXED(&slab->word) & MOVED;
    bool direct = size > SPAN_MAX || (size >= (again ? MOVED_DIRECT_MIN : GROWING_DIRECT_MIN) && hak_limit_allows(1));
    void *q = direct ? direct_alloc(size, 1, true) : span_from_pages(size, &r);
    if (!q)
        return NULL;
    if (direct)
        copy_sparse(q, p, hak_min(slab->requested, size));
    else
        memcpy(q, p, hak_min(slab->requested, size));
    if (slab->pages >= MOVED_DISCARD_PAGES)
        discard(p, slab->pages * HAK_PAGE);
    span_free(slab, p);
    return q;
}

/* A block that shrinks gives back the system pages behind it, once: it may grow and shrink in turn. */
static void cut_off(struct hak_slab *slab, size_t before)
{
    size_t size = whole_pages(slab->requested), end = hak_min(before, slab->pages * HAK_PAGE);
    if (end < size + hak_max(CUT_MIN, size / 8) || HAK_LOAD_RELAXED(&slab->word) & CUT)
        return;
    if (discard(slab->base + size, end - size))
        HAK_STORE_RELEASE(&slab->word, HAK_LOAD_RELAXED(&slab->word) | CUT);
}

static bool resize_in_place(struct hak_slab *slab, size_t size)
{
    size_t before = slab->requested;
    if (size > SPAN_MAX || !hak_spans_resize(slab, pages_for(size)))
        return false;
    note_size(slab, size);
    hak_count_allocated(slab->requested - before);
    cut_off(slab, before);
    HAK_ADD_RELAXED(&in_place, 1);
    return true;
}

static void *span_resize(struct hak_slab *slab, void *p, size_t size)
{
    if (!slab)
        return direct_resize(p, size);
    if (hak_zeroes_on_free() && size < slab->requested)
        memset((char *)p + size, 0, slab->requested - size);
    return resize_in_place(slab, size) ? p : move_growing(slab, p, size);
}

static bool span_expand(struct hak_slab *slab, void *p, size_t size)
{
    return slab ? is_span(slab, p) && resize_in_place(slab, size) : direct_expand(p, size);
}

static void count_outside(size_t *blocks, size_t *bytes)
{
    size_t mappings;
    *bytes += hak_registry_bytes(&mappings);
    *blocks += mappings;
}

/* --- the rest ----------------------------------------------------------------------------------------- */

static void write_large_stats(struct hak_stats_writer *w)
{
    size_t mappings, bytes = hak_registry_bytes(&mappings);
    hak_stats_begin(w, "large");
    hak_stats_number(w, "spans", hak_spans_taken());
    hak_stats_number(w, "directs", HAK_LOAD_RELAXED(&directs));
    hak_stats_number(w, "resized_in_place", HAK_LOAD_RELAXED(&in_place));
    hak_stats_number(w, "remapped", HAK_LOAD_RELAXED(&remaps));
    hak_spans_stats(w);
    hak_stats_number(w, "direct_mappings", mappings);
    hak_stats_number(w, "direct_bytes", bytes);
    hak_stats_number(w, "spare_bytes", hak_registry_spare_bytes());
    hak_stats_end(w);
}

const struct hak_frontend hak_frontend_large = {
    .name = "large",
    .min_stride = 0, /* all classes that other frontends leave */
    .max_stride = HAK_SMALL_MAX,
    .span_alloc = span_alloc,
    .span_free = span_free,
    .span_usable = span_usable,
    .span_resize = span_resize,
    .span_expand = span_expand,
    .count_outside = count_outside,
    .stats = write_large_stats,
};
