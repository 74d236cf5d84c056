/* SPDX-License-Identifier: MIT
 * hakmem_heap_*. A static program that has no heaps does not take this object. */
#include "core/malloc/arenas.h"
#include "core/pages/superslab.h"
#include "core/process/life.h"
#include "edge.h"
#include "hakmem.h"

_Static_assert(HAKMEM_HEAP_NAME_MAX == HAK_ARENA_NAME, "the same length");

static struct hak_arena *arena_of(hakmem_heap *heap)
{
    return (struct hak_arena *)(void *)heap;
}

HAK_EXPORT hakmem_heap *hakmem_heap_new(const struct hakmem_heap_options *options)
{
    HAK_UNSEEN;
    static const struct hakmem_heap_options none;
    const struct hakmem_heap_options *o = options ? options : &none;
    size_t align = o->alignment / HAK_PAGE;
    if (o->alignment && (!hak_is_pow2(align) || o->alignment % HAK_PAGE || align > HAK_SUPERSLAB_PAGES)) {
        errno = EINVAL;
        return NULL;
    }
    struct hak_arena *a = NULL;
    if (hak_init())
        a = hak_arena_new(&(struct hak_arena_options){
            .name = o->name,
            .limit = o->limit,
            .reached = (hak_arena_reached *)(void (*)(void))o->reached,
            .context = o->context,
            .align = align,
            .advice = (o->no_dump ? HAK_ADVICE_NO_DUMP : HAK_ADVICE_NONE) | (o->huge_pages > 0   ? HAK_ADVICE_HUGE
                                                                             : o->huge_pages < 0 ? HAK_ADVICE_SMALL
                                                                                                 : HAK_ADVICE_NONE),
            .apart = o->apart != 0,
        });
    if (!a)
        errno = ENOMEM;
    return (hakmem_heap *)(void *)a;
}

static bool forget(void *p, size_t usable, bool live, void *context)
{
    (void)usable, (void)context;
    if (live)
        edge_forget(p);
    return true;
}

HAK_EXPORT void hakmem_heap_destroy(hakmem_heap *heap)
{
    HAK_UNSEEN;
    if (HAK_VALGRIND && heap)
        hak_arena_visit(arena_of(heap), forget, NULL);
    if (heap)
        hak_arena_destroy(arena_of(heap));
}

static void *alloc(hakmem_heap *heap, size_t size, size_t alignment, bool zero)
{
    HAK_UNSEEN;
    return edge_given(hak_arena_alloc(arena_of(heap), edge_room(size), alignment, zero), size, zero);
}

HAK_EXPORT void *hakmem_heap_malloc(hakmem_heap *heap, size_t size)
{
    void *p = NULL;
    if (HAK_LIKELY(edge_room(size) <= HAK_SMALL_MAX))
        p = hak_front_take(arena_of(heap), hak_class_of(edge_room(size)));
    return HAK_LIKELY(p) ? edge_given(p, size, false) : alloc(heap, size, 1, false);
}

HAK_EXPORT void hakmem_heap_free(hakmem_heap *heap, void *ptr)
{
    (void)heap;
    if (EDGE || HAK_UNLIKELY(!hak_front_free(ptr)))
        hakmem_free(ptr);
}

HAK_EXPORT void *hakmem_heap_calloc(hakmem_heap *heap, size_t count, size_t size)
{
    size_t total;
    if (__builtin_mul_overflow(count, size, &total))
        total = SIZE_MAX; /* no machine has so much */
    return alloc(heap, total, 1, true);
}

HAK_EXPORT void *hakmem_heap_aligned_alloc(hakmem_heap *heap, size_t alignment, size_t size)
{
    if (!hak_is_pow2(alignment)) {
        errno = EINVAL;
        return NULL;
    }
    return alloc(heap, size, alignment, false);
}

HAK_EXPORT void *hakmem_heap_realloc(hakmem_heap *heap, void *ptr, size_t size)
{
    return ptr ? hakmem_realloc(ptr, size) : hakmem_heap_malloc(heap, size);
}

HAK_EXPORT hakmem_heap *hakmem_heap_of(const void *ptr)
{
    return (hakmem_heap *)(void *)hak_arena_of(hak_space_slab(ptr));
}

HAK_EXPORT hakmem_heap *hakmem_heap_set_default(hakmem_heap *heap)
{
    HAK_UNSEEN;
    return (hakmem_heap *)(void *)hak_default_set(arena_of(heap));
}

HAK_EXPORT size_t hakmem_heap_trim(hakmem_heap *heap)
{
    HAK_UNSEEN;
    hak_arena_trim(arena_of(heap));
    return hakmem_trim(0);
}

HAK_EXPORT void hakmem_heap_stats(hakmem_heap *heap, struct hakmem_heap_stats *stats)
{
    struct hak_arena_figures f;
    HAK_UNSEEN;
    hak_arena_figures(arena_of(heap), &f);
    *stats = (struct hakmem_heap_stats){
        .live = f.live, .blocks = f.blocks, .held = f.held, .peak = f.peak, .limit = f.limit};
    for (size_t i = 0; i < sizeof f.name; i++)
        stats->name[i] = f.name[i];
}

struct visit {
    int (*visit)(const struct hakmem_heap_block *block, void *context);
    void *context;
    int result;
};

static bool visit_block(void *p, size_t usable, bool live, void *context)
{
    struct visit *v = context;
    struct hakmem_heap_block block = {.address = p, .size = usable - EDGE, .is_live = live};
    v->result = v->visit(&block, v->context);
    return !v->result;
}

HAK_EXPORT int hakmem_heap_visit(hakmem_heap *heap, int (*visit)(const struct hakmem_heap_block *block, void *context),
                                 void *context)
{
    struct visit v = {visit, context, 0};
    HAK_UNSEEN;
    hak_arena_visit(arena_of(heap), visit_block, &v);
    return v.result;
}
