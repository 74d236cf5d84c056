/* SPDX-License-Identifier: MIT
 *
 * Proves that hakmem serves this program: every function of the malloc family,
 * and what the C library allocates on the program's behalf, must give blocks
 * that hakmem knows. Says so on stdout; writes nothing to stderr.
 *
 *   probe            the proof
 *   probe secure     exit status 77 unless the kernel set AT_SECURE, then the proof
 */
#include <dirent.h>
#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>

#include "hakmem.h"

static void expect(const char *what, void *p, size_t size)
{
    /* A pointer that hakmem does not know stops the process here. */
    if (p == NULL || hakmem_malloc_usable_size(p) < size) {
        printf("%s(%zu) was not served by hakmem\n", what, size);
        exit(1);
    }
    memset(p, 1, size);
    free(p);
}

static void *in_thread(void *arg)
{
    expect("malloc in a thread", malloc(100), 100);
    return arg;
}

static void family(size_t size)
{
    void *p = NULL;
    expect("malloc", malloc(size), size);
    expect("calloc", calloc(1, size), size);
    expect("realloc", realloc(malloc(1), size), size);
    expect("reallocarray", reallocarray(NULL, 1, size), size);
    expect("aligned_alloc", aligned_alloc(64, size), size);
    expect("memalign", memalign(4096, size), size);
    expect("valloc", valloc(size), size);
    expect("posix_memalign", posix_memalign(&p, 64, size) == 0 ? p : NULL, size);
    p = hakmem_malloc(size);
    if (malloc_usable_size(p) != hakmem_malloc_usable_size(p))
        exit(1);
    free(p);
}

static void c_library(void)
{
    char *line = NULL;
    size_t room = 0;
    expect("strdup", strdup("hello"), 6);
    if (asprintf(&line, "%d", 12345) != 5)
        exit(1);
    expect("asprintf", line, 6);
    line = NULL;
    FILE *f = tmpfile();
    if (f == NULL || fputs("a line\n", f) < 0)
        exit(1);
    rewind(f);
    if (getline(&line, &room, f) != 7)
        exit(1);
    expect("getline", line, 8);
    fclose(f);
    DIR *d = opendir("/");
    if (d == NULL || readdir(d) == NULL)
        exit(1);
    closedir(d);
    pthread_t t;
    if (pthread_create(&t, NULL, in_thread, NULL) != 0 || pthread_join(t, NULL) != 0)
        exit(1);
}

int main(int argc, char **argv)
{
    static const size_t sizes[] = {1, 64, 1000, 5000, 20000, 100000, 5000000};
    if (argc > 1 && strcmp(argv[1], "secure") == 0 && getauxval(AT_SECURE) == 0)
        return 77;
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
        family(sizes[i]);
    c_library();
    printf("hakmem %s serves, backend %s\n", hakmem_version(), hakmem_backend());
    return 0;
}
