/* SPDX-License-Identifier: MIT
 * A program that was linked with hakmem in one of the ways that README.md names. It succeeds if what the program
 * and the C library take by malloc comes out of hakmem's own account.
 */
#include <hakmem.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SIZE = 100000 };

static size_t in_use(void)
{
    struct hakmem_mallinfo2 info = hakmem_mallinfo2();
    return info.uordblks + info.hblkhd;
}

int main(void)
{
    size_t before = in_use();
    char *own = (char *)calloc(1, SIZE);
    size_t between = in_use();
    char *copy = own ? strdup((char *)memset(own, 'x', SIZE - 1)) : NULL;
    int served = copy && between >= before + SIZE && in_use() >= between + SIZE;
    printf("hakmem %s %s\n", hakmem_version(), served ? "serves malloc" : "does not serve malloc");
    free(copy);
    free(own);
    return !served;
}
