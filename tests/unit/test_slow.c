/* SPDX-License-Identifier: MIT
 * Behind the fast path; and every call to the system refused in turn. */
#include "core/malloc/malloc.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "hakmem.h"
#include "core/heap/heap.h"
#include "unit.h"

static const size_t sizes[] = {0,    1,     15,    16,     17,     63,      64,      100,      960,      1024,
                               4096, 7681,  8192,  52000,  53248,  53249,   65536,   100000,   1 << 20,  3 << 20,
                               (3 << 20) + 1, 33 << 20};

TEST(every_size_is_served_aligned_and_usable)
{
    unit_start(NULL);
    for (unsigned i = 0; i < COUNT(sizes); i++) {
        char *p = hak_malloc(sizes[i]);
        assert_non_null(p);
        assert_int_equal((uintptr_t)p % 16, 0);
        assert_true(unit_usable(p) >= sizes[i]);
        memset(p, 1, unit_usable(p));
        hak_free(p);
    }
    assert_int_equal(unit_usable(NULL), 0);
}

static bool reads_zero(const char *p, size_t size)
{
    for (size_t i = 0; i < size; i++)
        if (p[i])
            return false;
    return true;
}

TEST(zeroed_memory_is_zero_also_when_used_before)
{
    unit_start(NULL);
    for (unsigned round = 0; round < 3; round++)
        for (unsigned i = 0; i < COUNT(sizes); i++) {
            char *p = hak_alloc_zeroed(sizes[i]);
            assert_non_null(p);
            assert_true(reads_zero(p, sizes[i]));
            memset(p, 0xff, sizes[i]);
            hak_free(p);
        }
}

TEST(alignments)
{
    unit_start(NULL);
    for (size_t align = 1; align <= 8 * HAK_MIB; align *= 2)
        for (unsigned i = 0; i < COUNT(sizes); i++) {
            char *p = hak_alloc_aligned(align, sizes[i]);
            assert_non_null(p);
            assert_int_equal((uintptr_t)p % align, 0);
            assert_true(unit_usable(p) >= sizes[i]);
            memset(p, 3, sizes[i]);
            hak_free(p);
        }
    hak_heap_drain(unit_thread());
    assert_int_equal(unit_census().used, 0);
    assert_int_equal(unit_census().live_large, 0);
}

TEST(resizing_keeps_the_content)
{
    unit_start(NULL);
    for (unsigned i = 1; i < COUNT(sizes); i++)
        for (unsigned k = 1; k < COUNT(sizes); k++) {
            size_t both = hak_min(sizes[i], sizes[k]);
            char *p = hak_malloc(sizes[i]);
            assert_non_null(p);
            p[0] = 'a';
            p[both - 1] = 'z';
            p = hak_resize(p, sizes[k]);
            assert_non_null(p);
            assert_true(p[0] == 'a' || both == 1);
            assert_int_equal(p[both - 1], 'z');
            assert_true(unit_usable(p) >= sizes[k]);
            hak_free(p);
        }
}

TEST(a_small_change_stays_in_place)
{
    unit_start(NULL);
    void *p = hak_malloc(1000), *span = hak_malloc(200000);
    assert_ptr_equal(hak_resize(p, unit_usable(p)), p);
    assert_ptr_equal(hak_resize(p, 900), p);
    assert_ptr_equal(hak_resize(span, 190000), span);
    hak_free(hak_resize(p, 10));
    hak_free(span);
}

TEST(a_failed_resize_leaves_the_block)
{
    unit_start(NULL);
    char *p = hak_malloc(100000);
    p[99999] = 5;
    assert_null(hak_resize(p, (size_t)PTRDIFF_MAX + 1));
    fake_os_refuse_any(1, ENOMEM, true);
    assert_null(hak_resize(p, 300 * HAK_MIB));
    fake_os_allow();
    assert_int_equal(p[99999], 5);
    hak_free(p);
}

TEST(what_is_too_large_is_refused)
{
    unit_start(NULL);
    static const size_t huge[] = {SIZE_MAX, SIZE_MAX - 15, SIZE_MAX - 70000, (size_t)PTRDIFF_MAX + 1, PTRDIFF_MAX};
    for (unsigned i = 0; i < COUNT(huge); i++) {
        errno = 0;
        assert_null(hakmem_malloc(huge[i]));
        assert_int_equal(errno, ENOMEM);
        assert_null(hak_alloc_zeroed(huge[i]));
        for (size_t align = 8; align; align *= 2)
            assert_null(hak_alloc_aligned(align, huge[i]));
    }
    assert_null(hak_alloc_aligned((size_t)1 << 63, 1));
}

/* --- misuse --------------------------------------------------------------------------------------------- */

static char *bad;

static void free_bad(void)
{
    hak_free(bad);
}

static void size_bad(void)
{
    unit_usable(bad);
}

TEST(what_is_no_block_stops_the_process)
{
    static _Alignas(16) char text[64];
    unit_start(NULL);
    char *small = hak_malloc(2000), *span = hak_malloc(200000), *direct = hak_malloc(40 * HAK_MIB);
    bad = text + 32;
    assert_dies(free_bad, "invalid free: ");
    assert_dies(size_bad, "invalid malloc_usable_size: ");
    bad = span + 4096;
    assert_dies(free_bad, "invalid free: ");
    bad = direct + 4096;
    assert_dies(free_bad, "was not allocated by hakmem");
    bad = small + 16;
    assert_dies(size_bad, "is not the start of a block");
    bad = span;
    hak_free(span);
    assert_dies(free_bad, "freed twice, or never allocated");
    bad = direct;
    hak_free(direct);
    assert_dies(free_bad, "was not allocated by hakmem");
    hak_free(small);
}

TEST(free_keeps_errno)
{
    unit_start(NULL);
    void *span = hak_malloc(200000), *direct = hak_malloc(40 * HAK_MIB);
    fake_os_refuse_any(1, EINVAL, true);
    errno = 66;
    hak_free(NULL);
    hak_free(span);
    hak_free(direct);
    assert_int_equal(errno, 66);
}

/* --- giving memory back ---------------------------------------------------------------------------------- */

static uint64_t bytes_given_back(void)
{
    uint64_t bytes = 0;
    for (unsigned cause = 0; cause < HAK_NCAUSES; cause++)
        bytes += hak_ledger[cause][HAK_OS_madvise].bytes + hak_ledger[cause][HAK_OS_process_madvise].bytes;
    return bytes;
}

TEST(trim_gives_back_and_says_how_much)
{
    unit_start("HAKMEM_PURGE_DELAY_MS=3600000");
    struct unit_block *blocks = unit_blocks(10000, 1000);
    void *span = hak_malloc(5 * HAK_MIB);
    memset(span, 1, 5 * HAK_MIB);
    unit_free_blocks(blocks);
    hak_free(span);
    uint64_t before = bytes_given_back(); /* most of it by legacy and direct */
    size_t back = hak_trim(0);
    assert_true(before + back >= 10 * HAK_MIB);
    assert_true(bytes_given_back() >= before + back);
    assert_int_equal(hak_trim(0), 0);
    struct hak_census c = unit_census();
    assert_int_equal(c.used, 0);
    assert_int_equal(c.pages[HAK_SLAB_EMPTY], 0);
    unit_free_blocks(unit_blocks(10000, 1000));
}

/* --- every call refused --------------------------------------------------------------------------------- */

/* Allocates all kinds of sizes; each NULL comes with ENOMEM. What was had is checked and freed later. */
static unsigned workload(char **blocks)
{
    unsigned n = 0;
    for (unsigned round = 0; round < 3; round++)
        for (unsigned i = 0; i < COUNT(sizes); i++) {
            errno = 0;
            char *p = round % 2 ? hakmem_calloc(1, sizes[i]) : hakmem_malloc(sizes[i]);
            if (!p) {
                assert_int_equal(errno, ENOMEM);
                continue;
            }
            p[0] = (char)i;
            char *q = hakmem_realloc(p, sizes[i] + sizes[i] / 2 + 1);
            if (!q)
                assert_int_equal(errno, ENOMEM);
            blocks[n] = q ? q : p;
            assert_int_equal(blocks[n][0], (char)i);
            n++;
        }
    return n;
}

/* As a program of its own for each number; "N" refuses the Nth call, "N+" that and all later ones. */
TEST(a_call_refused)
{
    if (!unit_argument)
        return;
    char *blocks[3 * COUNT(sizes)], *rest;
    unsigned nth = (unsigned)strtoul(unit_argument, &rest, 10);
    unit_start(NULL);
    fake_os_refuse_any(nth, ENOMEM, *rest == '+');
    unsigned n = workload(blocks);
    for (unsigned i = 0; i < n; i += 2)
        hakmem_free(blocks[i]);
    uint64_t calls = fake_os_total();
    fake_os_allow();
    for (unsigned i = 1; i < n; i += 2)
        hakmem_free(blocks[i]);
    assert_int_equal(workload(blocks), COUNT(blocks));
    for (unsigned i = 0; i < COUNT(blocks); i++)
        hakmem_free(blocks[i]);
    hak_trim(0);
    struct hak_census c = unit_census();
    assert_int_equal(c.used, c.remote);
    assert_int_equal(c.live_large, 0);
    dprintf(unit_out, "%d", calls < nth);
}

/* A process starts slowly under a sanitizer: there every third call. */
static void refuse_each(const char *format)
{
    char argument[16], out[8] = "0";
    unsigned nth, step = HAK_SANITIZED ? 3 : 1;
    for (nth = 1; out[0] == '0' && nth < 400; nth += step) {
        snprintf(argument, sizeof argument, format, nth);
        int status = unit_spawn("a_call_refused", argument, out, sizeof out);
        if (status)
            fail_msg("call %s refused: wait status 0x%x", argument, (unsigned)status);
    }
    assert_true(nth > 10 && out[0] == '1');
}

TEST(each_call_refused_once)
{
    refuse_each("%u");
}

TEST(each_call_and_all_later_ones_refused)
{
    refuse_each("%u+");
}

UNIT_MAIN(T(every_size_is_served_aligned_and_usable), T(zeroed_memory_is_zero_also_when_used_before), T(alignments),
          T(resizing_keeps_the_content), T(a_small_change_stays_in_place), T(a_failed_resize_leaves_the_block),
          T(what_is_too_large_is_refused), T(what_is_no_block_stops_the_process), T(free_keeps_errno),
          T(trim_gives_back_and_says_how_much), T(a_call_refused), T(each_call_refused_once),
          T(each_call_and_all_later_ones_refused))
