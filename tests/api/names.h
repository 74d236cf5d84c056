/* SPDX-License-Identifier: MIT
 *
 * The malloc family under test as one table of pointers. names.c fills it
 * with the plain names or, with -DTWINS=1, with the hakmem_* twins, so that
 * one source tests both. Calls through the table also keep the compiler from
 * folding away what it believes to know about malloc.
 */
#ifndef TESTS_API_NAMES_H
#define TESTS_API_NAMES_H

#include <malloc.h>
#include <stddef.h>
#include <stdio.h>

#include "hakmem.h"

struct names {
    const char *world;
    void *(*malloc)(size_t size);
    void (*free)(void *ptr);
    void *(*calloc)(size_t count, size_t size);
    void *(*realloc)(void *ptr, size_t size);
    void *(*reallocarray)(void *ptr, size_t count, size_t size);
    int (*posix_memalign)(void **out, size_t align, size_t size);
    void *(*aligned_alloc)(size_t align, size_t size);
    void *(*memalign)(size_t align, size_t size);
    void *(*valloc)(size_t size);
    void *(*pvalloc)(size_t size);
    size_t (*usable_size)(void *ptr);
    void (*free_sized)(void *ptr, size_t size);
    void (*free_aligned_sized)(void *ptr, size_t align, size_t size);
    int (*malloc_trim)(size_t pad);
    /* glibc's own additions. */
    struct hakmem_mallinfo2 (*mallinfo2)(void);
    int (*malloc_info)(int options, FILE *out);
    void (*malloc_stats)(void);
    int (*mallopt)(int param, int value);
};

extern struct names api;

#endif
