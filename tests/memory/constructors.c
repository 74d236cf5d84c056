/* SPDX-License-Identifier: MIT
 * constructors: the thread of HAKMEM_BACKGROUND=1 starts when the process is 100 ms old, so no constructor that
 * takes its time as usual meets it, though it allocates; a program that does not want to wait tells of its main. */
#include "threads.h"

#include <hakmem.h>

#define USUAL_MS 30u
#define EARLY_MS 90u

static uint64_t began;
static unsigned found;

__attribute__((constructor)) static void construct(void)
{
    began = now_ms();
    traffic(USUAL_MS, 2);
    found = now_ms() - began < EARLY_MS ? threads(NULL) : 1; /* a busy machine tells nothing */
}

int main(int argc, char **argv)
{
    if (found != 1)
        die("%u threads in a constructor", found);
    if (argc > 1 && !strcmp(argv[1], "told"))
        hakmem_main_called();
    else
        wait_for_thread();
    if (threads(NULL) != 2)
        die("%u threads in main, not 2", threads(NULL));
    return 0;
}
