/* SPDX-License-Identifier: MIT
 * A library that the program opens with RTLD_DEEPBIND: blocks pass both ways between it and the program. */
#include <stdlib.h>
#include <string.h>

char *opened_exchange(char *from_program);

char *opened_exchange(char *from_program)
{
    free(from_program);
    return strdup("from the library");
}
