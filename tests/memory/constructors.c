/* SPDX-License-Identifier: MIT
 * constructors LIBRARY: the thread of HAKMEM_BACKGROUND=1 starts when main is called, so no constructor of the
 * program or of a library loaded with it meets it, though they allocate for long; and it starts in no constructor of
 * LIBRARY, which main opens. */
#include "threads.h"

#include <dlfcn.h>
#include <hakmem.h>

unsigned constructing_found(void);

static unsigned found, found_late;

__attribute__((constructor)) static void construct(void)
{
    traffic(250, 2);
    found = threads(NULL);
}

/* The last one of the program. */
static void construct_late(void)
{
    traffic(250, 2);
    found_late = threads(NULL);
}
__attribute__((section(".init_array"), used)) static void (*late)(void) = construct_late;

/* The thread is there when main begins, or after main told of itself, as it must with the archive. */
static void check_main(void)
{
#if TELLS
    traffic(250, 2);
    if (threads(NULL) != 1)
        die("%u threads before main was told of", threads(NULL));
    hakmem_main_called();
#endif
    if (threads(NULL) != 2)
        die("%u threads in main, not 2", threads(NULL));
}

/* Its constructor has one thread of its own. */
static void check_opened(const char *path)
{
    unsigned before = threads(NULL);
    void *library = dlopen(path, RTLD_NOW);
    unsigned (*found_there)(void) = library ? (unsigned (*)(void))dlsym(library, "constructing_found") : NULL;
    if (!found_there)
        die("%s cannot be opened: %s", path, dlerror());
    if (found_there() != 1 || threads(NULL) != before)
        die("threads before dlopen: %u, more in the library's constructor: %u, afterwards: %u", before, found_there(),
            threads(NULL));
    dlclose(library);
}

int main(int argc, char **argv)
{
    if (argc != 2)
        die("usage: constructors LIBRARY");
    if (constructing_found() != 1 || found != 1 || found_late != 1)
        die("threads more in the library's constructor: %u, in the program's: %u and %u", constructing_found(), found,
            found_late);
#if TELLS
    check_opened(argv[1]);
#endif
    check_main();
    check_opened(argv[1]);
    return 0;
}
