/* SPDX-License-Identifier: MIT
 * The contracts of hakmem's parts, and what core offers them: the one header that the author of a frontend, a backend or
 * a release policy includes.
 *
 * A part is a folder with a meson.build and one constant struct of the kinds below, named hak_frontend_NAME,
 * hak_backend_NAME or hak_release_NAME. It includes core, never another part. docs/write-your-own-backend.md walks
 * through an example that the tests build and run; docs/write-your-own-frontend.md tells what differs for a frontend.
 *
 * Slots marked "optional" may be NULL; what that means stands beside them. Any thread may call any function, unless its
 * comment says otherwise. None may call malloc or free.
 *
 * A part defines each of its locks as `static HAK_LOCK(name, rank);` (base/lock.h). A frontend's has the rank
 * HAK_RANK_FRONTEND, and one that it takes while it holds the other HAK_RANK_FRONTEND_INNER; a backend's are
 * HAK_RANK_BACKEND and HAK_RANK_BACKEND_INNER. Parts of one kind may have the same ranks:
 * none calls another of its kind. Fork takes all these locks, so a part has no handlers for it. */
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
#include "core/pages/slab.h"
#include "core/pages/slab_list.h"
#include "core/pages/slab_stack.h"
#include "core/pages/space.h"

struct hak_heap;

/* --- contracts --------------------------------------------------------------------------------------- */

/* A frontend owns a range of sizes. Up to HAK_SMALL_MAX bytes it supplies slabs, which core cuts into blocks. One
 * frontend of a build also hands out spans, each a single block, of any size and alignment. */
struct hak_frontend {
    const char *name;
    /* The classes it serves, by stride in bytes. A class that several serve goes to the one whose range is
     * narrowest; so a frontend that serves all takes what the others leave. */
    size_t min_stride, max_stride;
    bool headers; /* its blocks of header classes carry the byte, in builds that have one */
    /* Whether the settings leave it switched on; the others take its classes where not. Optional: it is. */
    bool (*is_on)(const struct hak_option_values *options);
    /* Once, before the tables are sealed. 0 or -errno; `place` is its index in hak_heap.local. Optional. */
    int (*init)(const struct hak_option_values *options, unsigned place);
    /* An ACTIVE slab of the class owned by `heap`, with a free block; NULL without memory. Optional: the backend's
     * acquire_slab. */
    struct hak_slab *(*slab_acquire)(struct hak_heap *heap, unsigned cls);
    /* Blocks that a bin of the class may hold. Optional: core decides, as it does for 0. */
    uint32_t (*bin_capacity)(unsigned cls);
    /* One block of more than HAK_SMALL_MAX bytes, or of an alignment that no class has. `zero`: its bytes must
     * read as zero. NULL without memory. Optional, with the next three: it has no spans. */
    void *(*span_alloc)(size_t size, size_t align, bool zero);
    /* False if `p` is not the start of a span of this frontend. `slab` is its descriptor, or NULL for an
     * address outside of the reserved range. */
    bool (*span_free)(struct hak_slab *slab, void *p);
    /* Bytes usable at p, 0 if it is none of its spans. */
    size_t (*span_usable)(struct hak_slab *slab, const void *p);
    /* The block in place, or moved without copying; NULL: core allocates, copies and frees. */
    void *(*span_resize)(struct hak_slab *slab, void *p, size_t size);
    /* Adds the blocks outside of the reserved range, and the bytes usable in them. Optional: there are none. */
    void (*count_outside)(size_t *blocks, size_t *bytes);
    /* Before a trim: all free pages that it keeps go back to the page heap. Optional: keeps none. */
    void (*flush)(void);
    /* Called on slow paths of all threads, at most every few milliseconds: what has been idle for longer than
     * hak_purge_delay_ms() goes back to the page heap. A call is bounded. Optional: nothing ages. */
    void (*purge_tick)(uint64_t now_ms);
    /* In the thread itself, at its first slow path and at its end. Its descriptor may come from an ended thread,
     * with blocks and slabs, and may go on to another one with them. Optional. */
    void (*heap_start)(struct hak_heap *heap);
    void (*heap_end)(struct hak_heap *heap);
    /* Adds its counters: an object, between hak_stats_begin(w, NAME) and hak_stats_end(w). Optional. */
    void (*stats)(struct hak_stats_writer *w);
};

/* A way in which a backend finds a slab or run. The statistics show how often each one served: hak_count_stage
 * counts, by the stage's index, once for each slab; runs may be left out. */
struct hak_stage {
    const char *name;
    bool locked;       /* it holds the backend's lock */
    const char *finds; /* for `hakmem causes`: "Served by ..." */
};

/* What may serve a request for a slab: an adopted PARTIAL one; or an EMPTY one of the class that waits, too; or pages,
 * too. The second is for frontends that have pages of their own. */
enum hak_acquire { HAK_ACQUIRE_PARTIAL, HAK_ACQUIRE_KEPT, HAK_ACQUIRE_ANY };

/* A span backend decides where slabs lie: which pages of the page heap (pages/page_heap.h) become one, and which free and
 * PARTIAL slabs are tried before. */
struct hak_backend {
    const char *name;
    /* In the order in which they are tried, at most HAK_STAGES; ends with a NULL name. */
    const struct hak_stage *stages;
    /* Once, before the tables are sealed. 0 or -errno. Optional. */
    int (*init)(const struct hak_option_values *options);
    /* A slab of the class owned by `heap`: an adopted PARTIAL one, or one that it has formatted: an EMPTY one, or a run
     * of hak_slab_pages[cls] pages. NULL without memory, or where there is none of what may serve. */
    struct hak_slab *(*acquire_slab)(struct hak_heap *heap, unsigned cls, enum hak_acquire from);
    /* Takes an EMPTY slab, or a PARTIAL one, all of whose blocks may be back by then (hak_slab_all_back). */
    void (*release_slab)(struct hak_slab *slab);
    /* The last block of a PARTIAL slab of the class came back: now or later the slab becomes EMPTY
     * (hak_parts_empty_slab). Somebody may have adopted it meanwhile. */
    void (*all_back)(struct hak_slab *slab, unsigned cls);
    /* Before a trim: does what `all_back` left for later, and gives its EMPTY slabs to the page heap. Optional. */
    void (*flush)(void);
    /* As in struct hak_frontend. True: more is idle, and the next slow path calls again. Optional. */
    bool (*purge_tick)(uint64_t now_ms);
    void (*stats)(struct hak_stats_writer *w);
};

/* A release policy stands over the OS door: it decides when and how pages go back. The addresses stay ours. */
struct hak_release {
    const char *name;
    bool at_once;         /* backends give pages back as soon as they are free, not after a delay */
    enum hak_cause cause; /* under which wholly free regions go back */
    int (*init)(const struct hak_option_values *options); /* as in struct hak_backend */
    /* Gives the pages of ranges back. Bytes that went back. They read as zero afterwards, unless
     * hak_pages_go_lazily(): then they may keep their content for a while. */
    size_t (*release)(const struct iovec *ranges, size_t count, enum hak_cause cause);
    void (*stats)(struct hak_stats_writer *w);
};

/* --- what core offers, beside the headers above ------------------------------------------------------- */

/* Who does what in this process. Chosen at the start, then read-only memory; for slow paths. */
struct hak_part_table {
    const struct hak_frontend *by_class[HAK_NCLASSES];
    const struct hak_frontend *spans; /* the one that hands out spans */
    const struct hak_backend *backend;
    const struct hak_release *release;
    uint16_t capacity[HAK_NCLASSES]; /* blocks that a bin keeps */
    uint16_t batch[HAK_NCLASSES];    /* blocks of a refill, at most */
};
_Static_assert(HAK_SEALED_PARTS + sizeof(struct hak_part_table) + sizeof(struct hak_secrets) <= HAK_SEALED_SIZE,
               "the sealed pages hold all");

#define hak_parts (*(struct hak_part_table *)(hak_sealed.bytes + HAK_SEALED_PARTS))

/* Whether slabs of the class belong in the zone of blocks with headers. */
HAK_INLINE bool hak_parts_has_header(unsigned cls)
{
    return hak_class_has_header(cls) && hak_parts.by_class[cls]->headers;
}

/* An ACTIVE or PARTIAL slab without a block outstanding, which stands on no list, becomes EMPTY. */
void hak_parts_empty_slab(struct hak_slab *slab);

/* After how long what is free is idle. */
HAK_INLINE uint64_t hak_purge_delay_ms(void)
{
    return hak_parts.release->at_once ? 0 : hak_options.purge_delay_ms;
}

#endif
