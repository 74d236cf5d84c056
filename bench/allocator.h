/* SPDX-License-Identifier: MIT */
/*
 * Which allocator serves this process, according to the dynamic linker, never to the environment: after a failed
 * preload LD_PRELOAD is still set.
 */
#ifndef HAKMEM_BENCH_ALLOCATOR_H
#define HAKMEM_BENCH_ALLOCATOR_H

struct allocator {
    const char *name;   /* "system" if malloc comes from a libc, "unknown" if nothing matched */
    const char *object; /* path of the file that defines malloc */
    char version[64];   /* without blanks; "-" if the allocator has none */
};

/* May allocate (dlsym does): call it after the measurement. */
struct allocator allocator_identify(void);

#endif
