/* SPDX-License-Identifier: MIT
 * inline.py's program: COUNT pairs of 64 B, by an allocator that the compiler can see into (-DINLINE: hakmem/inline.h;
 * -DLIST: a list without any check, the least there can be), or by malloc and free as they are linked. With a second
 * argument, only the loop. Prints the best of five times, in ns for a pair. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#ifdef INLINE
#include <hakmem/inline.h>
#define TAKE() hakmem_inline_malloc(SIZE)
#define GIVE(p) hakmem_inline_free(p, SIZE)
#elif defined LIST
static void **list;
static inline void *take(void)
{
    void **p = list;
    list = *p;
    return p;
}
static inline void give(void *p)
{
    *(void **)p = list;
    list = p;
    __asm__ volatile("" : : : "memory"); /* otherwise the compiler removes the pair */
}
#define TAKE() take()
#define GIVE(p) give(p)
#else
#define TAKE() malloc(SIZE)
#define GIVE(p) free(p)
#endif

#define SIZE 64
#ifndef SLOTS
#define SLOTS 256 /* blocks that are in use; the oldest is freed */
#endif

static void *slots[SLOTS];

__attribute__((noinline)) static void pairs(unsigned long count)
{
    for (unsigned long i = 0; i < count; i++) {
        GIVE(slots[i % SLOTS]);
        slots[i % SLOTS] = TAKE();
    }
}

__attribute__((noinline)) static void bare(unsigned long count)
{
    for (unsigned long i = 0; i < count; i++) {
        void *p = slots[i % SLOTS];
        __asm__ volatile("" : "+r"(p) : : "memory");
        slots[i % SLOTS] = p;
    }
}

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

int main(int argc, char **argv)
{
    unsigned long count = argc > 1 ? strtoul(argv[1], NULL, 10) : 0;
    double best = 1e9;
#ifdef LIST
    for (unsigned i = 0; i < 2 * SLOTS; i++)
        give(malloc(SIZE));
#endif
    for (unsigned i = 0; i < SLOTS; i++)
        slots[i] = TAKE();
    for (unsigned run = 0; run < 5; run++) {
        double start = seconds();
        (argc > 2 ? bare : pairs)(count);
        double took = seconds() - start;
        best = took < best ? took : best;
    }
    printf("%.3f\n", best / (double)count * 1e9);
    return 0;
}
