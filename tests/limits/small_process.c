/* SPDX-License-Identifier: MIT
 *
 * The size of a program that uses little memory: its address space, its locked
 * memory, the kernel's core file and the debugger's. Each is small, and the
 * cores contain what the program wrote to its blocks.
 */
#include <dirent.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>

#include "check.h"

enum { MOST_MIB = 128, BLOCK = 100000, WORDS = BLOCK / sizeof(uint64_t) };

/* A pattern that a core contains only through the block. */
static uint64_t mark_of_word(uint64_t i)
{
    uint64_t random = i + (uint64_t)getppid();
    return next_random(&random);
}

static void use_a_little(void)
{
    uint64_t *words = malloc(BLOCK);
    for (size_t i = 0; i < WORDS; i++)
        words[i] = mark_of_word(i);
    for (size_t size = 16; size < 50000; size *= 2)
        memset(malloc(size), 1, size);
}

static void read_core(int dir, const char *name, const char *what)
{
    static uint64_t words[MIB / sizeof(uint64_t)];
    int fd = openat(dir, name, O_RDONLY);
    ssize_t n;
    size_t size = 0, found = 0;
    if (fd < 0)
        die("%s: %s", what, strerror(errno));
    uint64_t random = (uint64_t)getpid();
    uint64_t wanted = next_random(&random);
    while ((n = read(fd, words, sizeof(words))) > 0) {
        size += (size_t)n;
        for (size_t i = 0; i < (size_t)n / sizeof(uint64_t); i++)
            if (words[i] == wanted) {
                random = (uint64_t)getpid() + ++found;
                wanted = next_random(&random);
            }
    }
    close(fd);
    say("%s: %zu KiB", what, size / KIB);
    if (size > MOST_MIB * MIB)
        die("%s is larger than %d MiB", what, MOST_MIB);
    if (found < WORDS)
        die("%s holds %zu words of a block of %zu", what, found, (size_t)WORDS);
}

/* A child that has used a little, as this process then knows, and then does `end`. */
static pid_t start_child(void (*end)(void))
{
    int ready[2];
    char word;
    if (pipe(ready))
        die("pipe: %s", strerror(errno));
    pid_t pid = fork();
    if (pid < 0)
        die("fork: %s", strerror(errno));
    if (pid == 0) {
        alarm(60);
        prctl(PR_SET_DUMPABLE, 1);
        use_a_little();
        close(ready[0]);
        close(ready[1]);
        end();
        _exit(0);
    }
    close(ready[1]);
    if (read(ready[0], &word, 1))
        die("read: %s", strerror(errno));
    close(ready[0]);
    return pid;
}

static void crash(void)
{
    struct rlimit most = {4 * MOST_MIB * MIB, 4 * MOST_MIB * MIB};
    setrlimit(RLIMIT_CORE, &most);
    abort();
}

static void core_of_the_kernel(int dir)
{
    char pattern[100] = "";
    int status, fd = open("/proc/sys/kernel/core_pattern", O_RDONLY);
    if (fd < 0 || read(fd, pattern, sizeof(pattern) - 1) <= 0 || strpbrk(pattern, "|/")) {
        say("no core of the kernel: core_pattern is %s", pattern);
        return;
    }
    close(fd);
    waitpid(start_child(crash), &status, 0);
    DIR *entries = fdopendir(dup(dir));
    for (struct dirent *e; (e = readdir(entries)) != NULL;)
        if (strncmp(e->d_name, "core", 4) == 0) {
            read_core(dir, e->d_name, "the kernel's core");
            unlinkat(dir, e->d_name, 0);
        }
    closedir(entries);
}

static void wait_for_the_end(void)
{
    pause();
}

static void core_of_the_debugger(int dir)
{
    char command[200];
    pid_t pid = start_child(wait_for_the_end);
    /* never more than 256 MiB of file */
    snprintf(command, sizeof(command),
             "ulimit -f 524288; gdb -nx -batch -p %d -ex 'generate-core-file debugged' >/dev/null 2>&1", (int)pid);
    int status = system(command);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    if (faccessat(dir, "debugged", R_OK, 0) == 0)
        read_core(dir, "debugged", "the debugger's core");
    else
        say("no core of the debugger: status %#x", (unsigned)status);
    unlinkat(dir, "debugged", 0);
}

static size_t address_space(void)
{
    size_t pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    if (f == NULL || fscanf(f, "%zu", &pages) != 1)
        die("/proc/self/statm: %s", strerror(errno));
    fclose(f);
    return pages * (size_t)sysconf(_SC_PAGESIZE);
}

static void lock(void)
{
    struct rlimit limit = {MOST_MIB * MIB, MOST_MIB * MIB};
    if (setrlimit(RLIMIT_MEMLOCK, &limit) != 0 || (geteuid() == 0 && setuid(65534) != 0))
        _exit(0); /* nothing to learn */
    if (mlockall(MCL_CURRENT) != 0)
        die("mlockall under a limit of %d MiB: %s", MOST_MIB, strerror(errno));
}

int main(void)
{
    char folder[] = "/tmp/hakmem-small-XXXXXX";
    use_a_little();
    say("address space: %zu KiB", address_space() / KIB);
    if (address_space() > MOST_MIB * MIB)
        die("more than %d MiB of address space", MOST_MIB);
    expect_success(start_child(lock), "to lock all memory");
    if (mkdtemp(folder) == NULL || chdir(folder) != 0)
        die("%s: %s", folder, strerror(errno));
    int dir = open(".", O_RDONLY | O_DIRECTORY);
    core_of_the_kernel(dir);
    core_of_the_debugger(dir);
    rmdir(folder);
    return 0;
}
