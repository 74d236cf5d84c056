/* SPDX-License-Identifier: MIT
 *
 * Heaps of a program, as a program uses them: from many threads, beside malloc, at their limits, across fork.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "hakmem.h"

static const size_t sizes[] = {0,     1,     16,    24,    100,    1000,    4000,    9000,
                               30000, 53248, 60000, 70000, 300000, 3000000, 40000000};
#define SIZES (sizeof sizes / sizeof sizes[0])

static size_t live_of(hakmem_heap *heap)
{
    struct hakmem_heap_stats stats;
    hakmem_heap_stats(heap, &stats);
    return stats.live;
}

static uint64_t next(uint64_t *seed)
{
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    return *seed ^= *seed << 17;
}

/* The ends of a large block stand for all of it: else most of the time goes to page faults. */
#define END ((size_t)100000)

static void fill(unsigned char *p, size_t size, unsigned char with)
{
    size_t end = size < 2 * END ? size : END;
    memset(p, with, end);
    memset(p + size - end, with, end);
}

static int is_filled(const unsigned char *p, size_t size, unsigned char with)
{
    for (size_t i = 0; i < size; i = i + 1 == END && size > 2 * END ? size - END : i + 1)
        if (p[i] != with)
            return 0;
    return 1;
}

/* The statement must end the process by SIGABRT. */
#define assert_aborts(statement)                                           \
    do {                                                                   \
        pid_t pid_ = fork();                                               \
        if (pid_ == 0) {                                                   \
            if (!freopen("/dev/null", "w", stderr))                        \
                _exit(2);                                                  \
            statement;                                                     \
            _exit(3);                                                      \
        }                                                                  \
        int status_;                                                       \
        assert_int_equal(waitpid(pid_, &status_, 0), pid_);                \
        assert_true(WIFSIGNALED(status_) && WTERMSIG(status_) == SIGABRT); \
    } while (0)

static void blocks_are_those_of_malloc(void **state)
{
    (void)state;
    hakmem_heap *heap =
        hakmem_heap_new(&(struct hakmem_heap_options){.name = "a heap with a name that is too long for it"});
    struct hakmem_heap_stats stats;
    hakmem_heap_stats(heap, &stats);
    assert_string_equal(stats.name, "a heap with a name that is too ");
    assert_int_equal(stats.live + stats.held + stats.peak + stats.blocks + stats.limit, 0);
    for (unsigned round = 0; round < 10; round++) {
        unsigned char *p[SIZES];
        for (size_t i = 0; i < SIZES; i++) {
            p[i] = hakmem_heap_malloc(heap, sizes[i]);
            assert_true(p[i] && (uintptr_t)p[i] % 16 == 0 && hakmem_malloc_usable_size(p[i]) >= sizes[i]);
            assert_ptr_equal(hakmem_heap_of(p[i]), heap);
            fill(p[i], sizes[i], (unsigned char)i);
        }
        hakmem_heap_stats(heap, &stats);
        assert_int_equal(stats.blocks, SIZES);
        assert_true(stats.held >= stats.live && stats.peak >= stats.held);
        for (size_t i = 0; i < SIZES; i++) {
            assert_true(is_filled(p[i], sizes[i], (unsigned char)i));
            if (round % 2)
                hakmem_free(p[i]);
            else
                hakmem_heap_free(heap, p[i]);
        }
        assert_int_equal(live_of(heap), 0);
    }
    void *other = hakmem_malloc(100), *large = hakmem_malloc(100000), *direct = hakmem_malloc(80000000);
    assert_true(!hakmem_heap_of(other) && !hakmem_heap_of(large) && !hakmem_heap_of(direct) && !hakmem_heap_of(&other));
    hakmem_heap_free(heap, other);
    hakmem_heap_free(heap, large);
    hakmem_heap_free(heap, direct);
    hakmem_heap_free(heap, NULL);
    hakmem_heap_destroy(heap);
    hakmem_heap_destroy(NULL);
}

static void calloc_and_alignment(void **state)
{
    (void)state;
    hakmem_heap *heap = hakmem_heap_new(NULL);
    for (unsigned round = 0; round < 3; round++)
        for (size_t i = 0; i < SIZES - 1; i++) {
            unsigned char *p = hakmem_heap_calloc(heap, sizes[i], 2);
            assert_true(p && is_filled(p, 2 * sizes[i], 0));
            fill(p, 2 * sizes[i], 1);
            hakmem_free(p);
            for (size_t align = 1; align <= 1 << 21; align *= 8) {
                p = hakmem_heap_aligned_alloc(heap, align, sizes[i]);
                assert_true(p && (uintptr_t)p % align == 0);
                assert_ptr_equal(hakmem_heap_of(p), heap);
                fill(p, sizes[i], 1);
                hakmem_free(p);
            }
        }
    errno = 0;
    assert_true(!hakmem_heap_calloc(heap, SIZE_MAX / 2, 3) && errno == ENOMEM);
    errno = 0;
    assert_true(!hakmem_heap_malloc(heap, PTRDIFF_MAX) && errno == ENOMEM);
    errno = 0;
    assert_true(!hakmem_heap_malloc(heap, (size_t)1 << 33) && errno == ENOMEM);
    errno = 0;
    assert_true(!hakmem_heap_aligned_alloc(heap, 48, 1) && errno == EINVAL);
    hakmem_heap_destroy(heap);
}

static void realloc_stays_in_the_heap(void **state)
{
    (void)state;
    hakmem_heap *heap = hakmem_heap_new(NULL), *other = hakmem_heap_new(NULL);
    for (size_t i = 0; i < SIZES; i++)
        for (size_t j = 1; j < SIZES; j++) {
            size_t both = sizes[i] < sizes[j] ? sizes[i] : sizes[j];
            unsigned char *p = hakmem_heap_realloc(heap, NULL, sizes[i]);
            fill(p, sizes[i], 9);
            fill(p, both, 9);
            p = j % 2 ? hakmem_realloc(p, sizes[j]) : hakmem_heap_realloc(other, p, sizes[j]);
            assert_true(p && is_filled(p, both, 9));
            assert_ptr_equal(hakmem_heap_of(p), heap);
            fill(p, sizes[j], 7);
            if (hakmem_expand(p, sizes[j] + 70000))
                fill(p + sizes[j], 70000, 7);
            hakmem_free(p);
        }
    void *p = hakmem_heap_malloc(heap, 10);
    assert_null(hakmem_realloc(p, 0));
    assert_int_equal(live_of(heap), 0);
    assert_int_equal(live_of(other), 0);
    hakmem_heap_destroy(heap);
    hakmem_heap_destroy(other);
}

/* --- what the kernel is told ------------------------------------------------------------------------------- */

/* Whether a flag of smaps is set for the mapping of p; -1: the kernel does not tell. */
static int has_flag(const void *p, const char *flag)
{
    FILE *f = fopen("/proc/self/smaps", "r");
    char line[512];
    int result = -1;
    for (int here = 0; f && result < 0 && fgets(line, sizeof line, f);) {
        uintptr_t from, to;
        if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR " ", &from, &to) == 2)
            here = (uintptr_t)p >= from && (uintptr_t)p < to;
        else if (here && !strncmp(line, "VmFlags:", 8))
            result = strstr(line, flag) != NULL;
    }
    if (f)
        fclose(f);
    return result;
}

#define PLAIN 3000

static void blocks_are_left_out_of_dumps(void **state)
{
    (void)state;
    void *other = hakmem_malloc(100), *p[SIZES], *plain[PLAIN];
    if (has_flag(other, " rd ") < 0 || getenv("UNIT_RUN_BY")) /* an emulator tells some flags */
        skip();
    for (int round = 0; round < 3; round++) {
        struct hakmem_heap_options options = {.no_dump = 1, .huge_pages = round - 1};
        hakmem_heap *heap = hakmem_heap_new(&options);
        for (size_t i = 0; i < SIZES; i++) {
            p[i] = hakmem_heap_malloc(heap, sizes[i]);
            assert_int_equal(has_flag(p[i], " dd "), 1);
            assert_int_equal(has_flag((char *)p[i] + sizes[i] - (sizes[i] > 0), " dd "), 1);
            p[i] = hakmem_realloc(p[i], sizes[i] * 3 / 2 + 1);
            assert_int_equal(has_flag((char *)p[i] + sizes[i] * 3 / 2, " dd "), 1);
            p[i] = hakmem_realloc(p[i], sizes[i] + 1);
        }
        if (round != 1 && has_flag(p[0], " hg ") + has_flag(p[0], " nh ")) /* the kernel has huge pages */
            assert_int_equal(has_flag(p[0], " hg ") - has_flag(p[0], " nh "), round - 1);
        assert_int_equal(has_flag(other, " dd "), 0);
        if (round == 1)
            for (size_t i = 0; i < SIZES; i++)
                hakmem_free(p[i]);
        hakmem_heap_destroy(heap);
        /* What serves others next is dumped. */
        for (size_t i = 0; i < PLAIN; i++)
            plain[i] = memset(hakmem_malloc(i % 100 ? 5000 : 700000), 1, 1);
        for (size_t i = 0; i < PLAIN; i++) {
            if (i % 300 == 0)
                assert_int_equal(has_flag(plain[i], " dd "), 0);
            hakmem_free(plain[i]);
        }
        char *large = hakmem_malloc(20000000);
        for (size_t i = 0; i < 20000000; i += 1 << 21)
            assert_int_equal(has_flag(large + i, " dd "), 0);
        hakmem_free(large);
    }
    hakmem_free(other);
}

static void runs_are_aligned(void **state)
{
    (void)state;
    for (size_t align = 1 << 16; align <= 1 << 19; align *= 2)
        for (int apart = 0; apart < 2; apart++) {
            struct hakmem_heap_options options = {.alignment = align, .apart = apart};
            hakmem_heap *heap = hakmem_heap_new(&options);
            for (size_t i = 0; i < 3 * SIZES; i++) {
                size_t size = sizes[i % SIZES];
                char *p = hakmem_heap_malloc(heap, size);
                assert_non_null(memset(p, 1, size));
                if (size > 60000)
                    assert_int_equal((uintptr_t)p % align, 0);
            }
            hakmem_heap_destroy(heap);
        }
    static const size_t wrong_ones[] = {1, 4096, 65537, 3 << 16, (size_t)1 << 30};
    for (size_t i = 0; i < sizeof wrong_ones / sizeof *wrong_ones; i++) {
        errno = 0;
        assert_null(hakmem_heap_new(&(struct hakmem_heap_options){.alignment = wrong_ones[i]}));
        assert_int_equal(errno, EINVAL);
    }
}

static void a_trim_leaves_no_empty_page(void **state)
{
    (void)state;
    enum { MANY = 4000 };
    static void *p[MANY];
    hakmem_heap *heap = hakmem_heap_new(NULL);
    struct hakmem_heap_stats stats;
    for (size_t i = 0; i < MANY; i++)
        p[i] = hakmem_heap_malloc(heap, 1000);
    for (size_t i = MANY; i-- > MANY / 2;) /* the slab that was filled last is empty first */
        hakmem_free(p[i]);
    for (size_t i = 0; i < MANY / 2; i++)
        if (i % 500)
            hakmem_free(p[i]);
    hakmem_heap_trim(heap);
    hakmem_heap_stats(heap, &stats);
    assert_true(stats.blocks == MANY / 2 / 500 && stats.held <= stats.blocks * 65536);
    hakmem_heap_destroy(heap);
}

/* --- many threads ------------------------------------------------------------------------------------------- */

#define THREADS 6
#define SLOTS 512
#define HEAPS 4

static hakmem_heap *heaps[HEAPS];
static _Atomic(uint64_t *) slots[SLOTS];
static atomic_int wrong;

/* A block's first word is its size, every other byte follows from it. */
static void check_and_free(uint64_t *block, uint64_t dice)
{
    size_t size = block[0];
    wrong += !is_filled((unsigned char *)(block + 2), size - 16, (unsigned char)size);
    wrong += hakmem_heap_of(block) != (block[1] < HEAPS ? heaps[block[1]] : NULL);
    if (dice % 3 == 0)
        hakmem_heap_free(heaps[dice % HEAPS], block);
    else
        hakmem_free(block);
}

static void *exchange(void *seed_of)
{
    uint64_t seed = (uintptr_t)seed_of * 0x9e3779b97f4a7c15u + 1;
    for (unsigned i = 0; i < 20000; i++) {
        uint64_t dice = next(&seed), which = dice >> 8 & 7;
        if (dice >> 20 & 31) /* mostly one heap for some time */
            which = i >> 10 & 7;
        size_t size = 16 + (dice >> 32) % (dice % 50 ? 500 : 100000);
        uint64_t *block = which < HEAPS ? hakmem_heap_malloc(heaps[which], size) : hakmem_malloc(size);
        if (!block) {
            wrong++;
            break;
        }
        if (dice >> 40 & 1 && size > 64) {
            fill((unsigned char *)block, size / 2, 3);
            size += size / 3;
            block = hakmem_realloc(block, size);
        }
        fill((unsigned char *)block, size, (unsigned char)size);
        block[0] = size;
        block[1] = which;
        block = atomic_exchange(&slots[(dice >> 44) % SLOTS], block);
        if (block)
            check_and_free(block, dice);
    }
    return NULL;
}

static void blocks_pass_between_threads(void **state)
{
    pthread_t threads[THREADS];
    (void)state;
    for (unsigned i = 0; i < HEAPS; i++)
        heaps[i] = hakmem_heap_new(NULL);
    for (uintptr_t i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, exchange, (void *)(i + 1)), 0);
    for (unsigned i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    for (unsigned i = 0; i < SLOTS; i++) {
        uint64_t *block = atomic_exchange(&slots[i], NULL);
        if (block)
            check_and_free(block, i);
    }
    assert_int_equal(wrong, 0);
    for (unsigned i = 0; i < HEAPS; i++) {
        assert_int_equal(live_of(heaps[i]), 0); /* threads that ended left nothing */
        hakmem_heap_destroy(heaps[i]);
    }
}

/* --- destroy ------------------------------------------------------------------------------------------------ */

/* A heap lives for a request, while other threads do the same. */
static void *serve_requests(void *seed_of)
{
    uint64_t seed = (uintptr_t)seed_of * 0x9e3779b97f4a7c15u + 1;
    for (unsigned i = 0; i < 150; i++) {
        hakmem_heap *heap = hakmem_heap_new(NULL);
        unsigned char *kept[64];
        size_t length[64];
        for (unsigned k = 0; k < 64; k++) {
            length[k] = 1 + next(&seed) % (k % 16 ? 2000 : 90000);
            kept[k] = k % 4 ? hakmem_heap_malloc(heap, length[k]) : hakmem_heap_calloc(heap, 1, length[k]);
            wrong += k % 4 == 0 && !is_filled(kept[k], length[k], 0);
            fill(kept[k], length[k], (unsigned char)k);
            wrong += hakmem_heap_of(kept[k]) != heap;
            if (k % 5 == 0)
                hakmem_free(hakmem_heap_malloc(heap, length[k]));
        }
        for (unsigned k = 0; k < 64; k++)
            wrong += !is_filled(kept[k], length[k], (unsigned char)k);
        hakmem_heap_destroy(heap);
    }
    return NULL;
}

static void heaps_come_and_go(void **state)
{
    pthread_t threads[THREADS];
    uint64_t before, after;
    (void)state;
    assert_int_equal(hakmem_read(HAKMEM_STAT_LIVE, &before), 0);
    for (uintptr_t i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, serve_requests, (void *)(i + 1)), 0);
    for (unsigned i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    assert_int_equal(wrong, 0);
    assert_int_equal(hakmem_read(HAKMEM_STAT_LIVE, &after), 0);
    assert_in_range(after, 0, before + 4000000); /* not what 900 heaps had */
}

static pthread_barrier_t barrier;
static hakmem_heap *first, *second;

/* The thread has free blocks of the first heap in its cache when that is destroyed. */
static void *cache_and_go_on(void *unused)
{
    void *p[100];
    (void)unused;
    for (unsigned round = 0; round < 3; round++) {
        for (unsigned i = 0; i < 100; i++)
            p[i] = hakmem_heap_malloc(first, 100);
        for (unsigned i = 0; i < 100; i++)
            hakmem_free(p[i]);
    }
    pthread_barrier_wait(&barrier); /* the main thread destroys it, and makes another one */
    pthread_barrier_wait(&barrier);
    for (unsigned i = 0; i < 100; i++) {
        p[i] = hakmem_heap_malloc(second, 100);
        wrong += hakmem_heap_of(p[i]) != second;
        fill(p[i], 100, 5);
        void *q = hakmem_malloc(100);
        wrong += hakmem_heap_of(q) != NULL;
        hakmem_free(q);
    }
    for (unsigned i = 0; i < 100; i++)
        hakmem_free(p[i]);
    return NULL;
}

static void a_destroyed_heap_hands_out_nothing(void **state)
{
    pthread_t thread;
    (void)state;
    for (unsigned round = 0; round < 20; round++) {
        first = hakmem_heap_new(NULL);
        assert_int_equal(pthread_barrier_init(&barrier, NULL, 2), 0);
        assert_int_equal(pthread_create(&thread, NULL, cache_and_go_on, NULL), 0);
        pthread_barrier_wait(&barrier);
        hakmem_heap_destroy(first);
        second = hakmem_heap_new(NULL); /* may lie at the same address */
        pthread_barrier_wait(&barrier);
        assert_int_equal(pthread_join(thread, NULL), 0);
        assert_int_equal(live_of(second), 0);
        hakmem_heap_destroy(second);
    }
    assert_int_equal(wrong, 0);
}

static void ten_thousand_heaps(void **state)
{
    enum { MANY = 10000 };
    hakmem_heap **many = hakmem_calloc(MANY, sizeof *many);
    void **blocks = hakmem_calloc(MANY, sizeof *blocks);
    uint64_t before, made, used, metadata;
    (void)state;
    memset(many, 1, MANY * sizeof *many);
    memset(blocks, 1, MANY * sizeof *blocks);
    hakmem_read(HAKMEM_STAT_RESIDENT, &before);
    hakmem_read(HAKMEM_STAT_METADATA, &metadata);
    for (unsigned i = 0; i < MANY; i++)
        assert_non_null(many[i] = hakmem_heap_new(NULL));
    hakmem_read(HAKMEM_STAT_RESIDENT, &made);
    assert_true(made - before <= MANY * (uint64_t)4096);
    for (unsigned i = 0; i < MANY; i++)
        blocks[i] = memset(hakmem_heap_malloc(many[i], 100), 1, 100);
    hakmem_read(HAKMEM_STAT_RESIDENT, &used);
    assert_true(used - made <= MANY * (uint64_t)65536);
    for (unsigned i = 0; i < MANY; i++)
        assert_ptr_equal(hakmem_heap_of(blocks[i]), many[i]);
    for (unsigned i = 0; i < MANY; i++)
        hakmem_heap_destroy(many[i]);
    hakmem_free(many);
    hakmem_free(blocks);
}

/* --- limits ------------------------------------------------------------------------------------------------- */

static void a_limit_is_hard(void **state)
{
    (void)state;
    for (size_t size = 50; size < 3000000; size *= 7) {
        size_t limit = 16 << 20;
        hakmem_heap *heap = hakmem_heap_new(&(struct hakmem_heap_options){.limit = limit});
        struct hakmem_heap_stats stats;
        void *p, *last = NULL;
        errno = 0;
        for (unsigned i = 0; (p = hakmem_heap_malloc(heap, size)); i++) {
            assert_true(i < limit / size);
            last = p;
        }
        assert_int_equal(errno, ENOMEM);
        hakmem_heap_stats(heap, &stats);
        assert_true(stats.limit == limit && stats.held <= limit && stats.live >= limit / 4 * 3);
        assert_null(hakmem_realloc(last, limit));
        assert_int_equal(hakmem_malloc_usable_size(last) >= size, 1);
        hakmem_free(last);
        assert_non_null(last = hakmem_heap_malloc(heap, size));
        assert_null(hakmem_heap_calloc(heap, 1, limit));
        hakmem_free(hakmem_malloc(limit)); /* nobody else is concerned */
        hakmem_heap_destroy(heap);
    }
}

static unsigned asked;
static void *reserve;
static int answer;

static int when_reached(hakmem_heap *heap, size_t wanted, void *context)
{
    assert_true(heap == first && wanted >= 65536 && context == &asked);
    asked++;
    hakmem_free(hakmem_malloc(1000));
    hakmem_free(reserve);
    reserve = NULL;
    return answer;
}

static void the_program_is_asked(void **state)
{
    struct hakmem_heap_options options = {.limit = 4 << 20, .reached = when_reached, .context = &asked};
    struct hakmem_heap_stats stats;
    (void)state;
    first = hakmem_heap_new(&options);
    reserve = hakmem_heap_malloc(first, 3 << 20);
    answer = 1;
    void *p = hakmem_heap_malloc(first, 2 << 20);
    assert_true(p && asked == 1);
    assert_null(hakmem_heap_malloc(first, 3 << 20)); /* it does not free enough */
    assert_true(asked > 1 && asked < 30);
    asked = answer = 0;
    assert_null(hakmem_heap_malloc(first, 3 << 20));
    assert_int_equal(asked, 1);
    answer = 2;
    void *q = hakmem_heap_malloc(first, 3 << 20);
    assert_non_null(q);
    q = hakmem_realloc(q, 9 << 20);
    assert_non_null(q);
    hakmem_heap_stats(first, &stats);
    assert_true(stats.held > stats.limit && stats.peak >= stats.held);
    hakmem_heap_destroy(first);
}

static void the_limit_of_the_process_holds_here_too(void **state)
{
    uint64_t live;
    (void)state;
    hakmem_heap *heap = hakmem_heap_new(NULL);
    hakmem_trim(0);
    hakmem_read(HAKMEM_STAT_LIVE, &live);
    assert_int_equal(hakmem_limit(live + (40 << 20), NULL, NULL), 0);
    unsigned char *p = hakmem_heap_malloc(heap, 20 << 20);
    fill(p, 20 << 20, 1);
    errno = 0;
    assert_true(!hakmem_heap_malloc(heap, 41 << 20) && errno == ENOMEM);
    assert_int_equal(hakmem_limit(0, NULL, NULL), 0);
    hakmem_heap_destroy(heap);
}

/* --- visits, trims, threads that end, children ---------------------------------------------------------------- */

struct seen {
    unsigned live, free, stop_at;
    size_t bytes;
};

static int see(const struct hakmem_heap_block *block, void *context)
{
    struct seen *seen = context;
    if (block->is_live) {
        assert_true(hakmem_malloc_usable_size(block->address) == block->size);
        assert_true(is_filled(block->address, 8, 6));
        seen->bytes += block->size;
    }
    *(block->is_live ? &seen->live : &seen->free) += 1;
    return seen->stop_at && seen->live + seen->free == seen->stop_at ? -5 : 0;
}

static void each_block_is_visited(void **state)
{
    (void)state;
    hakmem_heap *heap = hakmem_heap_new(NULL);
    struct seen seen = {0};
    unsigned char *p[3000];
    for (unsigned i = 0; i < 3000; i++)
        fill(p[i] = hakmem_heap_malloc(heap, 8 + i * 30), 8, 6);
    for (unsigned i = 0; i < 3000; i += 3)
        hakmem_free(p[i]);
    assert_int_equal(hakmem_heap_visit(heap, see, &seen), 0);
    assert_int_equal(seen.live, 2000);
    assert_true(seen.free > 0);
    size_t sum = 0;
    for (unsigned i = 0; i < 3000; i++)
        sum += i % 3 ? hakmem_malloc_usable_size(p[i]) : 0;
    assert_int_equal(seen.bytes, sum);
    seen = (struct seen){.stop_at = 10};
    assert_int_equal(hakmem_heap_visit(heap, see, &seen), -5);
    assert_int_equal(seen.live + seen.free, 10);
    for (unsigned i = 0; i < 3000; i++)
        if (i % 3)
            hakmem_free(p[i]);
    assert_int_equal(live_of(heap), 0);
    hakmem_heap_trim(heap);
    struct hakmem_heap_stats stats;
    hakmem_heap_stats(heap, &stats);
    assert_int_equal(stats.held, 0);
    hakmem_heap_destroy(heap);
}

static void *use_and_end(void *heap)
{
    void *p[200];
    for (unsigned i = 0; i < 200; i++)
        p[i] = hakmem_heap_malloc(heap, 10 + i * 20);
    for (unsigned i = 0; i < 200; i++)
        hakmem_free(p[i]);
    return NULL;
}

static void a_thread_that_ends_leaves_nothing(void **state)
{
    pthread_t thread;
    (void)state;
    hakmem_heap *heap = hakmem_heap_new(NULL);
    for (unsigned i = 0; i < 20; i++) {
        assert_int_equal(pthread_create(&thread, NULL, use_and_end, heap), 0);
        assert_int_equal(pthread_join(thread, NULL), 0);
        assert_int_equal(live_of(heap), 0);
    }
    hakmem_heap_destroy(heap);
}

static void a_child_uses_heaps(void **state)
{
    pthread_t threads[2];
    (void)state;
    hakmem_heap *heap = heaps[0] = hakmem_heap_new(NULL);
    heaps[1] = heaps[2] = heaps[3] = heap;
    unsigned char *p = hakmem_heap_malloc(heap, 1000);
    fill(p, 1000, 4);
    for (uintptr_t i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, exchange, (void *)(i + 1)), 0);
    for (unsigned i = 0; i < 10; i++) {
        pid_t pid = fork();
        if (pid == 0) {
            int bad = !is_filled(p, 1000, 4);
            hakmem_free(p);
            use_and_end(heap);
            hakmem_heap *own = hakmem_heap_new(NULL);
            use_and_end(own);
            hakmem_heap_destroy(heap);
            bad += live_of(own) != 0;
            hakmem_heap_destroy(own);
            hakmem_free(hakmem_malloc(100));
            _exit(bad);
        }
        int status;
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_int_equal(status, 0);
    }
    for (unsigned i = 0; i < 2; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    for (unsigned i = 0; i < SLOTS; i++)
        hakmem_free(atomic_exchange(&slots[i], NULL));
    hakmem_free(p);
    assert_int_equal(live_of(heap), 0);
    hakmem_heap_destroy(heap);
}

/* --- faults of a program ------------------------------------------------------------------------------------ */

static void faults_stop_the_process(void **state)
{
    (void)state;
    hakmem_heap *heap = hakmem_heap_new(NULL);
    for (unsigned warm = 0; warm < 2; warm++) { /* without the thread's cache, and with it */
        char *a = hakmem_heap_malloc(heap, 100), *b = hakmem_heap_malloc(heap, 100),
             *large = hakmem_heap_malloc(heap, 100000);
        assert_aborts((hakmem_free(a), hakmem_free(a)));
        assert_aborts((hakmem_heap_free(heap, a), hakmem_heap_free(heap, a)));
        assert_aborts((hakmem_free(a), hakmem_free(b), hakmem_free(a), hakmem_heap_trim(heap)));
        assert_aborts((hakmem_free(a + 16), hakmem_heap_trim(heap)));
        assert_aborts((hakmem_free(large), hakmem_free(large)));
        assert_aborts(hakmem_free(large + 4096));
        assert_aborts((hakmem_heap_destroy(heap), hakmem_free(a)));
        assert_aborts((hakmem_heap_destroy(heap), hakmem_free(large)));
        assert_aborts((hakmem_heap_trim(heap), hakmem_malloc_usable_size(a + 8)));
        hakmem_free(a);
        hakmem_free(b);
        hakmem_free(large);
        use_and_end(heap);
    }
    hakmem_heap_destroy(heap);
}

/* --- the default heap ---------------------------------------------------------------------------------------- */

static void malloc_allocates_in_the_default_heap(void **state)
{
    (void)state;
    hakmem_heap *a = hakmem_heap_new(NULL), *b = hakmem_heap_new(NULL);
    unsigned char *before = hakmem_malloc(100), *large = hakmem_malloc(100000), *freed = hakmem_malloc(100);
    fill(before, 100, 1);
    fill(large, 100000, 2);
    for (unsigned round = 0; round < 12; round++) {
        assert_null(hakmem_heap_set_default(a));
        for (size_t i = 0; i < SIZES; i++) {
            unsigned char *p = hakmem_malloc(sizes[i]), *q = hakmem_calloc(sizes[i], 1);
            void *r = hakmem_aligned_alloc(4096, sizes[i]), *s = hakmem_realloc(NULL, sizes[i]);
            assert_true(hakmem_heap_of(p) == a && hakmem_heap_of(q) == a && hakmem_heap_of(r) == a);
            assert_true(is_filled(q, sizes[i], 0) && (uintptr_t)r % 4096 == 0 && hakmem_heap_of(s) == a);
            fill(p, sizes[i], 3);
            fill(q, sizes[i], 3);
            hakmem_free(p);
            hakmem_free(q);
            hakmem_free(r);
            hakmem_free(s);
        }
        assert_ptr_equal(hakmem_heap_set_default(b), a);
        void *p = hakmem_malloc(round);
        assert_ptr_equal(hakmem_heap_of(p), b);
        before = hakmem_realloc(before, 100 + round * 37 % 5000); /* these stay outside of heaps */
        large = hakmem_aligned_realloc(large, 64, 100000 + round * 7777 % 500000);
        assert_true(!hakmem_heap_of(before) && !hakmem_heap_of(large));
        assert_true(is_filled(before, 100, 1) && is_filled(large, 100000, 2));
        hakmem_free(freed);
        assert_ptr_equal(hakmem_heap_set_default(a), b);
        assert_ptr_equal(hakmem_heap_set_default(NULL), a);
        freed = hakmem_malloc(100);
        assert_null(hakmem_heap_of(freed));
        p = hakmem_aligned_realloc(p, 256, 1000);
        assert_true(hakmem_heap_of(p) == b && (uintptr_t)p % 256 == 0);
        hakmem_free(p);
    }
    assert_int_equal(live_of(a) + live_of(b), 0);
    hakmem_free(before);
    hakmem_free(large);
    hakmem_free(freed);
    hakmem_heap_destroy(a);
    hakmem_heap_destroy(b);
}

static void *work_in_scope(void *heap)
{
    uint64_t seed = (uintptr_t)heap + 1;
    void *kept[100] = {0};
    for (unsigned i = 0; i < 10000; i++) {
        unsigned at = next(&seed) % 100;
        hakmem_heap *in = i / 100 % 2 ? heap : NULL;
        if (i % 100 == 0)
            hakmem_heap_set_default(in);
        hakmem_free(kept[at]);
        kept[at] = hakmem_malloc(next(&seed) % (at ? 3000 : 100000));
        wrong += hakmem_heap_of(kept[at]) != in;
    }
    for (unsigned i = 0; i < 100; i++)
        hakmem_free(kept[i]);
    return NULL; /* with the default heap set */
}

static void scopes_in_many_threads(void **state)
{
    pthread_t threads[THREADS];
    (void)state;
    hakmem_heap *heap = hakmem_heap_new(NULL);
    for (unsigned round = 0; round < 2; round++) {
        for (unsigned i = 0; i < THREADS; i++)
            assert_int_equal(pthread_create(&threads[i], NULL, work_in_scope, heap), 0);
        work_in_scope(heap);
        pid_t pid = fork(); /* within a scope */
        if (pid == 0) {
            hakmem_heap_set_default(NULL);
            work_in_scope(heap);
            hakmem_heap_set_default(NULL);
            for (unsigned i = 0; i < 1000; i++)
                hakmem_free(hakmem_malloc(i));
            _exit(wrong != 0);
        }
        int status;
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_int_equal(status, 0);
        hakmem_heap_set_default(NULL);
        for (unsigned i = 0; i < THREADS; i++)
            assert_int_equal(pthread_join(threads[i], NULL), 0);
        assert_int_equal(wrong, 0);
        assert_int_equal(live_of(heap), 0);
    }
    hakmem_heap_destroy(heap);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_are_those_of_malloc),
        cmocka_unit_test(calloc_and_alignment),
        cmocka_unit_test(blocks_are_left_out_of_dumps),
        cmocka_unit_test(runs_are_aligned),
        cmocka_unit_test(a_trim_leaves_no_empty_page),
        cmocka_unit_test(realloc_stays_in_the_heap),
        cmocka_unit_test(blocks_pass_between_threads),
        cmocka_unit_test(heaps_come_and_go),
        cmocka_unit_test(a_destroyed_heap_hands_out_nothing),
        cmocka_unit_test(ten_thousand_heaps),
        cmocka_unit_test(a_limit_is_hard),
        cmocka_unit_test(the_program_is_asked),
        cmocka_unit_test(the_limit_of_the_process_holds_here_too),
        cmocka_unit_test(each_block_is_visited),
        cmocka_unit_test(a_thread_that_ends_leaves_nothing),
        cmocka_unit_test(a_child_uses_heaps),
        cmocka_unit_test(malloc_allocates_in_the_default_heap),
        cmocka_unit_test(scopes_in_many_threads),
        cmocka_unit_test(faults_stop_the_process),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
