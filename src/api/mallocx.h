/* SPDX-License-Identifier: MIT
 * See mallocx.c. In the flags, the low six bits are the logarithm of the alignment, and bit 6 requests zeros. */
#ifndef HAK_MALLOCX_H
#define HAK_MALLOCX_H

#include <stddef.h>

void *mallocx(size_t size, int flags);
void *rallocx(void *p, size_t size, int flags);
size_t xallocx(void *p, size_t size, size_t extra, int flags);
size_t sallocx(const void *p, int flags);
void dallocx(void *p, int flags);
void sdallocx(void *p, size_t size, int flags);
size_t nallocx(size_t size, int flags);

#endif
