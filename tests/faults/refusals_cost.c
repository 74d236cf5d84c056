/* SPDX-License-Identifier: MIT
 *
 * refusals_cost data|as: what refused requests cost. With RLIMIT_DATA (or RLIMIT_AS) 64 MiB above the start, blocks of
 * one size use up all of it, and a thousand more requests follow: these may leave nothing charged or mapped. Then the
 * limit is raised by as much again, which must be usable, with about as many system calls as in a process that was
 * never refused. */
#include <malloc.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "../limits/check.h"
#include "../memory/resident.h"
#include "../watchdog.h"
#include "hakmem.h"

enum { SECONDS = 60, LIMIT_MIB = 64, REFUSALS = 1000 };
static const size_t sizes[] = {64, 1000, 20000, 100000, 3 << 20};

struct block {
    struct block *next;
};

static struct block *all;

/* Bytes of the process by a name of /proc/self/status. */
static size_t status(const char *name)
{
    static char text[4096];
    int fd = open("/proc/self/status", O_RDONLY);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    close(fd);
    text[n > 0 ? n : 0] = 0;
    char *at = strstr(text, name);
    if (!at)
        die("no %s", name);
    return strtoul(at + strlen(name) + 1, NULL, 10) * KIB;
}

static void limit(int resource, size_t bytes)
{
    struct rlimit r;
    getrlimit(resource, &r);
    r.rlim_cur = bytes ? bytes : r.rlim_max;
    if (setrlimit(resource, &r))
        die("setrlimit: %s", strerror(errno));
}

/* Allocates up to n more blocks; returns how many. */
static size_t take(size_t size, size_t n)
{
    size_t got = 0;
    for (struct block *b; got < n && (b = malloc(size)) != NULL; got++) {
        b->next = all;
        all = b;
    }
    return got;
}

static void give_all(void)
{
    for (struct block *next; all; all = next) {
        next = all->next;
        free(all);
    }
    malloc_trim(0);
}

/* The number behind "calls" of all rows of the ledger. */
static uint64_t kernel_calls(void)
{
    static char text[1 << 20];
    uint64_t sum = 0;
    int fd = memfd_create("stats", 0);
    if (fd < 0 || hakmem_stats(fd, 1))
        die("no statistics");
    ssize_t n = pread(fd, text, sizeof text - 1, 0);
    close(fd);
    text[n > 0 ? n : 0] = 0;
    for (char *at = strstr(text, "\"os_calls\""); at && (at = strstr(at, "\"calls\": ")); at++)
        sum += strtoull(at + 9, NULL, 10);
    return sum;
}

/* The cost of the same amount in a process without a limit. */
static uint64_t usual_calls(size_t size, size_t n)
{
    uint64_t before = kernel_calls();
    if (take(size, n) < n)
        die("%zu bytes refused without a limit", size);
    give_all();
    return kernel_calls() - before;
}

/* The bytes charged (RLIMIT_DATA) and mapped (RLIMIT_AS). */
static void look(size_t now[2])
{
    now[0] = status("VmData:");
    now[1] = status("VmSize:");
}

static void refuse(int resource, size_t size, uint64_t usual)
{
    size_t most = LIMIT_MIB * MIB, n = 4 * most / size, at_limit[2], later[2], raised[2];
    size_t start = status(resource == RLIMIT_AS ? "VmSize:" : "VmData:");
    limit(resource, start + most);
    size_t got = take(size, n);
    if (got == n)
        die("%zu-byte blocks: %zu MiB were served under %d MiB", size, got * size / MIB, LIMIT_MIB);
    look(at_limit);
    uint64_t calls = kernel_calls();
    for (unsigned i = 0; i < REFUSALS; i++)
        got += take(size, 1);
    uint64_t refused_calls = kernel_calls() - calls;
    look(later);
    limit(resource, start + 2 * most);
    calls = kernel_calls();
    size_t again = take(size, n);
    calls = kernel_calls() - calls;
    look(raised);
    say("%zu-byte blocks: %zu MiB under %d MiB; after %d more requests, which made %llu calls, %zu KiB more are "
        "charged "
        "and %zu mapped; raised by %d MiB: %zu MiB by %llu calls (%llu in a fresh process), %zu MiB charged for them",
        size, got * size / MIB, LIMIT_MIB, REFUSALS, (unsigned long long)refused_calls, (later[0] - at_limit[0]) / KIB,
        (later[1] - at_limit[1]) / KIB, LIMIT_MIB, again * size / MIB, (unsigned long long)calls,
        (unsigned long long)usual, (raised[0] - later[0]) / MIB);
    if (later[0] > at_limit[0] + 4 * MIB || later[1] > at_limit[1] + 4 * MIB)
        die("refused requests leave memory behind");
    if (got * size < most / 2 || again * size < most / 2)
        die("less than half of the limit was served");
    if (calls > 2 * usual + 40)
        die("after refusals the same costs more");
    if (refused_calls > 20 * REFUSALS)
        die("a refused request makes more than 20 calls");
}

static int in_a_child(void (*run)(int resource, size_t size, uint64_t *usual), int resource, size_t size,
                      uint64_t *usual)
{
    int s = 0;
    pid_t pid = fork();
    if (pid == 0) {
        watchdog_start(SECONDS);
        run(resource, size, usual);
        _exit(0);
    }
    while (waitpid(pid, &s, 0) < 0 && errno == EINTR)
        ;
    return s;
}

static void without_limit(int resource, size_t size, uint64_t *usual)
{
    (void)resource;
    *usual = usual_calls(size, LIMIT_MIB * MIB / size);
}

static void with_limit(int resource, size_t size, uint64_t *usual)
{
    refuse(resource, size, *usual);
}

int main(int argc, char **argv)
{
    if (argc != 2 || (strcmp(argv[1], "data") && strcmp(argv[1], "as")))
        die("usage: refusals_cost data|as");
    int resource = strcmp(argv[1], "as") ? RLIMIT_DATA : RLIMIT_AS, failed = 0;
    uint64_t *usual = mmap(NULL, sizeof *usual, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    for (size_t i = 0; i < COUNT(sizes); i++)
        failed |=
            in_a_child(without_limit, resource, sizes[i], usual) | in_a_child(with_limit, resource, sizes[i], usual);
    return failed != 0;
}
