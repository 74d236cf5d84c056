/* SPDX-License-Identifier: MIT
 * A library that contains libhakmem.a. */
#include <hakmem.h>

void unloaded_use(void);

void unloaded_use(void)
{
    hakmem_free(hakmem_malloc(100));
}
