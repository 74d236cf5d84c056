/* Blocks whose state is known, for gdb: `held` lives, `freed` is free, `large` is large. Then it ends by SIGABRT. */
#include <stdlib.h>

void *held, *freed, *large, *blocks[100];

int main(void)
{
    for (int i = 0; i < 100; i++)
        blocks[i] = malloc(100);
    held = blocks[50];
    freed = blocks[40];
    free(freed);
    large = malloc(500000);
    abort();
}
