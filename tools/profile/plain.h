/* SPDX-License-Identifier: MIT
 * Functions of libhakmem.so that the profile interposes under their own names, and calls by these. plain.c has them for
 * libhakmem-profile.so; libhakmem-profile.a contains libhakmem.a, where they are compiled under these names. */
#ifndef HAK_PLAIN_H
#define HAK_PLAIN_H

#include "api/hakmem.h"

extern __typeof__(hakmem_heap_malloc) hak_plain_heap_malloc;
extern __typeof__(hakmem_heap_calloc) hak_plain_heap_calloc;
extern __typeof__(hakmem_heap_aligned_alloc) hak_plain_heap_aligned_alloc;
extern __typeof__(hakmem_heap_destroy) hak_plain_heap_destroy;

#endif
