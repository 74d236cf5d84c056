/* SPDX-License-Identifier: MIT
 *
 * Makes every call of the family as the first one of a fresh thread, and again
 * after the library's own per-thread state is gone, as the C library does when
 * it frees at thread exit.
 *
 * cmocka must not be entered from a second thread, so threads return a
 * complaint and the main thread fails the test.
 */
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "names.h"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

/* The input and output of a call: blocks of `size` bytes. */
struct job {
    size_t size;
    void *given; /* a live block; NULL once the call has consumed it */
    void *made;  /* a new live block, or NULL */
};

static bool call_malloc(struct job *j)
{
    return (j->made = api.malloc(j->size)) != NULL;
}

static bool call_calloc(struct job *j)
{
    unsigned char *p = j->made = api.calloc(j->size, 1);
    if (p == NULL)
        return false;
    for (size_t i = 0; i < j->size; i++)
        if (p[i] != 0)
            return false;
    return true;
}

static bool call_free(struct job *j)
{
    errno = EDOM;
    api.free(j->given);
    j->given = NULL;
    return errno == EDOM;
}

static bool call_free_sized(struct job *j)
{
    api.free_sized(j->given, j->size);
    j->given = NULL;
    return true;
}

static bool call_free_null(struct job *j)
{
    (void)j;
    api.free(NULL);
    return true;
}

static bool call_realloc_null(struct job *j)
{
    return (j->made = api.realloc(NULL, j->size)) != NULL;
}

static bool call_realloc_same(struct job *j)
{
    j->made = api.realloc(j->given, j->size);
    if (j->made != NULL)
        j->given = NULL;
    return j->given == NULL;
}

static bool call_realloc_grow(struct job *j)
{
    j->made = api.realloc(j->given, j->size * 3);
    if (j->made != NULL)
        j->given = NULL;
    return j->given == NULL;
}

static bool call_realloc_zero(struct job *j)
{
    void *p = api.realloc(j->given, 0);
    j->given = NULL;
    return p == NULL;
}

static bool call_reallocarray(struct job *j)
{
    j->made = api.reallocarray(j->given, 2, j->size);
    if (j->made != NULL)
        j->given = NULL;
    return j->given == NULL;
}

static bool call_posix_memalign(struct job *j)
{
    return api.posix_memalign(&j->made, 256, j->size) == 0 && (uintptr_t)j->made % 256 == 0;
}

static bool call_aligned_alloc(struct job *j)
{
    j->made = api.aligned_alloc(64, j->size);
    return j->made != NULL && (uintptr_t)j->made % 64 == 0;
}

static bool call_memalign(struct job *j)
{
    j->made = api.memalign(4096, j->size);
    return j->made != NULL && (uintptr_t)j->made % 4096 == 0;
}

static bool call_valloc(struct job *j)
{
    return (j->made = api.valloc(j->size)) != NULL;
}

static bool call_pvalloc(struct job *j)
{
    return (j->made = api.pvalloc(j->size)) != NULL;
}

static bool call_free_aligned_sized(struct job *j)
{
    j->made = api.aligned_alloc(128, j->size);
    if (j->made == NULL)
        return false;
    api.free_aligned_sized(j->made, 128, j->size);
    j->made = NULL;
    return true;
}

static bool call_usable_size(struct job *j)
{
    return api.usable_size(j->given) >= j->size;
}

static bool call_trim(struct job *j)
{
    (void)j;
    int given = api.malloc_trim(0);
    return given == 0 || given == 1;
}

static bool call_mallinfo2(struct job *j)
{
    (void)j;
    struct hakmem_mallinfo2 info = api.mallinfo2();
    return info.uordblks <= info.arena;
}

static bool call_mallopt(struct job *j)
{
    (void)j;
    return api.mallopt(123456, 0) == 0;
}

static bool call_refused(struct job *j)
{
    (void)j;
    errno = 0;
    return api.malloc((size_t)PTRDIFF_MAX + 1) == NULL && errno == ENOMEM;
}

static const struct {
    const char *name;
    bool (*run)(struct job *j);
} calls[] = {
    {"malloc", call_malloc},
    {"calloc", call_calloc},
    {"free", call_free},
    {"free_sized", call_free_sized},
    {"free of NULL", call_free_null},
    {"realloc of NULL", call_realloc_null},
    {"realloc in place", call_realloc_same},
    {"realloc growing", call_realloc_grow},
    {"realloc to zero", call_realloc_zero},
    {"reallocarray", call_reallocarray},
    {"posix_memalign", call_posix_memalign},
    {"aligned_alloc", call_aligned_alloc},
    {"memalign", call_memalign},
    {"valloc", call_valloc},
    {"pvalloc", call_pvalloc},
    {"free_aligned_sized", call_free_aligned_sized},
    {"malloc_usable_size", call_usable_size},
    {"malloc_trim", call_trim},
    {"mallinfo2", call_mallinfo2},
    {"mallopt", call_mallopt},
    {"malloc of PTRDIFF_MAX + 1", call_refused},
};

static const size_t job_sizes[] = {16, 100, 1000, 3000, 20000, 70000, 300000};

/* Runs one call and frees the block that it leaves. True if nothing failed. */
static bool run_job(size_t call, struct job *j)
{
    j->made = NULL;
    if (!calls[call].run(j))
        return false;
    if (j->made != NULL) {
        size_t usable = api.usable_size(j->made);
        if (usable < j->size || (uintptr_t)j->made % 16 != 0)
            return false;
        memset(j->made, 0xc3, usable);
        api.free(j->made);
    }
    if (j->given != NULL) {
        for (size_t i = 0; i < j->size; i++)
            if (((unsigned char *)j->given)[i] != 0x77)
                return false;
        api.free(j->given);
    }
    return true;
}

static void *given_block(size_t size)
{
    void *p = api.malloc(size);
    if (p != NULL)
        memset(p, 0x77, size);
    return p;
}

struct first {
    size_t call;
    struct job job;
    bool good;
};

static void *first_in_thread(void *arg)
{
    struct first *f = arg;
    f->good = run_job(f->call, &f->job);
    return NULL;
}

static void test_first_call_of_a_thread(void **state)
{
    (void)state;
    for (size_t c = 0; c < COUNT(calls); c++)
        for (size_t s = 0; s < COUNT(job_sizes); s++)
            for (int round = 0; round < 3; round++) {
                struct first f = {.call = c, .job = {.size = job_sizes[s]}};
                f.job.given = given_block(job_sizes[s]);
                assert_non_null(f.job.given);
                pthread_t t;
                assert_int_equal(pthread_create(&t, NULL, first_in_thread, &f), 0);
                assert_int_equal(pthread_join(t, NULL), 0);
                if (!f.good)
                    fail_msg("%s, %zu bytes, first in its thread", calls[c].name, job_sizes[s]);
            }
}

/* The key is created after the library's own, so that in each round of destructors this one runs later. A sanitizer
 * ends its part of the thread in the last round, so LATE_ROUNDS is one less there. */
#ifndef LATE_ROUNDS
#define LATE_ROUNDS PTHREAD_DESTRUCTOR_ITERATIONS
#endif
static pthread_key_t late_key;

struct late {
    int rounds;
    size_t first_call;
    bool used_before; /* did the thread allocate before it ended? */
    const char *failed;
    void *left[LATE_ROUNDS];
};

static void late_destructor(void *arg)
{
    struct late *l = arg;
    for (size_t i = 0; i < COUNT(calls); i++) {
        size_t c = (l->first_call + i) % COUNT(calls);
        for (size_t s = 0; s < COUNT(job_sizes); s++) {
            struct job j = {.size = job_sizes[s]};
            j.given = given_block(job_sizes[s]);
            if (j.given == NULL || !run_job(c, &j))
                l->failed = calls[c].name;
        }
    }
    l->left[l->rounds] = given_block(job_sizes[(size_t)l->rounds % COUNT(job_sizes)]);
    l->rounds++;
    if (l->rounds < LATE_ROUNDS)
        pthread_setspecific(late_key, l);
}

static void *ends_late(void *arg)
{
    struct late *l = arg;
    pthread_setspecific(late_key, l);
    if (l->used_before)
        for (size_t s = 0; s < COUNT(job_sizes); s++) {
            struct job j = {.size = job_sizes[s]};
            if (!run_job(0, &j))
                l->failed = "malloc before the end";
        }
    return NULL;
}

static void test_calls_after_thread_teardown(void **state)
{
    (void)state;
    assert_int_equal(pthread_key_create(&late_key, late_destructor), 0);
    for (size_t c = 0; c < COUNT(calls); c++)
        for (int used = 0; used < 2; used++) {
            struct late l = {.first_call = c, .used_before = used != 0};
            pthread_t t;
            assert_int_equal(pthread_create(&t, NULL, ends_late, &l), 0);
            assert_int_equal(pthread_join(t, NULL), 0);
            if (l.failed != NULL)
                fail_msg("%s after the thread's teardown", l.failed);
            assert_int_equal(l.rounds, LATE_ROUNDS);
            for (int r = 0; r < l.rounds; r++) {
                assert_non_null(l.left[r]);
                api.free(l.left[r]);
            }
        }
    pthread_key_delete(late_key);
}

/* Blocks of ended threads remain valid. */
static void *leaves_blocks(void *arg)
{
    void **left = arg;
    for (size_t s = 0; s < COUNT(job_sizes); s++)
        left[s] = given_block(job_sizes[s]);
    return NULL;
}

static void test_blocks_outlive_their_thread(void **state)
{
    (void)state;
    for (int round = 0; round < 200; round++) {
        void *left[4][COUNT(job_sizes)];
        for (int t = 0; t < 4; t++) {
            pthread_t id;
            assert_int_equal(pthread_create(&id, NULL, leaves_blocks, left[t]), 0);
            assert_int_equal(pthread_join(id, NULL), 0);
        }
        for (int t = 0; t < 4; t++)
            for (size_t s = 0; s < COUNT(job_sizes); s++) {
                struct job j = {.size = job_sizes[s], .given = left[t][s]};
                assert_non_null(j.given);
                assert_true(run_job(round % 2 ? 7 : 16, &j));
            }
    }
}

int main(void)
{
    print_message("%s\n", api.world);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_first_call_of_a_thread),
        cmocka_unit_test(test_calls_after_thread_teardown),
        cmocka_unit_test(test_blocks_outlive_their_thread),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
