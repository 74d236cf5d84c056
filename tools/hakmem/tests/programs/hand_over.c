/* SPDX-License-Identifier: MIT
 * A server of two threads: one reads requests into blocks of many sizes, the other answers, frees and resizes them.
 * It keeps its own account: at the end it prints how many bytes of these blocks live. argv[1]: how many requests. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { KEPT = 512 };

static int channel[2];
static unsigned count;

static void *reader(void *unused)
{
    for (unsigned i = 1; i <= count; i++) {
        size_t size = 16 + i * 2654435761u % 3000;
        char *request = malloc(size);
        memset(request, 1, size);
        if (write(channel[1], &request, sizeof request) != sizeof request)
            abort();
    }
    return unused;
}

int main(int argc, char **argv)
{
    static struct {
        char *block;
        size_t size;
    } kept[KEPT];
    pthread_t thread;
    count = argc > 1 ? (unsigned)atoi(argv[1]) : 10000;
    if (pipe(channel) || fcntl(channel[1], F_SETPIPE_SZ, 4096) < 0 || pthread_create(&thread, NULL, reader, NULL))
        return 1;
    for (unsigned i = 0; i < count; i++) {
        char *request;
        if (read(channel[0], &request, sizeof request) != sizeof request)
            return 1;
        free(kept[i % KEPT].block);
        kept[i % KEPT].size = 32 + i % 700;
        kept[i % KEPT].block = realloc(request, kept[i % KEPT].size);
    }
    pthread_join(thread, NULL);
    char *large = malloc(8 << 20); /* of which a part is touched */
    memset(large, 1, 1 << 20);
    free(large);
    size_t live = 0;
    for (unsigned i = 0; i < KEPT; i++)
        live += kept[i].size;
    char line[32];
    int n = snprintf(line, sizeof line, "%zu\n", live);
    return write(STDOUT_FILENO, line, (size_t)n) != n;
}
