/* SPDX-License-Identifier: MIT
 *
 * twice WHEN: a block freed twice.
 *   once, later        a small one, at once, or with another freed in between
 *   drained            a small one, after the thread's bins were drained; others of its slab are in use
 *   emptied            one of many, which are all free: its slab has no block in use
 *   purged             the same, after its pages went back to the kernel
 *   foreign            another thread's small one, by a thread that frees it twice
 *   both               first by another thread, then by its owner
 *   parked             of a thread that has ended, and whose heap waits for the next one
 *   shared the same; the thread had used so few blocks that they lie in a shared slab
 *   SIZE               a block of so many bytes, at once */
#include "misuse.h"

static void *victim, *live;

static void *free_once(void *p)
{
    free(malloc(200));
    free(p);
    return NULL;
}

static void *free_twice(void *p)
{
    free_once(p);
    free(announce(p));
    return NULL;
}

static void *use_many(void *unused)
{
    void *p[4000];
    for (int i = 0; i < 4000; i++)
        p[i] = malloc(200);
    victim = p[10];
    for (int i = 0; i < 4000; i++)
        free(p[i]);
    return unused;
}

static void *use_few(void *unused)
{
    live = malloc(200); /* so that the slab stays */
    victim = malloc(200);
    free(victim);
    return unused;
}

static void in_thread(void *(*work)(void *), void *context)
{
    pthread_t t;
    pthread_create(&t, NULL, work, context);
    pthread_join(t, NULL);
}

static void drained(void)
{
    void *p[100];
    for (int i = 0; i < 100; i++)
        p[i] = malloc(200);
    free(p[50]);
    malloc_trim(0);
    free(announce(p[50]));
}

/* Those that were freed last stay in the thread's bin. */
static void emptied(void)
{
    enum { MANY = 200000 };
    static void *p[MANY];
    for (int i = 0; i < MANY; i++)
        p[i] = malloc(200);
    victim = p[MANY / 2];
    for (int i = 0; i < MANY; i++)
        free(p[i]);
}

static void later(void)
{
    void *p = malloc(200), *q = malloc(200);
    free(p);
    free(q);
    free(announce(p));
}

static void at_once(size_t size)
{
    void *p = malloc(size);
    free(p);
    free(announce(p));
}

int main(int argc, char **argv)
{
    const char *when = argc == 2 ? argv[1] : "";
    if (!strcmp(when, "once")) {
        at_once(200);
    } else if (!strcmp(when, "later")) {
        later();
    } else if (!strcmp(when, "drained")) {
        drained();
    } else if (!strcmp(when, "emptied") || !strcmp(when, "purged")) {
        emptied();
        if (*when == 'p')
            malloc_trim(0);
        free(announce(victim));
    } else if (!strcmp(when, "foreign")) {
        in_thread(free_twice, malloc(200));
    } else if (!strcmp(when, "both")) {
        void *p = malloc(200);
        in_thread(free_once, p);
        free(announce(p));
    } else if (!strcmp(when, "parked") || !strcmp(when, "shared")) {
        in_thread(*when == 'p' ? use_many : use_few, NULL);
        free(announce(victim));
    } else if (strtoul(when, NULL, 0)) {
        at_once(strtoul(when, NULL, 0));
    } else {
        return 2;
    }
    return passed();
}
