/* SPDX-License-Identifier: MIT
 * An address that no program can have freed. */
#include "misuse.h"

int main(void)
{
    free(announce((void *)0xdeadbeefdeadbee0));
    return 0;
}
