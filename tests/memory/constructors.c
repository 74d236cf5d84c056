/* SPDX-License-Identifier: MIT
 * constructors: no constructor of the program or of a library loaded with it meets the thread of
 * HAKMEM_BACKGROUND=1, though they allocate for much longer than it takes to start; main soon does. */
#include "threads.h"

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

int main(void)
{
    if (constructing_found() != 2 || found != 1 || found_late != 1 || threads(NULL) != 1)
        die("threads in the library's constructor: %u, in the program's: %u and %u, in main: %u", constructing_found(),
            found, found_late, threads(NULL));
#if TELLS
    traffic(250, 2);
    if (threads(NULL) != 1)
        die("%u threads before main was told of", threads(NULL));
    hakmem_main_called();
#endif
    wait_for_thread();
    return 0;
}
