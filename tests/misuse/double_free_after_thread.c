/* SPDX-License-Identifier: MIT
 * A block freed again after the thread that had allocated and freed it is gone. */
#include "misuse.h"

static void *take_and_free(void *arg)
{
    void **p = arg;
    *p = announce(malloc(64));
    free(*p);
    return NULL;
}

int main(void)
{
    pthread_t t;
    void *p;
    pthread_create(&t, NULL, take_and_free, &p);
    pthread_join(t, NULL);
    free(p);
    return 0;
}
