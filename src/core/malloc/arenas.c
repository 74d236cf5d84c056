/* SPDX-License-Identifier: MIT
 * See arenas.h. */
#include "arenas.h"

#include <string.h>

#include "core/heap/thread.h"
#include "core/pages/budget.h"
#include "core/process/life.h"
#include "core/process/maintenance.h"

#define GROW_WORK 64u /* new pages count as so many blocks of work */

/* Slow calls in a row for one arena, after which the thread's front serves it. */
#define VOTES 4u

/* The caller holds no lock. */
static void vote_for(struct hak_arena *a)
{
    static HAK_THREAD_LOCAL struct hak_arena *last;
    static HAK_THREAD_LOCAL unsigned votes;
    votes = last == a ? votes + 1 : 0;
    last = a;
    if (votes < VOTES || HAK_LOAD_RELAXED(&hak_front->arena) == a)
        return;
    votes = 0;
    if (hak_thread_will_end())
        hak_front_begin(a);
}

void hak_arena_free(struct hak_slab *slab, void *p)
{
    struct hak_arena *a = hak_arena_of(slab);
    if (slab->cls != HAK_CLASS_SPAN)
        vote_for(a);
    hak_arena_put(slab, p);
    hak_work_add(1);
    hak_maintain();
}

static HAK_NOINLINE void *alloc_new(struct hak_arena *a, struct hak_arena_request *r)
{
    size_t bytes =
        r->cls < HAK_NCLASSES ? hak_slab_pages[r->cls] * HAK_PAGE : hak_align_up(hak_max(r->size, 1), HAK_PAGE);
    bool may = bytes <= HAK_ARENA_MOST && hak_arena_may_grow(a, bytes, &r->beyond) &&
               (hak_budget_allows(bytes) || hak_make_room(bytes));
    void *p = may ? hak_arena_take(a, r, true) : NULL;
    hak_work_add(GROW_WORK);
    hak_maintain();
    return p;
}

static HAK_NOINLINE void *alloc_slowly(struct hak_arena *a, struct hak_arena_request *r)
{
    if (r->cls < HAK_NCLASSES)
        vote_for(a);
    void *p = hak_arena_take(a, r, false);
    if (!p && (r->size | r->align) <= PTRDIFF_MAX)
        p = alloc_new(a, r);
    if (!p)
        errno = ENOMEM;
    return p;
}

void *hak_arena_alloc(struct hak_arena *a, size_t size, size_t align, bool zero)
{
    struct hak_arena_request r = {.size = size, .align = align};
    r.cls = hak_class_of_aligned(hak_max(align, 16), size);
    void *p = r.cls < HAK_NCLASSES ? hak_front_take(a, r.cls) : NULL;
    if (HAK_UNLIKELY(!p))
        p = alloc_slowly(a, &r);
    return p && zero && !r.is_zero ? memset(p, 0, size) : p;
}

static HAK_THREAD_LOCAL struct hak_arena *default_arena;

void *hak_default_alloc(size_t size, size_t align, bool zero)
{
    return hak_arena_alloc(default_arena, size, align, zero);
}

struct hak_arena *hak_default_set(struct hak_arena *a)
{
    struct hak_arena *before = hak_suspended ? default_arena : NULL;
    if (a && !before && !hak_thread_suspend()) {
        errno = ENOMEM;
        return NULL;
    }
    if (!a && before)
        hak_thread_resume();
    default_arena = a;
    return before;
}

bool hak_arena_expand(struct hak_slab *slab, void *p, size_t size)
{
    size_t has = slab->pages * HAK_PAGE, more = size > has ? hak_align_up(size - has, HAK_PAGE) : 0;
    bool beyond = false;
    return slab->cls == HAK_CLASS_SPAN && size <= HAK_ARENA_MOST &&
           (!more || (hak_arena_may_grow(hak_arena_of(slab), more, &beyond) &&
                      (hak_budget_allows(more) || hak_make_room(more)))) &&
           hak_arena_resize(slab, p, size, beyond);
}
