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

/* Defines a test, and adds it to the program's list before main. */
#define TEST(name)                                                 \
    static void name(void **state_);                               \
    static void __attribute__((constructor)) unit_add_##name(void) \
    {                                                              \
        unit_add(#name, name);                                     \
    }                                                              \
    static void name(void **state_ __attribute__((unused)))

/* Defines a test that runs once for each row of a table, each in a process of its own. It reads `row`. */
#define TEST_EACH(name, table)                              \
    static void name##_of(const __typeof__(*(table)) *row); \
    TEST(name)                                              \
    {                                                       \
        size_t i_ = unit_row(#name, COUNT(table));          \
        if (i_ < COUNT(table))                              \
            name##_of(&(table)[i_]);                        \
    }                                                       \
    static void name##_of(const __typeof__(*(table)) *row)

void unit_add(const char *name, void (*test)(void **));

/* --- scenarios in further processes -------------------------------------------------------------- */

extern const char *unit_argument; /* what unit_spawn gave this process, or NULL */
/* Runs one test of this program in a new process, and returns its wait status. What the process writes to unit_out
 * arrives in `out` (may be NULL). */
int unit_spawn(const char *test, const char *argument, char *out, size_t size);
extern int unit_out;
/* Runs the calling test (`__func__`) once for each row of a table, each in a process of its own. Such a process gets
 * the number of its row; the first process gets `rows` when all rows have passed. */
size_t unit_row(const char *test, size_t rows);
/* To 64 GiB. False if that is not to be had: a sanitizer needs terabytes, and qemu-user limits nothing. */
bool unit_limit_addresses(void);
/* Forks; fn() in the child must return 0. */
void unit_in_child(int (*fn)(void));
/* In a forked child, the statement must stop the process by SIGABRT after it wrote a line that contains `message`. */
#define assert_dies(statement, message) \
    do {                                \
        if (unit_is_doomed()) {         \
            statement;                  \
            unit_survives();            \
        }                               \
        unit_died_with(message);        \
    } while (0)
bool unit_is_doomed(void); /* forks; true in the child */
void unit_survives(void);
void unit_died_with(const char *message);
/* Returns in `text` what the statement writes to stderr. */
#define unit_stderr_of(statement, text, size) \
    do {                                      \
        unit_stderr_begin();                  \
        statement;                            \
        unit_stderr_end(text, size);          \
    } while (0)
void unit_stderr_begin(void);
void unit_stderr_end(char *text, size_t size);
pthread_t unit_begin(void *(*fn)(void *), void *context);
/* The same for a thread that has no heap of its own before it has done enough. */
pthread_t unit_begin_light(void *(*fn)(void *), void *context);
/* Waits for the end of a thread, its destructors included. */
void unit_join(pthread_t thread);
/* Runs fn(context) in a thread that ends; its heap is dissolved. */
void unit_in_thread(void *(*fn)(void *), void *context);

/* Skips the test where an emulator, whose pages are longer than the machine's, answers mincore for the machine's. */
void unit_needs_mincore(void);
/* Skips the test where free pages return to the kernel at once. */
void unit_needs_delay(void);

/* --- settings, before the first allocation --------------------------------------------------------- */

/* Installs the fake OS layer, and makes settings: "NAME=value NAME=value", or NULL. */
void unit_start(const char *settings);
/* The same, and starts the library; what that writes to stderr is in `text`. */
void unit_init(const char *settings);
void unit_init_text(const char *settings, char *text, size_t size);
/* The same, and returns the heap of this thread. */
struct hak_heap *unit_init_heap(const char *settings);

/* Starts the library, and returns the heap of the calling thread; NULL without memory. */
struct hak_heap *unit_thread(void);

/* --- inspection -------------------------------------------------------------------------------------- */

struct hak_heaps_totals unit_totals(void);
struct hak_space_stats unit_space(void);
size_t unit_dirty_bytes(void);
/* A number of the statistics: unit_stat("stages", "empty"). Fails the test if there is none. */
uint64_t unit_stat(const char *section, const char *key);
/* The whole of the statistics; freed by the caller. */
char *unit_stats_text(bool json);
/* Empties the PARTIAL slabs whose blocks have all returned, as happens with time. */
void unit_sweep(void);
/* Runs a purge tick of the backend and of the page heap; true if there is more to do. */
bool unit_tick(void);
/* A run of free pages, or of new ones, at a multiple of `align` pages; NULL without memory. */
struct hak_slab *unit_run(size_t pages, size_t align, bool *zero);
void unit_put_run(struct hak_slab *run);
/* Puts pages that were taken. */
void unit_put_pages(char *base, size_t pages);
uint64_t unit_transitions(enum hak_slab_state from, enum hak_slab_state to);
/* The number of system calls for a cause. */
uint64_t unit_cause_calls(enum hak_cause cause);
/* How often the library checked whether large pages would pay. */
uint64_t unit_looks(void);
struct hak_census unit_census(void); /* fails the test if there are violations */
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
/* The same by another thread, which ends. */
struct unit_block *unit_blocks_of_other(size_t size, size_t n);
void unit_free_by_other(struct unit_block *list);
/* What malloc_usable_size answers. */
#define unit_usable(p) hak_block_usable(p, "malloc_usable_size")
/* How many blocks of `size` a slab holds. */
size_t unit_slab_capacity(size_t size);
/* How many blocks wait in this thread's bin. */
size_t unit_bin_length(unsigned cls);
uint64_t unit_random(uint64_t *state);

#endif
