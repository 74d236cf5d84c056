/* SPDX-License-Identifier: MIT
 *
 * stress THREADS OPS SEED [--min BYTES] [--max BYTES] [--long]
 *
 * OPS random operations, shared among THREADS lanes. Each live block is claimed in the shadow map over its whole usable
 * size and filled with words that follow from its address, the seed and a serial number; both are checked before each
 * resize and free. Blocks change hands through mailboxes, and a lane is a chain of threads: each thread ends with its
 * blocks still live, and leaves them to others.
 *
 * The test itself does not allocate, so every block is one under test.
 * With one lane a run is repeatable from its seed.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "hakmem.h"
#include "shadow.h"

#define KIB ((size_t)1024)
#define MIB (KIB * 1024)

enum {
    SLOTS = 1024,
    MAILBOXES = 512,
    BURST = 256,
    MAX_LANES = 64,
    SPARES = 8,
};

struct block {
    unsigned char *ptr; /* NULL: none */
    size_t size;        /* as asked for */
    size_t usable;
    uint64_t key;
};

/* The blocks of one thread. Threads swap whole hoards when they end. */
struct hoard {
    struct block *slots[SLOTS];
};

struct lane {
    unsigned id;
    uint64_t random;
    uint64_t serial;
    uint64_t ops_left;
    uint64_t births;
    struct hoard *hoard;
    pthread_t before; /* the thread that lived here before; joined by its successor */
    bool has_before;
    pthread_t last;
};

static uint64_t seed;
static uint64_t ops_per_lane;
static size_t min_size, max_size; /* 0: the default mix */
static _Atomic(struct block *) mail[MAILBOXES];
static _Atomic(struct hoard *) spares[SPARES];
static struct lane lanes[MAX_LANES];
static sem_t lanes_done;
static int nowhere; /* /dev/null */

static uint64_t mix(uint64_t x)
{
    x ^= x >> 30;
    x *= UINT64_C(0xbf58476d1ce4e5b9);
    x ^= x >> 27;
    x *= UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

static uint64_t draw(struct lane *l)
{
    return mix(l->random += UINT64_C(0x9e3779b97f4a7c15));
}

static size_t below(struct lane *l, size_t n)
{
    return (size_t)(draw(l) % n);
}

/* Uniform over the powers of two in between, then uniform within one. */
static size_t log_uniform(struct lane *l, size_t low, size_t high)
{
    unsigned doublings = 0;
    while (low << (doublings + 1) <= high)
        doublings++;
    size_t base = low << below(l, doublings + 1);
    size_t n = base + below(l, base);
    return n < high ? n : high;
}

static size_t draw_size(struct lane *l)
{
    if (max_size != 0)
        return min_size + below(l, max_size - min_size + 1);
    size_t r = below(l, 1000);
    if (r < 300)
        return 1 + below(l, 256);
    if (r < 600)
        return log_uniform(l, 16, 2048);
    if (r < 800)
        return 2 * KIB + below(l, 6 * KIB + 1);
    if (r < 970)
        return log_uniform(l, 4 * KIB, 64 * KIB);
    if (r < 998)
        return log_uniform(l, 64 * KIB, 512 * KIB);
    return log_uniform(l, 512 * KIB, 8 * MIB);
}

/* Which bytes carry the pattern: all of them in small blocks and in one big
 * block of 32; else the first 256, the last word and about one word a page. */
static size_t next_word(const struct block *b, size_t at)
{
    if (b->usable <= 2 * KIB || at < 256 || b->key % 32 == 0)
        return at + 8;
    size_t last = (b->usable & ~(size_t)7) - 8;
    size_t next = at + 4 * KIB - 24;
    return next < last || at >= last ? next : last;
}

static void fill(const struct block *b)
{
    size_t words = b->usable & ~(size_t)7;
    for (size_t at = 0; at < words; at = next_word(b, at)) {
        uint64_t word = b->key + at;
        memcpy(b->ptr + at, &word, 8);
    }
    for (size_t at = words; at < b->usable; at++)
        b->ptr[at] = (unsigned char)(b->key + at);
}

/* Checks the pattern in the first `size` bytes at `ptr`, where b's content is now. */
static void verify(const struct lane *l, const struct block *b, const unsigned char *ptr, size_t size, const char *when)
{
    size_t words = b->usable & ~(size_t)7;
    for (size_t at = 0; at < words && at + 8 <= size; at = next_word(b, at)) {
        uint64_t word;
        memcpy(&word, ptr + at, 8);
        if (word != b->key + at)
            stress_fail("stress: %s: block %p of %zu (%zu usable) changed at %zu: %#zx, not %#zx; "
                        "lane %u, seed %zu, %zu operations left",
                        when, (const void *)b->ptr, b->size, b->usable, at, (size_t)word, (size_t)(b->key + at), l->id,
                        (size_t)seed, (size_t)l->ops_left);
    }
    for (size_t at = words; at < b->usable && at < size; at++)
        if (ptr[at] != (unsigned char)(b->key + at))
            stress_fail("stress: %s: block %p of %zu (%zu usable) changed at %zu; lane %u, seed %zu", when,
                        (const void *)b->ptr, b->size, b->usable, at, l->id, (size_t)seed);
}

static void adopt(struct lane *l, struct block *b, void *ptr, size_t size, size_t align)
{
    if (ptr == NULL)
        stress_fail("stress: %zu bytes refused (errno %d); lane %u, seed %zu", size, errno, l->id, (size_t)seed);
    if ((uintptr_t)ptr % align != 0)
        stress_fail("stress: %p is not aligned to %zu", ptr, align);
    b->ptr = ptr;
    b->size = size;
    b->usable = hakmem_malloc_usable_size(ptr);
    if (b->usable < size)
        stress_fail("stress: %p: %zu bytes asked for, %zu usable", ptr, size, b->usable);
    b->key = mix((uintptr_t)ptr ^ seed ^ ++l->serial << 40 ^ (uint64_t)l->id << 56);
    shadow_claim(ptr, b->usable);
    fill(b);
}

static void check_zero(const unsigned char *p, size_t size)
{
    size_t step = size <= 16 * KIB ? 1 : 61;
    for (size_t at = 0; p != NULL && at < size; at += step)
        if (p[at] != 0 || p[size - 1 - at] != 0)
            stress_fail("stress: calloc of %zu gave %p, which is not zero %zu bytes from its %s", size, (const void *)p,
                        at, p[at] != 0 ? "start" : "end");
}

static void allocate(struct lane *l, struct block *b, size_t size)
{
    size_t kind = below(l, 100), align = 16;
    void *p = NULL;
    if (kind < 60) {
        p = hakmem_malloc(size);
    } else if (kind < 78) {
        p = hakmem_calloc(1, size);
        check_zero(p, size);
    } else if (kind < 84) {
        p = hakmem_realloc(NULL, size);
    } else {
        align = (size_t)16 << (kind < 98 ? below(l, 9) : below(l, 18));
        if (kind % 3 == 0)
            p = hakmem_aligned_alloc(align, size);
        else if (kind % 3 == 1)
            p = hakmem_memalign(align, size);
        else if (hakmem_posix_memalign(&p, align, size) != 0)
            p = NULL;
    }
    adopt(l, b, p, size, align);
}

static void release(struct lane *l, struct block *b)
{
    verify(l, b, b->ptr, b->usable, "at free");
    shadow_release(b->ptr, b->usable);
    unsigned char *p = b->ptr;
    b->ptr = NULL;
    errno = EDOM;
    if (b->key % 8 == 1)
        hakmem_free_sized(p, b->size);
    else
        hakmem_free(p);
    if (errno != EDOM)
        stress_fail("stress: free(%p) of %zu bytes set errno to %d", (void *)p, b->size, errno);
}

static void resize(struct lane *l, struct block *b)
{
    size_t size = draw_size(l);
    if (max_size == 0 && below(l, 4) != 0) /* mostly to something near */
        size = b->size / 2 + below(l, b->size + 2);
    if (size == 0 || size > 16 * MIB)
        size = 1;
    verify(l, b, b->ptr, b->usable, "before realloc");
    shadow_release(b->ptr, b->usable);
    void *p = hakmem_realloc(b->ptr, size);
    if (p != NULL)
        verify(l, b, p, size < b->size ? size : b->size, "after realloc");
    adopt(l, b, p, size, 16);
}

/* Allocates many blocks of one size and frees them all: bins run full and empty. */
static void burst(struct lane *l)
{
    struct block blocks[BURST];
    size_t size = max_size != 0 ? draw_size(l) : 1 + below(l, 4096);
    size_t order = below(l, 3);
    for (size_t i = 0; i < BURST; i++)
        adopt(l, &blocks[i], hakmem_malloc(size), size, 16);
    for (size_t i = 0; i < BURST; i++)
        release(l, &blocks[order == 0 ? i : order == 1 ? BURST - 1 - i : (i * 77 + 5) % BURST]);
    l->ops_left -= l->ops_left < 2 * BURST ? l->ops_left : 2 * BURST;
}

/* At intervals, calls that any thread may make at any time. */
static void housekeeping(struct lane *l)
{
    size_t r = below(l, 4);
    if (r == 0) {
        hakmem_trim(0);
        hakmem_stats(nowhere, 1);
    } else if (r == 1) {
        hakmem_trim(64 * MIB);
    } else if (r == 2) {
        void *p = hakmem_malloc((size_t)PTRDIFF_MAX + 1 + below(l, MIB));
        if (p != NULL || errno != ENOMEM)
            stress_fail("stress: PTRDIFF_MAX + 1 bytes given at %p", p);
    } else {
        hakmem_free(NULL);
    }
}

static void hand_over(struct lane *l, struct block **slot)
{
    /* Both ways: the block's bytes and its description travel with the pointer. */
    *slot = atomic_exchange_explicit(&mail[below(l, MAILBOXES)], *slot, memory_order_acq_rel);
}

static void one_operation(struct lane *l, size_t keen)
{
    struct block **slot = &l->hoard->slots[below(l, SLOTS)];
    size_t r = below(l, 100);
    if (r < 8)
        hand_over(l, slot);
    else if ((*slot)->ptr == NULL)
        allocate(l, *slot, draw_size(l));
    else if (r < 8 + keen)
        release(l, *slot);
    else if (r < 80)
        resize(l, *slot);
    else
        verify(l, *slot, (*slot)->ptr, (*slot)->usable, "at rest");
}

static void *live(void *arg)
{
    struct lane *l = arg;
    bool has_before = l->has_before;
    pthread_t before = l->before;
    uint64_t longest = ops_per_lane / 10 < 200000 ? ops_per_lane / 10 : 200000;
    uint64_t life = 1 + draw(l) % (longest + 1);
    if (draw(l) % 4 == 0)
        life = life / 100 + 1; /* a quarter of the threads hardly begins */
    size_t keen = 30;
    for (; life > 0 && l->ops_left > 0; life--, l->ops_left--) {
        if (life % 8192 == 0)
            keen = 5 + below(l, 55); /* the set of live blocks grows and shrinks */
        one_operation(l, keen);
        size_t rare = below(l, 65536);
        if (rare < 16 && l->ops_left > 2 * BURST)
            burst(l);
        else if (rare == 16)
            housekeeping(l);
        if (l->ops_left == 0)
            break;
    }
    l->hoard = atomic_exchange_explicit(&spares[below(l, SPARES)], l->hoard, memory_order_acq_rel);
    l->births++;
    l->before = pthread_self();
    l->has_before = true;
    if (l->ops_left > 0) {
        pthread_t next;
        int err = pthread_create(&next, NULL, live, l);
        if (err != 0)
            stress_fail("stress: no further thread: %s", strerror(err));
        /* From here on the lane belongs to the successor. */
    } else {
        l->last = pthread_self();
        sem_post(&lanes_done);
    }
    if (has_before)
        pthread_join(before, NULL);
    return NULL;
}

static void *map_table(size_t bytes)
{
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        stress_fail("stress: no memory for the test's own tables");
    return p;
}

static void start(unsigned count)
{
    size_t hoards = count + SPARES;
    struct hoard *hoard = map_table(hoards * sizeof(*hoard));
    struct block *block = map_table((hoards * SLOTS + MAILBOXES) * sizeof(*block));
    for (size_t h = 0; h < hoards; h++)
        for (size_t s = 0; s < SLOTS; s++)
            hoard[h].slots[s] = block++;
    for (size_t m = 0; m < MAILBOXES; m++)
        atomic_store_explicit(&mail[m], block++, memory_order_relaxed);
    for (size_t s = 0; s < SPARES; s++)
        atomic_store_explicit(&spares[s], &hoard[count + s], memory_order_relaxed);
    sem_init(&lanes_done, 0, 0);
    nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
    if (nowhere < 0)
        stress_fail("stress: /dev/null: %s", strerror(errno));
    for (unsigned i = 0; i < count; i++) {
        lanes[i].id = i;
        lanes[i].random = mix(seed * 1000 + i);
        lanes[i].ops_left = ops_per_lane;
        lanes[i].hoard = &hoard[i];
    }
    for (unsigned i = 0; i < count; i++) {
        pthread_t first;
        int err = pthread_create(&first, NULL, live, &lanes[i]);
        if (err != 0)
            stress_fail("stress: no thread: %s", strerror(err));
    }
}

static void finish(unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        while (sem_wait(&lanes_done) != 0)
            ;
    for (unsigned i = 0; i < count; i++)
        pthread_join(lanes[i].last, NULL);

    struct lane *l = &lanes[0];
    for (size_t m = 0; m < MAILBOXES; m++) {
        struct block *b = atomic_load_explicit(&mail[m], memory_order_acquire);
        if (b->ptr != NULL)
            release(l, b);
    }
    for (size_t h = 0; h < count + SPARES; h++) {
        struct hoard *hoard =
            h < count ? lanes[h].hoard : atomic_load_explicit(&spares[h - count], memory_order_acquire);
        for (size_t s = 0; s < SLOTS; s++)
            if (hoard->slots[s]->ptr != NULL)
                release(l, hoard->slots[s]);
    }
}

/* The conservation laws must hold once every block is free. */
static void check_conservation(void)
{
    static char text[1 << 20];
    int fd = memfd_create("stats", 0);
    if (fd < 0)
        stress_fail("stress: memfd_create: %s", strerror(errno));
    int err = hakmem_stats(fd, 1);
    if (err != 0)
        stress_fail("stress: hakmem_stats: %s", strerror(-err));
    ssize_t n = pread(fd, text, sizeof(text) - 1, 0);
    close(fd);
    text[n > 0 ? n : 0] = '\0';
    const char *laws = strstr(text, "\"conservation\"");
    const char *violations = laws != NULL ? strstr(laws, "\"violations\"") : NULL;
    if (violations == NULL) {
        printf("no conservation in the statistics\n");
        return;
    }
    long broken = strtol(violations + strcspn(violations, ":") + 1, NULL, 10);
    if (broken != 0) {
        fprintf(stderr, "%s\n", laws);
        stress_fail("stress: %ld conservation laws broken; seed %zu", broken, (size_t)seed);
    }
}

static uint64_t number(const char *text)
{
    char *end;
    errno = 0;
    uint64_t n = strtoull(text, &end, 10);
    if (errno != 0 || *end != '\0' || end == text)
        stress_fail("stress: \"%s\" is no number", text);
    return n;
}

int main(int argc, char **argv)
{
    static const char usage[] = "usage: stress THREADS OPS SEED [--min BYTES] [--max BYTES] [--long]";
    if (argc < 4)
        stress_fail("%s", usage);
    size_t count = number(argv[1]);
    uint64_t ops = number(argv[2]);
    seed = number(argv[3]);
    for (int i = 4; i < argc; i++) {
        if (strcmp(argv[i], "--long") == 0) {
            const char *wanted = getenv("STRESS_LONG");
            if (wanted == NULL || strcmp(wanted, "1") != 0) {
                printf("skipped: set STRESS_LONG=1 to run it\n");
                return 77;
            }
        } else if (strcmp(argv[i], "--min") == 0 && i + 1 < argc) {
            min_size = number(argv[++i]);
        } else if (strcmp(argv[i], "--max") == 0 && i + 1 < argc) {
            max_size = number(argv[++i]);
        } else {
            stress_fail("%s", usage);
        }
    }
    if (count < 1 || count > MAX_LANES || (max_size != 0 && (min_size < 1 || min_size > max_size)) ||
        (max_size == 0 && min_size != 0))
        stress_fail("%s", usage);

    struct timespec from, to;
    clock_gettime(CLOCK_MONOTONIC, &from);
    ops_per_lane = (getenv("TEST_SHORT") ? ops / 3 : ops) / count;
    start((unsigned)count);
    finish((unsigned)count);
    check_conservation();
    clock_gettime(CLOCK_MONOTONIC, &to);

    uint64_t births = 0;
    for (size_t i = 0; i < count; i++)
        births += lanes[i].births;
    printf("%zu lanes, %zu operations, %zu threads, %.1f s: every block kept its place and its content\n", count,
           (size_t)ops, (size_t)births, (double)(to.tv_sec - from.tv_sec) + (double)(to.tv_nsec - from.tv_nsec) / 1e9);
    return 0;
}
