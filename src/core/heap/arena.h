/* SPDX-License-Identifier: MIT
 * Arenas: the heaps of a program (hakmem_heap_* in hakmem.h). An arena owns slabs and spans of the page heap, apart
 * from those of threads and CPUs: their descriptors lead to it, and their state is HAK_SLAB_ARENA. The tags of its
 * slabs match no thread. So free takes the slow path, which finds the arena, and no block of an arena is in a bin or a
 * remote cache. A thread that uses one arena steadily has a front for it, a cache without a lock; all else is done
 * under the arena's lock. The free bitmaps of its slabs are exact, so a block that came back to its slab and is freed
 * again is detected. To destroy an arena is work by slabs. */
#ifndef HAK_ARENA_H
#define HAK_ARENA_H

#include "cache.h"
#include "core/base/text.h"
#include "core/pages/slab.h"
#include "core/pages/tags.h"
#include "core/pages/zero.h"

#define HAK_ARENA_NAME 32u
#define HAK_ARENA_MOST ((size_t)UINT16_MAX * HAK_PAGE) /* bytes of a block */

struct hak_arena;
/* Called without a lock when a request would exceed the limit. 0: it fails; 1: try again; 2: it may exceed the limit.
 */
typedef int hak_arena_reached(struct hak_arena *arena, size_t wanted, void *context);

struct hak_arena_options {
    const char *name; /* NULL: none */
    size_t limit;     /* most bytes of its pages; 0: none */
    hak_arena_reached *reached;
    void *context;
    size_t align;    /* of its runs, in pages: a power of two up to a superslab's */
    unsigned advice; /* HAK_ADVICE_ for its memory; not 0: it is apart */
    bool apart; /* pages come from superslabs that no other blocks share, but those of arenas that are apart, too */
};

/* NULL without memory. */
struct hak_arena *hak_arena_new(const struct hak_arena_options *options);
/* Its blocks and pages go with it. No other thread uses it. */
void hak_arena_destroy(struct hak_arena *arena);

struct hak_arena_request {
    size_t size, align;
    unsigned cls; /* HAK_NCLASSES: a span */
    bool beyond;  /* it may exceed the limit */
    bool is_zero; /* result: the block reads as zero */
};
/* A block; NULL if the arena must grow, and may not; or cannot. */
void *hak_arena_take(struct hak_arena *arena, struct hak_arena_request *r, bool may_grow);
/* Whether its limit allows so many bytes more, after the program was asked. The caller holds no lock. */
bool hak_arena_may_grow(struct hak_arena *arena, size_t bytes, bool *beyond);
/* The arena of a slab or span; NULL if a thread, a CPU or none owns it. */
HAK_INLINE struct hak_arena *hak_arena_of(const struct hak_slab *slab)
{
    bool has_one = slab && hak_slab_state(slab) == HAK_SLAB_ARENA;
    return HAK_UNLIKELY(has_one) ? (struct hak_arena *)(void *)HAK_LOAD_RELAXED(&slab->owner) : NULL;
}

/* A thread's cache of free blocks of one arena. Another thread that destroys the arena, or visits its blocks, takes
 * them; then the front's thread does not use the arena. */
#define HAK_FRONT_MOST 14u
#define HAK_FRONT_REFILL 7u
struct hak_front {
    struct hak_front *next, *prev; /* in the arena's list */
    _Atomic(struct hak_arena *) arena;
    _Atomic(uint64_t) tag; /* of the arena */
    struct hak_front_bin {
        void **last;                      /* the block freed last */
        void *slots[HAK_FRONT_MOST + 1u]; /* the first one is NULL */
    } bins[];                             /* of each class; without an arena there may be none */
};
_Static_assert(sizeof(struct hak_front_bin) == 128, "found by a shift");

/* Part of the tags of arenas: no thread has it in its tag, so each free of such a block takes the slow path. */
#define HAK_ARENA_TAG 0x100u
_Static_assert(HAK_ARENA_TAG > HAK_NCLASSES, "no class");
extern HAK_HIDDEN HAK_THREAD_LOCAL struct hak_front *hak_front; /* hak_no_front, or the thread's own (thread.c) */
extern HAK_HIDDEN struct hak_front hak_no_front;
/* The calling thread's front serves this arena from now on. The thread calls hak_front_end when it ends. */
void hak_front_begin(struct hak_arena *arena);
/* The thread, which has a front, ends. */
void hak_front_end(void);

/* A block of the front; NULL: none. */
HAK_INLINE void *hak_front_take(struct hak_arena *arena, unsigned cls)
{
    struct hak_front *f = hak_front;
    struct hak_front_bin *b = &f->bins[cls];
    if (HAK_UNLIKELY(HAK_LOAD_RELAXED(&f->arena) != arena))
        return NULL;
    void **last = b->last, *p = *last;
    if (HAK_LIKELY(p)) {
        HAK_KEEP_ORDER(); /* another thread may fork */
        b->last = last - 1;
    }
    return p;
}

/* `mixed`: the page of p, XORed with its tag. False: its bin is full, it serves another arena, or p is no small block,
 * or was freed just before. */
HAK_INLINE bool hak_front_put(void *p, uint64_t mixed)
{
    struct hak_front *f = hak_front;
    uint64_t cls = mixed ^ HAK_LOAD_RELAXED(&f->tag);
    if (HAK_UNLIKELY(cls >= HAK_NCLASSES))
        return false;
    struct hak_front_bin *b = &f->bins[cls];
    void **last = b->last;
    if (HAK_UNLIKELY(last == b->slots + HAK_FRONT_MOST || *last == p))
        return false;
    if (HAK_HARDENED && hak_zeroes_on_free())
        hak_fill(p, 0, hak_class_usable((unsigned)cls));
    last[1] = p;
    HAK_KEEP_ORDER();
    b->last = last + 1;
    return true;
}

HAK_INLINE bool hak_front_free(void *p)
{
    uint64_t page = (uintptr_t)p >> HAK_PAGE_LG;
    return hak_front_put(p, page ^ hak_tag_load(page));
}

/* For p in a slab or span of an arena. They stop the process unless a live block begins there. */
void hak_arena_put(struct hak_slab *slab, void *p);
size_t hak_arena_usable(struct hak_slab *slab, const void *p, const char *call);
/* Changes the length of the block where it is; false: it cannot. */
bool hak_arena_resize(struct hak_slab *slab, void *p, size_t size, bool beyond);

/* Gives pages without blocks to the page heap. */
void hak_arena_trim(struct hak_arena *arena);
/* Calls `visit` for each block, live or free, until it returns false. No other thread uses the arena. */
typedef bool hak_arena_visitor(void *block, size_t size, bool live, void *context);
bool hak_arena_visit(struct hak_arena *arena, hak_arena_visitor *visit, void *context);

struct hak_arena_figures {
    char name[HAK_ARENA_NAME];
    size_t live, blocks, held, peak, limit; /* bytes; live blocks; bytes of its pages, now and at most */
};
void hak_arena_figures(struct hak_arena *arena, struct hak_arena_figures *figures);
/* Copies the figures of up to `most` arenas; returns how many arenas there are. */
size_t hak_arenas_figures(struct hak_arena_figures *figures, size_t most);

#endif
