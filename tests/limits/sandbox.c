/* SPDX-License-Identifier: MIT
 * A sandbox that kills at every call but those of glibc's malloc, threads and fork. With HAKMEM_SANDBOX=1 all sizes,
 * threads that start and end, resizes, ticks, a trim and a fork work there. A small process needs no setting; if it has
 * threads, the sandbox must allow membarrier. */
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <malloc.h>
#include <pthread.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include "check.h"

static const unsigned allowed[] = {
    /* glibc's malloc */
    SYS_mmap, SYS_munmap, SYS_mremap, SYS_mprotect, SYS_madvise, SYS_futex,
    /* the program; glibc's threads and fork */
    SYS_write, SYS_wait4, SYS_clone, SYS_clone3, SYS_rseq, SYS_gettid, SYS_set_robust_list, SYS_rt_sigprocmask,
    SYS_rt_sigaction, SYS_clock_nanosleep, SYS_exit, SYS_exit_group,
    /* a small process with threads */
    SYS_membarrier};

static void enter_sandbox(bool has_membarrier)
{
    struct sock_filter filter[COUNT(allowed) + 3] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr))};
    for (size_t i = 0; i < COUNT(allowed); i++)
        filter[i + 1] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K,
                                                     allowed[i == COUNT(allowed) - 1 && !has_membarrier ? 0 : i],
                                                     (unsigned char)(COUNT(allowed) - i), 0);
    filter[COUNT(allowed) + 1] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
    filter[COUNT(allowed) + 2] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    struct sock_fprog program = {COUNT(filter), filter};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
        syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program))
        skip("seccomp: %s", strerror(errno));
}

static void *work(void *arg)
{
    enum { BLOCKS = 3000, ROUNDS = 2 };
    static _Thread_local void *p[BLOCKS];
    for (unsigned round = 0; round < ROUNDS; round++) {
        for (size_t i = 0; i < BLOCKS; i++) {
            size_t size = i % 500 == 7 ? 5 * MIB : i * 7919 % 60000;
            p[i] = malloc(size);
            memset(p[i], 1, size);
        }
        for (size_t i = 0; i < BLOCKS; i++)
            free(p[i]);
        for (unsigned i = 0; i < 100; i++) {
            for (size_t size = 0; size < 2000; size += 40)
                free(malloc(size));
            usleep(500);
        }
    }
    free(realloc(malloc(80 * MIB), 100 * MIB));
    malloc_trim(0);
    return arg;
}

static void work_in_threads(void)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, work, NULL))
        die("no thread");
    work(NULL);
    pthread_join(thread, NULL);
}

static void work_a_little(void)
{
    enum { BLOCKS = 60 };
    static _Thread_local void *p[BLOCKS];
    for (unsigned round = 0; round < 30; round++) {
        for (size_t i = 0; i < BLOCKS; i++)
            memset(p[i] = malloc(i * 401), 1, i * 401);
        for (size_t i = 0; i < BLOCKS; i++)
            free(p[(i * 7 + round) % BLOCKS]);
        for (unsigned i = 0; i < 4000; i++)
            free(malloc(i % 2000));
        usleep(5000);
    }
}

/* Its first call comes before the sandbox, its 10000th in it. */
static void *work_later(void *barrier)
{
    free(malloc(100));
    pthread_barrier_wait(barrier);
    pthread_barrier_wait(barrier);
    work_a_little();
    return NULL;
}

static void little_beside_thread(void)
{
    pthread_t thread;
    pthread_barrier_t barrier;
    pthread_barrier_init(&barrier, NULL, 2);
    if (pthread_create(&thread, NULL, work_later, &barrier))
        die("no thread");
    pthread_barrier_wait(&barrier);
    enter_sandbox(true);
    pthread_barrier_wait(&barrier);
    work_a_little();
    pthread_join(thread, NULL);
}

int main(int argc, char **argv)
{
    const char *backend = getenv("HAKMEM_BACKEND");
    if (argc > 1 && backend && !strcmp(backend, "legacy"))
        skip("%s: a superslab for each class is much address space", backend);
    if (argc == 1 || !strncmp(argv[1], "small", 5)) {
        setenv("HAKMEM_SANDBOX", argc == 1 ? "1" : "0", 1);
        setenv("HAKMEM_PURGE_DELAY_MS", "10", 1);
        execl("/proc/self/exe", argv[0], argc == 1 ? "all" : argv[1][5] ? "beside" : "little", NULL);
        die("exec: %s", strerror(errno));
    }
    free(malloc(1));
    if (!strcmp(argv[1], "beside")) {
        little_beside_thread();
        return 0;
    }
    enter_sandbox(false);
    if (!strcmp(argv[1], "little")) {
        work_a_little();
        return 0;
    }
    work_in_threads();
    pid_t child = fork();
    if (child == 0) {
        work_in_threads();
        _exit(0);
    }
    int status = 1;
    if (waitpid(child, &status, 0) != child || status)
        die("the child: status %d", status);
    return 0;
}
