/* SPDX-License-Identifier: MIT
 * jemalloc's interface as its manual has it: flags, each name of mallctl by its row of names.def, MIBs, options, and
 * the printed statistics. The library stands in place of libjemalloc.so.2. */
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "compat/jemalloc/jemalloc.h"
#include "mallocx.h"

#define LG_ALIGN(lg) (lg)
#define MALLOCX_ZERO 0x40
#define TCACHE(number) (((number) + 2) << 8)
#define TCACHE_NONE TCACHE(-1)
#define ARENA(number) ((int)(((number) + 1) << 20))
#define UNTIL(array) (sizeof(array) / sizeof *(array))

enum access { READS = 1, WRITES = 2, RUNS = 4, ANSWERS = 8 };

static const struct row {
    const char *name;
    unsigned access;
    size_t size; /* of what is read, or else written */
} rows[] = {
#define SIZE(type) sizeof(((union je_value *)0)->type)
#define FIXED(name, type, value, meaning) {name, READS, SIZE(type)},
#define READ(name, type, get, meaning) {name, READS, SIZE(type)},
#define BOTH(name, type, get, set, meaning) {name, READS | WRITES, SIZE(type)},
#define ASK(name, taken, set, type, get, meaning) {name, READS | ANSWERS, SIZE(type)},
#define WRITE(name, type, set, meaning) {name, WRITES, SIZE(type)},
#define RUN(name, set, meaning) {name, RUNS, 0},
#define REFUSED(name, meaning) {name, 0, 0},
#include "compat/jemalloc/names.def"
};

/* The row's name with an index in place of <a>, <b> and <l>, and nothing in place of *. */
static const char *name_of(const char *row, const char *index)
{
    static char name[128];
    size_t n = 0;
    for (const char *p = row; *p; p++)
        if (*p == '<') {
            n += (size_t)snprintf(name + n, sizeof name - n, "%s", index);
            p += 2;
        } else if (*p != '*') {
            name[n++] = *p;
        }
    name[n] = 0;
    return name;
}

static uint64_t read_number(const char *name)
{
    uint64_t value = 0;
    for (size_t size = 8; size; size /= 2) {
        size_t length = size;
        if (mallctl(name, &value, &length, NULL, 0) == 0)
            return value;
        value = 0;
    }
    fail_msg("%s cannot be read", name);
    return 0;
}

/* --- names ------------------------------------------------------------------------------------------------ */

static void check_reads(const struct row *row, const char *name)
{
    unsigned char value[16], again[16];
    size_t size = row->size, mib[8], depth = 8;
    assert_int_equal(mallctl(name, value, &size, NULL, 0), 0);
    assert_int_equal(size, row->size);
    assert_int_equal(mallctlnametomib(name, mib, &depth), 0);
    if (!(row->access & ANSWERS)) {
        assert_int_equal(mallctlbymib(mib, depth, again, &size, NULL, 0), 0);
        assert_int_equal(mallctl(name, NULL, NULL, NULL, 0), 0);
    }
    size = row->size + 1;
    assert_int_equal(mallctl(name, value, &size, NULL, 0), EINVAL);
    size = row->size - 1;
    assert_int_equal(mallctl(name, value, &size, NULL, 0), EINVAL);
    if (row->access == READS)
        assert_int_equal(mallctl(name, NULL, NULL, value, row->size), EPERM);
}

static void each_name(void **state)
{
    (void)state;
    for (unsigned i = 0; i < UNTIL(rows); i++) {
        unsigned char value[16] = {0};
        const char *name = name_of(rows[i].name, "0");
        size_t size = rows[i].size, mib[8], depth = 8;
        if (!rows[i].access) {
            assert_int_equal(mallctl(name, value, &size, NULL, 0), ENOENT);
            continue;
        }
        if (strcmp(rows[i].name, "arenas.lookup") == 0)
            continue;
        if (rows[i].access & READS)
            check_reads(&rows[i], name);
        if ((rows[i].access & (READS | WRITES)) == (READS | WRITES)) {
            size = rows[i].size;
            assert_int_equal(mallctl(name, value, &size, NULL, 0), 0);
            assert_int_equal(mallctl(name, NULL, NULL, value, size), 0);
            assert_int_equal(mallctl(name, NULL, NULL, value, size + 1), EINVAL);
        }
        if (rows[i].access == WRITES || rows[i].access == RUNS) {
            assert_int_equal(mallctl(name, value, &size, NULL, 0), EPERM);
            assert_int_equal(mallctlnametomib(name, mib, &depth), 0);
        }
        if (strchr(rows[i].name, '<')) {
            assert_int_equal(mallctl(name_of(rows[i].name, "5000"), value, &size, NULL, 0), ENOENT);
            assert_int_equal(mallctl(name_of(rows[i].name, "x"), value, &size, NULL, 0), ENOENT);
        }
    }
    assert_int_equal(mallctl("no.such.name", NULL, NULL, NULL, 0), ENOENT);
    assert_int_equal(mallctl("stats", NULL, NULL, NULL, 0), ENOENT);
    assert_int_equal(mallctl("", NULL, NULL, NULL, 0), ENOENT);
    assert_int_equal(mallctl("epoch.", NULL, NULL, NULL, 0), ENOENT);
}

static void mibs(void **state)
{
    (void)state;
    size_t mib[4] = {0, 0, 0, 42}, depth = 3, size = sizeof size;
    assert_int_equal(mallctlnametomib("arenas.bin.3.size", mib, &depth), 0);
    assert_true(depth == 3 && mib[2] == 3 && mib[3] == 42);
    depth = 4;
    assert_int_equal(mallctlnametomib("arenas.bin.0", mib, &depth), 0);
    assert_int_equal(depth, 3);
    assert_int_equal(mallctlbymib(mib, depth, NULL, NULL, NULL, 0), ENOENT);
    depth = 4;
    assert_int_equal(mallctlnametomib("arenas.bin.0.size", mib, &depth), 0);
    size_t before = 0;
    for (unsigned i = 0; i < read_number("arenas.nbins"); i++) {
        size_t bytes;
        mib[2] = i;
        assert_int_equal(mallctlbymib(mib, depth, &bytes, &size, NULL, 0), 0);
        assert_true(bytes > before && nallocx(bytes, 0) == bytes);
        before = bytes;
    }
    mib[2] = read_number("arenas.nbins");
    assert_int_equal(mallctlbymib(mib, depth, &before, &size, NULL, 0), ENOENT);
    mib[0] = 99999;
    assert_int_equal(mallctlbymib(mib, depth, &before, &size, NULL, 0), ENOENT);
    assert_int_equal(mallctlbymib(mib, 0, &before, &size, NULL, 0), ENOENT);
}

static void epoch(void **state)
{
    (void)state;
    uint64_t first, second, value = 1;
    size_t size = sizeof value;
    assert_int_equal(mallctl("epoch", &first, &size, &value, size), 0);
    assert_int_equal(mallctl("epoch", &second, &size, &value, size), 0);
    assert_true(second == first + 1 && read_number("epoch") == second);
}

static void advance(void)
{
    uint64_t value = 1;
    assert_int_equal(mallctl("epoch", NULL, NULL, &value, sizeof value), 0);
}

/* --- blocks ----------------------------------------------------------------------------------------------- */

static void flags(void **state)
{
    (void)state;
    for (int lg = 0; lg <= 22; lg++)
        for (size_t size = 1; size < 300000; size = size * 3 + 1) {
            unsigned char *p = mallocx(size, LG_ALIGN(lg) | MALLOCX_ZERO | TCACHE_NONE | ARENA(0));
            size_t usable = sallocx(p, 0);
            assert_true(p && (uintptr_t)p % ((size_t)1 << lg) == 0 && usable >= size);
            assert_true(usable >= nallocx(size, LG_ALIGN(lg)) && nallocx(size, LG_ALIGN(lg)) >= size);
            if (size < 3000 && lg <= 4) /* larger ones may be served by a larger class */
                assert_int_equal(usable, nallocx(size, LG_ALIGN(lg)));
            assert_true(p[0] == 0 && memcmp(p, p + 1, usable - 1) == 0);
            memset(p, 0xa5, usable);
            sdallocx(p, size, LG_ALIGN(lg));
        }
    assert_null(mallocx((size_t)PTRDIFF_MAX + 1, 0));
    assert_null(mallocx(1, LG_ALIGN(63)));
    assert_int_equal(nallocx(SIZE_MAX, 0), 0);
}

static void resizing(void **state)
{
    (void)state;
    unsigned char *p = mallocx(1, MALLOCX_ZERO);
    size_t usable = sallocx(p, 0);
    memset(p, 1, usable);
    for (size_t size = 1; size < 200000; size = size * 5 / 4 + 1)
        for (int lg = 0; lg <= 12; lg += 12) {
            p = rallocx(p, size, LG_ALIGN(lg) | MALLOCX_ZERO);
            assert_true(p && (uintptr_t)p % ((size_t)1 << lg) == 0);
            size_t now = sallocx(p, 0);
            for (size_t i = 0; i < now; i++)
                if (i < size || i >= usable) /* what is between, is not specified */
                    assert_int_equal(p[i], i < usable);
            memset(p, 1, now);
            usable = now;
        }
    assert_int_equal(xallocx(p, usable, 0, 0), usable);
    assert_int_equal(xallocx(p, 1, 0, 0), usable);
    assert_true(xallocx(p, usable, SIZE_MAX - usable, 0) >= usable);
    assert_null(rallocx(p, SIZE_MAX, 0));
    assert_null(rallocx(p, 1, LG_ALIGN(63)));
    dallocx(p, 0);
}

static void *allocate_in_arena(void *number)
{
    unsigned arena = *(unsigned *)number;
    assert_int_equal(mallctl("thread.arena", NULL, NULL, &arena, sizeof arena), 0);
    void *p = malloc(100);
    arena = 0;
    assert_int_equal(mallctl("thread.arena", NULL, NULL, &arena, sizeof arena), 0);
    return p;
}

static void arenas(void **state)
{
    (void)state;
    unsigned before = (unsigned)read_number("arenas.narenas"), arena = 0, tcache = 0;
    size_t size = sizeof arena;
    char name[64];
    void *p = NULL, *hooks = &p;
    assert_int_equal(mallctl("arenas.create", &arena, &size, NULL, 0), 0);
    assert_true(arena > 0 && arena <= before && read_number("arenas.narenas") >= before);
    assert_int_equal(mallctl("arenas.create", &arena, &size, &hooks, sizeof hooks), EFAULT);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, allocate_in_arena, &arena), 0);
    assert_int_equal(pthread_join(thread, &p), 0);
    unsigned found = 7;
    assert_int_equal(mallctl("arenas.lookup", &found, &size, &p, sizeof p), 0);
    assert_int_equal(found, arena);
    unsigned char *q = mallocx(5000, ARENA(arena) | LG_ALIGN(12) | MALLOCX_ZERO);
    assert_true((uintptr_t)q % 4096 == 0 && q[0] == 0 && memcmp(q, q + 1, 4999) == 0);
    assert_int_equal(mallctl("arenas.lookup", &found, &size, &q, sizeof q), 0);
    assert_int_equal(found, arena);
    q = rallocx(q, 100000, ARENA(arena) | LG_ALIGN(12));
    assert_int_equal(mallctl("arenas.lookup", &found, &size, &q, sizeof q), 0);
    assert_int_equal(found, arena);
    snprintf(name, sizeof name, "stats.arenas.%u.small.allocated", arena);
    assert_in_range(read_number(name), 100100, 200000);
    dallocx(p, ARENA(arena));
    snprintf(name, sizeof name, "arena.%u.reset", arena);
    assert_int_equal(mallctl(name, NULL, NULL, NULL, 0), 0);
    snprintf(name, sizeof name, "stats.arenas.%u.small.allocated", arena);
    assert_int_equal(read_number(name), 0);
    assert_int_equal(mallctl("arena.0.reset", NULL, NULL, NULL, 0), EFAULT);
    ssize_t ms = 77, read = 0, longest = -1, invalid = -2;
    size_t length = sizeof ms;
    long delay = (long)read_number("arenas.dirty_decay_ms");
    snprintf(name, sizeof name, "arena.%u.dirty_decay_ms", arena);
    assert_int_equal(mallctl(name, &read, &length, &ms, sizeof ms), 0);
    assert_int_equal(read_number(name), 77);
    assert_int_equal(read_number("arenas.dirty_decay_ms"), delay);
    assert_int_equal(mallctl("arenas.dirty_decay_ms", NULL, NULL, &longest, sizeof longest), 0);
    assert_int_equal((ssize_t)read_number("arena.0.dirty_decay_ms"), -1);
    assert_int_equal(mallctl("arenas.dirty_decay_ms", NULL, NULL, &invalid, sizeof invalid), EFAULT);
    ms = delay;
    assert_int_equal(mallctl("arenas.dirty_decay_ms", NULL, NULL, &ms, sizeof ms), 0);
    snprintf(name, sizeof name, "arena.%u.destroy", arena);
    assert_int_equal(mallctl(name, NULL, NULL, NULL, 0), 0);
    assert_int_equal(mallctl(name, NULL, NULL, NULL, 0), EFAULT);
    assert_int_equal(mallctl("arena.0.destroy", NULL, NULL, NULL, 0), EFAULT);
    assert_int_equal(mallctl("tcache.create", &tcache, &size, NULL, 0), 0);
    dallocx(mallocx(42, TCACHE((int)tcache)), TCACHE((int)tcache));
    assert_int_equal(mallctl("tcache.flush", NULL, NULL, &tcache, sizeof tcache), 0);
    assert_int_equal(mallctl("tcache.destroy", NULL, NULL, &tcache, sizeof tcache), 0);
    assert_int_equal(mallctl("tcache.destroy", NULL, NULL, &tcache, sizeof tcache), EFAULT);
}

/* --- figures ---------------------------------------------------------------------------------------------- */

#define MANY ((size_t)64 << 20)

static void figures(void **state)
{
    (void)state;
    advance();
    size_t before = read_number("stats.allocated");
    char *p = malloc(MANY);
    memset(p, 1, MANY);
    assert_int_equal(read_number("stats.allocated"), before);
    advance();
    assert_in_range(read_number("stats.allocated"), before + MANY, before + MANY + (1 << 20));
    assert_true(read_number("stats.active") >= read_number("stats.allocated"));
    assert_true(read_number("stats.resident") >= read_number("stats.active") + read_number("stats.metadata"));
    assert_int_equal(read_number("stats.arenas.0.pactive"), read_number("stats.active") / read_number("arenas.page"));
    assert_int_equal(read_number("stats.arenas.4096.pactive"), read_number("stats.arenas.0.pactive"));
    assert_int_equal(read_number("stats.arenas.0.small.allocated") + read_number("stats.arenas.0.large.allocated"),
                     read_number("stats.allocated"));
    free(p);
}

static uint64_t of_bin(uint64_t bin, const char *format)
{
    char name[64];
    snprintf(name, sizeof name, format, (unsigned)bin);
    return read_number(name);
}

/* redis and Valkey compute fragmentation from these, and abort where one is missing. */
static void slabs_of_bins(void **state)
{
    (void)state;
    static void *blocks[3000];
    for (unsigned i = 0; i < UNTIL(blocks); i++)
        blocks[i] = malloc(1000);
    advance();
    uint64_t held = 0;
    for (uint64_t bin = 0; bin < read_number("arenas.nbins"); bin++) {
        uint64_t used = of_bin(bin, "stats.arenas.0.bins.%u.curregs");
        uint64_t slabs = of_bin(bin, "stats.arenas.0.bins.%u.curslabs");
        uint64_t full = slabs - of_bin(bin, "stats.arenas.0.bins.%u.nonfull_slabs");
        uint64_t each = of_bin(bin, "arenas.bin.%u.nregs");
        assert_in_range(used, full * each, slabs * each);
        held += of_bin(bin, "arenas.bin.%u.size") == nallocx(1000, 0) ? full : 0;
    }
    assert_true(held >= 3000 * 1000 / (64 << 10) - 1);
    for (unsigned i = 0; i < UNTIL(blocks); i++)
        free(blocks[i]);
}

/* What a purge leaves cannot be purged again. */
static void purging(void **state)
{
    (void)state;
    static void *blocks[1000];
    for (unsigned i = 0; i < UNTIL(blocks); i++)
        memset(blocks[i] = malloc(50000), 1, 50000);
    for (unsigned i = 0; i < UNTIL(blocks); i++)
        free(blocks[i]);
    advance();
    uint64_t purged = read_number("stats.arenas.4096.dirty_purged");
    char name[64];
    snprintf(name, sizeof name, "arena.%u.purge", (unsigned)read_number("arenas.narenas"));
    assert_int_equal(mallctl(name, NULL, NULL, NULL, 0), 0);
    advance();
    assert_true(read_number("stats.arenas.4096.pdirty") == 0);
    assert_true(read_number("stats.arenas.4096.dirty_purged") * read_number("arenas.page") >= purged + MANY / 8);
}

static void *count_thread(void *expected)
{
    uint64_t allocated = read_number("thread.allocated"), *counter = NULL;
    size_t size = sizeof counter;
    assert_int_equal(mallctl("thread.allocatedp", &counter, &size, NULL, 0), 0);
    assert_int_equal(*counter, allocated);
    uint64_t freed = read_number("thread.deallocated");
    char *p = realloc(malloc(1000), 100000), *q = mallocx(1000, LG_ALIGN(12));
    size_t bytes = sallocx(p, 0) + sallocx(q, 0) + nallocx(1000, 0);
    assert_int_equal(*counter, allocated + bytes);
    free(p);
    dallocx(q, 0);
    assert_int_equal(read_number("thread.deallocated"), freed + bytes);
    assert_int_equal(mallctl("thread.peak.reset", NULL, NULL, NULL, 0), 0);
    p = malloc(123456);
    bytes = sallocx(p, 0);
    free(p);
    assert_int_equal(read_number("thread.peak.read"), bytes);
    return expected;
}

static void counters(void **state)
{
    (void)state;
    pthread_t thread;
    count_thread(NULL);
    assert_int_equal(pthread_create(&thread, NULL, count_thread, NULL), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
}

static char printed[1 << 20];

static void collect(void *opaque, const char *text)
{
    assert_ptr_equal(opaque, printed);
    assert_true(strlen(printed) + strlen(text) < sizeof printed);
    strcat(printed, text);
}

static void printing(void **state)
{
    (void)state;
    malloc_stats_print(collect, printed, NULL);
    assert_non_null(strstr(printed, "Allocated: "));
    assert_non_null(strstr(printed, "live_bytes"));
    assert_non_null(strstr(printed, "--- End jemalloc statistics ---\n"));
    *printed = 0;
    malloc_stats_print(collect, printed, "J");
    int depth = 0;
    for (const char *p = printed; *p; p++) {
        depth += (*p == '{' || *p == '[') - (*p == '}' || *p == ']');
        assert_true(depth > 0 || !p[1] || !p[2]);
    }
    assert_int_equal(depth, 0);
    assert_non_null(strstr(printed, "\"nbins\":"));
    assert_non_null(strstr(printed, "\"stats.arenas\":{\"merged\":{"));
    assert_null(strstr(printed, ",,"));
    *printed = 0;
    malloc_stats_print(collect, printed, "Jgmbl");
    assert_null(strstr(printed, "\"opt\""));
    assert_null(strstr(printed, "merged"));
    assert_non_null(strstr(printed, "\"allocated\":"));
}

/* --- options ---------------------------------------------------------------------------------------------- */

/* Starts the program again with these options. Returns what it writes, which the caller frees. */
static const char *said_with(const char *self, const char *options)
{
    static char text[4096];
    char command[512];
    snprintf(command, sizeof command, "MALLOC_CONF='%s' '%s' show 2>&1", options, self);
    FILE *pipe = popen(command, "r");
    size_t length = fread(text, 1, sizeof text - 1, pipe);
    text[length] = 0;
    pclose(pipe);
    return text;
}

static const char *self_path;

static void options(void **state)
{
    (void)state;
    assert_string_equal(said_with(self_path, ""), "decay 100 background 0\n");
    assert_string_equal(said_with(self_path, "background_thread:true,dirty_decay_ms:-1,narenas:4,thp:always"),
                        "decay -1 background 1\n");
    assert_non_null(strstr(said_with(self_path, "prof:true,tcache:false"), "Invalid conf pair: prof:true\n"));
    assert_non_null(strstr(said_with(self_path, "dirty_decay_ms:-2"), "Invalid conf pair: dirty_decay_ms:-2\n"));
    assert_null(strstr(said_with(self_path, "abort_conf:true,nonsense"), "decay"));
    assert_non_null(strstr(said_with(self_path, "confirm_conf:true,tcache:true"), "Set conf value: tcache:true\n"));
    assert_non_null(strstr(said_with(self_path, "stats_print:true,stats_print_opts:J"), "{\"jemalloc\":{"));
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_name), cmocka_unit_test(mibs),     cmocka_unit_test(epoch),
        cmocka_unit_test(flags),     cmocka_unit_test(resizing), cmocka_unit_test(arenas),
        cmocka_unit_test(figures),   cmocka_unit_test(purging),  cmocka_unit_test(counters),
        cmocka_unit_test(printing),  cmocka_unit_test(options),  cmocka_unit_test(slabs_of_bins),
    };
    self_path = argv[0];
    if (argc > 1) {
        printf("decay %ld background %d\n", (long)read_number("opt.dirty_decay_ms"),
               (int)read_number("opt.background_thread"));
        return 0;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
