/* SPDX-License-Identifier: MIT
 *
 * pointer CALL WHERE: a pointer that malloc did not return, or that was freed, given to free, realloc or
 * malloc_usable_size. CALL: free, remote-free (by another thread), realloc, usable. WHERE: see `places`. */
#include "misuse.h"

#include <dlfcn.h>
#include <sys/mman.h>

static char object[1 << 17] __attribute__((aligned(1 << 16)));

static char *small_block(void)
{
    return memset(malloc(200), 0, 200);
}

static char *plus_1(void)
{
    return small_block() + 1;
}

static char *plus_16(void)
{
    return small_block() + 16;
}

/* 50 blocks further: in a page of the slab that was not touched yet. */
static char *never(void)
{
    char *p = small_block();
    return p + 50 * ((malloc_usable_size(p) + 15) / 16 * 16);
}

/* 100 MiB further: possibly in the heap, but in no slab. */
static char *far(void)
{
    return small_block() + 100 * 1024 * 1024;
}

static char *pool_plus_16(void)
{
    return (char *)memset(malloc(20000), 0, 20000) + 16;
}

static char *large_plus_1(void)
{
    return (char *)memset(malloc(5000000), 0, 5000000) + 1;
}

static char *large_plus_16(void)
{
    return (char *)memset(malloc(5000000), 0, 5000000) + 16;
}

static char *direct_plus_page(void)
{
    char *p = malloc(200000000);
    return p + 4096;
}

static char *stack(void)
{
    return (char *)((uintptr_t)__builtin_frame_address(0) & ~(uintptr_t)15);
}

static char *fixed(void)
{
    return object;
}

static char *low(void)
{
    return (char *)24;
}

/* Whatever the kernel maps beside it, what lies before is closed: glibc reads there. */
static char *behind_closed(int prot)
{
    char *p = mmap(NULL, 131072, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mprotect(p + 65536, 65536, prot);
    return p + 65536;
}

static char *mapped(void)
{
    return behind_closed(PROT_READ | PROT_WRITE);
}

static char *closed(void)
{
    return behind_closed(PROT_NONE);
}

static char *wild(void)
{
    return (char *)0xdeadbeefdeadbee0;
}

/* A second C library, as a plugin may bring: its malloc is not ours. */
static char *others(void)
{
#ifdef __GLIBC__
    void *libc = dlmopen(LM_ID_NEWLM, "libc.so.6", RTLD_NOW | RTLD_LOCAL);
#else
    void *libc = NULL;
#endif
    void *(*their_malloc)(size_t) = libc ? (void *(*)(size_t))dlsym(libc, "malloc") : NULL;
    return their_malloc ? their_malloc(200) : NULL;
}

static char *freed(size_t size)
{
    char *p = memset(malloc(size), 0, size);
    free(p);
    return p;
}

static char *freed_small(void)
{
    return freed(200);
}

static char *freed_pool(void)
{
    return freed(20000);
}

static char *freed_large(void)
{
    return freed(5000000);
}

static char *freed_direct(void)
{
    return freed(200000000);
}

static const struct {
    const char *name;
    char *(*of)(void);
} places[] = {
    {"p+1", plus_1},
    {"p+16", plus_16},
    {"never", never},
    {"far", far},
    {"pool+16", pool_plus_16},
    {"large+1", large_plus_1},
    {"large+16", large_plus_16},
    {"direct+4096", direct_plus_page},
    {"stack", stack},
    {"static", fixed},
    {"low", low},
    {"mapped", mapped},
    {"closed", closed},
    {"wild", wild},
    {"others", others},
    {"freed-small", freed_small},
    {"freed-pool", freed_pool},
    {"freed-large", freed_large},
    {"freed-direct", freed_direct},
};

static void *remote_free(void *p)
{
    free(malloc(200)); /* a thread with a heap of its own */
    free(p);
    return NULL;
}

static void call(const char *name, char *p)
{
    pthread_t t;
    if (!strcmp(name, "free"))
        free(p);
    else if (!strcmp(name, "remote-free"))
        pthread_create(&t, NULL, remote_free, p), pthread_join(t, NULL);
    else if (!strcmp(name, "realloc"))
        announce(realloc(p, 210));
    else if (!strcmp(name, "usable"))
        announce((void *)malloc_usable_size(p));
    else
        _exit(2);
}

int main(int argc, char **argv)
{
    for (size_t i = 0; argc == 3 && i < sizeof places / sizeof places[0]; i++)
        if (!strcmp(argv[2], places[i].name)) {
            char *p = places[i].of();
            if (!p)
                return 77;
            call(argv[1], announce(p));
            return passed();
        }
    return 2;
}
