/* SPDX-License-Identifier: MIT
 * sparse MIN_KIB MAX_KIB N: large blocks of which the program touches every 16th page hold little more than that.
 * It tells something where the kernel's setting of transparent huge pages is `madvise`: then they come by the
 * library's advice alone. With `never` there are none; with `always` they come unasked, also where no library
 * could know yet how its memory is used. */
#include "resident.h"

enum { STEP = 16 * 4096 };

static void skip_unless_advice_counts(void)
{
    char text[64] = "";
    int fd = open("/sys/kernel/mm/transparent_hugepage/enabled", O_RDONLY);
    if (fd < 0 || read(fd, text, sizeof text - 1) <= 0)
        skip("the kernel has no transparent huge pages");
    close(fd);
    if (!strstr(text, "[madvise]"))
        skip("transparent huge pages are set to another value than madvise");
}

int main(int argc, char **argv)
{
    if (argc != 4)
        die("usage: sparse MIN_KIB MAX_KIB N");
    skip_unless_advice_counts();
    size_t min = strtoul(argv[1], NULL, 10) * KIB, max = strtoul(argv[2], NULL, 10) * KIB;
    uint64_t random = 42;
    free(malloc(100));
    size_t before = resident(), touched = 0;
    for (unsigned long i = strtoul(argv[3], NULL, 10); i > 0; i--) {
        size_t size = min + next_random(&random) % (max - min + 1);
        char *p = malloc(size);
        if (!p)
            die("malloc(%zu) returned NULL", size);
        for (size_t at = 0; at < size; at += STEP, touched += (size_t)sysconf(_SC_PAGESIZE))
            p[at] = 1;
    }
    size_t held = resident() - before;
    say("%zu KiB touched, %zu KiB held", touched / KIB, held / KIB);
    return held <= touched / 4 * 5 ? 0 : 1;
}
