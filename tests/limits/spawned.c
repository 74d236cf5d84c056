/* SPDX-License-Identifier: MIT
 *
 * vfork with exec, posix_spawn, popen and system while other threads allocate:
 * the child of vfork runs on the parent's memory until it is another program.
 */
#include <pthread.h>
#include <spawn.h>
#include <stdatomic.h>

#include "check.h"

enum { THREADS = 4, ROUNDS = 100 };

extern char **environ;
static _Atomic(bool) stop;

static void *allocate(void *arg)
{
    uint64_t random = (uintptr_t)arg;
    void *p[64] = {NULL};
    while (!atomic_load_explicit(&stop, memory_order_relaxed)) {
        size_t size = mixed_size(&random), i = random % COUNT(p);
        free(p[i]);
        p[i] = malloc(size);
        if (p[i] == NULL)
            die("%zu bytes refused", size);
        mark(p[i], size, 1);
    }
    for (size_t i = 0; i < COUNT(p); i++)
        free(p[i]);
    return NULL;
}

/* The work of the spawned program, which is this one with an argument. */
static int grandchild(void)
{
    uint64_t random = (uint64_t)getpid();
    for (int i = 0; i < 200; i++) {
        size_t size = mixed_size(&random);
        char *p = malloc(size);
        if (p == NULL)
            die("%zu bytes refused", size);
        mark(p, size, 3);
        free(p);
    }
    return 0;
}

int main(int argc, char **argv)
{
    if (argc > 1)
        return grandchild();
    char self[4096];
    ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
    if (n <= 0)
        die("readlink: %s", strerror(errno));
    self[n] = '\0';
    char *args[] = {argv[0], (char[]){"again"}, NULL};
    pthread_t threads[THREADS];
    alarm(100);
    for (uintptr_t i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], NULL, allocate, (void *)(i + 1)) != 0)
            die("no thread");
    for (int round = 0; round < ROUNDS; round++) {
        pid_t pid = vfork();
        if (pid == 0) {
            execv(self, args);
            _exit(111);
        }
        if (pid < 0)
            die("vfork: %s", strerror(errno));
        expect_success(pid, "vfork and exec");

        pid = vfork();
        if (pid == 0) {
            execv("/does/not/exist", args);
            _exit(0);
        }
        expect_success(pid, "vfork and failed exec");

        int err = posix_spawn(&pid, self, NULL, NULL, args, environ);
        if (err != 0)
            die("posix_spawn: %s", strerror(err));
        expect_success(pid, "posix_spawn");
    }
    for (int round = 0; round < 10; round++) {
        char line[16] = "";
        FILE *f = popen("echo hello", "r");
        if (f == NULL || fgets(line, sizeof(line), f) == NULL || strcmp(line, "hello\n") != 0 || pclose(f) != 0)
            die("popen");
        if (system("exit 7") != 7 << 8)
            die("system");
    }
    atomic_store(&stop, true);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    return 0;
}
