/* SPDX-License-Identifier: MIT
 * The entry points. Arguments are checked here; errno is set here, and by core's slow entries. With HAK_OVERRIDE the C
 * library's names are aliases of hakmem_*, all in this one object, so that static linking takes all of them or none.
 * malloc and free are the fast path of core/malloc/fast.h and nothing more. */
#include "core/os/os.h"
#include "core/pages/space.h"
#include "core/parts/parts.h"
#include "core/process/control.h"
#include "core/process/life.h"
#include "core/process/maintenance.h"
#include "core/process/report.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "edge.h"
#include "hakmem.h"

static void *no_memory(void)
{
    errno = ENOMEM;
    return NULL;
}

HAK_EXPORT void *hakmem_malloc(size_t size)
{
    return edge_malloc(size);
}

HAK_EXPORT void hakmem_free(void *ptr)
{
    edge_free(ptr);
}

HAK_EXPORT void *hakmem_calloc(size_t count, size_t size)
{
    size_t total;
    if (HAK_UNLIKELY(__builtin_mul_overflow(count, size, &total)))
        total = SIZE_MAX; /* no machine has so much, so malloc refuses it */
    return edge_zeroed(total);
}

static HAK_NOINLINE void *realloc_none(void *ptr, size_t size)
{
    if (!ptr)
        return edge_malloc(size);
    edge_usable(ptr, "realloc"); /* this stops the process if ptr is no block */
    edge_free(ptr);
    return NULL;
}

HAK_EXPORT void *hakmem_realloc(void *ptr, size_t size)
{
    return HAK_LIKELY(ptr && size) ? edge_resize(ptr, size) : realloc_none(ptr, size);
}

HAK_EXPORT void *hakmem_reallocarray(void *ptr, size_t count, size_t size)
{
    size_t total;
    if (__builtin_mul_overflow(count, size, &total))
        return no_memory();
    return hakmem_realloc(ptr, total);
}

HAK_EXPORT int hakmem_posix_memalign(void **out, size_t alignment, size_t size)
{
    if (!hak_is_pow2(alignment) || alignment % sizeof(void *))
        return EINVAL;
    void *p = edge_aligned(alignment, size);
    if (!p)
        return ENOMEM;
    *out = p;
    return 0;
}

HAK_EXPORT HAK_NOINLINE void *hakmem_aligned_alloc(size_t alignment, size_t size)
{
    if (!hak_is_pow2(alignment)) {
        errno = EINVAL;
        return NULL;
    }
    return edge_aligned(alignment, size);
}

HAK_EXPORT void *hakmem_memalign(size_t alignment, size_t size)
{
    if (alignment > (size_t)PTRDIFF_MAX + 1) { /* no power of two is as large */
        errno = EINVAL;
        return NULL;
    }
    size_t power = alignment <= 16 ? 16 : (size_t)2 << (63 - __builtin_clzll(alignment - 1));
    return hakmem_aligned_alloc(power, size);
}

HAK_EXPORT void *hakmem_valloc(size_t size)
{
    return hakmem_aligned_alloc(hak_os_page_size(), size);
}

HAK_EXPORT void *hakmem_pvalloc(size_t size)
{
    size_t page = hak_os_page_size();
    return size > PTRDIFF_MAX ? no_memory() : hakmem_aligned_alloc(page, hak_align_up(hak_max(size, 1), page));
}

HAK_EXPORT size_t hakmem_malloc_usable_size(void *ptr)
{
    return edge_usable(ptr, "malloc_usable_size");
}

HAK_EXPORT void hakmem_free_sized(void *ptr, size_t size)
{
    if (HAK_HARDENED)
        hak_block_check_size(ptr, 1, size, "free_sized");
    edge_free(ptr);
}

HAK_EXPORT void hakmem_free_aligned_sized(void *ptr, size_t alignment, size_t size)
{
    if (HAK_HARDENED)
        hak_block_check_size(ptr, alignment, size, "free_aligned_sized");
    edge_free(ptr);
}

HAK_EXPORT size_t hakmem_trim(size_t keep)
{
    HAK_UNSEEN;
    return hak_trim(keep);
}

HAK_EXPORT int hakmem_malloc_trim(size_t pad)
{
    return hakmem_trim(pad) != 0;
}

HAK_EXPORT void hakmem_main_called(void)
{
    HAK_UNSEEN;
    if (hak_is_ready_for("HAKMEM_BACKGROUND"))
        hak_maintenance_background();
}

HAK_EXPORT int hakmem_stats(int fd, int json)
{
    HAK_UNSEEN;
    return hak_init() ? hak_stats_write(fd, json != 0) : -ENOMEM;
}

HAK_EXPORT int hakmem_get(const char *name, char *value, size_t size)
{
    HAK_UNSEEN;
    return hak_init() ? hak_control_get(name, value, size) : -ENOMEM;
}

HAK_EXPORT int hakmem_set(const char *name, const char *value)
{
    HAK_UNSEEN;
    return hak_init() ? hak_control_set(name, value) : -ENOMEM;
}

HAK_EXPORT int hakmem_profile(size_t mean)
{
    HAK_UNSEEN;
    return hak_control_profile(mean);
}

HAK_EXPORT const char *hakmem_version(void)
{
    return HAK_VERSION;
}

HAK_EXPORT const char *hakmem_backend(void)
{
    HAK_UNSEEN;
    return hak_init() ? hak_parts.backend->name : "none";
}

/* --- glibc's own additions ---------------------------------------------------------------------------- */

HAK_EXPORT struct hakmem_mallinfo2 hakmem_mallinfo2(void)
{
    HAK_UNSEEN;
    struct hakmem_mallinfo2 info = {0};
    struct hak_census c;
    struct hak_space_stats space;
    if (!hak_init())
        return info;
    hak_stats_census(&c);
    hak_space_stats(&space);
    info.arena = space.handed_out;
    info.uordblks = hak_stats_held(&c);
    info.fordblks = info.arena > info.uordblks ? info.arena - info.uordblks : 0;
    info.ordblks = hak_max(c.free + c.remote + c.free_runs, info.fordblks != 0);
    for (unsigned i = 0; hak_frontends[i]; i++)
        if (hak_frontends[i]->count_outside)
            hak_frontends[i]->count_outside(&info.hblks, &info.hblkhd);
    return info;
}

HAK_EXPORT int hakmem_malloc_info(int options, FILE *stream)
{
    if (options != 0)
        return EINVAL;
    struct hakmem_mallinfo2 i = hakmem_mallinfo2();
    int before = PTHREAD_CANCEL_ENABLE; /* no function of malloc's family is a cancellation point */
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
    int n =
        fprintf(stream,
                "<malloc version=\"1\">\n<heap nr=\"0\">\n<sizes>\n</sizes>\n"
                "<total type=\"rest\" count=\"%zu\" size=\"%zu\"/>\n<total type=\"mmap\" count=\"%zu\" size=\"%zu\"/>\n"
                "<system type=\"current\" size=\"%zu\"/>\n<aspace type=\"total\" size=\"%zu\"/>\n</heap>\n</malloc>\n",
                i.ordblks, i.fordblks, i.hblks, i.hblkhd, i.arena, i.arena);
    pthread_setcancelstate(before, &before);
    return n < 0 ? -1 : 0;
}

HAK_EXPORT void hakmem_malloc_stats(void)
{
    hakmem_stats(STDERR_FILENO, false);
}

/* glibc's numbers, which not every malloc.h has. */
enum {
    MXFAST = 1,
    TRIM_THRESHOLD = -1,
    TOP_PAD = -2,
    MMAP_THRESHOLD = -3,
    MMAP_MAX = -4,
    ARENA_TEST = -7,
    ARENA_MAX = -8
};

HAK_EXPORT int hakmem_mallopt(int parameter, int value)
{
    switch (parameter) {
    case TRIM_THRESHOLD:
    case TOP_PAD:
    case MMAP_THRESHOLD:
    case MMAP_MAX:
    case ARENA_TEST:
    case ARENA_MAX:
        return 1;
    case MXFAST:
        return value >= 0 && (size_t)value <= 80 * sizeof(size_t) / 4;
    default:
        return 0;
    }
}

#if HAK_OVERRIDE

/* glibc's struct mallinfo, which newer headers hide. */
struct hak_mallinfo {
    int arena, ordblks, smblks, hblks, hblkhd, usmblks, fsmblks, uordblks, fordblks, keepcost;
};
struct hak_mallinfo mallinfo(void);

static int as_int(size_t n)
{
    return n > INT32_MAX ? INT32_MAX : (int)n;
}

HAK_EXPORT struct hak_mallinfo mallinfo(void)
{
    struct hakmem_mallinfo2 i = hakmem_mallinfo2();
    return (struct hak_mallinfo){.arena = as_int(i.arena),
                                 .ordblks = as_int(i.ordblks),
                                 .hblks = as_int(i.hblks),
                                 .hblkhd = as_int(i.hblkhd),
                                 .uordblks = as_int(i.uordblks),
                                 .fordblks = as_int(i.fordblks)};
}

/* --- the C library's names -------------------------------------------------------------------------------- */

#define TWIN(name) __attribute__((alias("hakmem_" #name), visibility("default")))

#if HAK_OVERRIDE == 1 /* with 2, tools/profile/profile.c defines these */
void *malloc(size_t size) TWIN(malloc);
void free(void *ptr) TWIN(free);
void *calloc(size_t count, size_t size) TWIN(calloc);
void *realloc(void *ptr, size_t size) TWIN(realloc);
void *reallocarray(void *ptr, size_t count, size_t size) TWIN(reallocarray);
int posix_memalign(void **out, size_t alignment, size_t size) TWIN(posix_memalign);
void *aligned_alloc(size_t alignment, size_t size) TWIN(aligned_alloc);
void *memalign(size_t alignment, size_t size);
void *memalign(size_t alignment, size_t size) TWIN(memalign);
void *valloc(size_t size) TWIN(valloc);
void *pvalloc(size_t size);
void *pvalloc(size_t size) TWIN(pvalloc);
void free_sized(void *ptr, size_t size);
void free_sized(void *ptr, size_t size) TWIN(free_sized);
void free_aligned_sized(void *ptr, size_t alignment, size_t size);
void free_aligned_sized(void *ptr, size_t alignment, size_t size) TWIN(free_aligned_sized);
void cfree(void *ptr);
void cfree(void *ptr) TWIN(free);
size_t malloc_usable_size(void *ptr);
size_t malloc_usable_size(void *ptr) TWIN(malloc_usable_size);
#endif
int malloc_trim(size_t pad);
int malloc_trim(size_t pad) TWIN(malloc_trim);
struct hakmem_mallinfo2 mallinfo2(void);
struct hakmem_mallinfo2 mallinfo2(void) TWIN(mallinfo2);
int malloc_info(int options, FILE *stream);
int malloc_info(int options, FILE *stream) TWIN(malloc_info);
void malloc_stats(void);
void malloc_stats(void) TWIN(malloc_stats);
int mallopt(int parameter, int value);
int mallopt(int parameter, int value) TWIN(mallopt);

/* Names that older versions of glibc had, and that programs which wrap malloc look up. */
#define OLDER(type, name, of, ...) \
    type name(__VA_ARGS__);        \
    type name(__VA_ARGS__) TWIN(of)

OLDER(void *, __libc_malloc, malloc, size_t size);
OLDER(void, __libc_free, free, void *ptr);
OLDER(void *, __libc_calloc, calloc, size_t count, size_t size);
OLDER(void *, __libc_realloc, realloc, void *ptr, size_t size);
OLDER(int, __posix_memalign, posix_memalign, void **out, size_t alignment, size_t size);
OLDER(void *, __libc_memalign, memalign, size_t alignment, size_t size);
OLDER(void *, __libc_valloc, valloc, size_t size);
OLDER(void *, __libc_pvalloc, pvalloc, size_t size);

#endif
