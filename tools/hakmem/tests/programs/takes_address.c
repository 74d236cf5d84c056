/* SPDX-License-Identifier: MIT
 * Built with -no-pie the address of malloc is one in the program itself (its procedure linkage table), and the
 * linker reports libc's malloc as bound to the program. It calls the preloaded one all the same. */
#include <stdlib.h>

static void *(*const take)(size_t) = malloc;
static void (*const give)(void *) = free;

int main(int argc, char **argv)
{
    (void)argv;
    for (int i = 0; i < 100; i++) {
        void *volatile direct = malloc((size_t)argc);
        free(direct);
        give(take(100));
    }
    return 0;
}
