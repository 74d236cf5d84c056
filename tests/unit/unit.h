/* SPDX-License-Identifier: MIT
 * What the unit tests share. The library starts once in a process, so each test of a program runs in a
 * process of its own, which the program starts: `test_slab` runs all its tests, `test_slab NAME` only one. */
#ifndef TESTS_UNIT_UNIT_H
#define TESTS_UNIT_UNIT_H

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/heap/heaps.h"
#include "core/heap/thread.h"
#include "core/malloc/malloc.h"
#include "core/os/os.h"
#include "core/pages/page_heap.h"
#include "core/pages/space.h"
#include "core/parts/parts.h"
#include "core/process/life.h"
#include "core/process/maintenance.h"
#include "core/process/report.h"
#include "fake_os.h"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

/* A test, which joins its program's list before main. */
#define TEST(name)                                                    \
    static void name(void **state_);                                  \
    static void __attribute__((constructor)) unit_add_##name(void)    \
    {                                                                 \
        unit_add(#name, name);                                        \
    }                                                                 \
    static void name(void **state_ __attribute__((unused)))

#define UNIT_MAIN(...) _Static_assert(1, "tests join the list by themselves");

void unit_add(const char *name, void (*test)(void **));

/* --- scenarios in further processes -------------------------------------------------------------- */

extern const char *unit_argument; /* what unit_spawn gave this process, or NULL */
/* Runs one test of this program in a new process; its wait status. What it writes to unit_out arrives in
 * `out` (may be NULL). */
int unit_spawn(const char *test, const char *argument, char *out, size_t size);
extern int unit_out;
/* In a forked child, `fn` must stop the process by SIGABRT after it wrote a line that contains `message`. */
void assert_dies(void (*fn)(void), const char *message);
/* What `fn` writes to stderr. */
void unit_stderr_of(void (*fn)(void), char *text, size_t size);
/* Runs fn(context) in a thread and waits for its end, its destructors included; nothing of it stays parked. */
void unit_in_thread(void *(*fn)(void *), void *context);

/* Skips the test where an emulator, whose pages are longer than the machine's, answers mincore for the machine's. */
void unit_needs_mincore(void);

/* --- settings, before the first allocation --------------------------------------------------------- */

/* The fake door, and settings: "NAME=value NAME=value", or NULL. */
void unit_start(const char *settings);

/* The calling thread's descriptor, which the library is started for; NULL without memory. */
struct hak_heap *unit_thread(void);

/* --- looking in -------------------------------------------------------------------------------------- */

/* A number of the statistics: unit_stat("stages", "empty"). Fails the test if there is none. */
uint64_t unit_stat(const char *section, const char *key);
/* The whole of the statistics; freed by the caller. */
char *unit_stats_text(bool json);
/* PARTIAL slabs whose blocks are all back become EMPTY, as they do with time. */
void unit_sweep(void);
/* What a purge tick does to the backend and the page heap; whether there is more. */
bool unit_tick(void);
/* A run of free pages, or of new ones, at a multiple of `align` pages; NULL without memory. */
struct hak_slab *unit_run(size_t pages, size_t align, bool *zero);
void unit_put_run(struct hak_slab *run);
uint64_t unit_transitions(enum hak_slab_state from, enum hak_slab_state to);
/* Sum over the calls of a cause. */
uint64_t unit_cause_calls(enum hak_cause cause);
/* Looks at whether large pages would pay. */
uint64_t unit_looks(void);
struct hak_census unit_census(void); /* of a state without violations, or the test fails */
/* 64 KiB pages of slabs that hold blocks: ACTIVE, FULL and PARTIAL. */
uint64_t unit_pages_in_use(const struct hak_census *c);

/* The tag of the page that the block begins in. */
#define unit_tag_of(p) hak_tag_load((uintptr_t)(p) >> HAK_PAGE_LG)
/* Whether a byte is mapped and may be read. */
bool unit_is_open(const void *p);

/* --- blocks ------------------------------------------------------------------------------------------ */

struct unit_block {
    struct unit_block *next;
};
/* Allocates n blocks of `size` bytes and links them; all must be there. */
struct unit_block *unit_blocks(size_t size, size_t n);
void unit_free_blocks(struct unit_block *list);
/* What malloc_usable_size answers. */
#define unit_usable(p) hak_block_usable(p, "malloc_usable_size")
/* How many blocks of `size` a slab of theirs holds, and a slab's worth of them. */
size_t unit_slab_capacity(size_t size);
/* How many blocks wait in this thread's bin. */
size_t unit_bin_length(unsigned cls);
uint64_t unit_random(uint64_t *state);

#endif
