/* SPDX-License-Identifier: MIT
 *
 * settings each           each setting at both ends of its range, and at 0, 1 and 2
 * settings random N SEED  N random choices of values for about half of all settings; the kernel refuses calls in half
 * settings run SEED COMMAND...  runs the command with such a choice, but of settings that only print
 *
 * The library's own table names the settings. Each choice is a process: two threads allocate, resize and free blocks
 * of all kinds, exchange them, and check their content; a third one meanwhile trims and forks, and with random
 * choices changes settings. */
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>

#include "core/base/options.h"
#include "core/os/os.h"
#include "core/parts/parts.h"
#include "core/process/report.h"
#include "hakmem.h"

#include "../limits/check.h"

enum {
    THREADS = 2,
    SLOTS = 200,
    MAILBOXES = 200,
    OPERATIONS = 5000, /* of a thread */
    STRETCH = 150,     /* operations that mostly use one small size */
    CPU_MS = 60,       /* after which a thread ends, where each call is slow */
    CHILD_BLOCKS = 100,
    PATIENCE = 60,
    MAX_VALUES = 8,
};

struct block {
    unsigned char *ptr; /* NULL: none */
    size_t size;
    unsigned char key;
};

static struct block blocks[THREADS * SLOTS + MAILBOXES];
static _Atomic(struct block *) mail[MAILBOXES];
static _Atomic(unsigned) running;
static _Atomic(bool) refuses; /* the kernel refuses calls, so NULL is a correct answer */

/* --- blocks ----------------------------------------------------------------------------------------------- */

/* The bytes that carry the pattern: small blocks whole. */
static size_t next_byte(size_t at)
{
    return at < 256 ? at + 1 : at + 509;
}

static void fill(const struct block *b)
{
    for (size_t at = 0; at < b->size; at = next_byte(at))
        b->ptr[at] = (unsigned char)(b->key + at);
    b->ptr[b->size - 1] = b->key;
}

static void verify(const unsigned char *p, size_t size, const struct block *b, const char *when)
{
    for (size_t at = 0; at < size && at + 1 < b->size; at = next_byte(at))
        if (p[at] != (unsigned char)(b->key + at))
            die("%s: block %p of %zu bytes changed at %zu", when, (const void *)p, b->size, at);
    if (size >= b->size && p[b->size - 1] != b->key)
        die("%s: block %p of %zu bytes changed at its end", when, (const void *)p, b->size);
}

static size_t draw_size(uint64_t *random, unsigned operation)
{
    static const size_t few[] = {8, 16, 24, 40, 64, 100, 128, 200, 256, 400, 512, 700, 1000, 2000, 5000, 20000};
    return next_random(random) % 8 ? few[operation / STRETCH % COUNT(few)] : mixed_size(random);
}

static void adopt(struct block *b, void *p, size_t size, uint64_t random)
{
    if (!p && (errno != ENOMEM || !refuses))
        die("%zu bytes refused, errno %d", size, errno);
    *b = (struct block){p, size, (unsigned char)random};
    if (p)
        fill(b);
}

static void allocate(struct block *b, uint64_t *random, size_t size)
{
    uint64_t r = next_random(random);
    size_t align = (size_t)16 << (r >> 32) % 9;
    errno = 0;
    void *p = r % 8 == 0   ? hakmem_calloc(1, size)
              : r % 8 == 1 ? hakmem_aligned_alloc(align, size)
                           : hakmem_malloc(size);
    for (size_t at = 0; p && r % 8 == 0 && at < size; at = next_byte(at))
        if (((unsigned char *)p)[at] || ((unsigned char *)p)[size - 1])
            die("calloc of %zu bytes gave %p, not zero", size, p);
    if (r % 8 == 1 && (uintptr_t)p % align)
        die("%p is not aligned to %zu", p, align);
    adopt(b, p, size, r >> 8);
}

static void resize(struct block *b, uint64_t *random, size_t size)
{
    struct block was = *b;
    unsigned char *p = hakmem_realloc(b->ptr, size);
    verify(p ? p : b->ptr, p && size < b->size ? size : b->size, b, "after realloc");
    if (!p && size <= b->size)
        die("realloc from %zu down to %zu bytes refused", b->size, size);
    adopt(b, p, size, next_random(random));
    if (!p)
        *b = was;
}

static void release(struct block *b)
{
    verify(b->ptr, b->size, b, "at free");
    errno = EDOM;
    hakmem_free(b->ptr);
    if (errno != EDOM)
        die("free set errno to %d", errno);
    b->ptr = NULL;
}

/* --- values ----------------------------------------------------------------------------------------------- */

/* What a text can be: the parts, and a name that is no part, file or folder. */
static unsigned texts_of(const char *name, const char **values)
{
    unsigned n = 0;
    values[n++] = "";
    if (!strcmp(name, "HAKMEM_BACKEND"))
        for (unsigned i = 0; hak_backends[i]; i++)
            values[n++] = hak_backends[i]->name;
    else if (!strcmp(name, "HAKMEM_RELEASE"))
        for (unsigned i = 0; hak_releases[i]; i++)
            values[n++] = hak_releases[i]->name;
    else
        values[n++] = "/proc/nothing";
    return n;
}

/* The values of a setting to try; returns their number. */
static unsigned values_of(unsigned setting, char values[MAX_VALUES][32])
{
    const struct hak_option_info *info = &hak_option_table[setting];
    const char *texts[MAX_VALUES], *choice;
    size_t length;
    unsigned n = 0;
    if (info->type == HAK_TYPE_TEXT) {
        n = texts_of(hak_option_text(info, HAK_TEXT_NAME), texts);
        for (unsigned i = 0; i < n; i++)
            snprintf(values[i], sizeof values[i], "%s", texts[i]);
        return n;
    }
    if (info->type == HAK_TYPE_ENUM) {
        while ((choice = hak_option_choice(hak_option_text(info, HAK_TEXT_CHOICES), n, &length)))
            snprintf(values[n++], sizeof values[n], "%.*s", (int)length, choice);
        return n;
    }
    /* a text that names no file is refused where the library is strict */
    bool strict = !strcmp(hak_option_text(info, HAK_TEXT_NAME), "HAKMEM_STRICT");
    const uint32_t most = strict ? 0 : info->max, numbers[] = {0, 1, 2, info->min, most};
    for (unsigned i = 0; i < COUNT(numbers); i++) {
        bool again = numbers[i] < info->min || numbers[i] > most;
        for (unsigned k = 0; k < i; k++)
            again |= numbers[k] == numbers[i];
        if (!again)
            snprintf(values[n++], sizeof values[n], "%u", numbers[i]);
    }
    return n;
}

static void change_a_setting(uint64_t *random)
{
    char values[MAX_VALUES][32];
    unsigned setting = next_random(random) % HAK_OPTION_COUNT, n = values_of(setting, values);
    hakmem_set(hak_option_text(&hak_option_table[setting], HAK_TEXT_NAME), values[next_random(random) % n]);
}

/* --- one process ------------------------------------------------------------------------------------------ */

static uint64_t cpu_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static void *exchange(void *number)
{
    struct block *own[SLOTS];
    uint64_t random = (uintptr_t)number + 1;
    for (unsigned i = 0; i < SLOTS; i++)
        own[i] = &blocks[(uintptr_t)number * SLOTS + i];
    for (unsigned n = 0; n < OPERATIONS && (n % 64 || cpu_ms() < CPU_MS); n++) {
        uint64_t r = next_random(&random);
        struct block **slot = &own[r % SLOTS], *b = *slot;
        unsigned what = (r >> 32) % 16;
        if (what < 4)
            *slot = atomic_exchange(&mail[(r >> 40) % MAILBOXES], b);
        else if (!b->ptr)
            allocate(b, &random, draw_size(&random, n));
        else if (what < 14)
            release(b);
        else
            resize(b, &random, draw_size(&random, n));
    }
    for (unsigned i = 0; i < SLOTS; i++)
        if (own[i]->ptr)
            release(own[i]);
    running--;
    return NULL;
}

static _Noreturn void in_child(void)
{
    struct block own[CHILD_BLOCKS];
    uint64_t random = 5;
    alarm(PATIENCE);
    for (unsigned i = 0; i < CHILD_BLOCKS; i++)
        allocate(&own[i], &random, mixed_size(&random));
    for (unsigned i = 0; i < CHILD_BLOCKS; i++)
        if (own[i].ptr)
            release(&own[i]);
    hakmem_trim(0);
    _exit(0);
}

static void fork_once(void)
{
    pid_t pid = fork();
    if (pid == 0)
        in_child();
    if (pid > 0)
        expect_success(pid, "a forked child");
}

static void exchange_blocks(bool changes)
{
    uint64_t random = 7;
    pthread_t threads[THREADS];
    struct hak_census census;
    for (unsigned i = 0; i < MAILBOXES; i++)
        mail[i] = &blocks[THREADS * SLOTS + i];
    running = THREADS;
    for (uintptr_t i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], NULL, exchange, (void *)i))
            die("no thread");
    hakmem_main_called();
    for (unsigned turn = 0; running; turn++, usleep(2000)) {
        hakmem_trim(turn % 2 * MIB);
        for (unsigned i = 0; changes && i < 20; i++)
            change_a_setting(&random);
        if (turn == 1)
            fork_once();
    }
    for (unsigned i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    for (unsigned i = 0; i < MAILBOXES; i++)
        if (mail[i]->ptr)
            release(mail[i]);
    hakmem_trim(0);
    hak_stats_census(&census);
    if (census.violations || hak_stats_held(&census))
        die("all blocks are free, %zu bytes held, %zu conservation laws broken", (size_t)hak_stats_held(&census),
            (size_t)census.violations);
}

/* --- a kernel that refuses -------------------------------------------------------------------------------- */

static struct hak_os faulty;
static unsigned rarity; /* so many calls, one is refused */

static bool refused(void)
{
    static _Atomic(uint64_t) calls;
    uint64_t n = calls++;
    return refuses && next_random(&n) % rarity == 0;
}

static intptr_t map(void *hint, size_t size, int prot, int flags)
{
    return refused() ? -ENOMEM : hak_os_linux.map(hint, size, prot, flags);
}

static intptr_t unmap(void *at, size_t size)
{
    return refused() ? -ENOMEM : hak_os_linux.unmap(at, size);
}

static intptr_t protect(void *at, size_t size, int prot)
{
    return refused() ? -ENOMEM : hak_os_linux.protect(at, size, prot);
}

static intptr_t advise(void *at, size_t size, int advice)
{
    return refused() ? -EAGAIN : hak_os_linux.advise(at, size, advice);
}

static intptr_t advise_vector(const struct iovec *ranges, size_t count, int advice)
{
    return refused() ? -EPERM : hak_os_linux.advise_vector(ranges, count, advice);
}

static intptr_t remap(void *at, size_t old_size, size_t new_size, int flags, void *to)
{
    return refused() ? -ENOMEM : hak_os_linux.remap(at, old_size, new_size, flags, to);
}

static void refuse_calls(unsigned one)
{
    faulty = hak_os_linux;
    faulty.map = map;
    faulty.unmap = unmap;
    faulty.protect = protect;
    faulty.advise = advise;
    faulty.advise_vector = advise_vector;
    faulty.remap = remap;
    rarity = one;
    refuses = one != 0;
    hak_os = &faulty;
}

/* --- choices ---------------------------------------------------------------------------------------------- */

static char chosen[4096]; /* for messages */

static void choose(unsigned setting, const char *value)
{
    const char *name = hak_option_text(&hak_option_table[setting], HAK_TEXT_NAME);
    size_t n = strlen(chosen);
    if (setenv(name, value, 0) == 0)
        snprintf(chosen + n, sizeof chosen - n, " %s=%s", name, getenv(name));
}

static void choose_at_random(uint64_t *random, bool prints)
{
    char values[MAX_VALUES][32];
    for (unsigned i = 0; i < HAK_OPTION_COUNT; i++) {
        uint64_t r = next_random(random);
        if (r % 2 && (prints || strncmp(hak_option_text(&hak_option_table[i], HAK_TEXT_MOVES), "none", 4)))
            choose(i, values[(r >> 32) % values_of(i, values)]);
    }
}

/* --- many processes --------------------------------------------------------------------------------------- */

static int said; /* what the child writes to stderr */

static unsigned failures;

/* Runs this program again, as the library reads its settings once; of `one_of` calls the kernel refuses one. */
static void run(const char *program, unsigned one_of, bool changes)
{
    int status;
    static char text[1 << 16];
    pid_t pid = vfork();
    if (pid == 0) {
        snprintf(text, sizeof text, "%u", one_of);
        dup2(said, STDERR_FILENO);
        execl(program, program, "one", text, changes ? "changes" : NULL, NULL);
        _exit(99);
    }
    if (pid < 0 || waitpid(pid, &status, 0) != pid)
        die("%s: %s", program, strerror(errno));
    if (status) {
        ssize_t n = pread(said, text, sizeof text - 1, 0);
        text[n > 0 ? n : 0] = 0;
        fprintf(stderr, "status %#x, one call of %u refused,%s\n%s\n", status, one_of, chosen,
                text + (n > 1000 ? n - 1000 : 0));
        failures++;
    }
    if (ftruncate(said, 0) || lseek(said, 0, SEEK_SET))
        die("memfd: %s", strerror(errno));
    chosen[0] = 0;
    for (unsigned i = 0; i < HAK_OPTION_COUNT; i++)
        unsetenv(hak_option_text(&hak_option_table[i], HAK_TEXT_NAME));
}

static unsigned run_each(const char *program)
{
    unsigned n = 0;
    char values[MAX_VALUES][32];
    for (unsigned i = 0; i < HAK_OPTION_COUNT; i++)
        for (unsigned k = 0, count = values_of(i, values); k < count; k++, n++) {
            choose(i, values[k]);
            run(program, 0, false);
        }
    return n;
}

static unsigned run_random(const char *program, unsigned count, uint64_t random)
{
    for (unsigned n = 0; n < count; n++) {
        choose_at_random(&random, true);
        setenv("GLIBC_TUNABLES", n / 2 % 2 ? "glibc.pthread.rseq=0" : "", 1); /* without it, caches of CPUs */
        run(program, n % 2 ? 2u << next_random(&random) % 7 : 0, true);
    }
    return count;
}

static _Noreturn void run_here(unsigned one_of, bool changes)
{
    alarm(PATIENCE);
    refuse_calls(one_of);
    exchange_blocks(changes);
    refuses = false;
    exit(0);
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "", *number = argc > 2 ? argv[2] : "0";
    unsigned runs = 0;
    if (!strcmp(what, "one"))
        run_here((unsigned)atoi(number), argc > 3);
    if (!strcmp(what, "run") && argc > 3) {
        uint64_t random = strtoull(number, NULL, 10);
        choose_at_random(&random, false);
        fprintf(stderr, "%s\n", chosen);
        execv(argv[3], argv + 3);
        die("%s: %s", argv[3], strerror(errno));
    }
    said = memfd_create("said", MFD_CLOEXEC);
    if (!strcmp(what, "each"))
        runs = run_each(argv[0]);
    else if (!strcmp(what, "random") && argc > 3)
        runs = run_random(argv[0], (unsigned)atoi(number), strtoull(argv[3], NULL, 10));
    if (!runs)
        die("usage: settings each | random N SEED | run SEED COMMAND");
    printf("%u choices of settings, %u of them fail\n", runs, failures);
    return failures != 0;
}
