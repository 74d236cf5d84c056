/* SPDX-License-Identifier: MIT
 * heaps.py's program: heaps of hakmem, mimalloc or jemalloc, whose library it opens: LIBRARY WHAT COUNT. Prints user
 * time per step, and the whole time, in ns.
 *   pair     malloc and free of 64 bytes in one heap
 *   request  a heap, 100 blocks of up to 1000 bytes in it, and its end
 *   end      the end of a heap with COUNT blocks of 64 bytes
 *   bytes    resident bytes of each of COUNT heaps with one block */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

typedef void *heap;
static heap (*new_heap)(void *);
static void *(*malloc_in)(heap, size_t);
static void (*free_in)(heap, void *);
static void (*end_heap)(heap);

/* --- jemalloc: an arena without a thread cache; its number is the heap ------------------------------------- */

#define ARENA(a) ((int)((uintptr_t)(a) << 20) | 1 << 8) /* MALLOCX_ARENA | MALLOCX_TCACHE_NONE */
static int (*mallctl)(const char *, void *, size_t *, void *, size_t);
static void *(*mallocx)(size_t, int);
static void (*dallocx)(void *, int);

static heap je_new(void *unused)
{
    unsigned arena = 0;
    size_t size = sizeof arena;
    (void)unused;
    mallctl("arenas.create", &arena, &size, NULL, 0);
    return (heap)(uintptr_t)(arena + 1);
}

static void *je_malloc(heap a, size_t size)
{
    return mallocx(size, ARENA(a));
}

static void je_free(heap a, void *p)
{
    (void)a;
    dallocx(p, 1 << 8);
}

static void je_end(heap a)
{
    char name[64];
    snprintf(name, sizeof name, "arena.%u.destroy", (unsigned)(uintptr_t)a - 1);
    mallctl(name, NULL, NULL, NULL, 0);
}

/* --- mimalloc's free knows the heap --------------------------------------------------------------------------- */

static void (*mi_free)(void *);

static void mi_free_in(heap h, void *p)
{
    (void)h;
    mi_free(p);
}

static void *symbol(void *library, const char *name)
{
    void *p = dlsym(library, name);
    if (!p)
        exit(77);
    return p;
}

static void choose(const char *path)
{
    void *l = dlopen(path, RTLD_NOW);
    if (!l)
        exit(77);
    if (dlsym(l, "hakmem_heap_new")) {
        new_heap = (heap(*)(void *))symbol(l, "hakmem_heap_new");
        malloc_in = (void *(*)(heap, size_t))symbol(l, "hakmem_heap_malloc");
        free_in = (void (*)(heap, void *))symbol(l, "hakmem_heap_free");
        end_heap = (void (*)(heap))symbol(l, "hakmem_heap_destroy");
    } else if (dlsym(l, "mi_heap_new")) {
        new_heap = (heap(*)(void *))symbol(l, "mi_heap_new");
        malloc_in = (void *(*)(heap, size_t))symbol(l, "mi_heap_malloc");
        mi_free = (void (*)(void *))symbol(l, "mi_free");
        free_in = mi_free_in;
        end_heap = (void (*)(heap))symbol(l, "mi_heap_destroy");
    } else {
        mallctl = (int (*)(const char *, void *, size_t *, void *, size_t))symbol(l, "mallctl");
        mallocx = (void *(*)(size_t, int))symbol(l, "mallocx");
        dallocx = (void (*)(void *, int))symbol(l, "dallocx");
        new_heap = je_new;
        malloc_in = je_malloc;
        free_in = je_free;
        end_heap = je_end;
    }
}

static double user_ns(void)
{
    struct rusage use;
    getrusage(RUSAGE_SELF, &use);
    return (double)use.ru_utime.tv_sec * 1e9 + (double)use.ru_utime.tv_usec * 1e3;
}

static double now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static long resident(void)
{
    long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (file && fscanf(file, "%*d %ld", &pages) != 1)
        pages = 0;
    if (file)
        fclose(file);
    return pages * sysconf(_SC_PAGESIZE);
}

static void pairs(long count)
{
    heap h = new_heap(NULL);
    malloc_in(h, 64);
    for (long i = 0; i < count; i++)
        free_in(h, malloc_in(h, 64));
}

static void requests(long count)
{
    for (long i = 0; i < count; i++) {
        heap h = new_heap(NULL);
        for (size_t k = 0; k < 100; k++)
            *(char *)malloc_in(h, 1 + k * 37 % 1000) = 1;
        end_heap(h);
    }
}

int main(int argc, char **argv)
{
    long count = argc > 3 ? atol(argv[3]) : 0;
    heap full = NULL;
    if (!count)
        return 2;
    choose(argv[1]);
    malloc_in(new_heap(NULL), 1);
    if (!strcmp(argv[2], "bytes")) {
        long before = resident();
        for (long i = 0; i < count; i++)
            *(char *)malloc_in(new_heap(NULL), 100) = 1;
        printf("%ld 0\n", (resident() - before) / count);
        return 0;
    }
    if (!strcmp(argv[2], "end")) {
        full = new_heap(NULL);
        for (long i = 0; i < count; i++)
            *(char *)malloc_in(full, 64) = 1;
        count = 1;
    }
    double user = user_ns(), start = now_ns();
    if (full)
        end_heap(full);
    else if (!strcmp(argv[2], "pair"))
        pairs(count);
    else
        requests(count);
    printf("%.1f %.1f\n", (user_ns() - user) / (double)count, (now_ns() - start) / (double)count);
    return 0;
}
