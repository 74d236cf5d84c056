/* SPDX-License-Identifier: MIT
 *
 * rlimits as|data|memlock|commit KIB
 *                                 requests of all sizes from two threads; the limit came before exec where KIB is 0,
 *                                 else the program sets it once it runs, as Python's resource module does. A request
 *                                 gives a block, or NULL and ENOMEM; when the limit is lifted all are served
 * rlimits bounds KIB SIZE         RLIMIT_AS is set late; says how many KiB of blocks of a size it gets
 * rlimits lockall                 mlockall(MCL_CURRENT) of a process that has allocated little
 *
 * commit is no rlimit: vm.overcommit_memory is 2, and KIB more may be committed than the machine has committed already.
 * It is not linked with the library: rlimits.py runs it with and without. */
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "../limits/check.h"
#include "../watchdog.h"

enum { SECONDS = 100, BLOCKS = 1000 };

static const struct {
    const char *name;
    int resource;
} known[] = {{"as", RLIMIT_AS}, {"data", RLIMIT_DATA}, {"memlock", RLIMIT_MEMLOCK}, {"commit", -1}};

static _Atomic(size_t) refused;

static void *request(void *old, size_t size)
{
    errno = 0;
    void *p = old ? realloc(old, size) : malloc(size);
    if (p) {
        mark(p, size < MIB ? size : MIB, 7);
        return p;
    }
    if (errno != ENOMEM)
        die("%zu bytes refused with errno %d", size, errno);
    refused++;
    return old;
}

static void *work(void *seed)
{
    static _Thread_local void *block[BLOCKS];
    uint64_t random = (uintptr_t)seed;
    for (unsigned i = 0; i < BLOCKS; i++)
        block[i] = request(NULL, i % 100 == 50 ? 4 * MIB : i % 1000 == 999 ? 72 * MIB : mixed_size(&random));
    for (unsigned i = 0; i < BLOCKS; i += 2) {
        free(block[i]);
        block[i] = request(NULL, mixed_size(&random));
    }
    for (unsigned i = 0; i < BLOCKS; i++)
        free(block[i] ? request(block[i], mixed_size(&random)) : NULL);
    return NULL;
}

static void work_in_threads(void)
{
    pthread_t thread;
    int none = pthread_create(&thread, NULL, work, (void *)2);
    work((void *)1);
    if (none == 0)
        pthread_join(thread, NULL);
}

/* Without a byte from malloc, which may be refused. */
static void write_setting(const char *file, size_t value)
{
    char text[32];
    int fd = open(file, O_WRONLY | O_CLOEXEC), n = snprintf(text, sizeof text, "%zu", value);
    if (fd < 0 || write(fd, text, (size_t)n) != n || close(fd))
        die("%s: %s", file, strerror(errno));
}

static size_t committed_kib(void)
{
    char line[256];
    size_t kib = 0;
    FILE *f = fopen("/proc/meminfo", "r");
    while (f && fgets(line, sizeof line, f) && sscanf(line, "Committed_AS: %zu", &kib) != 1)
        ;
    if (!f || fclose(f) || !kib)
        die("no Committed_AS in /proc/meminfo");
    return kib;
}

static void limit_commit(size_t kib)
{
    if (kib)
        write_setting("/proc/sys/vm/overcommit_kbytes", committed_kib() + kib);
    write_setting("/proc/sys/vm/overcommit_memory", kib ? 2 : 0);
}

/* KIB 0: as much as the process may have. */
static void limit(int resource, size_t kib)
{
    struct rlimit r;
    if (resource < 0) {
        limit_commit(kib);
        return;
    }
    if (getrlimit(resource, &r))
        die("getrlimit: %s", strerror(errno));
    r.rlim_cur = kib ? kib * KIB : r.rlim_max;
    if (setrlimit(resource, &r))
        die("setrlimit: %s", strerror(errno));
}

static int under(int resource, size_t kib)
{
    if (kib) {
        work((void *)3);
        limit(resource, kib);
    }
    if (resource == RLIMIT_MEMLOCK)
        mlockall(MCL_FUTURE); /* may be refused */
    work_in_threads();
    size_t by_limit = refused;
    munlockall();
    limit(resource, 0);
    refused = 0;
    work_in_threads();
    if (refused)
        die("%zu requests refused after the limit was lifted, %zu under it", refused, by_limit);
    return 0;
}

static void *nothing(void *unused)
{
    return unused;
}

static int bounds(size_t kib, size_t size)
{
    pthread_t thread;
    size_t n = 0;
    void *big;
    free(malloc(1000));
    limit(RLIMIT_AS, kib);
    if (pthread_create(&thread, NULL, nothing, NULL))
        die("no thread under a limit of %zu KiB", kib);
    pthread_join(thread, NULL);
    if (!(big = malloc(kib * KIB / 16)))
        die("a sixteenth of the limit refused");
    free(big);
    while (malloc(size) && n < 4 * kib * KIB / size)
        n++;
    printf("%zu\n", n * size / KIB);
    return 0;
}

int main(int argc, char **argv)
{
    watchdog_start(SECONDS);
    size_t kib = argc > 2 ? strtoul(argv[2], NULL, 10) : 0;
    if (argc == 4 && !strcmp(argv[1], "bounds"))
        return bounds(kib, strtoul(argv[3], NULL, 10));
    if (argc == 2 && !strcmp(argv[1], "lockall")) {
        free(malloc(1000));
        return mlockall(MCL_CURRENT) ? errno : 0;
    }
    for (size_t i = 0; argc == 3 && i < COUNT(known); i++)
        if (!strcmp(argv[1], known[i].name))
            return under(known[i].resource, kib);
    die("usage: rlimits as|data|memlock|commit KIB; bounds KIB SIZE; lockall");
}
