/* SPDX-License-Identifier: MIT
 * A library that is opened and closed while the process runs: the C library makes its thread-local block when a thread
 * first touches it, and holds the lock of its loader while constructor and destructor allocate. */
#include "life.h"

enum { BLOCK = 3000 };

static __thread unsigned char block[BLOCK];

void life_tls_touch(void);

void life_tls_touch(void)
{
    mark(block, BLOCK, 1);
}

__attribute__((constructor)) static void construct(void)
{
    life_traffic(20, 31);
}

__attribute__((destructor)) static void destruct(void)
{
    life_traffic(20, 37);
}
