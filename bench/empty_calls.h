/* SPDX-License-Identifier: MIT */
/*
 * Two functions that do nothing, in a shared library of their own, so that a call goes through
 * the PLT as a call of malloc or free does. What is left after subtracting them is the allocator.
 */
#ifndef HAKMEM_BENCH_EMPTY_CALLS_H
#define HAKMEM_BENCH_EMPTY_CALLS_H

#include <stddef.h>

void *empty_malloc(size_t size); /* returns something that is not NULL for size > 0 */
void empty_free(void *block);

#endif
