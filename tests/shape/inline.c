/* SPDX-License-Identifier: MIT
 *
 * inline COUNT: COUNT times the oldest of 256 blocks is freed and a new one taken, in line; then as often nothing is.
 * inline.py counts the instructions of the two functions. C and C++.
 *
 * inline check: threads take blocks of many sizes, fill them, and hand half of them on to be freed by another.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <hakmem/inline.h>

#define SIZE 64
#define SLOTS 256
#define THREADS 4
#define ROUNDS 20
#define BLOCKS 300

static void *slots[SLOTS];

__attribute__((noinline)) static void in_line(unsigned long count)
{
    for (unsigned long i = 0; i < count; i++) {
        hakmem_inline_free(slots[i % SLOTS], SIZE);
        slots[i % SLOTS] = hakmem_inline_malloc(SIZE);
    }
}

__attribute__((noinline)) static void bare(unsigned long count)
{
    for (unsigned long i = 0; i < count; i++) {
        void *p = slots[i % SLOTS];
        __asm__ __volatile__("" : "+r"(p) : : "memory");
        slots[i % SLOTS] = p;
    }
}

/* Sizes that the compiler knows, and one that it does not. */
static void *take(unsigned i, unsigned size)
{
    return i % 4 == 0   ? hakmem_inline_malloc(24)
           : i % 4 == 1 ? hakmem_inline_malloc(64)
           : i % 4 == 2 ? hakmem_inline_malloc(1000)
                        : hakmem_inline_malloc(size);
}

static void give(unsigned i, unsigned size, void *p)
{
    if (i % 4 == 0)
        hakmem_inline_free(p, 24);
    else if (i % 4 == 1)
        hakmem_inline_free(p, 64);
    else if (i % 4 == 2)
        hakmem_inline_free(p, 1000);
    else
        hakmem_inline_free(p, size);
}

static unsigned size_of(unsigned i)
{
    const unsigned known[] = {24, 64, 1000, 1 + i * 37 % 3000};
    return known[i % 4];
}

static unsigned char *handed[THREADS][BLOCKS];
static pthread_barrier_t turn;

static void *work(void *arg)
{
    unsigned me = (unsigned)(size_t)arg, i;
    for (unsigned round = 0; round < ROUNDS; round++) {
        unsigned char **mine = handed[me], **others = handed[(me + round) % THREADS];
        for (i = 0; i < BLOCKS; i++) {
            mine[i] = (unsigned char *)take(i, size_of(i));
            if (!mine[i] || (size_t)mine[i] % 16 || hakmem_malloc_usable_size(mine[i]) < size_of(i))
                abort();
            memset(mine[i], (int)(me * 37 + i), size_of(i));
        }
        pthread_barrier_wait(&turn);
        for (i = 0; i < BLOCKS; i++) {
            unsigned from = (me + round) % THREADS;
            for (unsigned k = 0; k < size_of(i); k++)
                if (others[i][k] != (unsigned char)(from * 37 + i))
                    abort();
            if (i % 3)
                give(i, size_of(i), others[i]);
            else
                hakmem_free(others[i]);
        }
        pthread_barrier_wait(&turn);
    }
    return NULL;
}

static int check(void)
{
    pthread_t threads[THREADS];
    pthread_barrier_init(&turn, NULL, THREADS);
    for (size_t i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, work, (void *)i);
    for (size_t i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    return hakmem_stats(1, 1);
}

int main(int argc, char **argv)
{
    if (argc != 2)
        return 2;
    if (!strcmp(argv[1], "check"))
        return check();
    for (unsigned i = 0; i < SLOTS; i++)
        slots[i] = hakmem_inline_malloc(SIZE);
    in_line(strtoul(argv[1], NULL, 10));
    bare(strtoul(argv[1], NULL, 10));
    return 0;
}
