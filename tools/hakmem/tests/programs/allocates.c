/* SPDX-License-Identifier: MIT
 * Allocates and frees once. ASKS: a call of another allocator. OWN: a mark of hakmem in the program itself. */
#include <stdio.h>
#include <stdlib.h>

#ifdef ASKS
int ASKS(void);
int (*asks)(void) = ASKS;
#endif
#ifdef OWN
__asm__(".pushsection .hakmem.layout,\"\",@progbits\n.asciz \"number none\"\n.popsection");
#endif

int main(void)
{
    char *block = malloc(100);
    block[0] = 1;
    int code = block[0] - 1;
    free(block);
    return code;
}
