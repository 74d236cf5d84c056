/* SPDX-License-Identifier: MIT
 * The contracts of hakmem's parts, and what core offers to them: the only header that the author of a frontend, a
 * backend or a release policy needs.
 *
 * A part is a folder with a meson.build and one constant struct of the kinds below, named hak_frontend_NAME,
 * hak_backend_NAME or hak_release_NAME. It includes core, never another part. docs/write-your-own-part.md walks
 * through examples that the tests build and run.
 *
 * Members marked "optional" may be NULL; the text after "optional" says what NULL means. Any thread may call any
 * function, unless its comment says otherwise. No function may call malloc or free.
 *
 * A part defines each of its locks as `static HAK_LOCK(name, rank);` (base/lock.h). A frontend's lock has the rank
 * HAK_RANK_FRONTEND, and a second one, taken while the first is held, HAK_RANK_FRONTEND_INNER; a backend's locks have
 * HAK_RANK_BACKEND and HAK_RANK_BACKEND_INNER. Parts of one kind may use the same ranks, since none calls another of
 * its kind. Fork takes all these locks, so parts need no fork handlers. */
#ifndef HAK_PLUGIN_H
#define HAK_PLUGIN_H

#include "core/base/clock.h"
#include "core/base/lock.h"
#include "core/base/log.h"
#include "core/base/sealed.h"
#include "core/base/stats.h"
#include "core/os/meta.h"
#include "core/os/os.h"
#include "core/pages/budget.h"
#include "core/pages/dirty.h"
#include "core/pages/slab.h"
#include "core/pages/slab_list.h"
#include "core/pages/slab_stack.h"
#include "core/pages/space.h"

struct hak_heap;
struct hak_page_request;

/* --- contracts --------------------------------------------------------------------------------------- */

/* A frontend owns a range of sizes. For sizes up to HAK_SMALL_MAX it supplies slabs, which core carves into blocks. One
 * frontend of a build also hands out spans, single blocks of any size and alignment. */
struct hak_frontend {
    const char *name;
    /* The classes that it serves, by stride in bytes. If several frontends cover a class, the one with the narrowest
     * range serves it; so a frontend that covers all classes serves what the others leave. */
    size_t min_stride, max_stride;
    bool headers; /* blocks of its header classes carry a header byte, in header builds */
    /* Whether the settings enable it; if not, the others serve its classes. Optional: always on. */
    bool (*is_on)(const struct hak_option_values *options);
    /* Called once, before the tables are sealed. 0 or -errno. Optional. */
    int (*init)(const struct hak_option_values *options);
    /* How many pages to map at once where its slabs need new ones; called each time. Optional: a superslab. */
    size_t (*map_pages)(const struct hak_page_request *r);
    /* The most blocks in a bin of the class. Optional: core decides, as it does for 0. */
    uint32_t (*bin_capacity)(unsigned cls);
    /* One block of more than HAK_SMALL_MAX bytes, or of an alignment that no class has. `zero`: its bytes must read as
     * zero. NULL without memory. Optional, like the next four: it has no spans. */
    void *(*span_alloc)(size_t size, size_t align, bool zero);
    /* False if `p` is not the start of a span of this frontend. `slab` is the span's descriptor, or NULL for an address
     * outside of the planned range. */
    bool (*span_free)(struct hak_slab *slab, void *p);
    /* Usable bytes at p; 0 if p is not one of its spans. */
    size_t (*span_usable)(struct hak_slab *slab, const void *p);
    /* Resizes the block in place, or moves it without copying; NULL: core allocates, copies and frees. */
    void *(*span_resize)(struct hak_slab *slab, void *p, size_t size);
    /* Makes the block longer where it is; false, and nothing has changed: it cannot. */
    bool (*span_expand)(struct hak_slab *slab, void *p, size_t size);
    /* Adds the number of blocks outside of the planned range, and their usable bytes. Optional: there are none. */
    void (*count_outside)(size_t *blocks, size_t *bytes);
    /* Called when a heap's owner begins and ends; for a thread, by the thread itself, at its first slow path and at its
     * end. A heap may come from an ended thread, with blocks and slabs, and may pass to another one. Optional. */
    void (*heap_start)(struct hak_heap *heap);
    void (*heap_end)(struct hak_heap *heap);
    /* Writes its counters as an object, between hak_stats_begin(w, NAME) and hak_stats_end(w). Optional. */
    void (*stats)(struct hak_stats_writer *w);
};

/* A way in which a backend finds a slab or run. The statistics show how often each stage served: the backend calls
 * hak_count_stage, with the stage's index, once for each slab; it may leave out runs. */
struct hak_stage {
    const char *name;
    bool locked;       /* it holds the backend's lock */
    const char *finds; /* for `hakmem causes`: "Served by ..." */
};

/* What may serve a request for a slab: only an adopted PARTIAL one, or also EMPTY ones and pages. */
enum hak_acquire { HAK_ACQUIRE_PARTIAL, HAK_ACQUIRE_ANY };

/* A span backend decides where slabs lie: which pages of the page heap (pages/page_heap.h) become a slab, and which
 * EMPTY and PARTIAL slabs are tried first. */
struct hak_backend {
    const char *name;
    /* In the order in which they are tried, at most HAK_STAGES; ends with a NULL name. */
    const struct hak_stage *stages;
    /* Called once, before the tables are sealed. 0 or -errno. Optional. */
    int (*init)(const struct hak_option_values *options);
    /* A slab of the class owned by `heap`: an adopted PARTIAL one; or one that the backend has formatted, from an EMPTY
     * slab or a run of hak_slab_pages[cls] pages. NULL without memory, or if nothing that may serve is available. */
    struct hak_slab *(*acquire_slab)(struct hak_heap *heap, unsigned cls, enum hak_acquire from);
    /* Takes an EMPTY slab, or a PARTIAL one, all of whose blocks may be back by then (hak_slab_all_back). */
    void (*release_slab)(struct hak_slab *slab);
    /* The last block of a PARTIAL slab of the class came back: now or later the slab becomes EMPTY
     * (hak_parts_empty_slab). Another thread may have adopted it in the meantime. */
    void (*all_back)(struct hak_slab *slab, unsigned cls);
    /* Called before a trim: does what `all_back` left for later, and gives the EMPTY slabs to the page heap.
     * Optional. */
    void (*flush)(void);
    /* Called on slow paths of all threads, at most every few milliseconds: returns what has been idle for longer than
     * hak_purge_delay_ms() to the page heap. The work of a call is bounded. True: more is idle, and the next slow path
     * calls again. Optional: nothing ages. */
    bool (*purge_tick)(uint64_t now_ms);
    void (*stats)(struct hak_stats_writer *w);
};

/* A release policy stands above the OS layer: it decides when and how pages are returned to the kernel. The addresses
 * remain hakmem's. */
struct hak_release {
    const char *name;
    bool at_once;                                         /* pages are purged as soon as they are free, without delay */
    enum hak_cause cause;                                 /* the cause for purges of wholly free superslabs */
    int (*init)(const struct hak_option_values *options); /* as in struct hak_backend */
    /* Purges the ranges; returns the number of bytes purged. The pages read as zero afterwards, unless
     * hak_pages_go_lazily(): then they may keep their content for a while. */
    size_t (*release)(const struct iovec *ranges, size_t count, enum hak_cause cause);
    void (*stats)(struct hak_stats_writer *w);
};

/* --- what core offers, beside the headers above ------------------------------------------------------- */

/* Which part does what in this process. Chosen at start, then read-only; used by slow paths. */
struct hak_part_table {
    const struct hak_frontend *by_class[HAK_NCLASSES];
    const struct hak_frontend *spans; /* the one that hands out spans */
    const struct hak_backend *backend;
    const struct hak_release *release;
    uint16_t capacity[HAK_NCLASSES]; /* blocks that a bin keeps */
    uint16_t batch[HAK_NCLASSES];    /* most blocks of a refill */
};
_Static_assert(HAK_SEALED_PARTS + sizeof(struct hak_part_table) + sizeof(struct hak_secrets) <= HAK_SEALED_SIZE,
               "the sealed pages hold all");

#define hak_parts (*(struct hak_part_table *)(hak_sealed.bytes + HAK_SEALED_PARTS))

/* Whether slabs of the class belong in the zone of blocks with headers. */
HAK_INLINE bool hak_parts_has_header(unsigned cls)
{
    return hak_class_has_header(cls) && hak_parts.by_class[cls]->headers;
}

/* Makes an ACTIVE or PARTIAL slab EMPTY; none of its blocks is allocated, and it stands on no list. */
void hak_parts_empty_slab(struct hak_slab *slab);

#endif
