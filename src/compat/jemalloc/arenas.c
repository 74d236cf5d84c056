/* SPDX-License-Identifier: MIT
 * Arenas, caches of threads, and what belongs to a thread. Arena 0 is the heap of the library; each other one is a heap
 * of its own (hakmem_heap_new). Explicit caches are numbers: blocks come from the thread's bins. A number is taken and
 * given back by one compare-and-swap, so a forked child may go on. */
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "handlers.h"

#define ARENAS 4095u  /* as many as MALLOCX_ARENA can name */
#define TCACHES 4094u /* as many as MALLOCX_TCACHE can name */

static struct arena {
    _Atomic(unsigned) used; /* or not; processors without atomic bytes have this */
    _Atomic(hakmem_heap *) heap;
    _Atomic(ssize_t) decay_ms, muzzy_ms;
} arenas[ARENAS];
static _Atomic(unsigned) arena_count = 1;
static _Atomic(unsigned) tcaches[TCACHES];
static _Atomic(ssize_t) muzzy_ms;

__thread struct je_thread je_self __attribute__((tls_model("initial-exec")));

static bool take(_Atomic(unsigned) *used)
{
    return !atomic_exchange(used, true);
}

static bool arena_exists(size_t index)
{
    return index == 0 || (index < ARENAS && atomic_load(&arenas[index].used));
}

hakmem_heap *je_arena_heap(size_t index)
{
    return index < ARENAS ? atomic_load_explicit(&arenas[index].heap, memory_order_acquire) : NULL;
}

static hakmem_heap *make_arena_heap(unsigned index)
{
    char name[HAKMEM_HEAP_NAME_MAX];
    snprintf(name, sizeof name, "arena %u", index);
    return hakmem_heap_new(&(struct hakmem_heap_options){.name = name});
}

bool je_index_exists(char kind, size_t index)
{
    switch (kind) {
    case 'a': /* the number of arenas itself once meant all of them */
        return index <= atomic_load(&arena_count) || index == MALLCTL_ARENAS_ALL || index == MALLCTL_ARENAS_DESTROYED;
    case 'b':
        return index < je_class_count();
    default:
        return index < JE_LARGE;
    }
}

/* --- arenas ----------------------------------------------------------------------------------------------- */

int je_get_narenas(const size_t *mib, union je_value *value)
{
    (void)mib;
    value->number = atomic_load(&arena_count);
    return 0;
}

int je_no_hooks(const size_t *mib, const union je_value *value)
{
    (void)mib;
    return value && value->pointer ? EFAULT : 0;
}

int je_create_arena(const size_t *mib, union je_value *value)
{
    (void)mib;
    for (unsigned i = 1; i < ARENAS; i++)
        if (take(&arenas[i].used)) {
            hakmem_heap *heap = make_arena_heap(i);
            if (!heap) {
                arenas[i].used = false;
                return EAGAIN;
            }
            arenas[i].heap = heap;
            unsigned count = atomic_load(&arena_count);
            while (count <= i && !atomic_compare_exchange_weak(&arena_count, &count, i + 1))
                ;
            value->number = i;
            return 0;
        }
    return EAGAIN;
}

/* The program knows that no thread uses the arena; the calling thread must not be of it. */
static int discard_arena(size_t index, hakmem_heap *next)
{
    hakmem_heap *heap = index && index < ARENAS && je_self.arena != index ? arenas[index].heap : NULL;
    if (!heap || !atomic_compare_exchange_strong(&arenas[index].heap, &heap, next)) {
        hakmem_heap_destroy(next);
        return EFAULT;
    }
    hakmem_heap_destroy(heap);
    return 0;
}

int je_destroy_arena(const size_t *mib, const union je_value *value)
{
    (void)value;
    int error = discard_arena(mib[1], NULL);
    if (!error)
        arenas[mib[1]].used = false;
    return error;
}

int je_reset_arena(const size_t *mib, const union je_value *value)
{
    (void)value;
    hakmem_heap *next = je_arena_heap(mib[1]) ? make_arena_heap((unsigned)mib[1]) : NULL;
    return next ? discard_arena(mib[1], next) : EFAULT;
}

int je_get_initialized(const size_t *mib, union je_value *value)
{
    value->flag = mib[1] == MALLCTL_ARENAS_ALL || arena_exists(mib[1]);
    return 0;
}

int je_purge(const size_t *mib, const union je_value *value)
{
    (void)mib;
    (void)value;
    hakmem_trim(0);
    return 0;
}

/* A block of more than any class takes a slow entry, which ends with maintenance. */
int je_decay(const size_t *mib, const union je_value *value)
{
    (void)mib;
    (void)value;
    hakmem_free(hakmem_malloc(1u << 17));
    return 0;
}

/* Whether memory comes from sbrk: it never does, but a wish is kept. */
static const char *const dss_words[] = {"disabled", "primary", "secondary"};
static _Atomic(unsigned) dss;

int je_get_dss(const size_t *mib, union je_value *value)
{
    (void)mib;
    value->text = dss_words[dss];
    return 0;
}

int je_set_dss(const size_t *mib, const union je_value *value)
{
    (void)mib;
    for (unsigned i = 0; value->text && i < sizeof dss_words / sizeof *dss_words; i++)
        if (strcmp(value->text, dss_words[i]) == 0) {
            dss = i;
            return 0;
        }
    return EFAULT;
}

/* Of arena 0, and of all: the setting. */
static struct arena *own_arena(size_t index)
{
    return index && index < ARENAS ? &arenas[index] : NULL;
}

int je_get_arena_decay(const size_t *mib, union je_value *value)
{
    struct arena *a = own_arena(mib[1]);
    if (!a)
        return je_get_decay(mib, value);
    value->ssize = atomic_load(&a->decay_ms);
    return 0;
}

int je_set_arena_decay(const size_t *mib, const union je_value *value)
{
    struct arena *a = own_arena(mib[1]);
    if (!a)
        return je_set_decay(mib, value);
    if (value->ssize < -1)
        return EFAULT;
    atomic_store(&a->decay_ms, value->ssize);
    return 0;
}

static _Atomic(ssize_t) *muzzy_of(size_t index)
{
    struct arena *a = own_arena(index);
    return a ? &a->muzzy_ms : &muzzy_ms;
}

int je_get_arena_muzzy(const size_t *mib, union je_value *value)
{
    value->ssize = atomic_load(muzzy_of(mib[1]));
    return 0;
}

int je_set_arena_muzzy(const size_t *mib, const union je_value *value)
{
    if (value->ssize < -1)
        return EFAULT;
    atomic_store(muzzy_of(mib[1]), value->ssize);
    return 0;
}

static const size_t first_arena[] = {0, 0};

int je_get_muzzy(const size_t *mib, union je_value *value)
{
    (void)mib;
    return je_get_arena_muzzy(first_arena, value);
}

int je_set_muzzy(const size_t *mib, const union je_value *value)
{
    (void)mib;
    return je_set_arena_muzzy(first_arena, value);
}

int je_get_stats_decay(const size_t *mib, union je_value *value)
{
    return je_get_arena_decay(mib + 1, value);
}

int je_get_stats_muzzy(const size_t *mib, union je_value *value)
{
    return je_get_arena_muzzy(mib + 1, value);
}

static __thread unsigned found __attribute__((tls_model("initial-exec")));

int je_set_lookup(const size_t *mib, const union je_value *value)
{
    (void)mib;
    if (!value || !value->pointer)
        return EINVAL;
    hakmem_heap *heap = hakmem_heap_of(value->pointer);
    unsigned last = heap ? atomic_load(&arena_count) : 0; /* or a heap that the program made itself */
    for (found = 0; last-- > 1;)
        if (arenas[last].heap == heap)
            found = last;
    return 0;
}

int je_get_lookup(const size_t *mib, union je_value *value)
{
    (void)mib;
    value->number = found;
    return 0;
}

/* --- caches ----------------------------------------------------------------------------------------------- */

int je_flush(const size_t *mib, const union je_value *value)
{
    (void)mib;
    (void)value;
    hakmem_trim(SIZE_MAX);
    return 0;
}

int je_nothing(const size_t *mib, const union je_value *value)
{
    (void)mib;
    (void)value;
    return 0;
}

int je_create_tcache(const size_t *mib, union je_value *value)
{
    (void)mib;
    for (unsigned i = 0; i < TCACHES; i++)
        if (take(&tcaches[i])) {
            value->number = i;
            return 0;
        }
    return EAGAIN;
}

int je_flush_tcache(const size_t *mib, const union je_value *value)
{
    return value->number < TCACHES && atomic_load(&tcaches[value->number]) ? je_flush(mib, value) : EFAULT;
}

int je_destroy_tcache(const size_t *mib, const union je_value *value)
{
    int error = je_flush_tcache(mib, value);
    if (!error)
        atomic_store(&tcaches[value->number], false);
    return error;
}

/* --- threads ---------------------------------------------------------------------------------------------- */

int je_get_thread_arena(const size_t *mib, union je_value *value)
{
    (void)mib;
    value->number = je_self.arena;
    return 0;
}

int je_set_thread_arena(const size_t *mib, const union je_value *value)
{
    (void)mib;
    if (!arena_exists(value->number))
        return EFAULT;
    if (je_self.arena != value->number) {
        hakmem_heap_set_default(je_arena_heap(value->number));
        je_self.arena = value->number;
    }
    return 0;
}

int je_get_tcache_enabled(const size_t *mib, union je_value *value)
{
    (void)mib;
    value->flag = !je_self.no_tcache;
    return 0;
}

int je_set_tcache_enabled(const size_t *mib, const union je_value *value)
{
    je_self.no_tcache = !value->flag;
    return value->flag ? 0 : je_flush(mib, value);
}

static uint64_t *counted(uint64_t *counter)
{
    je_counting = true;
    return counter;
}

int je_get_allocated(const size_t *mib, union je_value *value)
{
    (void)mib;
    value->u64 = *counted(&je_self.allocated);
    return 0;
}

int je_get_allocatedp(const size_t *mib, union je_value *value)
{
    (void)mib;
    value->pointer = counted(&je_self.allocated);
    return 0;
}

int je_get_deallocated(const size_t *mib, union je_value *value)
{
    (void)mib;
    value->u64 = *counted(&je_self.freed);
    return 0;
}

int je_get_deallocatedp(const size_t *mib, union je_value *value)
{
    (void)mib;
    value->pointer = counted(&je_self.freed);
    return 0;
}

int je_get_peak(const size_t *mib, union je_value *value)
{
    (void)mib;
    value->u64 = *counted(&je_self.peak);
    return 0;
}

int je_reset_peak(const size_t *mib, const union je_value *value)
{
    (void)mib;
    (void)value;
    counted(&je_self.peak);
    je_self.base = je_self.allocated - je_self.freed;
    je_self.peak = 0;
    return 0;
}
