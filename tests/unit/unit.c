/* SPDX-License-Identifier: MIT
 * See unit.h. */
#include "unit.h"

#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../watchdog.h"
#include "core/malloc/malloc.h"
#include "core/pages/run_cache.h"
#include "core/parts/purge.h"

#define OUT_FD 9
#define SECONDS_FOR_ONE 240 /* meson waits for 300 */

extern char **environ;

const char *unit_argument;
int unit_out = OUT_FD;

/* --- processes ----------------------------------------------------------------------------------- */

static int status_of(pid_t pid)
{
    int status = -1;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    return status;
}

/* posix_spawn rather than fork: the library's fork handlers would start the library in this process. UNIT_RUN_BY names
 * an emulator that runs it, where the kernel cannot. */
static int spawn(const char *test, const char *argument, int out)
{
    char program[4096];
    ssize_t n = readlink("/proc/self/exe", program, sizeof program - 1);
    if (n < 0)
        return -1;
    program[n] = 0;
    char *by = getenv("UNIT_RUN_BY");
    char *argv[] = {by, program, (char *)(uintptr_t)test, (char *)(uintptr_t)argument, NULL}, **first = argv + !by;
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    if (out >= 0)
        posix_spawn_file_actions_adddup2(&actions, out, OUT_FD);
    pid_t pid;
    int status = posix_spawnp(&pid, *first, &actions, NULL, first, environ) ? -1 : status_of(pid);
    posix_spawn_file_actions_destroy(&actions);
    return status;
}

static size_t read_all(int fd, char *text, size_t size)
{
    size_t done = 0;
    ssize_t n;
    while (done + 1 < size && (n = pread(fd, text + done, size - 1 - done, (off_t)done)) > 0)
        done += (size_t)n;
    text[done] = 0;
    return done;
}

static int text_file(void)
{
    int fd = memfd_create("unit", MFD_CLOEXEC);
    assert_true(fd >= 0);
    return fd;
}

int unit_spawn(const char *test, const char *argument, char *out, size_t size)
{
    int fd = text_file();
    int status = spawn(test, argument, fd);
    if (out)
        read_all(fd, out, size);
    close(fd);
    return status;
}

size_t unit_row(const char *test, size_t rows)
{
    if (unit_argument)
        return strtoul(unit_argument, NULL, 10);
    for (size_t i = 0; i < rows; i++) {
        char row[24];
        snprintf(row, sizeof row, "%zu", i);
        alarm(SECONDS_FOR_ONE); /* for each row */
        int status = unit_spawn(test, row, NULL, 0);
        if (status)
            fail_msg("row %zu: wait status 0x%x", i, (unsigned)status);
    }
    return rows;
}

bool unit_limit_addresses(void)
{
    struct rlimit limit = {64 * HAK_GIB, RLIM_INFINITY};
    return !HAK_SANITIZED && !getenv("UNIT_RUN_BY") && !setrlimit(RLIMIT_AS, &limit);
}

void unit_in_child(int (*fn)(void))
{
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        alarm(60);
        _exit(fn());
    }
    assert_int_equal(status_of(pid), 0);
}

static struct CMUnitTest tests[200];
static size_t count;

void unit_add(const char *name, void (*test)(void **))
{
    if (count == COUNT(tests))
        abort();
    tests[count++] = (struct CMUnitTest){.name = name, .test_func = test};
}

static int run_one(const char *name)
{
    for (size_t i = 0; i < count; i++)
        if (!strcmp(tests[i].name, name)) {
            watchdog_start(SECONDS_FOR_ONE);
            return _cmocka_run_group_tests(name, &tests[i], 1, NULL, NULL);
        }
    fprintf(stderr, "no test %s\n", name);
    return 2;
}

int main(int argc, char **argv)
{
    if (argc > 1) {
        unit_argument = argc > 2 ? argv[2] : NULL;
        return run_one(argv[1]);
    }
    int failed = 0;
    for (size_t i = 0; i < count; i++) {
        int status = spawn(tests[i].name, NULL, -1);
        if (status)
            fprintf(stderr, "%s %s: wait status 0x%x\n", argv[0], tests[i].name, (unsigned)status);
        failed += status != 0;
    }
    printf("%zu tests, %d failed\n", count, failed);
    return failed != 0;
}

static pid_t doomed;
static int last_words;

bool unit_is_doomed(void)
{
    last_words = text_file();
    doomed = fork();
    assert_true(doomed >= 0);
    if (doomed)
        return false;
    struct rlimit no_core = {0, 0};
    setrlimit(RLIMIT_CORE, &no_core);
    signal(SIGABRT, SIG_DFL);
    dup2(last_words, STDERR_FILENO);
    return true;
}

void unit_survives(void)
{
    _exit(0);
}

void unit_died_with(const char *message)
{
    char text[2048];
    int status = status_of(doomed);
    read_all(last_words, text, sizeof text);
    close(last_words);
    if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGABRT)
        fail_msg("wait status 0x%x instead of SIGABRT; stderr: %s", (unsigned)status, text);
    if (!strstr(text, message))
        fail_msg("no \"%s\" in: %s", message, text);
}

static int heard, own_stderr;

void unit_stderr_begin(void)
{
    heard = text_file();
    own_stderr = dup(STDERR_FILENO);
    dup2(heard, STDERR_FILENO);
}

void unit_stderr_end(char *text, size_t size)
{
    dup2(own_stderr, STDERR_FILENO);
    close(own_stderr);
    read_all(heard, text, size);
    close(heard);
}

void unit_needs_mincore(void)
{
    unsigned char each[64] = {0};
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *p = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(p, 1, page);
    assert_int_equal(mincore(p, page, each), 0);
    munmap(p, page);
    if (each[1])
        skip();
}

void unit_needs_delay(void)
{
    if (hak_init() && hak_parts.release->at_once)
        skip();
}

static void *run_busy(void *begun)
{
    void *(*fn)(void *) = ((void **)begun)[0];
    void *context = ((void **)begun)[1];
    free(begun);
    hak_self.busy = true; /* it has a heap from its first slow path on */
    return fn(context);
}

pthread_t unit_begin(void *(*fn)(void *), void *context)
{
    void **begun = malloc(2 * sizeof *begun);
    begun[0] = (void *)fn;
    begun[1] = context;
    return unit_begin_light(run_busy, begun);
}

pthread_t unit_begin_light(void *(*fn)(void *), void *context)
{
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, fn, context), 0);
    return thread;
}

void unit_join(pthread_t thread)
{
    assert_int_equal(pthread_join(thread, NULL), 0);
}

void unit_in_thread(void *(*fn)(void *), void *context)
{
    unit_join(unit_begin(fn, context));
    hak_heaps_dissolve(UINT64_MAX, UINT_MAX);
}

void unit_start(const char *settings)
{
    char copy[512], *rest;
    snprintf(copy, sizeof copy, "%s", settings ? settings : "");
    for (char *one = strtok_r(copy, " ", &rest); one; one = strtok_r(NULL, " ", &rest)) {
        char *equals = strchr(one, '=');
        assert_non_null(equals);
        *equals = 0;
        setenv(one, equals + 1, 1);
    }
    if (HAK_HARDENED) /* tests look into free pages, and count calls; test_closed.c asks for it */
        setenv("HAKMEM_CLOSE_FREE", "0", 0);
    fake_os_install();
    hak_self.busy = true; /* even if another thread comes first */
}

void unit_init(const char *settings)
{
    unit_start(settings);
    assert_true(hak_init());
}

void unit_init_text(const char *settings, char *text, size_t size)
{
    unit_start(settings);
    unit_stderr_of(assert_true(hak_init()), text, size);
}

struct hak_heap *unit_thread(void)
{
    return hak_init() ? hak_thread_heap() : NULL;
}

struct hak_heap *unit_init_heap(const char *settings)
{
    unit_start(settings);
    struct hak_heap *heap = unit_thread();
    assert_non_null(heap);
    return heap;
}

/* --- inspection -------------------------------------------------------------------------------------- */

char *unit_stats_text(bool json)
{
    int fd = text_file();
    hak_init();
    assert_int_equal(hak_stats_write(fd, json), 0);
    size_t size = (size_t)lseek(fd, 0, SEEK_END) + 1;
    char *text = malloc(size);
    assert_non_null(text);
    read_all(fd, text, size);
    close(fd);
    return text;
}

uint64_t unit_stat(const char *section, const char *key)
{
    char wanted[80];
    char *text = unit_stats_text(true);
    snprintf(wanted, sizeof wanted, "\"%s\": {", section);
    char *begin = strstr(text, wanted);
    if (!begin)
        fail_msg("the statistics have no %s", section);
    char *end = strchr(begin, '}');
    *end = 0;
    snprintf(wanted, sizeof wanted, "\"%s\": ", key);
    char *at = strstr(begin, wanted);
    if (!at)
        fail_msg("no %s in %s", key, begin);
    uint64_t value = strtoull(at + strlen(wanted), NULL, 10);
    free(text);
    return value;
}

void unit_sweep(void)
{
    for (unsigned i = 0; i < 2 && hak_parts.backend->purge_tick; i++) /* the counts since the last call stay */
        hak_parts.backend->purge_tick(hak_clock_ms());
}

bool unit_tick(void)
{
    bool more = hak_parts.backend->purge_tick && hak_parts.backend->purge_tick(hak_clock_ms());
    hak_run_cache_tick(hak_clock_ms());
    return hak_pages_tick(hak_clock_ms()) || more;
}

struct hak_slab *unit_run(size_t pages, size_t align, bool *zero)
{
    struct hak_slab *run = NULL;
    struct hak_page_request r = {.pages = pages, .align = align};
    for (enum hak_pages_from from = HAK_PAGES_FREE; !run && from <= HAK_PAGES_MAPPED; from++)
        run = hak_pages_take_run(&r, from);
    *zero = r.zero;
    return run;
}

void unit_put_pages(char *base, size_t pages)
{
    hak_pages_put(hak_pages_describe(base, pages, true));
}

void unit_put_run(struct hak_slab *run)
{
    hak_pages_put(run);
    hak_pages_bound();
}

uint64_t unit_looks(void)
{
    return HAK_LOAD_RELAXED(&hak_ledger[HAK_CAUSE_huge_page][HAK_OS_mincore].calls);
}

/* The kernel reads it for us, and says so. */
bool unit_is_open(const void *p)
{
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    bool open = write(ends[1], p, 1) == 1;
    close(ends[0]);
    close(ends[1]);
    return open;
}

struct hak_heaps_totals unit_totals(void)
{
    struct hak_heaps_totals t;
    hak_heaps_totals(&t);
    return t;
}

struct hak_space_stats unit_space(void)
{
    struct hak_space_stats s;
    hak_space_stats(&s);
    return s;
}

size_t unit_dirty_bytes(void)
{
    return hak_dirty_queue.waiting + hak_dirty_queue.refused;
}

uint64_t unit_transitions(enum hak_slab_state from, enum hak_slab_state to)
{
    struct hak_heaps_totals t = unit_totals();
    return t.counters.transitions[from][to];
}

uint64_t unit_cause_calls(enum hak_cause cause)
{
    uint64_t n = 0;
    for (unsigned i = 0; i < HAK_NOSCALLS; i++)
        n += hak_ledger[cause][i].calls;
    return n;
}

struct hak_census unit_census(void)
{
    struct hak_census c;
    hak_stats_census(&c);
    assert_int_equal(c.violations, 0);
    assert_int_equal(c.carved, c.free + c.used);
    return c;
}

uint64_t unit_pages_in_use(const struct hak_census *c)
{
    return c->pages[HAK_SLAB_ACTIVE] + c->pages[HAK_SLAB_FULL] + c->pages[HAK_SLAB_PARTIAL];
}

/* --- blocks ------------------------------------------------------------------------------------------ */

struct unit_block *unit_blocks(size_t size, size_t n)
{
    struct unit_block *list = NULL;
    while (n--) {
        struct unit_block *b = hak_malloc(size);
        assert_non_null(b);
        b->next = list;
        list = b;
    }
    return list;
}

void unit_free_blocks(struct unit_block *list)
{
    while (list) {
        struct unit_block *next = list->next;
        hak_free(list);
        list = next;
    }
}

struct request {
    size_t size, n;
    struct unit_block *blocks;
};

static void *allocate(void *request)
{
    struct request *r = request;
    r->blocks = unit_blocks(r->size, r->n);
    return NULL;
}

struct unit_block *unit_blocks_of_other(size_t size, size_t n)
{
    struct request r = {.size = size, .n = n};
    unit_in_thread(allocate, &r);
    return r.blocks;
}

static void *free_list(void *list)
{
    unit_free_blocks(list);
    return NULL;
}

void unit_free_by_other(struct unit_block *list)
{
    unit_in_thread(free_list, list);
}

size_t unit_slab_capacity(size_t size)
{
    unsigned cls = hak_class_of(size);
    return hak_slab_pages[cls] * HAK_PAGE / hak_strides[cls];
}

size_t unit_bin_length(unsigned cls)
{
    const struct hak_heap *heap = hak_self.heap;
    return heap ? hak_cache_length(heap, cls) : 0;
}

uint64_t unit_random(uint64_t *state)
{
    uint64_t x = *state += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}
