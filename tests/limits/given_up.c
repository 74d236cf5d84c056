/* SPDX-License-Identifier: MIT
 *
 * given_up data|as
 *
 * Under a limit: blocks of one size until most of it is used, all freed, malloc_trim(0). Then the program maps three
 * quarters of it itself, and gives them back; and blocks are served as before. Then it needs no trim by itself: what
 * is free makes way for a large block. Each size in a process of its own.
 */
#include <malloc.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "check.h"

int malloc_trim(size_t pad); /* not in each C library's header */

enum { LIMIT_MIB = 96, USED_MIB = 64, MAPPED_MIB = 72 };

struct block {
    struct block *next;
};

static struct block *fill(size_t size)
{
    struct block *all = NULL;
    for (size_t bytes = 0; bytes < USED_MIB * MIB; bytes += size) {
        struct block *b = malloc(size);
        if (b == NULL)
            die("refused at %zu MiB of %d", bytes / MIB, USED_MIB);
        memset(b, 1, size);
        b->next = all;
        all = b;
    }
    return all;
}

static void free_all(struct block *all)
{
    while (all != NULL) {
        struct block *next = all->next;
        free(all);
        all = next;
    }
}

static int under_the_limit(int resource, size_t size)
{
    struct rlimit limit;
    alarm(100);
    getrlimit(resource, &limit);
    limit.rlim_cur = LIMIT_MIB * MIB;
    if (setrlimit(resource, &limit) != 0)
        die("setrlimit: %s", strerror(errno));
    for (int round = 0; round < 3; round++) {
        free_all(fill(size));
        malloc_trim(0);
        void *own = mmap(NULL, MAPPED_MIB * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (own == MAP_FAILED)
            die("after all was freed and trimmed: %s", strerror(errno));
        munmap(own, MAPPED_MIB * MIB);
    }
    free_all(fill(size));
    if (malloc(MAPPED_MIB * MIB) == NULL)
        die("after all was freed: a block of %d MiB is refused", MAPPED_MIB);
    return 0;
}

int main(int argc, char **argv)
{
    static const size_t sizes[] = {64, 2 * KIB, 16 * KIB, 200 * KIB, 4 * MIB};
    if (argc != 2)
        die("usage: given_up data|as");
    int resource = strcmp(argv[1], "data") == 0 ? RLIMIT_DATA : RLIMIT_AS;
    for (size_t i = 0; i < COUNT(sizes); i++) {
        pid_t child = fork();
        if (child < 0)
            die("fork: %s", strerror(errno));
        if (child == 0)
            _exit(under_the_limit(resource, sizes[i]));
        char what[64];
        snprintf(what, sizeof(what), "blocks of %zu bytes", sizes[i]);
        expect_success(child, what);
    }
    return 0;
}
