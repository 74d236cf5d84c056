/* SPDX-License-Identifier: MIT
 * A byte string as a program: each few bytes are a call of the public interface, made by one of up to four threads,
 * whose turns the bytes say. Every result is judged against a shadow model of what is live: blocks do not overlap, are
 * aligned and as large as asked, keep their content, and are zero from calloc. A failure stops the process. */
#ifndef TESTS_FUZZ_PROGRAM_H
#define TESTS_FUZZ_PROGRAM_H

#include <stddef.h>
#include <stdint.h>

#define FUZZ_INPUT_MAX 4096

/* Results that must be equal for each backend. */
struct fuzz_answer {
    uint32_t given;  /* not NULL */
    uint32_t usable; /* bytes; 0 if the library may choose */
};

struct fuzz_trace {
    size_t length;
    struct fuzz_answer answers[1 << 16]; /* those beyond are not kept */
};

/* Once, before the first allocation: a kernel and a clock that the program controls. */
void fuzz_start(void);
/* Runs a program and frees all remaining blocks. False if it made the kernel refuse calls: then NULL depends on
 * more. */
int fuzz_run(const uint8_t *bytes, size_t size, struct fuzz_trace *trace);

#endif
