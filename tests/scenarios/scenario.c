/* SPDX-License-Identifier: MIT
 * scenario [-u as|data=BYTES] [-f VALUE,VALUE...] SCRIPT: what stays resident, what a limit leaves, what giving back
 * costs. meson.build holds the scripts. A script is steps with semicolons between them; -u puts the limit on before the
 * program starts, -f runs the script in a process for each value, which takes the place of %.
 *
 * A step is done by this thread, or at once by each of the actors @N, @N-M (threads, started when they are first
 * named; with ? as many of them as there can be). KIND: small, pool, large, mixed (a third of the bytes each), any,
 * BYTES, or BYTES..BYTES. SET: a letter, or "own" for a set of each actor.
 *   take SET KIND BYTES            takes and touches blocks of so many bytes in all
 *   fill SET KIND                  the same, until requests are refused
 *   try SET KIND COUNT             so many blocks, each of which may be refused
 *   free SET [1/N]                 checks and frees all of them, or one of N
 *   work SLOTS MIN MAX COUNT|MSms  random blocks over so many slots
 *   batches MS | classes N         many blocks of one size, then none; N of each class
 *   swap COUNT BOARD MAX PUT       frees blocks that others put on a board, and puts a new one there PUT of 100 times
 *   sparse MIN MAX N               touches every 16th page of large blocks: little more may be resident
 *   pairs one|any                  1000 mallocs and frees, of 64 bytes or of all small sizes
 *   refuse N                       N times requests of many sizes, each of which may be refused
 *   map BYTES | lock               the program's own mmap and munmap; mlockall
 *   end | leave                    the actor's thread ends, and is joined or not
 * Steps of this thread alone:
 *   note NAME                      keeps how much is resident, charged (data), mapped (as), and live in blocks
 *   expect WHAT <=|>= NAME [P%] [B]  fails unless WHAT is at most (at least) P % of the note's and B bytes; NAME 0: 0
 *   await ...                      the same within ten seconds
 *   limit as|data NAME [B]         a limit of the note's and B bytes; none without B
 *   stack B                        the size of the stacks of further actors
 *   trim KEEP [yes|no] | mtrim     hakmem_trim, which gives something back or nothing; malloc_trim
 *   wait MS                        sleeps
 *   cost | cost P                  begins to measure; the script ends here if giving back took at most P % of the time
 *                                  since then, and fails the third time it took more
 *   early                          fails if memory has gone back for its age
 *   fork                           continues in a child, where no actor runs yet; its parent waits for it
 *   loop N ... again */
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>

#include "../limits/check.h"
#include "../watchdog.h"
#include "hakmem.h"

int malloc_trim(size_t pad); /* not in every malloc.h */

enum { SECONDS = 200, ACTORS = 2000, LETTERS = 26, BOARD = 40000, SLOTS = 8192, ROOM = 1 << 20, REFUSALS = 20 };
enum { WORDS = 8, WORD = 24 };

/* --- blocks: each has its size in front, and its own content behind ---------------------------------------- */

struct block {
    struct block *next;
    size_t size;
};

static struct set {
    struct block *all;
    _Atomic(size_t) bytes;
} sets[LETTERS + ACTORS + 1];

static size_t bytes_of(const char *word)
{
    char *unit;
    size_t n = strtoull(word, &unit, 10);
    return *unit == 'K' ? n * KIB : *unit == 'M' ? n * MIB : *unit == 'G' ? n * 1024 * MIB : n;
}

static size_t size_of(const char *kind, uint64_t *random)
{
    if (!strcmp(kind, "any"))
        return mixed_size(random);
    uint64_t r = next_random(random);
    int what = (unsigned char)kind[0];
    if (what == 'm')
        what = r % 4096 == 0 ? 'l' : r % 4096 < 64 ? 'p' : 's';
    r >>= 12;
    if (what == 's')
        return 16 + r % 2032;
    if (what == 'p' || what == 'l')
        return what == 'p' ? 8 * KIB + r % (44 * KIB) : 64 * KIB + r % (4032 * KIB);
    const char *to = strstr(kind, "..");
    size_t min = bytes_of(kind);
    return to ? min + r % (bytes_of(to + 2) - min + 1) : min;
}

static bool add(struct set *set, size_t size)
{
    size = size < sizeof(struct block) + 1 ? sizeof(struct block) + 1 : size;
    errno = 0;
    struct block *b = malloc(size);
    if (!b) {
        if (errno != ENOMEM)
            die("malloc(%zu) refused with errno %d", size, errno);
        return false;
    }
    *b = (struct block){set->all, size};
    mark(b + 1, size - sizeof *b, (unsigned char)(size % 251 + 1));
    set->all = b;
    set->bytes += size;
    return true;
}

static void drop(struct set *set, struct block **link)
{
    struct block *b = *link;
    if (!marked(b + 1, b->size - sizeof *b, (unsigned char)(b->size % 251 + 1)))
        die("block %p of %zu bytes changed", (void *)b, b->size);
    set->bytes -= b->size;
    *link = b->next;
    free(b);
}

static void free_one_of(struct set *set, unsigned n)
{
    struct block **link = &set->all;
    for (unsigned i = 1; *link; i++)
        if (i % n == 0)
            drop(set, link);
        else
            link = &(*link)->next;
}

/* Allocates until the bytes or blocks are reached, or a number of requests in a row were refused. */
static void get(struct set *set, const char *kind, size_t bytes, size_t count, unsigned refusals)
{
    uint64_t random = 42 + (uint64_t)(set - sets);
    size_t end = bytes < SIZE_MAX - set->bytes ? set->bytes + bytes : SIZE_MAX;
    for (unsigned refused = 0; set->bytes < end && count && refused < refusals; count--)
        refused = add(set, size_of(kind, &random)) ? 0 : refused + 1;
    if (bytes != SIZE_MAX && set->bytes < end)
        die("%zu MiB more were refused", (end - set->bytes) / MIB);
}

/* --- workloads ---------------------------------------------------------------------------------------------- */

static uint64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

static void pause_ms(long ms)
{
    nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000}, NULL);
}

static void *get_one(size_t size)
{
    void *p = malloc(size);
    if (!p)
        die("malloc(%zu) returned NULL", size);
    mark(p, size, 1);
    return p;
}

/* In a wide range, small sizes are more frequent. The first thread's blocks stay. */
static void work(unsigned actor, unsigned slots, size_t min, size_t max, const char *amount)
{
    static void *kept[SLOTS];
    void *own[SLOTS], **slot = actor ? own : kept;
    uint64_t random = 42 + actor, count = strtoull(amount, NULL, 10);
    uint64_t end = strstr(amount, "ms") ? now_ms() + count : 0;
    memset(own, 0, slots * sizeof *own);
    for (uint64_t i = 0; end ? i % 100 || now_ms() < end : i < count; i++) {
        uint64_t r = next_random(&random);
        void **s = &slot[r % slots];
        free(*s);
        *s = get_one(min + (r >> 20) % ((max - min + 1) / (max / min > 1000 && r >> 13 & 15 ? 256 : 1)));
    }
    for (unsigned i = 0; i < slots && actor; i++)
        free(own[i]);
}

static void batches(unsigned actor, uint64_t ms)
{
    struct set *set = &sets[LETTERS + actor];
    uint64_t random = actor;
    for (uint64_t end = now_ms() + ms; now_ms() < end; free_one_of(set, 1))
        for (size_t size = 16 + next_random(&random) % 3000, n = 1 + next_random(&random) % 3000; n; n--)
            add(set, size);
}

/* Steps of 16 bytes, then 8 for each doubling. */
static void classes(unsigned actor, unsigned each)
{
    struct set *set = &sets[LETTERS + actor];
    for (size_t size = 16, step = 16; size <= 64 * KIB; size += step) {
        while (size >= 16 * step)
            step *= 2;
        for (unsigned i = 0; i < each; i++)
            add(set, size);
    }
    free_one_of(set, 1);
}

static void swap(unsigned actor, unsigned count, unsigned board, size_t max, unsigned put)
{
    static _Atomic(void *) places[BOARD];
    static _Atomic(unsigned) turns;
    uint64_t random = actor + 100 * turns++;
    while (count--) {
        uint64_t r = next_random(&random);
        void *p = r % 100 < put ? malloc(1 + (r >> 8) % max) : NULL;
        free(atomic_exchange(&places[(r >> 32) % board], p));
    }
}

static size_t statm(unsigned column)
{
    char text[128] = "", *at = text;
    int fd = open("/proc/self/statm", O_RDONLY);
    if (fd < 0 || read(fd, text, sizeof text - 1) <= 0)
        die("/proc/self/statm cannot be read");
    close(fd);
    for (unsigned i = 0; i < column; i++)
        strtoul(at, &at, 10);
    return strtoul(at, NULL, 10) * (size_t)sysconf(_SC_PAGESIZE);
}

/* This is meaningful only if huge pages depend on the library's advice. */
static void sparse(size_t min, size_t max, unsigned n)
{
    char text[64] = "";
    uint64_t random = 42;
    int fd = open("/sys/kernel/mm/transparent_hugepage/enabled", O_RDONLY);
    if (fd < 0 || read(fd, text, sizeof text - 1) <= 0 || !strstr(text, "[madvise]"))
        skip("transparent huge pages are not set to madvise");
    close(fd);
    free(malloc(100));
    size_t before = statm(1), touched = 0;
    while (n--) {
        size_t size = min + next_random(&random) % (max - min + 1);
        char *p = malloc(size);
        if (!p)
            die("malloc(%zu) returned NULL", size);
        for (size_t i = 0; i < size; i += 64 * KIB, touched += (size_t)sysconf(_SC_PAGESIZE))
            p[i] = 1;
    }
    if (statm(1) - before > touched / 4 * 5)
        die("%zu KiB touched, %zu KiB held", touched / KIB, (statm(1) - before) / KIB);
}

static void refuse(unsigned n)
{
    static const size_t sizes[] = {1, 100, 1000, 5000, 30000, 50000, 200000, 3000000};
    while (n--)
        for (size_t k = 0; k < COUNT(sizes); k++)
            free(malloc(sizes[k]));
}

static void trim(size_t keep, const char *gives)
{
    bool gave = hakmem_trim(keep);
    if (*gives && gave != (*gives == 'y'))
        die("a trim gave %s back", gave ? "something" : "nothing");
}

static void map_own(size_t bytes)
{
    void *own = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (own == MAP_FAILED)
        die("%zu MiB for the program itself: %s", bytes / MIB, strerror(errno));
    munmap(own, bytes);
}

static void lock_all(void)
{
    if (mlockall(MCL_CURRENT | MCL_FUTURE) == 0)
        return;
    if (geteuid() == 0)
        die("mlockall: %s", strerror(errno));
    skip("mlockall: %s", strerror(errno));
}

/* --- measuring ------------------------------------------------------------------------------------------------ */

static struct note {
    size_t resident, data, as, live;
} notes[LETTERS + 1];

static struct note look(void)
{
    struct note n = {statm(1), statm(5), statm(0), 0};
    for (size_t i = 0; i < COUNT(sets); i++)
        n.live += sets[i].bytes;
    return n;
}

static size_t value_of(const struct note *n, const char *what)
{
    const struct {
        const char *name;
        size_t value;
    } known[] = {{"resident", n->resident}, {"data", n->data}, {"as", n->as}, {"live", n->live}};
    for (size_t i = 0; i < COUNT(known); i++)
        if (!strcmp(what, known[i].name))
            return known[i].value;
    die("nothing is known of %s", what);
}

static const struct note *note_named(const char *name)
{
    static const struct note nothing;
    return *name == '0' ? &nothing : &notes[(*name - 'a') % LETTERS];
}

/* NAME [P%] [B] */
static size_t amount_of(const char *what, char words[][WORD])
{
    size_t value = value_of(note_named(words[0]), what), i = 1;
    if (strchr(words[i], '%'))
        value = value / 100 * bytes_of(words[i++]);
    return value + bytes_of(words[i]);
}

static void expect(char words[][WORD], unsigned tries)
{
    bool most = words[2][0] == '<';
    size_t want = amount_of(words[1], words + 3), now;
    do {
        struct note n = look();
        now = value_of(&n, words[1]);
        if (most ? now <= want : now >= want)
            return;
        pause_ms(100);
    } while (--tries);
    die("%s: %zu KiB, expected %s %zu", words[1], now / KIB, words[2], want / KIB);
}

static uint64_t number(const char *at, const char *key)
{
    const char *found = strstr(at, key);
    return found ? strtoull(found + strlen(key), NULL, 10) : 0;
}

struct cost {
    uint64_t calls, regret_bytes, ms, cpu_ms;
};

static struct cost cost_of(const char *const *causes)
{
    static char text[ROOM];
    int fd = memfd_create("stats", 0);
    if (fd < 0 || hakmem_stats(fd, 1))
        die("no statistics");
    ssize_t n = pread(fd, text, sizeof text - 1, 0);
    close(fd);
    text[n > 0 ? n : 0] = 0;
    if (!strstr(text, "\"os_calls\""))
        die("the statistics have no os_calls");
    struct cost cost = {.ms = now_ms(), .cpu_ms = (uint64_t)clock() / (CLOCKS_PER_SEC / 1000)};
    for (; *causes; causes++) {
        char pattern[64];
        snprintf(pattern, sizeof pattern, "\"cause\": \"%s\"", *causes);
        for (const char *at = text; (at = strstr(at, pattern)) != NULL; at++) {
            cost.calls += number(at, "\"calls\": ");
            cost.regret_bytes += number(at, "\"regret_bytes\": ");
        }
    }
    return cost;
}

/* A call costs 2 us and a page of what was needed again within a second 1 us, for giving back and faulting in.
 * Pages age while their thread waits for a CPU, so what was measured counts only if it had one. */
static void judge_cost(const char *percent)
{
    static const char *const causes[] = {
        "partial_release", "batch_release", "direct_release", "lru_evict", "purge", "trim", NULL};
    static struct cost before;
    static unsigned tries, busy;
    struct cost now = cost_of(causes);
    double us = (double)(now.calls - before.calls) * 2 + (double)(now.regret_bytes - before.regret_bytes) / 4096;
    double share = us / 10 / (double)(now.ms - before.ms);
    bool waited = (now.cpu_ms - before.cpu_ms) * 10 < (now.ms - before.ms) * 9;
    before = now;
    if (!*percent)
        return;
    say("giving back takes %.2f %% of the time", share);
    if (share <= atof(percent))
        exit(0);
    if (waited && ++busy == 10) {
        say("the machine is too busy");
        exit(SKIPPED);
    }
    if (!waited && ++tries == 3)
        die("more than %s %%", percent);
}

/* The plain backend purges wholly free superslabs at once, whatever their age. */
static void expect_nothing_back(void)
{
    static const char *const by_age[] = {"partial_release", "purge",         "lru_evict",
                                         "direct_release",  "batch_release", NULL};
    static const char *const plain[] = {"partial_release", "purge", "lru_evict", NULL};
    struct cost cost = cost_of(strcmp(hakmem_backend(), "legacy") ? by_age : plain);
    if (cost.calls)
        die("%llu calls give pages back, early", (unsigned long long)cost.calls);
}

static void limit(const char *what, char words[][WORD])
{
    int resource = what[0] == 'a' ? RLIMIT_AS : RLIMIT_DATA;
    struct rlimit l;
    getrlimit(resource, &l);
    l.rlim_cur = words[1][0] ? amount_of(what, words) : l.rlim_max;
    if (setrlimit(resource, &l))
        die("setrlimit: %s", strerror(errno));
}

/* --- steps ------------------------------------------------------------------------------------------------------- */

static pthread_attr_t attributes;

static bool is(char words[][WORD], const char *name)
{
    return !strcmp(words[0], name);
}

static void do_step(unsigned actor, char words[][WORD])
{
    char *set_name = words[1];
    struct set *set =
        !strcmp(set_name, "own") ? &sets[LETTERS + actor] : &sets[(unsigned char)(*set_name - 'a') % LETTERS];
    if (is(words, "take"))
        get(set, words[2], bytes_of(words[3]), SIZE_MAX, 1);
    else if (is(words, "fill"))
        get(set, words[2], SIZE_MAX, SIZE_MAX, words[2][0] == 'a' ? REFUSALS : 1);
    else if (is(words, "try"))
        get(set, words[2], SIZE_MAX, bytes_of(words[3]), UINT32_MAX);
    else if (is(words, "free"))
        free_one_of(set, words[2][0] ? (unsigned)atoi(words[2] + 2) : 1);
    else if (is(words, "work"))
        work(actor, (unsigned)atoi(words[1]), bytes_of(words[2]), bytes_of(words[3]), words[4]);
    else if (is(words, "batches"))
        batches(actor, bytes_of(words[1]));
    else if (is(words, "classes"))
        classes(actor, (unsigned)atoi(words[1]));
    else if (is(words, "swap"))
        swap(actor, (unsigned)atoi(words[1]), (unsigned)atoi(words[2]), bytes_of(words[3]), (unsigned)atoi(words[4]));
    else if (is(words, "sparse"))
        sparse(bytes_of(words[1]), bytes_of(words[2]), (unsigned)atoi(words[3]));
    else if (is(words, "refuse"))
        refuse((unsigned)atoi(words[1]));
    else if (is(words, "map"))
        map_own(bytes_of(words[1]));
    else if (is(words, "lock"))
        lock_all();
    else if (is(words, "pairs"))
        for (unsigned i = 0; i < 1000; i++)
            free(get_one(words[1][0] == 'o' ? 64 : 16 + i % 1000));
    else if (is(words, "note"))
        notes[(words[1][0] - 'a') % LETTERS] = look();
    else if (is(words, "expect") || is(words, "await"))
        expect(words, is(words, "await") ? 100 : 1);
    else if (is(words, "limit"))
        limit(words[1], words + 2);
    else if (is(words, "stack"))
        pthread_attr_setstacksize(&attributes, bytes_of(words[1]));
    else if (is(words, "trim"))
        trim(bytes_of(words[1]), words[2]);
    else if (is(words, "mtrim"))
        malloc_trim(0);
    else if (is(words, "wait"))
        pause_ms(atol(words[1]));
    else if (is(words, "cost"))
        judge_cost(words[1]);
    else if (is(words, "early"))
        expect_nothing_back();
    else
        die("no step %s", words[0]);
}

/* --- actors ------------------------------------------------------------------------------------------------------- */

static struct actor {
    pthread_t thread;
    bool runs, called;
} actors[ACTORS + 1];
static unsigned busy;
static char (*called_for)[WORD]; /* the step of all actors that are called */
static pthread_mutex_t stage = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t call = PTHREAD_COND_INITIALIZER, done = PTHREAD_COND_INITIALIZER;

static bool ends(char words[][WORD])
{
    return is(words, "end") || is(words, "leave");
}

static void *act(void *context)
{
    struct actor *self = context;
    bool ended = false;
    pthread_mutex_lock(&stage);
    while (!ended) {
        while (!self->called)
            pthread_cond_wait(&call, &stage);
        ended = ends(called_for);
        pthread_mutex_unlock(&stage);
        if (!ended)
            do_step((unsigned)(self - actors), called_for);
        pthread_mutex_lock(&stage);
        self->called = false;
        if (--busy == 0)
            pthread_cond_signal(&done);
    }
    pthread_mutex_unlock(&stage);
    return NULL;
}

static void call_actors(unsigned from, unsigned to, bool as_many, char words[][WORD])
{
    for (struct actor *a = &actors[from]; a <= &actors[to] && !ends(words); a++)
        if (!a->runs && !(a->runs = pthread_create(&a->thread, &attributes, act, a) == 0)) {
            if (!as_many || a == &actors[from])
                die("no thread: %s", strerror(errno));
            break;
        }
    pthread_mutex_lock(&stage);
    called_for = words;
    for (unsigned i = from; i <= to; i++)
        if (actors[i].runs) {
            actors[i].called = true;
            busy++;
            if (is(words, "leave"))
                pthread_detach(actors[i].thread);
        }
    pthread_cond_broadcast(&call);
    while (busy)
        pthread_cond_wait(&done, &stage);
    pthread_mutex_unlock(&stage);
    for (unsigned i = from; i <= to && ends(words); i++) {
        if (actors[i].runs && is(words, "end"))
            pthread_join(actors[i].thread, NULL);
        actors[i].runs = false;
    }
}

/* The actors that run sleep, or are about to. */
static void continue_in_child(void)
{
    pid_t child = fork();
    if (child < 0)
        die("fork: %s", strerror(errno));
    if (child > 0) {
        expect_success(child, "the child");
        exit(0);
    }
    watchdog_start(SECONDS);
    memset(actors, 0, sizeof actors);
    pthread_mutex_init(&stage, NULL);
    pthread_cond_init(&call, NULL);
    pthread_cond_init(&done, NULL);
}

/* --- scripts -------------------------------------------------------------------------------------------------------
 */

/* One step, with `value` for %; returns what follows it. */
static const char *read_step(const char *at, const char *value, char words[WORDS][WORD])
{
    unsigned n = 0, length = 0;
    memset(words, 0, WORDS * sizeof *words);
    for (; *at && *at != ';'; at++) {
        if (*at == ' ') {
            n += length > 0;
            length = 0;
            continue;
        }
        const char *from = *at == '%' && !length ? value : at;
        for (const char *end = from == at ? at + 1 : value + strlen(value); from < end; from++) {
            if (n == WORDS || length == WORD - 1)
                die("a step too long: %s", at);
            words[n][length++] = *from;
        }
    }
    return at + (*at == ';');
}

static void play(const char *script, const char *value)
{
    char words[WORDS][WORD];
    const char *at = script, *loop = NULL;
    unsigned rounds = 0;
    watchdog_start(SECONDS);
    pthread_attr_init(&attributes);
    while (*at) {
        at = read_step(at, value, words);
        if (words[0][0] == '@') {
            char *to = strchr(words[0], '-');
            unsigned first = (unsigned)atoi(words[0] + 1), last = to ? (unsigned)atoi(to + 1) : first;
            if (first < 1 || last < first || last > ACTORS)
                die("no actors %s", words[0]);
            call_actors(first, last, strchr(words[0], '?'), words + 1);
        } else if (is(words, "loop")) {
            rounds = (unsigned)atoi(words[1]);
            loop = at;
        } else if (is(words, "fork")) {
            continue_in_child();
        } else if (is(words, "again")) {
            at = --rounds ? loop : at;
        } else if (words[0][0]) {
            do_step(0, words);
        }
    }
}

/* Runs under a limit from its start. */
static void play_under(char *limited, char *script, char *value)
{
    char *equals = strchr(limited, '='), *args[] = {(char[]){"scenario"}, (char[]){"-v"}, value, script, NULL};
    struct rlimit l = {equals ? bytes_of(equals + 1) : 0, equals ? bytes_of(equals + 1) : 0};
    if (!equals || setrlimit(limited[0] == 'a' ? RLIMIT_AS : RLIMIT_DATA, &l))
        die("%s is no limit", limited);
    execv("/proc/self/exe", args);
    die("exec: %s", strerror(errno));
}

int main(int argc, char **argv)
{
    char *limited = NULL, *values = NULL, none[] = "", *rest = NULL;
    for (int c; (c = getopt(argc, argv, "u:f:v:")) != -1;)
        if (c == 'u')
            limited = optarg;
        else if (c == 'f')
            values = optarg;
        else if (c == 'v')
            play(argv[optind], optarg), exit(0);
    if (optind != argc - 1)
        die("usage: scenario [-u as|data=BYTES] [-f VALUE,VALUE...] SCRIPT");
    if (!values && !limited) {
        play(argv[optind], none);
        return 0;
    }
    for (char *value = strtok_r(values ? values : (char[]){" "}, ",", &rest); value;
         value = strtok_r(NULL, ",", &rest)) {
        pid_t child = fork();
        if (child < 0)
            die("fork: %s", strerror(errno));
        if (child == 0) {
            if (limited)
                play_under(limited, argv[optind], value);
            play(argv[optind], value);
            exit(0);
        }
        expect_success(child, value);
    }
    return 0;
}
