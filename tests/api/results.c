/* SPDX-License-Identifier: MIT
 *
 * What each call of the malloc family returns, errno included, as POSIX, C23
 * and the glibc manual say. Nothing here depends on how hakmem works inside,
 * except that the sizes below walk across every border between its parts.
 */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include <cmocka.h>

#include "names.h"

#define KIB ((size_t)1024)
#define MIB (KIB * 1024)
#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

/* Constants of glibc's mallopt, which not every malloc.h has. */
enum {
    MXFAST = 1,
    TRIM_THRESHOLD = -1,
    TOP_PAD = -2,
    MMAP_THRESHOLD = -3,
    MMAP_MAX = -4,
    PERTURB = -6,
    ARENA_TEST = -7,
    ARENA_MAX = -8
};

/* Both sides of each border: tiny, 2-8 KiB, pool, large, direct. */
static const size_t border_sizes[] = {
    1,           7,        8,         15,
    16,          17,       31,        32,
    33,          63,       64,        65,
    127,         128,      129,       255,
    256,         257,      511,       512,
    513,         1000,     1023,      1024,
    1025,        1040,     2047,      2048,
    2049,        3000,     4095,      4096,
    4097,        8191,     8192,      8193,
    12000,       16384,    24 * KIB,  32 * KIB,
    40000,       48 * KIB, 52 * KIB,  53248,
    53249,       57000,    65535,     65536,
    65537,       100000,   128 * KIB, 256 * KIB + 1,
    500000,      1 * MIB,  MIB + 1,   2 * MIB,
    2 * MIB + 1, 3 * MIB,  4 * MIB,   4 * MIB + 1,
    5000000,
};

static long resident_bytes(void)
{
    long pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    assert_non_null(f);
    assert_int_equal(fscanf(f, "%*d %ld", &pages), 1);
    fclose(f);
    return pages * sysconf(_SC_PAGESIZE);
}

static void fill(void *p, size_t n, unsigned salt)
{
    unsigned char *c = p;
    for (size_t i = 0; i < n; i++)
        c[i] = (unsigned char)(i * 131 + (i >> 8) + salt);
}

static void check_fill(const void *p, size_t n, unsigned salt)
{
    const unsigned char *c = p;
    for (size_t i = 0; i < n; i++)
        if (c[i] != (unsigned char)(i * 131 + (i >> 8) + salt))
            fail_msg("byte %zu of %zu at %p changed", i, n, p);
}

static void check_zero(const void *p, size_t n)
{
    const unsigned char *c = p;
    for (size_t i = 0; i < n; i++)
        if (c[i] != 0)
            fail_msg("byte %zu of %zu at %p is %u, not zero", i, n, p, c[i]);
}

static void check_aligned(const void *p, size_t align)
{
    if (p == NULL || (uintptr_t)p % align != 0)
        fail_msg("%p is not aligned to %zu", p, align);
}

/* Checks a block of n bytes: aligned, long enough, wholly writable. */
static void check_block(void *p, size_t n, size_t align)
{
    check_aligned(p, align);
    size_t usable = api.usable_size(p);
    if (usable < n)
        fail_msg("%p: %zu bytes asked for, %zu usable", p, n, usable);
    memset(p, 0x5a, usable);
}

#define assert_refused(call, code)        \
    do {                                  \
        errno = 0;                        \
        const void *got_ = (call);        \
        int errno_ = errno;               \
        assert_null(got_);                \
        assert_int_equal(errno_, (code)); \
    } while (0)

static void test_malloc_sizes(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(border_sizes); i++) {
        void *p = api.malloc(border_sizes[i]);
        check_block(p, border_sizes[i], 16);
        api.free(p);
    }
}

static void test_malloc_alignment(void **state)
{
    (void)state;
    void *live[64] = {NULL};
    unsigned at = 0;
    for (size_t n = 1; n <= 70000; n += n < 4200 ? 1 : 37) {
        api.free(live[at % 64]);
        void *p = live[at++ % 64] = api.malloc(n);
        check_block(p, n, 16);
    }
    for (size_t i = 0; i < 64; i++)
        api.free(live[i]);
}

static void test_zero_size(void **state)
{
    (void)state;
    void *p[8] = {
        api.malloc(0),     api.malloc(0),        api.calloc(0, 0),    api.calloc(0, 16),
        api.calloc(16, 0), api.realloc(NULL, 0), api.memalign(64, 0), api.aligned_alloc(64, 0),
    };
    for (size_t i = 0; i < COUNT(p); i++) {
        assert_non_null(p[i]);
        for (size_t j = 0; j < i; j++)
            assert_ptr_not_equal(p[i], p[j]);
    }
    for (size_t i = 0; i < COUNT(p); i++)
        api.free(p[i]);

    void *q = NULL;
    assert_int_equal(api.posix_memalign(&q, 64, 0), 0);
    api.free(q); /* NULL or not, it may be freed */
}

static void test_free_null(void **state)
{
    (void)state;
    errno = EDOM;
    api.free(NULL);
    api.free_sized(NULL, 10);
    api.free_sized(NULL, 0);
    api.free_aligned_sized(NULL, 64, 128);
    assert_int_equal(errno, EDOM);
    assert_int_equal(api.usable_size(NULL), 0);
}

static void refuse(size_t n)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    void *p = (void *)&page;
    assert_refused(api.malloc(n), ENOMEM);
    assert_refused(api.calloc(1, n), ENOMEM);
    assert_refused(api.calloc(n, 1), ENOMEM);
    assert_refused(api.realloc(NULL, n), ENOMEM);
    assert_refused(api.reallocarray(NULL, n, 1), ENOMEM);
    assert_refused(api.memalign(16, n), ENOMEM);
    assert_refused(api.memalign(page, n), ENOMEM);
    assert_refused(api.aligned_alloc(16, n), ENOMEM);
    assert_refused(api.aligned_alloc(2 * MIB, n), ENOMEM);
    assert_refused(api.valloc(n), ENOMEM);
    assert_refused(api.pvalloc(n), ENOMEM);
    errno = EDOM;
    assert_int_equal(api.posix_memalign(&p, 64, n), ENOMEM);
    assert_int_equal(errno, ENOMEM);
    assert_ptr_equal(p, &page);
}

static void test_too_big(void **state)
{
    (void)state;
    static const size_t sizes[] = {
        (size_t)PTRDIFF_MAX + 1, (size_t)PTRDIFF_MAX, SIZE_MAX,        SIZE_MAX - 1,     SIZE_MAX - 15,
        SIZE_MAX - 16,           SIZE_MAX - 4095,     SIZE_MAX - 4096, SIZE_MAX - 65536, SIZE_MAX / 2,
    };
    for (size_t i = 0; i < COUNT(sizes); i++)
        refuse(sizes[i]);
}

/* The kernel refuses what the machine cannot have, unless it is set to grant all. */
static void test_more_than_the_machine_has(void **state)
{
    (void)state;
    static const size_t sizes[] = {100, 5000, 100000, MIB, 5 * MIB, 65 * MIB};
    struct sysinfo machine;
    FILE *f = fopen("/proc/sys/vm/overcommit_memory", "r");
    if (!f || getc(f) == '1' || sysinfo(&machine))
        skip();
    fclose(f);
    size_t all = (machine.totalram + machine.totalswap) * machine.mem_unit;
    for (size_t n = all + all / 2; n <= 40 * all; n *= 5)
        refuse(n);
    for (size_t i = 0; i < COUNT(sizes); i++) {
        char *p = api.malloc(sizes[i]);
        fill(p, sizes[i], 4);
        assert_refused(api.realloc(p, 2 * all), ENOMEM);
        check_fill(p, sizes[i], 4);
        api.free(p);
    }
}

static void test_product_overflow(void **state)
{
    (void)state;
    static const size_t pairs[][2] = {
        {SIZE_MAX, 2},
        {SIZE_MAX, SIZE_MAX},
        {SIZE_MAX / 2 + 1, 2},
        {(size_t)1 << 32, (size_t)1 << 32},
        {((size_t)1 << 32) + 1, (size_t)1 << 32},
        {SIZE_MAX / 16 + 1, 16},
        {SIZE_MAX / 3 + 1, 3},
        {(size_t)PTRDIFF_MAX / 8 + 1, 8},
    };
    for (size_t i = 0; i < COUNT(pairs); i++)
        for (int turn = 0; turn < 2; turn++) {
            size_t a = pairs[i][turn], b = pairs[i][!turn];
            assert_refused(api.calloc(a, b), ENOMEM);
            assert_refused(api.reallocarray(NULL, a, b), ENOMEM);
            char *kept = api.malloc(100);
            fill(kept, 100, 9);
            assert_refused(api.reallocarray(kept, a, b), ENOMEM);
            check_fill(kept, 100, 9);
            api.free(kept);
        }
}

static void test_realloc_null(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(border_sizes); i++) {
        void *p = api.realloc(NULL, border_sizes[i]);
        check_block(p, border_sizes[i], 16);
        api.free(p);
        p = api.reallocarray(NULL, 1, border_sizes[i]);
        check_block(p, border_sizes[i], 16);
        api.free(p);
    }
}

/* glibc: realloc(p, 0) frees p and returns NULL. The resident size shows that it frees: otherwise it would grow by more
 * than a gigabyte. */
static void test_realloc_zero(void **state)
{
    (void)state;
    static const size_t sizes[] = {1, 24, 1000, 5000, 20000, 60000, 300000, 3 * MIB};
    long before = resident_bytes();
    for (size_t i = 0; i < COUNT(sizes); i++) {
        size_t rounds = sizes[i] >= 1000 ? (size_t)256 * MIB / sizes[i] : 100000;
        for (size_t r = 0; r < rounds; r++) {
            char *p = api.malloc(sizes[i]);
            assert_non_null(p);
            for (size_t at = 0; at < sizes[i]; at += 4 * KIB)
                p[at] = 1;
            if (r % 3 == 0)
                assert_null(api.realloc(p, 0));
            else if (r % 3 == 1)
                assert_null(api.reallocarray(p, 0, 8));
            else
                assert_null(api.reallocarray(p, 8, 0));
        }
    }
    long grown = resident_bytes() - before;
    if (grown > (long)(256 * MIB))
        fail_msg("realloc(p, 0) kept its blocks: %ld MiB more", grown / (long)MIB);
}

static void test_realloc_refused_keeps_block(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(border_sizes); i++) {
        size_t n = border_sizes[i];
        void *p = api.malloc(n);
        assert_non_null(p);
        fill(p, n, (unsigned)i);
        assert_refused(api.realloc(p, (size_t)PTRDIFF_MAX + 1), ENOMEM);
        assert_refused(api.realloc(p, SIZE_MAX), ENOMEM);
        assert_refused(api.realloc(p, SIZE_MAX - 100), ENOMEM);
        check_fill(p, n, (unsigned)i);
        api.free(p);
    }
}

/* From every border size to every other one, so across all parts and back. */
static void test_realloc_keeps_content(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(border_sizes); i++)
        for (size_t j = 0; j < COUNT(border_sizes); j++) {
            size_t from = border_sizes[i], to = border_sizes[j];
            if (from > MIB && to > MIB && (i + j) % 3 != 0)
                continue; /* a third of the big pairs is enough */
            size_t shorter = from < to ? from : to;
            void *p = api.malloc(from);
            assert_non_null(p);
            fill(p, from < 2 * MIB ? from : shorter, 7);
            void *q = api.realloc(p, to);
            check_aligned(q, 16);
            assert_true(api.usable_size(q) >= to);
            check_fill(q, shorter, 7);
            api.free(q);
        }
}

static void test_realloc_growth(void **state)
{
    (void)state;
    void *others[64] = {NULL};
    unsigned turn = 0;
    for (int by_step = 0; by_step < 2; by_step++) {
        size_t n = 64 * KIB;
        unsigned char *p = api.malloc(n);
        assert_non_null(p);
        for (size_t at = 0; at < n; at += 512)
            p[at] = (unsigned char)(at >> 9);
        while (n < 64 * MIB) {
            size_t next = by_step ? n + 64 * KIB + n / 16 : n * 2;
            void *q = api.realloc(p, next);
            check_aligned(q, 16);
            p = q;
            for (size_t at = 0; at < n; at += 512)
                if (p[at] != (unsigned char)(at >> 9))
                    fail_msg("byte %zu lost when growing from %zu to %zu", at, n, next);
            for (size_t at = n + (512 - n % 512) % 512; at < next; at += 512)
                p[at] = (unsigned char)(at >> 9);
            n = next;
            api.free(others[turn % 64]);
            others[turn % 64] = api.malloc(n / 64); /* something in the way */
            turn++;
        }
        while (n > 8) {
            size_t next = n / 3;
            p = api.realloc(p, next);
            assert_non_null(p);
            for (size_t at = 0; at < next; at += 512)
                if (p[at] != (unsigned char)(at >> 9))
                    fail_msg("byte %zu lost when shrinking from %zu to %zu", at, n, next);
            n = next;
        }
        api.free(p);
    }
    for (size_t i = 0; i < COUNT(others); i++)
        api.free(others[i]);
}

static void test_reallocarray(void **state)
{
    (void)state;
    int *p = api.reallocarray(NULL, 10, sizeof(int));
    check_block(p, 10 * sizeof(int), 16);
    for (int i = 0; i < 10; i++)
        p[i] = i;
    p = api.reallocarray(p, 100000, sizeof(int));
    assert_non_null(p);
    for (int i = 0; i < 10; i++)
        assert_int_equal(p[i], i);
    p = api.reallocarray(p, 5, sizeof(int));
    assert_non_null(p);
    for (int i = 0; i < 5; i++)
        assert_int_equal(p[i], i);
    api.free(p);
}

static void test_calloc_zero_on_recycled(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(border_sizes); i++) {
        size_t n = border_sizes[i];
        size_t count = n < 4 * KIB ? 300 : n < 128 * KIB ? 24 : 3;
        void *p[300];
        for (int round = 0; round < 2; round++) {
            for (size_t k = 0; k < count; k++) {
                p[k] = api.malloc(n);
                assert_non_null(p[k]);
                memset(p[k], 0xa5, api.usable_size(p[k]));
            }
            for (size_t k = 0; k < count; k++)
                api.free(p[k]);
            for (size_t k = 0; k < count; k++) {
                p[k] = k % 2 ? api.calloc(1, n) : api.calloc(n, 1);
                assert_non_null(p[k]);
                check_zero(p[k], n);
                memset(p[k], 0xa5, api.usable_size(p[k]));
            }
            for (size_t k = 0; k < count; k++)
                api.free(p[k]);
        }
    }
}

static void test_usable_size(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(border_sizes); i++) {
        size_t n = border_sizes[i];
        /* Neighbours must not notice that the whole usable size is written. */
        unsigned char *p[3];
        for (int k = 0; k < 3; k++) {
            p[k] = api.malloc(n);
            assert_non_null(p[k]);
            assert_true(api.usable_size(p[k]) >= n);
        }
        for (int k = 0; k < 3; k++)
            memset(p[k], 0x10 + k, api.usable_size(p[k]));
        for (int k = 0; k < 3; k++) {
            size_t usable = api.usable_size(p[k]);
            assert_int_equal(p[k][0], 0x10 + k);
            assert_int_equal(p[k][n / 2], 0x10 + k);
            assert_int_equal(p[k][usable - 1], 0x10 + k);
            api.free(p[k]);
        }
    }
}

static void test_posix_memalign_bad_alignment(void **state)
{
    (void)state;
    static const size_t bad[] = {0, 1, 2, 3, 4, 5, 7, 9, 12, 24, 48, 100, 4095, 4097, SIZE_MAX};
    for (size_t i = 0; i < COUNT(bad); i++) {
        int here;
        void *p = &here;
        errno = EDOM;
        assert_int_equal(api.posix_memalign(&p, bad[i], 100), EINVAL);
        assert_int_equal(errno, EDOM);
        assert_ptr_equal(p, &here);
    }
}

static void test_aligned_alloc_bad_alignment(void **state)
{
    (void)state;
    static const size_t bad[] = {0, 3, 5, 6, 7, 12, 24, 48, 100, 4095, 4097, SIZE_MAX};
    for (size_t i = 0; i < COUNT(bad); i++)
        assert_refused(api.aligned_alloc(bad[i], 96), EINVAL);
}

/* glibc rounds memalign's alignment up, its manual says EINVAL: either. */
static void test_memalign_odd_alignment(void **state)
{
    (void)state;
    static const size_t odd[][2] = {{0, 16}, {3, 16}, {24, 32}, {100, 128}, {4097, 8192}};
    for (size_t i = 0; i < COUNT(odd); i++) {
        errno = 0;
        void *p = api.memalign(odd[i][0], 100);
        if (p == NULL)
            assert_int_equal(errno, EINVAL);
        else
            check_block(p, 100, odd[i][1]);
        api.free(p);
    }
}

static void test_absurd_alignment(void **state)
{
    (void)state;
    static const unsigned shifts[] = {48, 52, 56, 61, 62};
    for (size_t i = 0; i < COUNT(shifts); i++) {
        size_t align = (size_t)1 << shifts[i];
        int here;
        void *p = &here;
        errno = EDOM;
        assert_int_equal(api.posix_memalign(&p, align, 8), ENOMEM);
        assert_int_equal(errno, ENOMEM);
        assert_ptr_equal(p, &here);
        assert_refused(api.aligned_alloc(align, 8), ENOMEM);
        assert_refused(api.memalign(align, 8), ENOMEM);
        assert_refused(api.aligned_alloc(align, align), ENOMEM);
        assert_refused(api.memalign(align, 0), ENOMEM);
    }
    errno = 0;
    assert_null(api.memalign((size_t)1 << 63, 8));
    assert_true(errno == ENOMEM || errno == EINVAL);
}

static void test_every_alignment(void **state)
{
    (void)state;
    static const size_t sizes[] = {1,    8,    16,   24,    100,   128,   255,    256, 1000,    1024,   2048,
                                   4096, 5000, 8192, 20000, 65536, 65537, 100000, MIB, MIB + 1, 3 * MIB};
    for (size_t align = 8; align <= 2 * MIB; align *= 2)
        for (size_t i = 0; i < COUNT(sizes); i++) {
            size_t n = sizes[i];
            void *p[9] = {NULL};
            for (int k = 0; k < 3; k++) {
                p[3 * k] = api.aligned_alloc(align, n);
                assert_int_equal(api.posix_memalign(&p[3 * k + 1], align, n), 0);
                p[3 * k + 2] = api.memalign(align, n);
            }
            for (unsigned k = 0; k < 9; k++) {
                check_aligned(p[k], align);
                assert_true(api.usable_size(p[k]) >= n);
                fill(p[k], n < 8192 ? n : 8192, k);
                ((char *)p[k])[n - 1] = (char)k;
            }
            for (unsigned k = 0; k < 9; k++) {
                check_fill(p[k], n < 8192 ? n - 1 : 8191, k);
                assert_int_equal(((char *)p[k])[n - 1], k);
            }
            /* An aligned block may be resized and must then be freed as usual. */
            fill(p[0], n < 8192 ? n : 8192, 77);
            p[0] = api.realloc(p[0], n + n / 2 + 1);
            assert_non_null(p[0]);
            check_fill(p[0], n < 8192 ? n : 8192, 77);
            for (int k = 0; k < 9; k++)
                api.free(p[k]);
        }
}

static void test_page_functions(void **state)
{
    (void)state;
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    static const size_t sizes[] = {0, 1, 100, 4095, 4096, 4097, 20000, 65536, 65537, 3 * MIB + 5};
    for (size_t i = 0; i < COUNT(sizes); i++) {
        size_t rounded = (sizes[i] + page - 1) / page * page;
        void *v = api.valloc(sizes[i]);
        check_block(v, sizes[i], page);
        void *pv = api.pvalloc(sizes[i]);
        check_block(pv, rounded, page);
        assert_ptr_not_equal(v, pv);
        api.free(v);
        api.free(pv);
    }
}

static void test_free_keeps_errno(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(border_sizes); i++) {
        size_t n = border_sizes[i];
        size_t count = n < 4 * KIB ? 2000 : n < 128 * KIB ? 200 : 12;
        void **p = api.malloc(count * sizeof(*p));
        assert_non_null(p);
        for (size_t k = 0; k < count; k++) {
            p[k] = api.malloc(n);
            assert_non_null(p[k]);
        }
        errno = EDOM;
        for (size_t k = 0; k < count; k++) {
            if (k % 3 == 0)
                api.free_sized(p[k], n);
            else
                api.free(p[k]);
            if (errno != EDOM)
                fail_msg("free of %zu bytes set errno to %d", n, errno);
        }
        errno = 0;
        api.free(p);
        assert_int_equal(errno, 0);
    }
}

static void test_free_sized(void **state)
{
    (void)state;
    for (int round = 0; round < 200; round++)
        for (size_t i = 0; i < COUNT(border_sizes); i++) {
            size_t n = border_sizes[i];
            if (n > 128 * KIB && round > 3)
                break;
            void *a = api.malloc(n), *b = api.calloc(1, n), *c = api.realloc(NULL, n);
            void *d = api.aligned_alloc(64, n), *e = api.aligned_alloc(4096, n);
            check_block(a, n, 16);
            check_block(b, n, 16);
            check_block(c, n, 16);
            check_block(d, n, 64);
            check_block(e, n, 4096);
            api.free_sized(a, n);
            api.free_sized(b, n);
            api.free_sized(c, n);
            api.free_aligned_sized(d, 64, n);
            api.free_aligned_sized(e, 4096, n);
        }
}

static void test_trim(void **state)
{
    (void)state;
    void *p[64];
    for (size_t i = 0; i < COUNT(p); i++) {
        p[i] = api.malloc(MIB);
        assert_non_null(p[i]);
        memset(p[i], 1, MIB);
    }
    char *kept = api.malloc(5000);
    fill(kept, 5000, 3);
    for (size_t i = 0; i < COUNT(p); i++)
        api.free(p[i]);
    errno = EDOM;
    int given = api.malloc_trim(0);
    assert_true(given == 0 || given == 1);
    given = api.malloc_trim(64 * MIB);
    assert_true(given == 0 || given == 1);
    check_fill(kept, 5000, 3);
    api.free(kept);
}

static void test_mallinfo2(void **state)
{
    (void)state;
    void *p[64];
    for (size_t i = 0; i < COUNT(p); i++) {
        p[i] = api.malloc(i % 2 ? MIB : 20000);
        assert_non_null(p[i]);
        memset(p[i], 1, 20000);
    }
    struct hakmem_mallinfo2 full = api.mallinfo2();
    assert_true(full.arena + full.hblkhd >= 32 * MIB);
    assert_true(full.uordblks + full.hblkhd >= 32 * MIB);
    assert_true(full.uordblks <= full.arena);
    assert_true(full.fordblks <= full.arena);
    for (size_t i = 0; i < COUNT(p); i++)
        api.free(p[i]);
    struct hakmem_mallinfo2 empty = api.mallinfo2();
    assert_true(empty.uordblks + empty.hblkhd + 31 * MIB <= full.uordblks + full.hblkhd);
    assert_true(empty.ordblks > 0 || !empty.fordblks);
}

/* Exact to the byte: blocks of all sizes, some of them freed, resized and aligned, by this thread and by one that
 * ended. */
static size_t held(void)
{
    struct hakmem_mallinfo2 info = api.mallinfo2();
    return info.uordblks + info.hblkhd;
}

static void *frees_some(void *blocks)
{
    void **p = blocks;
    for (size_t i = 0; i < 100; i++) {
        api.free(p[i]);
        p[i] = api.malloc(3 * i);
    }
    return NULL;
}

static void test_mallinfo2_is_what_is_held(void **state)
{
    (void)state;
    static void *p[700];
    static const size_t sizes[] = {1, 40, 700, 3000, 9000, 40000, 60000, 100000, MIB, 5 * MIB, 65 * MIB};
    pthread_t other;
    size_t before = held(), usable = 0;
    for (size_t i = 0; i < COUNT(p); i++) {
        size_t size = sizes[i % (i < 600 ? 8 : COUNT(sizes))] + i;
        p[i] = i % 5 == 1 ? api.memalign(4096, size) : i % 5 == 2 ? api.calloc(1, size) : api.malloc(size);
        assert_non_null(p[i]);
        if (i % 7 == 3)
            assert_non_null(p[i] = api.realloc(p[i], size / 2 + 3 * i));
        if (i % 3 == 2) {
            api.free(p[i - 1]);
            p[i - 1] = NULL;
        }
    }
    assert_int_equal(pthread_create(&other, NULL, frees_some, p), 0);
    assert_int_equal(pthread_join(other, NULL), 0);
    for (size_t i = 0; i < COUNT(p); i++) {
        size_t size = api.usable_size(p[i]);
        usable += size + CANARY * (size != 0);
    }
    size_t now = held(), thread = 4096; /* memory that the C library keeps for a thread */
    assert_in_range(now, before + usable, before + usable + thread);
    for (size_t i = 0; i < COUNT(p); i++)
        api.free(p[i]);
    assert_in_range(held(), before, before + thread);
    struct hakmem_mallinfo2 info = api.mallinfo2();
    assert_int_equal(info.hblks, 0);
    void *mapped = api.malloc(80 * MIB);
    info = api.mallinfo2();
    assert_int_equal(info.hblks, 1);
    assert_int_equal(info.hblkhd, api.usable_size(mapped) + CANARY);
    api.free(mapped);
}

static void test_mallinfo2_counts_free_pieces(void **state)
{
    (void)state;
    static void *p[600];
    for (size_t i = 0; i < COUNT(p); i++)
        assert_non_null(p[i] = api.malloc(3000));
    size_t before = 0, last = 1;
    for (unsigned i = 0; i < 10 && before != last; i++) { /* empties the bins, also of blocks of other tests */
        api.malloc_trim(0);
        last = before;
        before = api.mallinfo2().ordblks;
    }
    for (size_t i = 0; i < COUNT(p); i += 2)
        api.free(p[i]);
    api.malloc_trim(0);
    size_t now = api.mallinfo2().ordblks;
    if (now < before + 200)
        fail_msg("%zu free pieces after %zu frees, %zu before", now, COUNT(p) / 2, before);
    for (size_t i = 1; i < COUNT(p); i += 2)
        api.free(p[i]);
}

static const int tunes[] = {TRIM_THRESHOLD, TOP_PAD, MMAP_THRESHOLD, MMAP_MAX, ARENA_TEST, ARENA_MAX};

static void test_mallopt(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(tunes); i++)
        assert_int_equal(api.mallopt(tunes[i], 128 * 1024), 1);
    assert_int_equal(api.mallopt(MXFAST, 0), 1);
    assert_int_equal(api.mallopt(MXFAST, 160), 1);
    assert_int_equal(api.mallopt(MXFAST, 161), 0);
    assert_int_equal(api.mallopt(MXFAST, -1), 0);
    assert_int_equal(api.mallopt(PERTURB, 1), 0);
    assert_int_equal(api.mallopt(123456, 1), 0);
    assert_int_equal(api.mallopt(-123456, 1), 0);
}

#if defined(BESIDE) && defined(__GLIBC__)
int mallopt(int parameter, int value);
int malloc_info(int options, FILE *stream);

#define ASSERT_SAME(call)                       \
    do {                                        \
        errno = EDOM;                           \
        int theirs = call, their_errno = errno; \
        errno = EDOM;                           \
        assert_int_equal(api.call, theirs);     \
        assert_int_equal(errno, their_errno);   \
    } while (0)

/* Beside its own malloc. */
static void test_as_the_c_library(void **state)
{
    (void)state;
    void *p = NULL;
    static const size_t aligns[] = {0, 3, 4, 64, 4096, (size_t)1 << 62, SIZE_MAX};
    volatile size_t most = PTRDIFF_MAX; /* compilers warn of it */
    for (size_t i = 0; i < COUNT(aligns); i++)
        ASSERT_SAME(posix_memalign(&p, aligns[i], most));
    ASSERT_SAME(malloc_info(1, stderr));
    ASSERT_SAME(malloc_info(-1, stderr));
    for (size_t i = 0; i < COUNT(tunes); i++)
        ASSERT_SAME(mallopt(tunes[i], 1 << 20));
    ASSERT_SAME(mallopt(MXFAST, 161));
    ASSERT_SAME(mallopt(MXFAST, 160));
}
#else
static void test_as_the_c_library(void **state)
{
    (void)state;
    skip();
}
#endif

static void test_malloc_info(void **state)
{
    (void)state;
    char text[65536];
    FILE *f = tmpfile();
    assert_non_null(f);
    assert_int_equal(api.malloc_info(0, f), 0);
    rewind(f);
    size_t n = fread(text, 1, sizeof(text) - 1, f);
    text[n] = '\0';
    fclose(f);
    assert_true(strncmp(text, "<malloc", 7) == 0);
    const char *end = strstr(text, "</malloc>");
    assert_non_null(end);
    assert_true(end[9] == '\0' || end[9] == '\n');

    f = tmpfile();
    assert_non_null(f);
    errno = EDOM;
    assert_int_equal(api.malloc_info(1, f), EINVAL); /* no option is defined */
    assert_int_equal(errno, EDOM);
    fclose(f);
}

static void test_malloc_stats(void **state)
{
    (void)state;
    FILE *f = tmpfile();
    assert_non_null(f);
    fflush(stderr);
    int kept = dup(STDERR_FILENO);
    assert_true(kept >= 0);
    assert_true(dup2(fileno(f), STDERR_FILENO) >= 0);
    api.malloc_stats();
    fflush(stderr);
    assert_true(dup2(kept, STDERR_FILENO) >= 0);
    close(kept);
    assert_true(lseek(fileno(f), 0, SEEK_END) > 0);
    fclose(f);
}

int main(void)
{
    print_message("%s\n", api.world);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_malloc_sizes),
        cmocka_unit_test(test_malloc_alignment),
        cmocka_unit_test(test_zero_size),
        cmocka_unit_test(test_free_null),
        cmocka_unit_test(test_too_big),
        cmocka_unit_test(test_more_than_the_machine_has),
        cmocka_unit_test(test_product_overflow),
        cmocka_unit_test(test_realloc_null),
        cmocka_unit_test(test_realloc_zero),
        cmocka_unit_test(test_realloc_refused_keeps_block),
        cmocka_unit_test(test_realloc_keeps_content),
        cmocka_unit_test(test_realloc_growth),
        cmocka_unit_test(test_reallocarray),
        cmocka_unit_test(test_calloc_zero_on_recycled),
        cmocka_unit_test(test_usable_size),
        cmocka_unit_test(test_posix_memalign_bad_alignment),
        cmocka_unit_test(test_aligned_alloc_bad_alignment),
        cmocka_unit_test(test_memalign_odd_alignment),
        cmocka_unit_test(test_absurd_alignment),
        cmocka_unit_test(test_every_alignment),
        cmocka_unit_test(test_page_functions),
        cmocka_unit_test(test_free_keeps_errno),
        cmocka_unit_test(test_free_sized),
        cmocka_unit_test(test_trim),
        cmocka_unit_test(test_mallinfo2),
        cmocka_unit_test(test_mallinfo2_is_what_is_held),
        cmocka_unit_test(test_mallinfo2_counts_free_pieces),
        cmocka_unit_test(test_mallopt),
        cmocka_unit_test(test_as_the_c_library),
        cmocka_unit_test(test_malloc_info),
        cmocka_unit_test(test_malloc_stats),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
