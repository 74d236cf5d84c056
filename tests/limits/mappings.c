/* SPDX-License-Identifier: MIT
 * Many blocks with mappings of their own, and many that hardened builds close when they are free, every second freed:
 * the process has at most half of vm.max_map_count, so it can map, and start a thread. */
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>

#include "check.h"

enum { DIRECT = 140000, BLOCKS = 36000, USUAL = 65530, OTHERS = 1000 };

static unsigned lines_of(const char *path)
{
    static char text[1 << 16];
    unsigned n = 0;
    int fd = open(path, O_RDONLY);
    for (ssize_t got; (got = read(fd, text, sizeof text)) > 0;)
        for (ssize_t i = 0; i < got; i++)
            n += text[i] == '\n';
    close(fd);
    return n;
}

static void *nothing(void *arg)
{
    return arg;
}

int main(void)
{
    static void *direct[DIRECT], *closed[BLOCKS];
    pthread_t thread;
    for (size_t i = 0; i < DIRECT; i++)
        if (!(direct[i] = malloc(66 * MIB)) || (i < BLOCKS && !(closed[i] = malloc(60000))))
            skip("the kernel refuses so many addresses");
    for (size_t i = 0; i < DIRECT; i += 2) {
        free(direct[i]);
        free(i < BLOCKS ? closed[i] : NULL);
    }
    unsigned lines = lines_of("/proc/self/maps");
    if (lines > USUAL / 2 + OTHERS)
        die("%u mappings", lines);
    if (mmap(NULL, MIB, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED ||
        pthread_create(&thread, NULL, nothing, NULL))
        die("with %u mappings the program can have no other", lines);
    pthread_join(thread, NULL);
    printf("%u mappings\n", lines);
    return 0;
}
