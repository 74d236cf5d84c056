/* SPDX-License-Identifier: MIT
 * The large frontend: every size that no other frontend takes. Up to HAK_SMALL_MAX bytes it supplies plain
 * slabs; above, spans of 64 KiB pages from the backend, and from DIRECT_MIN on mappings of their own, which
 * realloc resizes without copying. It keeps nothing: free spans are cached by the backend. */
#include <string.h>
#include <sys/mman.h>

#include "core/dispatch.h"
#include "core/log.h"
#include "core/plugin.h"
#include "registry.h"

#define DIRECT_MIN (32 * HAK_MIB)
#define SYSTEM_PAGE ((size_t)4096)

static _Atomic(uint64_t) spans, directs, in_place, remaps;

static void count(_Atomic(uint64_t) *counter)
{
    atomic_fetch_add_explicit(counter, 1, memory_order_relaxed);
}

/* --- slabs -------------------------------------------------------------------------------------------- */

static struct hak_slab *slab_acquire(struct hak_thread *t, unsigned bin)
{
    return hak_dispatch.backend->acquire_slab(t, bin);
}

static void slab_release(struct hak_slab *slab)
{
    hak_dispatch.backend->release(slab);
}

/* HAKMEM_ACE_TRACE: why a request failed or was degraded. */
static void trace(const char *reason, size_t size, const char *what, int error)
{
    if (HAK_UNLIKELY(hak_dispatch.options.ace_trace))
        hak_log("ACE %s: %zu bytes, %s (error %d)", reason, size, what, error);
}

/* --- direct mappings ---------------------------------------------------------------------------------- */

static size_t whole_pages(size_t size)
{
    return hak_align_up(size, hak_os_page_size());
}

/* Alignment beyond a page costs that much address space around the block, and no further call. */
static void *direct_alloc(size_t size, size_t align)
{
    size_t slack = align > SYSTEM_PAGE ? align : 0, total;
    if (__builtin_add_overflow(whole_pages(size), slack, &total))
        return NULL;
    void *base;
    int error = hak_os_map(&base, total, PROT_READ | PROT_WRITE, HAK_CAUSE_large_map);
    if (error) {
        trace("MapFail", size, "the system refused a mapping", -error);
        return NULL;
    }
    char *block = slack ? (char *)hak_align_up((uintptr_t)base, align) : base;
    struct mapping m = {.block = block, .base = base, .size = total, .usable = whole_pages(size)};
    if (!registry_add(m)) {
        hak_os_unmap(base, total, HAK_CAUSE_large_unmap);
        return NULL;
    }
    count(&directs);
    return block;
}

/* At the limit of maps the kernel may refuse to unmap: then at least the pages go back. */
static bool direct_free(void *p)
{
    struct mapping m;
    if (!registry_remove(p, &m))
        return false;
    if (hak_os_unmap(m.base, m.size, HAK_CAUSE_large_unmap))
        hak_os_advise(m.base, m.size, MADV_DONTNEED, HAK_CAUSE_large_unmap);
    return true;
}

static void *direct_resize(void *p, size_t size)
{
    struct mapping m;
    if (size < DIRECT_MIN / 2 || !registry_remove(p, &m))
        return NULL;
    struct mapping old = m;
    size_t wanted = whole_pages(size);
    if (m.base == p && hak_os_remap(&m.base, m.size, wanted, true, HAK_CAUSE_realloc_remap) == 0) {
        m.block = m.base;
        m.size = m.usable = wanted;
        count(&remaps);
        registry_add(m); /* the entry just removed is there to be used */
        return m.block;
    }
    registry_add(old);
    return NULL;
}

/* --- spans -------------------------------------------------------------------------------------------- */

static size_t pages_of(size_t size)
{
    return hak_align_up(size, HAK_PAGE) / HAK_PAGE;
}

static void *span_alloc(size_t size, size_t align, bool zero)
{
    struct hak_slab *slab = NULL;
    bool zeroed = false;
    if (size < DIRECT_MIN) {
        slab = hak_dispatch.backend->acquire_run(pages_of(size), hak_max(1, align / HAK_PAGE), &zeroed);
        if (!slab)
            trace("Exhaustion", size, "the backend has no span; mapped directly", 0);
        else if (slab->pages * HAK_PAGE - size > slab->pages * HAK_PAGE / 8)
            trace("Threshold", size, "no span is close in size; its last pages stay untouched", 0);
    }
    if (!slab)
        return direct_alloc(size, align);
    slab->bin = HAK_BIN_LARGE;
    slab->requested = hak_align_up(size, SYSTEM_PAGE);
    hak_slab_count(HAK_SLAB_UNUSED, HAK_SLAB_LARGE);
    atomic_store_explicit(&slab->word, HAK_SLAB_LARGE, memory_order_release);
    count(&spans);
    if (zero && !zeroed)
        memset(slab->base, 0, size);
    return slab->base;
}

static bool is_span(const struct hak_slab *slab, const void *p)
{
    return slab && hak_slab_state(slab) == HAK_SLAB_LARGE && slab->base == p;
}

static bool span_free(struct hak_slab *slab, void *p)
{
    if (!is_span(slab, p))
        return !slab && direct_free(p);
    hak_slab_count(HAK_SLAB_LARGE, HAK_SLAB_UNUSED);
    hak_dispatch.backend->release(slab);
    return true;
}

static size_t span_usable(struct hak_slab *slab, const void *p)
{
    struct mapping m;
    if (is_span(slab, p))
        return slab->requested;
    return !slab && registry_find(p, &m) ? m.usable : 0;
}

static void *span_resize(struct hak_slab *slab, void *p, size_t size)
{
    if (!slab)
        return direct_resize(p, size);
    size_t room = slab->pages * HAK_PAGE;
    if (size > room || size < room / 2)
        return NULL;
    slab->requested = hak_align_up(size, SYSTEM_PAGE);
    count(&in_place);
    return p;
}

/* --- the rest ----------------------------------------------------------------------------------------- */

static void fork_prepare(void)
{
    registry_fork_prepare();
}

static void fork_done(bool in_child)
{
    (void)in_child;
    registry_fork_done();
}

static void stats(struct hak_stats_writer *w)
{
    size_t mappings, bytes = registry_bytes(&mappings);
    hak_stats_begin(w, "large");
    hak_stats_number(w, "spans", atomic_load_explicit(&spans, memory_order_relaxed));
    hak_stats_number(w, "directs", atomic_load_explicit(&directs, memory_order_relaxed));
    hak_stats_number(w, "resized_in_place", atomic_load_explicit(&in_place, memory_order_relaxed));
    hak_stats_number(w, "remapped", atomic_load_explicit(&remaps, memory_order_relaxed));
    hak_stats_number(w, "direct_mappings", mappings);
    hak_stats_number(w, "direct_bytes", bytes);
    hak_stats_end(w);
}

const struct hak_frontend hak_frontend_large = {
    .name = "large",
    .min_stride = 0,
    .max_stride = HAK_SMALL_MAX,
    .slab_acquire = slab_acquire,
    .slab_release = slab_release,
    .span_alloc = span_alloc,
    .span_free = span_free,
    .span_usable = span_usable,
    .span_resize = span_resize,
    .fork_prepare = fork_prepare,
    .fork_done = fork_done,
    .stats = stats,
};
