/* SPDX-License-Identifier: MIT
 *
 * Allocation before any constructor of a shared library has run, and after
 * main has returned: in .preinit_array, constructors, atexit handlers and
 * destructors. Any failure ends the process with a status of its own.
 */
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "names.h"

static const size_t sizes[] = {1, 64, 1000, 5000, 30000, 100000, 5000000};
enum { SIZES = sizeof(sizes) / sizeof(sizes[0]) };

static void *before[SIZES];
static void *during[SIZES];
static void *in_main[SIZES];

static void take(void **blocks, int status)
{
    for (int i = 0; i < SIZES; i++) {
        unsigned char *p = blocks[i] = i % 2 ? api.calloc(1, sizes[i]) : api.malloc(sizes[i]);
        if (p == NULL || (uintptr_t)p % 16 != 0)
            _exit(status);
        memset(p, status, sizes[i]);
    }
}

static void give(void **blocks, int filled, int status)
{
    for (int i = 0; i < SIZES; i++) {
        unsigned char *p = blocks[i] = api.realloc(blocks[i], sizes[i] + 1);
        if (p == NULL || p[0] != filled || p[sizes[i] - 1] != filled)
            _exit(status);
        api.free(p);
    }
}

static void preinit(void)
{
    take(before, 11);
}

#ifdef __GLIBC__
typedef void (*preinit_fn)(void);
__attribute__((section(".preinit_array"), used)) static preinit_fn preinit_entry = preinit;
#else /* musl leaves that array alone */
__attribute__((constructor(101))) static void first(void)
{
    preinit();
}
#endif

__attribute__((constructor(102))) static void construct(void)
{
    give(before, 11, 12);
    take(during, 13);
}

static void at_exit(void)
{
    void *own[SIZES];
    give(in_main, 15, 16);
    take(own, 17);
    give(own, 17, 18);
}

__attribute__((destructor(101))) static void destruct(void)
{
    void *own[SIZES];
    for (int round = 0; round < 100; round++) {
        take(own, 19);
        give(own, 19, 20);
    }
    give(during, 13, 21);
    if (write(STDOUT_FILENO, "done\n", 5) != 5)
        _exit(22);
}

static void *thread_main(void *arg)
{
    void *own[SIZES];
    take(own, 23);
    give(own, 23, 24);
    return arg;
}

int main(void)
{
    atexit(at_exit);
    take(in_main, 15);
    pthread_t t;
    if (pthread_create(&t, NULL, thread_main, NULL) != 0 || pthread_join(t, NULL) != 0)
        return 25;
    return 0;
}
