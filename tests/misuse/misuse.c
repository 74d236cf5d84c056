/* SPDX-License-Identifier: MIT
 *
 * misuse            each misuse of the table below, in a process of its own: it must die of the signal, after one line
 *                   on stderr that has the words of the table and names the pointer
 * misuse NAME...    these only, by the beginnings of their names
 *
 * A row of the table stands for each of its `hows` with each of its `sizes`. In the words, {ptr} is the pointer that
 * was announced last, * is anything, and | separates two ways to say it. */
#include "misuse.h"

#include <errno.h>
#include <fnmatch.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>

enum { SECONDS = 60, MOST_HOWS = 8, MOST_SIZES = 8 };

extern char **environ;

static char object[1 << 17] __attribute__((aligned(1 << 16)));
static void *victim;

static void in_thread(void *(*work)(void *), void *context)
{
    pthread_t t;
    pthread_create(&t, NULL, work, context);
    pthread_join(t, NULL);
}

static void *free_it(void *p)
{
    free(p);
    return NULL;
}

/* A block, all of whose bytes were written. */
static char *block(size_t size)
{
    return memset(malloc(size), 0, size);
}

/* --- freed twice ------------------------------------------------------------------------------------------- */

static void twice(const char *how, size_t size)
{
    void *p = announce(malloc(size)), *between = *how ? malloc(size) : NULL;
    free(p);
    free(between);
    free(announce(p));
}

/* The block freed the second time passes through drains. */
static void all_twice(const char *how, size_t size)
{
    int n = atoi(how);
    void **p = malloc((size_t)n * sizeof *p);
    for (int i = 0; i < n; i++)
        p[i] = malloc(size);
    for (int i = 0; i < 2 * n; i++)
        free(p[i % n]);
}

static void *use_and_free_twice(void *p)
{
    void *mine = malloc(64);
    free(p);
    free(announce(p));
    return mine;
}

static void twice_by_another(const char *how, size_t size)
{
    (void)how;
    in_thread(use_and_free_twice, malloc(size));
}

static void *take_and_free(void *count)
{
    void *all[5000];
    size_t n = *(size_t *)count;
    for (size_t i = 0; i < n; i++)
        all[i] = malloc(64);
    victim = announce(all[n / 2]);
    for (size_t i = 0; i < n; i++)
        free(all[i]);
    return NULL;
}

/* Freed by a thread that has ended and whose slabs are empty: its own if there were many blocks, a shared one if there
 * were few.
 */
static void after_thread(const char *how, size_t count)
{
    (void)how;
    in_thread(take_and_free, &count);
    malloc_trim(0); /* what a light thread freed lies in the arrays of its CPU */
    free(victim);
}

/* A block that one thread allocated and others free, twice in all: `row` another thread twice in a row, `apart` with
 * other blocks between, `both` another thread and its owner, `others` two other threads, `ended` as `row` of an owner
 * that has ended. Blocks before and after it are freed, too, since the fault shows when they return to their slab: at
 * the latest when the program trims its memory. */
enum { BLOCKS = 3000, VICTIM = 1500 };
static char *remote[BLOCKS];
static size_t remote_size;
static const char *remote_how;

static void free_from(int from, int to)
{
    for (int i = from; i < to; i++)
        if (i != VICTIM)
            free(remote[i]);
}

static void *take_all(void *unused)
{
    for (int i = 0; i < BLOCKS; i++)
        remote[i] = malloc(remote_size);
    return unused;
}

static void *give_all(void *is_twice)
{
    free(malloc(remote_size));
    free_from(0, VICTIM);
    free(remote[VICTIM]);
    if (is_twice && !strcmp(remote_how, "apart"))
        free_from(VICTIM, VICTIM + 20);
    if (is_twice)
        free(remote[VICTIM]);
    free_from(VICTIM + 20, BLOCKS);
    malloc_trim(0);
    return NULL;
}

static void *give_victim(void *unused)
{
    free(remote[VICTIM]);
    malloc_trim(0);
    return unused;
}

static void twice_remote(const char *how, size_t size)
{
    remote_how = how;
    remote_size = size;
    if (!strcmp(how, "ended"))
        in_thread(take_all, NULL);
    else
        take_all(NULL);
    announce(remote[VICTIM]);
    in_thread(give_all, strcmp(how, "both") && strcmp(how, "others") ? &remote : NULL);
    if (!strcmp(how, "both"))
        free(remote[VICTIM]);
    if (!strcmp(how, "others"))
        in_thread(give_victim, NULL);
    for (int i = 0; i < 3; i++) {
        malloc_trim(0);
        take_all(NULL);
        for (int k = 0; k < BLOCKS; k++)
            free(remote[k]);
    }
    malloc_trim(0);
}

/* --- not a block -------------------------------------------------------------------------------------------- */

static void *place(const char *how)
{
    char *stack = (char *)((uintptr_t)__builtin_frame_address(0) & ~(uintptr_t)15);
    return !strcmp(how, "static")       ? object
           : !strcmp(how, "misaligned") ? stack + 3
           : !strcmp(how, "wild")       ? (void *)0xdeadbeefdeadbee0
                                        : stack;
}

static void free_no_block(const char *how, size_t size)
{
    (void)size;
    free(announce(place(how)));
}

static void realloc_no_block(const char *how, size_t size)
{
    announce(realloc(announce(place(how)), size));
}

static void realloc_freed(const char *how, size_t size)
{
    (void)how;
    void *p = malloc(size);
    free(p);
    announce(realloc(announce(p), size + 1000000));
}

static void size_of_no_block(const char *how, size_t size)
{
    (void)size;
    announce((void *)malloc_usable_size(announce(place(how))));
}

static void *announce_and_free(void *p)
{
    return free_it(announce(p));
}

static void *use_and_free(void *p)
{
    for (size_t size = 8; size < 60000; size += size / 2)
        free(malloc(size));
    return announce_and_free(p);
}

/* An address below every mapping, such as a member of a null pointer. */
static void free_low(const char *how, size_t address)
{
    in_thread(!strcmp(how, "used") ? use_and_free : announce_and_free, (void *)address);
}

static void resize_low(const char *how, size_t size)
{
    free(malloc(100));
    void *p = announce((void *)24);
    announce(!strcmp(how, "usable") ? (void *)malloc_usable_size(p) : realloc(p, size));
}

/* --- into a block ------------------------------------------------------------------------------------------- */

static void interior(const char *how, size_t size)
{
    char *p = block(size);
    free(announce(!strcmp(how, "end") ? p + size - 4096 + 16 : p + 4096));
}

static void interior_remote(const char *how, size_t size)
{
    in_thread(announce_and_free, block(size) + atoi(how));
}

/* Writes one byte behind a block, which another thread then frees. */
static void overflow_remote(const char *how, size_t size)
{
    char *p[64];
    (void)how;
    for (int i = 0; i < 64; i++)
        p[i] = malloc(size);
    for (int i = 0; i < 64; i++) /* whichever of them has a neighbour behind it */
        p[i][malloc_usable_size(p[i])] = 0x55;
    for (int i = 0; i < 64; i++)
        in_thread(free_it, p[i]);
}

/* Blocks lie alternately at the end and at the beginning of their pages. */
static void guarded(const char *how, size_t size)
{
    char *p = malloc(size), *q = malloc(size), *at_end = (uintptr_t)p % 4096 ? p : q, *at_start = at_end == p ? q : p;
    if (!strcmp(how, "overflow"))
        ((volatile char *)announce(at_end))[size] = 1;
    if (!strcmp(how, "underflow"))
        ((volatile char *)announce(at_start))[-1] = 1;
    if (!strcmp(how, "beside"))
        p[size] = q[size] = 1; /* one of them has a gap behind it */
    free(announce(!strcmp(how, "interior") ? p + 16 : p));
    if (!strcmp(how, "use_after_free"))
        ((volatile char *)p)[5] = 1;
    free(!strcmp(how, "double_free") ? p : q);
}

/* --- the table ---------------------------------------------------------------------------------------------- */

#define ANY "*0x*"
#define NAMED "*{ptr}*"
#define FREE "invalid free: {ptr}*"
#define TWICE "double free*0x*|invalid free*0x*"

/* `late`: the arrays of a CPU take blocks of any slab, and detect a wrong free only when they are drained; this is
 * tested with caches of threads. */
static const struct misuse {
    const char *name, *words;
    void (*commit)(const char *how, size_t size);
    const char *hows[MOST_HOWS];
    size_t sizes[MOST_SIZES];
    int signal;
    bool late, is_guarded, not_here;
} table[] = {
    {"twice", NAMED, twice, {""}, .sizes = {100000, 5000000, 200000000}},
    {"twice", NAMED, twice, {"with another between"}, .sizes = {64}, .not_here = !HARDENED},
    {"twice_by_another", NAMED, twice_by_another, {""}, .sizes = {64}, .not_here = !HARDENED},
    {"all_twice", ANY, all_twice, {"50000"}, .sizes = {64}},
    {"all_twice", ANY, all_twice, {"2000"}, .sizes = {20480}},
    {"twice_after_thread", FREE, after_thread, {""}, .sizes = {1, 3, 5000}, .late = true, .not_here = HEADERS},
    {"twice_remote",
     TWICE,
     twice_remote,
     {"row", "apart", "both", "others", "ended"},
     .sizes = {16, 64, 700, 2000, 5000, 20000, 50000},
     .late = true},
    {"free", FREE, free_no_block, {"stack", "static", "misaligned", "wild"}, .sizes = {0}},
    {"free_low", FREE, free_low, {"first", "used"}, .sizes = {1, 16, 0x1000, 0x10000, 0x20010, 0x100000, 0x3f0000}},
    {"realloc", "invalid realloc: {ptr}*", realloc_no_block, {"static"}, .sizes = {10000}},
    {"realloc_freed", "invalid realloc: {ptr}*", realloc_freed, {""}, .sizes = {5000000}},
    {"realloc_low", "invalid realloc: {ptr}*", resize_low, {"realloc"}, .sizes = {100}},
    {"realloc_low", "invalid realloc: {ptr}*", resize_low, {"to nothing"}, .sizes = {0}},
    {"usable_low", "invalid malloc_usable_size: {ptr}*", resize_low, {"usable"}, .sizes = {0}},
    {"usable", "invalid malloc_usable_size: {ptr}*", size_of_no_block, {"stack"}, .sizes = {0}},
    {"interior", FREE, interior, {"start"}, .sizes = {5000000}},
    {"interior", FREE, interior, {"end"}, .sizes = {1 << 20}},
    {"interior_remote", FREE, interior_remote, {"48"}, .sizes = {160}, .late = true},
    {"interior_remote", FREE, interior_remote, {"4096"}, .sizes = {20480}, .late = true},
    {"overflow_remote", ANY, overflow_remote, {""}, .sizes = {40}, .not_here = !HEADERS},
    {"guarded",
     "invalid *1 bytes behind guarded block {ptr} of 96 bytes*",
     guarded,
     {"overflow"},
     .sizes = {96},
     .signal = SIGSEGV,
     .is_guarded = true},
    {"guarded",
     "invalid *1 bytes before guarded block {ptr} of 96 bytes*",
     guarded,
     {"underflow"},
     .sizes = {96},
     .signal = SIGSEGV,
     .is_guarded = true},
    {"guarded",
     "invalid *guarded pages of block {ptr} *, freed by the call before 0x*",
     guarded,
     {"use_after_free"},
     .sizes = {96},
     .signal = SIGSEGV,
     .is_guarded = true},
    {"guarded",
     "invalid *{ptr}: it was freed before; guarded block *, freed by the call before 0x*",
     guarded,
     {"double_free"},
     .sizes = {96},
     .is_guarded = true},
    {"guarded",
     "invalid *{ptr}: it is not the start of a block; guarded block *",
     guarded,
     {"interior"},
     .sizes = {96},
     .is_guarded = true},
    {"guarded",
     "invalid *bytes beside the block were written; guarded block * of 100 bytes*",
     guarded,
     {"beside"},
     .sizes = {100},
     .is_guarded = true},
};

/* --- each in a process of its own --------------------------------------------------------------------------- */

/* The child's output on one of its streams. */
static void read_all(int fd, char *text, size_t size)
{
    size_t n = 0;
    for (ssize_t got; n < size - 1 && ((got = read(fd, text + n, size - 1 - n)) > 0 || (got < 0 && errno == EINTR));)
        n += got > 0 ? (size_t)got : 0;
    text[n] = 0;
    close(fd);
}

/* With {ptr} put in, and one of the ways to say it. */
static bool says(const char *line, const char *words, const char *pointer)
{
    char pattern[300];
    size_t n = (size_t)snprintf(pattern, sizeof pattern, "hakmem: ");
    for (; *words && *words != '|'; words++)
        if (!strncmp(words, "{ptr}", 5)) {
            n += (size_t)snprintf(pattern + n, sizeof pattern - n, "%s[!0-9a-f]", pointer);
            words += 4;
            words += words[1] == ':' || words[1] == ' '; /* which is what follows the pointer */
        } else {
            pattern[n++] = *words;
        }
    pattern[n] = 0;
    return !fnmatch(pattern, line, 0) || (*words && says(line, words + 1, pointer));
}

static bool is_right(const struct misuse *m, int status, const char *out, char *err)
{
    char pointer[40] = "none";
    for (const char *at = out; (at = strstr(at, "0x")) != NULL; at++)
        sscanf(at, "%39s", pointer);
    char *end = strchr(err, '\n');
    if (!WIFSIGNALED(status) || WTERMSIG(status) != (m->signal ? m->signal : SIGABRT) || !end || end[1])
        return false;
    *end = ' '; /* so that something follows the pointer */
    bool right = says(err, m->words, pointer);
    *end = '\n';
    return right;
}

static void settings_for(const struct misuse *m)
{
    unsetenv("HAKMEM_GUARD_RATE");
    unsetenv("GLIBC_TUNABLES");
    if (m->is_guarded)
        setenv("HAKMEM_GUARD_RATE", "1", 1);
    setenv("HAKMEM_PURGE_DELAY_MS", "3600000", 1);
    if (m->late)
        setenv("GLIBC_TUNABLES", "glibc.pthread.rseq=0", 1);
}

static bool try_one(char *program, size_t row, size_t how, size_t size)
{
    char numbers[3][24], out[200], err[2000];
    int outs[2], errs[2], status = -1;
    snprintf(numbers[0], sizeof numbers[0], "%zu", row);
    snprintf(numbers[1], sizeof numbers[1], "%zu", how);
    snprintf(numbers[2], sizeof numbers[2], "%zu", size);
    char *words[] = {program, (char *)"=", numbers[0], numbers[1], numbers[2], NULL};
    if (pipe(outs) || pipe(errs))
        return false;
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, outs[1], STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, errs[1], STDERR_FILENO);
    for (int i = 0; i < 2; i++) {
        posix_spawn_file_actions_addclose(&actions, outs[i]);
        posix_spawn_file_actions_addclose(&actions, errs[i]);
    }
    pid_t pid;
    settings_for(&table[row]);
    int refused = posix_spawn(&pid, "/proc/self/exe", &actions, NULL, words, environ);
    posix_spawn_file_actions_destroy(&actions);
    close(outs[1]);
    close(errs[1]);
    read_all(outs[0], out, sizeof out);
    read_all(errs[0], err, sizeof err);
    bool right = !refused && waitpid(pid, &status, 0) == pid && is_right(&table[row], status, out, err);
    if (!right)
        printf("%s %s %zu: status 0x%x, not signal %d and \"%s\"; announced: %.*s; said: %s\n", table[row].name,
               table[row].hows[how], table[row].sizes[size], (unsigned)status,
               table[row].signal ? table[row].signal : SIGABRT, table[row].words, (int)strcspn(out, "\n"), out, err);
    return right;
}

static bool is_chosen(const char *name, int count, char **names)
{
    bool chosen = count == 0;
    for (int i = 0; i < count; i++)
        chosen |= !strncmp(name, names[i], strlen(names[i]));
    return chosen;
}

int main(int argc, char **argv)
{
    struct rlimit no_core = {0, 0};
    setrlimit(RLIMIT_CORE, &no_core);
    if (argc == 5 && *argv[1] == '=') {
        const struct misuse *m = &table[atoi(argv[2])];
        alarm(SECONDS);
        m->commit(m->hows[atoi(argv[3])], m->sizes[atoi(argv[4])]);
        return 0;
    }
    unsigned tried = 0, wrong = 0;
    for (size_t row = 0; row < sizeof table / sizeof *table; row++)
        for (size_t how = 0; how < MOST_HOWS && table[row].hows[how]; how++)
            for (size_t size = 0; size < MOST_SIZES && (size == 0 || table[row].sizes[size]); size++)
                if (!table[row].not_here && is_chosen(table[row].name, argc - 1, argv + 1)) {
                    tried++;
                    wrong += !try_one(argv[0], row, how, size);
                }
    printf("%u misuses, %u wrong\n", tried, wrong);
    return wrong != 0 || tried == 0;
}
