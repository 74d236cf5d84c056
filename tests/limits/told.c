/* SPDX-License-Identifier: MIT
 *
 * told LIBRARY
 *
 * Every kind of report that a setting can request, under each limit; with a stderr that is a file that may not grow, a
 * pipe that nobody reads, or closed; and where the kernel refuses one system call with EPERM, or lacks what Linux 5.4
 * does. The program must end as without the report, and with the same output.
 */
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <malloc.h>
#include <pthread.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include "check.h"

enum { SECONDS = 60, WORDS_MOST = 3, FILES = 4 /* the first limits, those of files */ };
enum { NEW = 436 /* close_range, the first call that Linux 5.4 lacks */ };

static const char *const settings[][WORDS_MOST + 1] = {
    {"HAKMEM_STATS=1"},
    {"HAKMEM_STATS=json", "HAKMEM_STATS_FILE=/dev/full"},
    {"HAKMEM_STATS=json", "HAKMEM_STATS_FILE=/no/such/folder/%p"},
    {"HAKMEM_STATS=1", "HAKMEM_STATS_FILE=told.stats"},
    {"HAKMEM_VERBOSE=1", "HAKMEM_TINY_P0_LOG=1", "HAKMEM_SS_ACQUIRE_DEBUG=1"},
    {"HAKMEM_SS_LRU_DEBUG=1", "HAKMEM_SS_FREE_DEBUG=1", "HAKMEM_SUPER_REG_DEBUG=1"},
    {"HAKMEM_STATS=yes", "HAKMEM_NO_SUCH_SETTING=1", "HAKMEM_POOL_TLS_FREE_TRACE=1"},
    {"HAKMEM_GUARD_RATE=3"},
    {"HAKMEM_STATS=prometheus", "HAKMEM_STATS_FILE=told.prom", "HAKMEM_BACKGROUND=1"},
};

static const struct {
    const char *name;
    int resource;
    size_t value;
} limits[] = {
    {"FSIZE 0", RLIMIT_FSIZE, 0},
    {"FSIZE 100", RLIMIT_FSIZE, 100},
    {"FSIZE 16 KiB", RLIMIT_FSIZE, 16 * KIB},
    {"NOFILE 4", RLIMIT_NOFILE, 4},
    {"AS 16 MiB", RLIMIT_AS, 16 * MIB},
    {"DATA 12 MiB", RLIMIT_DATA, 12 * MIB},
    {"STACK 64 KiB", RLIMIT_STACK, 64 * KIB},
    {"NPROC 0", RLIMIT_NPROC, 0},
    {"MEMLOCK 0", RLIMIT_MEMLOCK, 0},
};

/* Not the memory calls, each of which calls_refused.c refuses. */
static const struct {
    const char *name;
    unsigned number;
} refused[] = {
    {"all that Linux 5.4 lacks", NEW},
    {"fcntl", SYS_fcntl},
    {"readlinkat", SYS_readlinkat},
    {"clone", SYS_clone},
    {"prlimit64", SYS_prlimit64},
    {"getrandom", SYS_getrandom},
    {"rt_sigprocmask", SYS_rt_sigprocmask},
    {"rt_sigpending", SYS_rt_sigpending},
    {"rt_sigtimedwait", SYS_rt_sigtimedwait},
    {"prctl", SYS_prctl},
    {"clock_gettime", SYS_clock_gettime},
    {"sched_getaffinity", SYS_sched_getaffinity},
    {"getpid", SYS_getpid},
    {"madvise", SYS_madvise},
    {"mincore", SYS_mincore},
#ifdef SYS_readlink
    {"readlink", SYS_readlink},
#endif
};

enum err { AS_FILE, AS_PIPE, CLOSED, ERRS };
static const char *const err_names[ERRS] = {"a file", "a pipe that nobody reads", "closed"};

static void *work(void *unused)
{
    void *blocks[300];
    for (int round = 0; round < 20; round++) {
        for (size_t i = 0; i < COUNT(blocks); i++)
            blocks[i] = malloc(i % 50 ? 16 + i * 7 % 3000 : 100 * KIB);
        for (size_t i = 0; i < COUNT(blocks); i++)
            free(blocks[i]);
    }
    return unused;
}

/* The program; its only stream is stdout. */
static int speak(void)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, work, NULL) == 0)
        pthread_join(thread, NULL);
    work(NULL);
    malloc_trim(0);
    pid_t child = fork();
    if (child == 0) {
        work(NULL);
        return 0;
    }
    int status = 0;
    if (child > 0 && (waitpid(child, &status, 0) != child || status != 0))
        return 2;
    return puts("done") < 0;
}

static void refuse(unsigned number)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_K | (number == NEW ? BPF_JGE : BPF_JEQ), number, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (number == NEW ? ENOSYS : EPERM)),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog filter = {COUNT(code), code};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) != 0)
        _exit(SKIPPED);
}

static void set_err(enum err err)
{
    int ends[2], fd = err == AS_FILE ? open("told.stderr", O_WRONLY | O_CREAT | O_APPEND, 0600) : -1;
    if (err == AS_PIPE && pipe(ends) == 0) {
        close(ends[0]);
        fd = ends[1];
    }
    close(STDERR_FILENO);
    if (fd >= 0 && dup2(fd, STDERR_FILENO) == STDERR_FILENO)
        close(fd);
}

/* The status and output of the program, run with the library. */
static int run(const char *library, const char *const *asked, size_t limit, size_t call, enum err err, char *said)
{
    int out[2], status;
    char preload[4096];
    if (pipe(out) != 0)
        die("pipe: %s", strerror(errno));
    pid_t pid = fork();
    if (pid < 0)
        die("fork: %s", strerror(errno));
    if (pid == 0) {
        alarm(SECONDS); /* holds beyond exec */
        dup2(out[1], STDOUT_FILENO);
        close(out[0]);
        close(out[1]);
        set_err(err);
        if (asked != NULL) {
            snprintf(preload, sizeof(preload), "%s", library);
            setenv("LD_PRELOAD", preload, 1);
        }
        for (size_t i = 0; asked != NULL && asked[i] != NULL; i++)
            putenv((char *)(uintptr_t)asked[i]);
        if (limit < COUNT(limits))
            setrlimit(limits[limit].resource, &(struct rlimit){limits[limit].value, limits[limit].value});
        if (call < COUNT(refused))
            refuse(refused[call].number);
        execl("/proc/self/exe", "told", (char *)NULL);
        _exit(127);
    }
    close(out[1]);
    size_t n = 0;
    for (ssize_t got; n < 63 && (got = read(out[0], said + n, 63 - n)) > 0;)
        n += (size_t)got;
    said[n] = 0;
    close(out[0]);
    if (waitpid(pid, &status, 0) != pid)
        die("waitpid: %s", strerror(errno));
    return status;
}

int main(int argc, char **argv)
{
    char alone_said[64], said[64], folder[] = "/tmp/hakmem-told-XXXXXX";
    unsigned failed = 0, runs = 0, left_out = 0;
    if (argc < 2)
        return speak();
    char *library = realpath(argv[1], NULL);
    if (library == NULL || mkdtemp(folder) == NULL || chdir(folder) != 0)
        die("%s: %s", argv[1], strerror(errno));
    unsetenv("HAKMEM_BACKGROUND");
    for (size_t i = 0; i <= COUNT(limits) + COUNT(refused); i++)
        for (enum err err = 0; err < ERRS; err++) {
            if (i >= FILES && i != COUNT(limits) && (size_t)err != i % ERRS)
                continue; /* stderr matters for files */
            size_t call = i - COUNT(limits) - 1;
            const char *name = i < COUNT(limits)       ? limits[i].name
                               : call < COUNT(refused) ? refused[call].name
                                                       : "no limit";
            call = i > COUNT(limits) ? call : SIZE_MAX;
            int alone = run(library, NULL, i, call, err, alone_said);
            left_out += alone != 0;
            for (size_t k = 0; alone == 0 && k < COUNT(settings); k++, runs++) {
                int status = run(library, settings[k], i, call, err, said);
                if (status == 0 && strcmp(said, alone_said) == 0)
                    continue;
                failed++;
                say("%s, stderr %s, %s %s %s: status %#x, said \"%s\"", name, err_names[err], settings[k][0],
                    settings[k][1] ? settings[k][1] : "", settings[k][1] && settings[k][2] ? settings[k][2] : "",
                    (unsigned)status, said);
            }
        }
    unlink("told.stderr");
    unlink("told.stats");
    unlink("told.prom");
    if (chdir("/") != 0 || rmdir(folder) != 0)
        say("%s: %s", folder, strerror(errno));
    say("%u runs, %u of them ended otherwise; %u limits under which the program fails by itself", runs, failed,
        left_out);
    return failed != 0;
}
