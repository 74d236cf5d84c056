/* SPDX-License-Identifier: MIT
 * unloads NAME: closes a library that contains libhakmem.a, with a thread that used it; then that thread ends, and the
 * process forks. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

static pthread_barrier_t barrier;

static void *use(void *library)
{
    void (*unloaded_use)(void) = (void (*)(void))dlsym(library, "unloaded_use");
    unloaded_use();
    pthread_barrier_wait(&barrier); /* used */
    pthread_barrier_wait(&barrier); /* closed */
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t thread;
    int status = 1;
    void *library = argc == 2 ? dlopen(argv[1], RTLD_NOW) : NULL;
    if (!library) {
        fprintf(stderr, "%s\n", argc == 2 ? dlerror() : "usage: unloads NAME");
        return 1;
    }
    pthread_barrier_init(&barrier, NULL, 2);
    pthread_create(&thread, NULL, use, library);
    pthread_barrier_wait(&barrier);
    dlclose(library);
    pthread_barrier_wait(&barrier);
    pthread_join(thread, NULL);
    pid_t child = fork();
    if (!child)
        _exit(0);
    waitpid(child, &status, 0);
    return status;
}
