/* SPDX-License-Identifier: MIT
 * What a program may ask of malloc while the kernel refuses (door.c): three threads allocate, resize and free blocks
 * of all sizes, and give memory back. NULL comes with ENOMEM, a block keeps its content, a block that shrinks is
 * never refused. When the faults are over everything is served, and in the end little stays resident. */
#include <malloc.h>
#include <pthread.h>

#include "../limits/check.h"
#include "../memory/resident.h"
#include "../watchdog.h"

enum { SECONDS = 100, THREADS = 2, BLOCKS = 120 };
#define MAY_STAY (8 * MIB) /* more than at the start: slabs of bins and of retired heaps, blocks in use */

void door_over(void) __attribute__((weak));
static _Atomic(bool) all_served; /* the faults are over */

/* The head of a block says whether it is in use; touching all blocks would take most of the time. */
static size_t head(size_t size)
{
    return size < 256 * KIB ? size : 256 * KIB;
}

static void refused(const char *what, size_t size)
{
    if (errno != ENOMEM)
        die("%s of %zu bytes refused with errno %d", what, size, errno);
    if (all_served)
        die("%s of %zu bytes refused although the faults are over", what, size);
}

static size_t size_of(uint64_t *random)
{
    uint64_t r = next_random(random);
    return r % 97 == 0 ? 66 * MIB + r % MIB : r % 13 == 0 ? 60000 + r % (3 * MIB) : mixed_size(random);
}

static void *take(uint64_t r, size_t size)
{
    errno = 0;
    void *p = r % 5 == 0 ? calloc(1, size) : r % 5 == 1 ? memalign((size_t)32 << r % 12, size) : malloc(size);
    if (!p)
        refused("a request", size);
    else if (r % 5 == 0 && (((unsigned char *)p)[0] || ((unsigned char *)p)[size - 1]))
        die("calloc(%zu) is not zero", size);
    return p;
}

struct block {
    unsigned char *p;
    size_t size;
    unsigned char mark;
};

static void resize(struct block *b, size_t size)
{
    errno = 0;
    unsigned char *p = realloc(b->p, size);
    if (!p) {
        if (size <= b->size)
            die("realloc from %zu down to %zu bytes refused", b->size, size);
        refused("realloc", size);
        return;
    }
    if (p[0] != b->mark || (size >= b->size && !marked(p, head(b->size), b->mark)))
        die("realloc from %zu to %zu lost content", b->size, size);
    *b = (struct block){p, size, b->mark};
    mark(p, head(size), b->mark);
}

static void *work(void *seed)
{
    struct block block[BLOCKS] = {{0}};
    uint64_t random = (uintptr_t)seed;
    for (unsigned i = 0; i < 4 * BLOCKS; i++) {
        uint64_t r = next_random(&random);
        struct block *b = &block[r % BLOCKS];
        if (b->p && !marked(b->p, head(b->size), b->mark))
            die("block %p of %zu bytes changed", (void *)b->p, b->size);
        if (b->p && r >> 32 & 1) {
            resize(b, r >> 33 & 1 ? size_of(&random) : 1 + b->size / 2);
            continue;
        }
        errno = EDOM;
        free(b->p);
        if (errno != EDOM)
            die("free set errno to %d", errno);
        *b = (struct block){NULL, size_of(&random), (unsigned char)(i + 1)};
        b->p = take(r >> 34, b->size);
        if (b->p)
            mark(b->p, head(b->size), b->mark);
        if (i % 100 == 99)
            malloc_trim(0);
    }
    for (unsigned i = 0; i < BLOCKS; i++)
        free(block[i].p);
    return NULL;
}

static void round_of_threads(uintptr_t seed)
{
    pthread_t threads[THREADS];
    unsigned n = 0;
    while (n < THREADS && pthread_create(&threads[n], NULL, work, (void *)(seed + n)) == 0)
        n++;
    if (n < THREADS && all_served)
        die("no thread although the faults are over");
    work((void *)(seed + 10));
    while (n)
        pthread_join(threads[--n], NULL);
}

int main(void)
{
    watchdog_start(SECONDS);
    size_t before = resident();
    round_of_threads(100);
    if (door_over)
        door_over();
    all_served = true;
    round_of_threads(200);
    malloc_trim(0);
    malloc_trim(0);
    size_t stays = resident();
    if (stays > before + MAY_STAY)
        die("%zu KiB more than at the start stay after all was freed and the faults are over", (stays - before) / KIB);
    say("%zu KiB resident at the start, %zu in the end", before / KIB, stays / KIB);
    return 0;
}
