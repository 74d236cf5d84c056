/* SPDX-License-Identifier: MIT
 *
 * locked_late LIBRARY: mlockall of what will be, and a limit of 64 MiB or less
 * on locked memory, come first; the library is loaded and used under them.
 * There the kernel answers EAGAIN, which must come out as ENOMEM.
 */
#include <dlfcn.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "check.h"

static void *(*take)(size_t);
static void (*give)(void *);

static void fetch(void *handle, const char *name, void *into)
{
    void *symbol = dlsym(handle, name);
    if (symbol == NULL)
        die("%s", dlerror());
    memcpy(into, &symbol, sizeof(symbol));
}

int main(int argc, char **argv)
{
    if (argc != 2)
        die("usage: locked_late LIBRARY");
    alarm(60);
    struct rlimit limit;
    if (getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_max < 4 * MIB)
        skip("too little may be locked");
    if (limit.rlim_max > 64 * MIB)
        limit.rlim_max = 64 * MIB;
    limit.rlim_cur = limit.rlim_max;
    if (setrlimit(RLIMIT_MEMLOCK, &limit) != 0)
        skip("setrlimit: %s", strerror(errno));
    /* Gives up the right to lock any amount, so that the limit applies. */
    if (geteuid() == 0 && (setgid(65534) != 0 || setuid(65534) != 0))
        skip("setuid: %s", strerror(errno));
    if (mlockall(MCL_FUTURE) != 0)
        skip("mlockall: %s", strerror(errno));
    void *handle = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    if (handle == NULL)
        skip("the library is not readable for an ordinary user: %s", dlerror());
    fetch(handle, "hakmem_malloc", &take);
    fetch(handle, "hakmem_free", &give);

    struct node {
        struct node *next;
    } *all = NULL;
    size_t total = 0, size = 100000;
    while (total < 256 * MIB) {
        errno = 0;
        struct node *n = take(size);
        if (n == NULL) {
            if (errno != ENOMEM)
                die("%zu bytes refused with errno %d", size, errno);
            if (size == 100)
                break;
            size = size == 100000 ? 5000 : 100;
            continue;
        }
        mark((unsigned char *)n + sizeof(*n), size - sizeof(*n), 5);
        n->next = all;
        all = n;
        total += size;
    }
    say("%zu KiB of %zu served before the third refusal", total / KIB, (size_t)limit.rlim_cur / KIB);
    if (total < limit.rlim_cur / 4)
        die("less than a quarter of what may be locked was served");
    while (all != NULL) {
        struct node *n = all;
        all = n->next;
        give(n);
    }
    for (int i = 0; i < 1000; i++) {
        void *p = take(5000);
        if (p == NULL)
            die("5000 bytes refused after all was freed");
        give(p);
    }
    return 0;
}
