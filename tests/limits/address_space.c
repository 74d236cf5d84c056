/* SPDX-License-Identifier: MIT
 *
 * address_space MIB THREADS [late]
 *
 * Under RLIMIT_AS: allocate until NULL, free every other block, allocate as
 * many again, check what stayed, free all, and go on. For each of several
 * sizes a process of its own, which has the limit from its start or, with
 * "late", sets it itself once it has used malloc.
 */
#include <pthread.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "check.h"

enum {
    MAX_THREADS = 16,
    MIXED = 0,
    MIXED_BLOCKS = 100000, /* at most, of one thread */
    MIXED_REFUSALS = 50,   /* in a row: another size may still be there */
};

/* The least share of the limit that must have been usable, in percent. */
enum { USABLE_SHARE = 50 };

struct node {
    struct node *next;
    size_t size;
};

struct worker {
    pthread_t thread;
    unsigned id;
    size_t blocks, bytes; /* until NULL */
    size_t freed, again;
    uint32_t *freed_sizes; /* of mixed ones only */
};

static size_t limit_bytes, block_size, thread_count;
static pthread_barrier_t start, all_here;

static size_t size_of_attempt(const struct worker *w, size_t i)
{
    if (block_size != MIXED)
        return block_size;
    uint64_t random = w->id * UINT64_C(1000000007) + i;
    size_t size = mixed_size(&random);
    return size < sizeof(struct node) + 1 ? sizeof(struct node) + 1 : size;
}

static unsigned char mark_of(const struct worker *w, size_t size)
{
    return (unsigned char)(w->id * 37 + size % 251 + 1);
}

/* The mark goes behind the node, which stands at the start. */
static void mark_node(const struct worker *w, struct node *n)
{
    mark((unsigned char *)n + sizeof(*n), n->size - sizeof(*n), mark_of(w, n->size));
}

static struct node *allocate(const struct worker *w, size_t size)
{
    errno = 0;
    struct node *n = malloc(size);
    if (n == NULL) {
        if (errno != ENOMEM)
            die("malloc(%zu) refused with errno %d", size, errno);
        return NULL;
    }
    n->size = size;
    mark_node(w, n);
    return n;
}

static void check_and_free(const struct worker *w, struct node *n)
{
    if (!marked((unsigned char *)n + sizeof(*n), n->size - sizeof(*n), mark_of(w, n->size)))
        die("block %p of %zu bytes changed", (void *)n, n->size);
    free(n);
}

static struct node *fill_up(struct worker *w)
{
    struct node *all = NULL;
    size_t refusals_to_end = block_size == MIXED ? MIXED_REFUSALS : 1;
    for (size_t i = 0, refusals = 0; refusals < refusals_to_end; i++) {
        struct node *n = allocate(w, size_of_attempt(w, i));
        refusals = n == NULL ? refusals + 1 : 0;
        if (n == NULL)
            continue;
        n->next = all;
        all = n;
        w->blocks++;
        w->bytes += n->size;
        if (block_size == MIXED && w->blocks == 2 * MIXED_BLOCKS)
            break;
    }
    return all;
}

/* Frees every other block and leaves a list of the others. */
static void thin_out(struct worker *w, struct node *all)
{
    for (struct node *n = all; n != NULL && n->next != NULL; n = n->next) {
        struct node *gone = n->next;
        n->next = gone->next;
        if (block_size == MIXED)
            w->freed_sizes[w->freed] = (uint32_t)gone->size;
        check_and_free(w, gone);
        w->freed++;
    }
}

static void *work(void *arg)
{
    struct worker *w = arg;
    pthread_barrier_wait(&start);
    struct node *all = fill_up(w);
    pthread_barrier_wait(&all_here);

    thin_out(w, all);
    pthread_barrier_wait(&all_here);

    /* The sizes that were freed, in the same order. */
    for (size_t i = 0; i < w->freed; i++) {
        struct node *n = allocate(w, block_size == MIXED ? w->freed_sizes[i] : block_size);
        if (n == NULL)
            continue;
        n->next = all;
        all = n;
        w->again++;
    }
    pthread_barrier_wait(&all_here);

    while (all != NULL) {
        struct node *n = all;
        all = n->next;
        check_and_free(w, n);
    }
    pthread_barrier_wait(&all_here);

    for (size_t i = 0; i < 1000; i++) {
        struct node *n = allocate(w, 100 + i);
        if (n == NULL)
            die("%zu bytes refused after all was freed", 100 + i);
        check_and_free(w, n);
    }
    return NULL;
}

static void set_limit(void)
{
    struct rlimit limit = {limit_bytes, limit_bytes};
    if (setrlimit(RLIMIT_AS, &limit) != 0)
        die("setrlimit: %s", strerror(errno));
}

static void judge(const struct worker *workers)
{
    size_t bytes = 0, blocks = 0, freed = 0, again = 0;
    for (size_t i = 0; i < thread_count; i++) {
        bytes += workers[i].bytes;
        blocks += workers[i].blocks;
        freed += workers[i].freed;
        again += workers[i].again;
    }
    say("%7zu-byte blocks: %zu MiB of %zu in %zu blocks, %zu freed, %zu of them served again", block_size, bytes / MIB,
        limit_bytes / MIB, blocks, freed, again);
    if (bytes > limit_bytes)
        die("the limit did not hold");
    if (bytes < limit_bytes / 100 * USABLE_SHARE)
        die("less than %d %% of the limit was usable", USABLE_SHARE);
    /* One thread and one size: the very same blocks will do. */
    size_t needed = thread_count == 1 && block_size != MIXED ? 98 : 90;
    if (again < freed * needed / 100)
        die("less than %zu %% of what was freed could be allocated again", needed);
}

static int run(bool late)
{
    struct worker workers[MAX_THREADS] = {{0}};
    pthread_attr_t attr;
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, 256 * KIB);
    pthread_barrier_init(&start, NULL, (unsigned)thread_count + 1);
    pthread_barrier_init(&all_here, NULL, (unsigned)thread_count);
    if (late) {
        free(malloc(1));
        set_limit();
    }
    size_t sizes_bytes = thread_count * MIXED_BLOCKS * sizeof(uint32_t);
    uint32_t *sizes = block_size != MIXED
                          ? NULL
                          : mmap(NULL, sizes_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (sizes == MAP_FAILED)
        die("no room for the test's own notes");
    for (size_t i = 0; i < thread_count; i++) {
        workers[i].id = (unsigned)i;
        workers[i].freed_sizes = sizes + i * (sizes != NULL ? MIXED_BLOCKS : 0);
        int err = pthread_create(&workers[i].thread, &attr, work, &workers[i]);
        if (err != 0)
            die("no thread: %s", strerror(err));
    }
    pthread_barrier_wait(&start);
    for (size_t i = 0; i < thread_count; i++)
        pthread_join(workers[i].thread, NULL);
    judge(workers);
    return 0;
}

int main(int argc, char **argv)
{
    static const char *const sizes[] = {"64", "4096", "20480", "1048576", "0"};
    if (argc < 3)
        die("usage: address_space MIB THREADS [late]");
    limit_bytes = strtoul(argv[1], NULL, 10) * MIB;
    thread_count = strtoul(argv[2], NULL, 10);
    if (limit_bytes == 0 || thread_count < 1 || thread_count > MAX_THREADS)
        die("usage: address_space MIB THREADS [late]");
    if (argc == 5) {
        block_size = strtoul(argv[4], NULL, 10);
        alarm(100);
        return run(strcmp(argv[3], "late") == 0);
    }
    bool late = argc == 4 && strcmp(argv[3], "late") == 0;
    for (size_t i = 0; i < COUNT(sizes); i++) {
        pid_t child = fork();
        if (child < 0)
            die("fork: %s", strerror(errno));
        if (child == 0) {
            char *args[] = {argv[0], argv[1], argv[2], late ? "late" : "early", (char *)(uintptr_t)sizes[i], NULL};
            if (!late)
                set_limit();
            execv("/proc/self/exe", args);
            die("exec: %s", strerror(errno));
        }
        char what[64];
        snprintf(what, sizeof(what), "blocks of %s bytes", sizes[i]);
        expect_success(child, what);
    }
    return 0;
}
