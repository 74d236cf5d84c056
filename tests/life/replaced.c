/* SPDX-License-Identifier: MIT
 * A library that replaces functions of the C library, as libfaketime and fakechroot do: each call of one that REPLACED
 * names (a name, or `all`) looks up a symbol that does not exist, allocates and frees before the C library's own is
 * called. The entries are in a file that replaced.py writes: the functions that libhakmem.so needs. */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { SLOTS = 16, MOST_DEEP = 12 };

extern const char *const replaced_names[][2]; /* and version */
void *replaced_call(unsigned i);
unsigned long replaced_calls(void);

static void *_Atomic(own)[256]; /* the C library's own functions */
static atomic_ulong calls;
static _Thread_local bool finds __attribute__((tls_model("initial-exec")));
static _Thread_local unsigned depth __attribute__((tls_model("initial-exec")));
static char environment[65536];

/* From the kernel, since the C library may not be ready. */
static const char *chosen(void)
{
    if (!environment[0]) {
        long fd = syscall(SYS_openat, AT_FDCWD, "/proc/self/environ", O_RDONLY);
        long n = syscall(SYS_read, fd, environment, sizeof environment - 1);
        syscall(SYS_close, fd);
        for (const char *e = environment; e < environment + n; e += strlen(e) + 1)
            if (!strncmp(e, "REPLACED=", 9))
                return memmove(environment, e + 9, strlen(e + 9) + 1);
        strcpy(environment, "none");
    }
    return environment;
}

/* All at once, since the C library's dlvsym must not be called inside of its dlsym, which allocates. */
static void *find(unsigned i)
{
    for (unsigned k = 0; !atomic_load(&own[i]) && replaced_names[k][0]; k++)
        atomic_store(&own[k], dlvsym(RTLD_NEXT, replaced_names[k][0], replaced_names[k][1]));
    return atomic_load(&own[i]);
}

static void disturb(void)
{
    static _Atomic(void *) slot[SLOTS];
    unsigned long n = atomic_fetch_add(&calls, 1);
    dlsym(RTLD_NEXT, "no_such_symbol");
    dlerror();
    free(realloc(malloc(10), 2000 + n % 5 * 300));
    free(atomic_exchange(&slot[n % SLOTS], calloc(1, 100 + n % 7 * 9000)));
}

/* malloc itself copies and clears, and `disturb` looks up. */
static bool may_nest(const char *name)
{
    return !strcmp(name, "all") || !strncmp(name, "mem", 3) || !strncmp(name, "dl", 2);
}

/* The library must not call the function in each malloc until one returns: that would never end. */
void *replaced_call(unsigned i)
{
    if (!finds && !(depth && may_nest(chosen()))) {
        finds = true;
        find(i);
        bool is_chosen = !strcmp(chosen(), "all") || !strcmp(chosen(), replaced_names[i][0]);
        finds = false;
        if (depth + is_chosen > MOST_DEEP)
            abort();
        depth += is_chosen;
        if (is_chosen)
            disturb();
        depth -= is_chosen;
    }
    return find(i);
}

unsigned long replaced_calls(void)
{
    return atomic_load(&calls);
}
