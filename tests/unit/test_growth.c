/* SPDX-License-Identifier: MIT
 * What a call costs, and how long it holds a lock, does not grow with the heap: one of its dimensions grows seven
 * times, and the dearest call of each entry may cost a little more at most. Costs are basic blocks of the library, in
 * each of which the compiler calls a function of this program. GROWTH=1 prints all of them. */
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "api/hakmem.h"
#include "core/base/lock.h"
#include "core/base/options.h"
#include "unit.h"

#define KEPT "HAKMEM_PURGE_DELAY_MS=3600000 "
#define UNBOUNDED                                                                 \
    "HAKMEM_SUPERSLAB_MAX_CACHED=1048576 HAKMEM_SUPERSLAB_MAX_MEMORY_MB=1048576 " \
    "HAKMEM_BATCH_MAX_MB=1048576 HAKMEM_BATCH_MAX_RANGES=1048576 "

/* --- counting -------------------------------------------------------------------------------------------- */

#define MOST_LOCKS 32
extern struct hak_lock *const __start_hak_locks[], *const __stop_hak_locks[];

/* Of one call; shared with children. */
struct count {
    bool on, forks; /* a fork holds all locks */
    uint64_t blocks;
    uint64_t held[MOST_LOCKS]; /* since each lock was taken */
};
static struct count *count;

/* Of the dearest call of each entry, and while each lock was held. */
struct cost {
    uint64_t most[40], held[MOST_LOCKS];
};
static struct cost *cost;

void __sanitizer_cov_trace_pc(void);
void __sanitizer_cov_trace_pc(void)
{
    if (!count || !count->on)
        return;
    count->blocks++;
    for (unsigned i = 0; &__start_hak_locks[i] < __stop_hak_locks && !count->forks; i++) {
        const struct hak_lock *lock = __start_hak_locks[i];
        bool waits = lock->rank != HAK_RANK_PURGE && lock->rank != HAK_RANK_SWEEP; /* others are tried only */
        count->held[i] = waits && HAK_LOAD_RELAXED(&lock->word) ? count->held[i] + 1 : 0;
        cost->held[i] = hak_max(cost->held[i], count->held[i]);
    }
}

/* --- what is measured ------------------------------------------------------------------------------------ */

#define TIMES 7         /* the larger heap */
#define HEAP_FORK 300   /* where each thread has a heap, a fork visits it */
#define SWEEP 300000    /* basic blocks of a tick that visits as many slabs as it may: 512 of 400 */
#define HELD_MOST 4000u /* basic blocks under a lock */
#define LIVE 40
#define FAR 10u
static void *live[LIVE];
static sem_t step, done;

static void take(size_t size, unsigned i)
{
    live[i] = hakmem_malloc(size);
    assert_non_null(live[i]);
}

static void give(size_t size, unsigned i)
{
    (void)size;
    hakmem_free(live[i]);
}

/* Superslabs at the far end of a long free run. */
static void *far[2 * FAR];
static unsigned far_left;

static void give_far(size_t size, unsigned i)
{
    (void)size, (void)i;
    if (far_left)
        hakmem_free(far[--far_left]);
}

static void take_zeroed(size_t size, unsigned i)
{
    live[i] = hakmem_calloc(1, size);
}

static void take_aligned(size_t size, unsigned i)
{
    assert_int_equal(hakmem_posix_memalign(&live[i], 1u << 18, size), 0);
}

static void lengthen(size_t size, unsigned i)
{
    live[i] = hakmem_realloc(live[i], size);
}

static void set(size_t size, unsigned i)
{
    (void)size;
    assert_int_equal(hakmem_set("HAKMEM_LIMIT_MB", i % 2 ? "1000000" : "2000000"), 0);
}

static void maintain(size_t size, unsigned i)
{
    (void)size, (void)i;
    hak_maintain_now();
}

/* In steps, so that the program is not taken for asleep; counts the dearest tick. */
static void pass(size_t ms, unsigned i)
{
    (void)i;
    uint64_t dearest = 0;
    for (size_t step_ms = hak_min(ms, 20); ms >= step_ms; ms -= step_ms) {
        fake_os_pass(step_ms);
        count->blocks = 0;
        count->on = ms > step_ms;
        if (count->on)
            hak_purge_tick();
        count->on = false;
        dearest = hak_max(dearest, count->blocks);
    }
    count->blocks = dearest;
}

static void fork_one(size_t size, unsigned i)
{
    (void)size, (void)i;
    pid_t pid = fork();
    if (!pid)
        _exit(0);
    waitpid(pid, NULL, 0);
}

static void *live_shortly(void *size)
{
    hakmem_free(hakmem_malloc((size_t)size));
    return NULL;
}

static void start_and_end(size_t size, unsigned i)
{
    (void)i;
    unit_join(unit_begin(live_shortly, (void *)size));
}

static const struct entry {
    const char *name;
    void (*call)(size_t size, unsigned i);
    size_t size;
    unsigned n;
} entries[] = {
    {"malloc, small", take, 1000, LIVE},
    {"free, small", give, 0, LIVE},
    {"malloc, pool", take, 20000, LIVE},
    {"free, pool", give, 0, LIVE},
    {"malloc, large", take, 300000, LIVE},
    {"realloc, large", lengthen, 500000, LIVE},
    {"realloc, shorter", lengthen, 100000, LIVE},
    {"free, large", give, 0, LIVE},
    {"malloc, long", take, 9 * HAK_MIB, LIVE},
    {"free, long", give, 0, LIVE},
    {"calloc", take_zeroed, 70000, LIVE},
    {"free", give, 0, LIVE},
    {"aligned", take_aligned, 70000, LIVE},
    {"free, aligned", give, 0, LIVE},
    {"malloc, direct", take, 80 * HAK_MIB, 10},
    {"free, direct", give, 0, 10},
    {"set", set, 0, 4},
    {"fork", fork_one, 0, 4},
    {"free, far", give_far, 0, FAR},
    {"thread", start_and_end, 100, 10},
    {"after 20 ms", pass, 20, 1},
    {"tick", maintain, 0, 1},
    {"after 60 ms", pass, 60, 1},
    {"second tick", maintain, 0, 1},
    {"after 200 ms", pass, 200, 1},
    {"third tick", maintain, 0, 1},
    {"after 10 s", pass, 10100, 1},
    {"fourth tick", maintain, 0, 1},
    {"after 20 ms", pass, 20, 1},
    {"fifth tick", maintain, 0, 1},
};

static void measure(struct cost *of)
{
    cost = of;
    for (unsigned e = 0; e < COUNT(entries); e++)
        for (unsigned i = 0; i < entries[e].n; i++) {
            if (entries[e].call != maintain)
                HAK_STORE_RELAXED(&hak_purge_waits, false);
            count->blocks = 0;
            memset(count->held, 0, sizeof count->held);
            count->forks = entries[e].call == fork_one;
            count->on = entries[e].call != pass;
            entries[e].call(entries[e].size, i);
            count->on = false;
            cost->most[e] = hak_max(cost->most[e], count->blocks);
        }
}

/* --- what grows ------------------------------------------------------------------------------------------ */

static void *blocks[20000];

static void *stay(void *unused)
{
    unit_free_blocks(unit_blocks(100, 50));
    unit_free_blocks(unit_blocks(20000, 2));
    sem_post(&done);
    sem_wait(&step);
    return unused;
}

/* More than may be busy, so they have no heaps. */
static void threads(unsigned from, unsigned to)
{
    for (; from < to; from++) {
        unit_begin_light(stay, NULL);
        sem_wait(&done);
    }
}

static void ended(unsigned from, unsigned to)
{
    pthread_t all[1000];
    for (unsigned i = from; i < to; i++) {
        all[i] = unit_begin(stay, NULL);
        sem_wait(&done);
    }
    for (unsigned i = from; i < to; i++)
        sem_post(&step);
    for (unsigned i = from; i < to; i++)
        unit_join(all[i]);
}

static void in_use(unsigned from, unsigned to)
{
    for (; from < to; from++)
        assert_non_null(blocks[from] = hakmem_malloc(HAK_SUPERSLAB));
}

/* The last ones follow later. */
static void free_all(unsigned from, unsigned to)
{
    in_use(from, to);
    for (; from < to - 2 * FAR; from++)
        hakmem_free(blocks[from]);
    for (; from < to; from++)
        far[far_left++] = blocks[from];
}

static void free_and_clean(unsigned from, unsigned to)
{
    free_all(from, to);
    hakmem_trim(0);
}

static void free_most(unsigned from, unsigned to)
{
    in_use(from, to);
    for (; from < to; from++)
        if (from % 4)
            hakmem_free(blocks[from]);
}

static void refused(unsigned from, unsigned to)
{
    fake_os_refuse(HAK_OS_madvise, 1, EINVAL, true);
    fake_os_vector(EINVAL, 0);
    free_most(from, to);
    hakmem_trim(0);
}

static void spans(unsigned from, unsigned to)
{
    for (; from < to; from++)
        assert_non_null(blocks[from] = hakmem_malloc(70000));
}

static void waiting_runs(unsigned from, unsigned to)
{
    spans(from, to);
    for (; from < to; from++)
        hakmem_free(blocks[from]);
}

static void directs(unsigned from, unsigned to)
{
    for (; from < to; from++)
        assert_non_null(blocks[from] = hakmem_malloc(65 * HAK_MIB));
}

static void *make_many(void *n)
{
    blocks[0] = unit_blocks(8000, (size_t)n);
    sem_post(&done);
    sem_wait(&step);
    return NULL;
}

static void remote(unsigned from, unsigned to)
{
    unit_begin(make_many, (void *)(uintptr_t)(to - from));
    sem_wait(&done);
    unit_free_blocks(blocks[0]);
}

/* Each slab keeps a block. */
static void sparse(unsigned from, unsigned to)
{
    for (unsigned i = from; i < to; i++)
        blocks[i] = hakmem_malloc(8000);
    for (unsigned i = from; i < to; i++)
        if (i % 4)
            hakmem_free(blocks[i]);
}

static void sparse_of_others(unsigned from, unsigned to)
{
    for (struct unit_block *next, *b = unit_blocks_of_other(8000, to - from); b; b = next) {
        next = b->next;
        if (from++ % 4)
            hak_free(b);
    }
}

static void settings(unsigned from, unsigned to)
{
    static const char *const names[] = {"HAKMEM_PURGE_DELAY_MS",      "HAKMEM_BATCH_MAX_MB",
                                        "HAKMEM_ACE_WASTE_PCT",       "HAKMEM_SUPERSLAB_TTL_SEC",
                                        "HAKMEM_SS_EMPTY_SCAN_LIMIT", "HAKMEM_SS_HOT_SLABS"};
    for (; from < to; from++)
        hakmem_set(names[from % COUNT(names)], from % 2 ? "30" : "20");
}

static const struct dimension {
    const char *name, *settings;
    void (*grow)(unsigned from, unsigned to);
    unsigned n, more; /* more: what a call may cost more if it has work to do in the larger heap only */
} dimensions[] = {
    {"threads", KEPT UNBOUNDED, threads, 100, 2000},
    {"threads ended", UNBOUNDED, ended, 100, SWEEP},
    {"superslabs in use", NULL, in_use, 500, 4000},
    {"superslabs free and clean", UNBOUNDED, free_and_clean, 500, 5000},
    {"superslabs free and dirty", KEPT UNBOUNDED, free_all, 500, 2000},
    {"superslabs free beside others", KEPT UNBOUNDED, free_most, 500, 2000},
    {"superslabs idle", UNBOUNDED, free_most, 500, 4000},
    {"superslabs refused", UNBOUNDED, refused, 500, 24000},
    {"spans", NULL, spans, 2000, 4000},
    {"waiting runs", UNBOUNDED "HAKMEM_ACE_CACHE_MB=1048576 HAKMEM_PURGE_DELAY_MS=5000", waiting_runs, 2000, 48000},
    {"direct mappings", NULL, directs, 200, 4000},
    {"remote blocks", NULL, remote, 2000, SWEEP},
    {"slabs of the thread", NULL, sparse, 2000, SWEEP},
    {"slabs of nobody", NULL, sparse_of_others, 2000, SWEEP},
    {"settings", "HAKMEM_ACE_CACHE_MB=0", settings, 100, 4000},
};

static void check(const struct dimension *d, const struct cost *before, const struct cost *after)
{
    unsigned failed = 0;
    for (unsigned e = 0; e < COUNT(entries); e++) {
        bool forks = !HAK_CPU_HEAPS && d->grow == threads && entries[e].call == fork_one;
        unsigned long more = d->more + (forks ? (TIMES - 1) * d->n * HEAP_FORK : 0);
        bool fails = after->most[e] > before->most[e] + before->most[e] / 4 + more;
        failed += fails;
        if (fails || getenv("GROWTH"))
            print_error("%s: %s: %lu blocks, then %lu\n", d->name, entries[e].name, before->most[e], after->most[e]);
    }
    for (unsigned i = 0; &__start_hak_locks[i] < __stop_hak_locks; i++) {
        bool fails = after->held[i] > HELD_MOST;
        failed += fails;
        if (fails || getenv("GROWTH"))
            print_error("%s: a lock of rank %u: %lu blocks\n", d->name, __start_hak_locks[i]->rank, after->held[i]);
    }
    assert_int_equal(failed, 0);
}

TEST_EACH(no_call_costs_more_in_a_larger_heap, dimensions)
{
    static struct cost first[2], second[2]; /* the first calls also do work that the growth left */
    unit_init(row->settings);
    fake_os_clock(20000);
    count = mmap(NULL, sizeof *count, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    row->grow(0, row->n);
    measure(&first[0]);
    measure(&second[0]);
    row->grow(row->n, row->n * TIMES);
    measure(&first[1]);
    measure(&second[1]);
    check(row, &first[0], &first[1]);
    check(row, &second[0], &second[1]);
}
