/* SPDX-License-Identifier: MIT
 *
 * grow THREADS MIB
 *
 * The heap grows by MIB in THREADS at once, while each of them also frees some
 * of its own blocks; then each frees what its neighbour allocated, and a second
 * round is served by the same addresses. Only the start of a block is touched.
 */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "hakmem.h"

#define MIB ((size_t)1 << 20)

enum { MAX_THREADS = 64, ROUNDS = 2, OWN = 8 };

/* Small ones between those that use up address space. */
static const size_t sizes[] = {52000, 64, 40000, 500, 30000, 1000, 60000, 5000};

struct node {
    struct node *next;
    uintptr_t key;
};

struct lane {
    pthread_t thread;
    uintptr_t id;
    struct node *blocks;
};

static struct lane lanes[MAX_THREADS];
static size_t lane_count, lane_bytes;
static pthread_barrier_t barrier;

static void check_and_free(const struct lane *of, struct node *n)
{
    if (n->key != ((uintptr_t)n ^ of->id)) {
        fprintf(stderr, "block %p changed\n", (void *)n);
        abort();
    }
    hakmem_free(n);
}

static void grow(struct lane *l)
{
    size_t bytes = 0;
    for (size_t i = 0; bytes < lane_bytes; i++) {
        size_t size = sizes[i % (sizeof sizes / sizeof *sizes)];
        struct node *n = hakmem_malloc(size);
        if (!n) {
            fprintf(stderr, "%zu bytes refused after %zu MiB of this thread\n", size, bytes / MIB);
            abort();
        }
        n->key = (uintptr_t)n ^ l->id;
        bytes += size;
        if (i % OWN == l->id % OWN) {
            check_and_free(l, n);
            continue;
        }
        n->next = l->blocks;
        l->blocks = n;
    }
}

static void *work(void *arg)
{
    struct lane *l = arg, *neighbour = &lanes[l->id % lane_count];
    for (int round = 0; round < ROUNDS; round++) {
        grow(l);
        pthread_barrier_wait(&barrier);
        while (neighbour->blocks) {
            struct node *n = neighbour->blocks;
            neighbour->blocks = n->next;
            check_and_free(neighbour, n);
        }
        pthread_barrier_wait(&barrier);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    lane_count = argc == 3 ? strtoul(argv[1], NULL, 10) : 0;
    if (lane_count < 1 || lane_count > MAX_THREADS) {
        fprintf(stderr, "usage: grow THREADS MIB\n");
        return 2;
    }
    lane_bytes = strtoul(argv[2], NULL, 10) * MIB / lane_count;
    pthread_barrier_init(&barrier, NULL, (unsigned)lane_count);
    for (size_t i = 0; i < lane_count; i++) {
        lanes[i].id = i + 1;
        if (pthread_create(&lanes[i].thread, NULL, work, &lanes[i])) {
            fprintf(stderr, "no thread\n");
            return 1;
        }
    }
    for (size_t i = 0; i < lane_count; i++)
        pthread_join(lanes[i].thread, NULL);
    printf("%zu threads, %zu MiB, twice: every block kept its key\n", lane_count, lane_count * lane_bytes / MIB);
    return 0;
}
