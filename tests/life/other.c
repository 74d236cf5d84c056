/* SPDX-License-Identifier: MIT
 * Another library of the process. What its constructor and destructor do is named by LIFE_OTHER:
 *
 *   prepare, parent, child  registers a fork handler that allocates
 *   threads                 registers a handler that starts threads in the child, and waits for one
 *   mutex                   registers the textbook's handlers: lock, unlock, unlock
 *   inner                   registers a handler that forks
 *   constructor, destructor forks there, while a thread allocates
 *   starter                 starts threads in its constructor
 *
 * With LIFE_LIBRARY it opens the allocator itself, first of all, or after its own start with LIFE_LATE. With
 * LIFE_SYSTEM the C library's malloc serves. */
#include "life.h"

#include <dlfcn.h>
#include <malloc.h>

enum { BUSY_MAX = 16, STARTED = 40, FORKS = 20, BLOCKS = 16, SPAN = 100000 };

static size_t trim(size_t keep)
{
    return (size_t)malloc_trim(keep);
}

struct life_allocator life = {
    malloc, calloc, realloc, aligned_alloc, free, malloc_usable_size, trim, NULL, malloc_stats, malloc_info,
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_t busy[BUSY_MAX];
static unsigned busy_count;
static _Atomic(bool) over;

/* --- traffic ------------------------------------------------------------------------------------------ */

struct block {
    unsigned char *p;
    size_t size;
    unsigned char mark;
};

static void give_marked(struct block *b)
{
    if (b->p && !marked(b->p, b->size, b->mark))
        die("block %p of %zu bytes changed", (void *)b->p, b->size);
    life.give(b->p);
    b->p = NULL;
}

static void take_marked(struct block *b, size_t size, unsigned char with)
{
    *b = (struct block){life.take(size), size, with};
    if (!b->p)
        die("malloc(%zu): %s", size, strerror(errno));
    mark(b->p, size, with);
}

void life_traffic(unsigned rounds, uint64_t seed)
{
    struct block blocks[BLOCKS] = {0};
    for (unsigned i = 0; i < rounds; i++) {
        struct block *b = &blocks[next_random(&seed) % BLOCKS];
        give_marked(b);
        take_marked(b, mixed_size(&seed), (unsigned char)(i % 250 + 1));
    }
    for (unsigned i = 0; i < BLOCKS; i++)
        give_marked(&blocks[i]);
}

static void *make_traffic(void *seed)
{
    uint64_t n = (uintptr_t)seed;
    while (!atomic_load_explicit(&over, memory_order_relaxed))
        life_traffic(100, n++);
    return NULL;
}

void life_start_busy(unsigned threads)
{
    atomic_store(&over, false);
    for (busy_count = 0; busy_count < threads; busy_count++)
        if (pthread_create(&busy[busy_count], NULL, make_traffic, (void *)(uintptr_t)(busy_count * 1000 + 1)))
            die("no thread");
}

void life_end_busy(void)
{
    atomic_store(&over, true);
    while (busy_count)
        pthread_join(busy[--busy_count], NULL);
}

void life_fork(bool by_exit)
{
    pid_t child = fork();
    if (child < 0)
        die("fork: %s", strerror(errno));
    if (child == 0) {
        life_traffic(100, 7);
        if (by_exit)
            exit(0);
        _exit(0);
    }
    expect_success(child, "a child");
}

void life_work_locked(void)
{
    pthread_mutex_lock(&mutex);
    life_traffic(50, 3);
    pthread_mutex_unlock(&mutex);
}

/* --- statistics ----------------------------------------------------------------------------------------- */

long life_statistic(const char *name)
{
    static char text[1 << 18];
    char path[] = "/tmp/life.XXXXXX";
    int fd = mkstemp(path);
    unlink(path);
    if (fd < 0 || life.stats(fd, 0))
        die("no statistics");
    ssize_t n = pread(fd, text, sizeof text - 1, 0);
    close(fd);
    text[n > 0 ? n : 0] = 0;
    char key[64];
    snprintf(key, sizeof key, "%s: ", name);
    const char *found = strstr(text, key);
    if (!found)
        die("the statistics have no %s", name);
    return atol(found + strlen(key));
}

/* --- fork handlers ------------------------------------------------------------------------------------- */

/* More than bins hold, so that locks are needed. */
static void allocate(void)
{
    struct block b;
    take_marked(&b, SPAN, 5);
    give_marked(&b);
    life_traffic(20, 11);
}

static void lock(void)
{
    pthread_mutex_lock(&mutex);
}

static void unlock(void)
{
    pthread_mutex_unlock(&mutex);
}

static void *run_once(void *seed)
{
    life_traffic(200, (uintptr_t)seed);
    return NULL;
}

/* As many threads as before, or more; one runs during the other handlers. */
static void start_two(void)
{
    pthread_t waited, other;
    if (pthread_create(&waited, NULL, run_once, (void *)1) || pthread_create(&other, NULL, run_once, (void *)2) ||
        pthread_join(waited, NULL))
        die("no thread");
}

static void fork_once(void)
{
    static bool inside;
    if (inside)
        return;
    inside = true;
    life_fork(false);
    inside = false;
}

/* --- start and end -------------------------------------------------------------------------------------- */

static bool is_told(const char *what)
{
    const char *told = getenv("LIFE_OTHER");
    return told && !strcmp(told, what);
}

static void fork_busily(void)
{
    life_start_busy(1);
    for (int i = 0; i < FORKS; i++)
        life_fork(false);
    life_end_busy();
}

static void start_threads(void)
{
    for (uintptr_t i = 1; i <= STARTED; i++) {
        pthread_t t;
        if (pthread_create(&t, NULL, run_once, (void *)i) || pthread_join(t, NULL))
            die("no thread");
    }
}

static void fetch(void *handle, const char *name, void *into)
{
    void *symbol = dlsym(handle, name);
    if (!symbol)
        die("%s", dlerror());
    memcpy(into, &symbol, sizeof symbol);
}

/* The process's own library need not be opened: its names are visible everywhere. */
static void open_allocator(const char *path)
{
    if (getenv("LIFE_SYSTEM"))
        return;
    void *handle = path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : RTLD_DEFAULT;
    if (path && !handle)
        die("%s", dlerror());
    fetch(handle, "hakmem_stats", &life.stats);
    if (!path)
        return;
    fetch(handle, "hakmem_malloc", &life.take);
    fetch(handle, "hakmem_calloc", &life.take_zeroed);
    fetch(handle, "hakmem_realloc", &life.change);
    fetch(handle, "hakmem_aligned_alloc", &life.take_aligned);
    fetch(handle, "hakmem_free", &life.give);
    fetch(handle, "hakmem_malloc_usable_size", &life.usable);
    fetch(handle, "hakmem_trim", &life.trim);
    fetch(handle, "hakmem_malloc_stats", &life.print);
    fetch(handle, "hakmem_malloc_info", &life.info);
}

static void act(void)
{
    if (is_told("prepare"))
        pthread_atfork(allocate, NULL, NULL);
    else if (is_told("parent"))
        pthread_atfork(NULL, allocate, NULL);
    else if (is_told("child"))
        pthread_atfork(NULL, NULL, allocate);
    else if (is_told("threads"))
        pthread_atfork(NULL, NULL, start_two);
    else if (is_told("mutex"))
        pthread_atfork(lock, unlock, unlock);
    else if (is_told("inner"))
        pthread_atfork(fork_once, NULL, NULL);
    else if (is_told("constructor"))
        fork_busily();
    else if (is_told("starter"))
        start_threads();
}

__attribute__((constructor)) static void construct(void)
{
    bool late = getenv("LIFE_LATE") != NULL;
    if (late)
        act();
    open_allocator(getenv("LIFE_LIBRARY"));
    if (!late)
        act();
}

__attribute__((destructor)) static void destruct(void)
{
    if (is_told("destructor"))
        fork_busily();
    life_traffic(20, 13);
}
