/* SPDX-License-Identifier: MIT
 * free_low ADDRESS first|used: an address below every mapping, as of a member of a null pointer, in a thread that has
 * used malloc or has not. */
#include "misuse.h"

static void *free_it(void *address)
{
    free(announce(address));
    return NULL;
}

static void *use_and_free(void *address)
{
    for (int size = 8; size < 60000; size += size / 2)
        free(malloc((size_t)size));
    return free_it(address);
}

int main(int argc, char **argv)
{
    pthread_t t;
    void *address = (void *)strtoul(argc > 1 ? argv[1] : "0", NULL, 0);
    pthread_create(&t, NULL, argc > 2 && !strcmp(argv[2], "used") ? use_and_free : free_it, address);
    pthread_join(t, NULL);
    return 0;
}
