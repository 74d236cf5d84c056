/* SPDX-License-Identifier: MIT
 * A library whose constructor takes its time, and makes traffic in a thread of its own meanwhile; see
 * constructors.c. */
#include "threads.h"

#include <pthread.h>

unsigned constructing_found(void);

static unsigned before, found;

static void *work(void *unused)
{
    traffic(250, before + 2);
    found = threads(NULL) - before;
    return unused;
}

__attribute__((constructor)) static void construct(void)
{
    pthread_t own;
    before = threads(NULL);
    if (pthread_create(&own, NULL, work, NULL))
        die("no thread");
    pthread_join(own, NULL);
    for (uint64_t end = now_ms() + 1000; threads(NULL) != before && now_ms() < end;)
        ; /* a thread that was joined is listed for a moment longer */
    traffic(250, before + 1);
}

/* Threads more at the end of that one's work: it, and whichever should not be there. */
unsigned constructing_found(void)
{
    return found;
}
