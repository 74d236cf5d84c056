/* SPDX-License-Identifier: MIT */
/*
 * Which allocator serves this process: asked of the dynamic linker, never of the environment,
 * because a preload that failed leaves LD_PRELOAD as it was.
 */
#ifndef HAKMEM_BENCH_ALLOCATOR_H
#define HAKMEM_BENCH_ALLOCATOR_H

struct allocator {
    const char *name;    /* "system" if malloc comes from a libc, "unknown" if nothing matched */
    const char *object;  /* path of the file that defines malloc */
    char version[64];    /* without blanks; "-" if the allocator tells none */
};

/* May allocate (dlsym does): call it after the measurement. */
struct allocator allocator_identify(void);

#endif
