/* SPDX-License-Identifier: MIT
 *
 * forks COUNT THREADS main       COUNT forks, THREADS others allocating meanwhile
 * forks COUNT THREADS everyone   each of THREADS threads forks, COUNT in all
 * forks COUNT THREADS chain      each child starts THREADS threads and forks in turn
 *
 * Every child allocates, frees blocks of its own and of its parent, and ends.
 * A child that hangs is ended by SIGALRM, which fails the test.
 */
#include <pthread.h>
#include <stdatomic.h>

#include "check.h"

enum { BOARD = 256, CHILD_BLOCKS = 200, MAX_THREADS = 64, PATIENCE = 100 };

struct posted {
    size_t size;
    unsigned char mark;
};

/* Blocks of all threads; the thread that takes one from the board owns it. */
static _Atomic(struct posted *) board[BOARD];
static _Atomic(bool) stop;
static _Atomic(long) forks_left;

static struct posted *make(size_t size)
{
    size += sizeof(struct posted) + 1;
    struct posted *p = malloc(size);
    if (p == NULL)
        die("malloc(%zu): %s", size, strerror(errno));
    p->size = size;
    p->mark = (unsigned char)(size % 250 + 1);
    mark((unsigned char *)p + sizeof(*p), size - sizeof(*p), p->mark);
    return p;
}

static void drop(struct posted *p)
{
    if (p == NULL)
        return;
    if (!marked((unsigned char *)p + sizeof(*p), p->size - sizeof(*p), p->mark))
        die("block %p of %zu bytes changed", (void *)p, p->size);
    free(p);
}

static void *allocate_and_post(void *arg)
{
    uint64_t random = (uintptr_t)arg * 77 + 1;
    while (!atomic_load_explicit(&stop, memory_order_relaxed)) {
        struct posted *p = make(mixed_size(&random) % 200000);
        drop(atomic_exchange(&board[next_random(&random) % BOARD], p));
        p = make(mixed_size(&random) % 3000);
        p = realloc(p, p->size + 500);
        if (p == NULL)
            die("realloc: %s", strerror(errno));
        free(p);
        if (random % 16 == 0)
            usleep(1000); /* leave a CPU to the thread that forks */
    }
    return NULL;
}

static void *allocate_a_while(void *arg)
{
    uint64_t random = (uintptr_t)arg;
    for (int i = 0; i < 300; i++) {
        struct posted *p = make(mixed_size(&random) % 100000);
        drop(atomic_exchange(&board[next_random(&random) % BOARD], p));
    }
    return NULL;
}

static void child(long turn)
{
    struct posted *own[CHILD_BLOCKS];
    uint64_t random = (uint64_t)turn;
    for (int i = 0; i < CHILD_BLOCKS; i++)
        own[i] = make(mixed_size(&random) % 300000);
    for (int i = 0; i < BOARD; i++) /* the parent's, as they were at the fork */
        if (i % 2 == 0)
            drop(atomic_exchange(&board[i], NULL));
    for (int i = 0; i < CHILD_BLOCKS; i++)
        drop(own[(i * 7) % CHILD_BLOCKS]);
    if (turn % 16 == 0) {
        pthread_t t;
        if (pthread_create(&t, NULL, allocate_a_while, (void *)1) != 0 || pthread_join(t, NULL) != 0)
            die("no thread in the child");
    }
    if (turn % 8 == 0)
        exit(0); /* with the library's own exit */
    _exit(0);
}

static void fork_once(long turn)
{
    pid_t pid = fork();
    if (pid < 0)
        die("fork: %s", strerror(errno));
    if (pid == 0) {
        alarm(PATIENCE);
        child(turn);
    }
    char what[64];
    snprintf(what, sizeof(what), "child %ld", turn);
    expect_success(pid, what);
}

static void *fork_too(void *arg)
{
    uint64_t random = (uintptr_t)arg;
    long turn;
    while ((turn = atomic_fetch_sub(&forks_left, 1)) > 0) {
        for (int i = 0; i < 200; i++)
            drop(atomic_exchange(&board[next_random(&random) % BOARD], make(mixed_size(&random) % 50000)));
        fork_once(turn);
    }
    return NULL;
}

static void start(pthread_t *threads, long count, void *(*what)(void *))
{
    for (long i = 0; i < count; i++) {
        int err = pthread_create(&threads[i], NULL, what, (void *)(i + 1));
        if (err != 0)
            die("no thread: %s", strerror(err));
    }
}

static void join(const pthread_t *threads, long count)
{
    for (long i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
}

/* Each link forks while its own threads allocate; they do not exist in the next. */
static void chain(long links, long threads_each)
{
    pthread_t threads[MAX_THREADS];
    start(threads, threads_each, allocate_and_post);
    for (int i = 0; i < 100; i++)
        drop(make((size_t)i * 300));
    if (links > 0) {
        pid_t pid = fork();
        if (pid < 0)
            die("fork: %s", strerror(errno));
        if (pid == 0) {
            alarm(PATIENCE + (unsigned)links);
            chain(links - 1, threads_each);
            exit(0);
        }
        char what[64];
        snprintf(what, sizeof(what), "the chain's link with %ld to go", links);
        expect_success(pid, what);
    }
    atomic_store(&stop, true);
    join(threads, threads_each);
}

int main(int argc, char **argv)
{
    pthread_t threads[MAX_THREADS];
    long count = argc > 3 ? atol(argv[1]) : 0, others = argc > 3 ? atol(argv[2]) : 0;
    if (count < 1 || others < 1 || others > MAX_THREADS)
        die("usage: forks COUNT THREADS main|everyone|chain");
    if (strcmp(argv[3], "main") == 0) {
        start(threads, others, allocate_and_post);
        for (long i = 1; i <= count; i++)
            fork_once(i);
        atomic_store(&stop, true);
        join(threads, others);
    } else if (strcmp(argv[3], "everyone") == 0) {
        atomic_store(&forks_left, count);
        start(threads, others, fork_too);
        join(threads, others);
    } else {
        chain(count, others);
    }
    for (int i = 0; i < BOARD; i++)
        drop(atomic_exchange(&board[i], NULL));
    return 0;
}
