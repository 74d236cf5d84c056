/* SPDX-License-Identifier: MIT
 * The library's figures. Those of hakmem_read are read when a program writes to `epoch`, in constant time; those that
 * only hakmem's report has, when they are asked for the first time in an epoch. All are single words, so nothing needs
 * a lock, and a forked child may go on. */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "jemalloc.h"

#define CLASSES 128u
#define FIGURES (HAKMEM_STAT_LIMIT + 1)

static _Atomic(uint64_t) epoch, figures[FIGURES];
/* Of the report, and the epoch in which it was read. */
static _Atomic(uint64_t) report_epoch, report_end_ns, report_took_ns, purge_calls, purged_bytes;
static _Atomic(unsigned) class_count;
static struct {
    _Atomic(uint32_t) usable, slab_bytes;
    _Atomic(uint64_t) allocated, slabs, full_slabs;
} classes[CLASSES];

/* --- hakmem_read ------------------------------------------------------------------------------------------ */

void je_advance_epoch(void)
{
    static const enum hakmem_stat used[] = {HAKMEM_STAT_LIVE,   HAKMEM_STAT_BINS,     HAKMEM_STAT_SLACK,
                                            HAKMEM_STAT_DIRTY,  HAKMEM_STAT_METADATA, HAKMEM_STAT_MAPPED,
                                            HAKMEM_STAT_THREADS};
    for (unsigned i = 0; i < sizeof used / sizeof *used; i++) {
        uint64_t value = 0;
        if (hakmem_read(used[i], &value) == 0)
            figures[used[i]] = value;
    }
    epoch++;
}

uint64_t je_epoch(void)
{
    if (!epoch)
        je_advance_epoch();
    return epoch;
}

uint64_t je_figure(enum hakmem_stat which)
{
    je_epoch();
    return figures[which];
}

/* --- the report ------------------------------------------------------------------------------------------- */

char *je_report(bool json)
{
    char *text = NULL;
    int fd = memfd_create("hakmem-report", MFD_CLOEXEC);
    if (fd < 0)
        return NULL;
    off_t end = hakmem_stats(fd, json) == 0 ? lseek(fd, 0, SEEK_END) : -1;
    if (end >= 0 && (text = hakmem_malloc((size_t)end + 1))) {
        ssize_t length = pread(fd, text, (size_t)end, 0);
        text[length > 0 ? length : 0] = 0;
    }
    close(fd);
    return text;
}

/* The number after `"key": `, at or after `text`. */
static uint64_t number_after(const char *text, const char *key)
{
    text = text ? strstr(text, key) : NULL;
    return text ? strtoull(text + strlen(key) + 3, NULL, 10) : 0;
}

static void read_classes(const char *text)
{
    unsigned i = 0;
    const char *end = strchr(text, ']');
    while (i < CLASSES && (text = strstr(text, "\"stride\"")) && text < end) {
        classes[i].usable = (uint32_t)hakmem_good_size(i ? classes[i - 1].usable + 1 : 1);
        classes[i].slab_bytes = (uint32_t)number_after(text, "\"slab_pages") << 16;
        classes[i].allocated = number_after(text, "\"allocated_blocks");
        classes[i].slabs = number_after(text, "\"slabs");
        classes[i++].full_slabs = number_after(text, "\"full_slabs");
        text++;
    }
    class_count = i;
}

/* The ledger's rows of causes that purge. */
static void read_purges(const char *text)
{
    static const char *const causes[] = {"partial_release", "batch_release", "direct_release",
                                         "lru_evict",       "purge",         "trim"};
    static const char cause[] = "\"cause\": \"";
    uint64_t calls = 0, bytes = 0;
    const char *end = strchr(text, ']');
    while ((text = strstr(text, cause)) && text < end) {
        text += sizeof cause - 1;
        for (unsigned i = 0; i < sizeof causes / sizeof *causes; i++)
            if (strncmp(text, causes[i], strlen(causes[i])) == 0) {
                calls += number_after(text, "\"calls");
                bytes += number_after(text, "\"bytes");
            }
    }
    purge_calls = calls;
    purged_bytes = bytes;
}

static uint64_t clock_ns(clockid_t clock)
{
    struct timespec t = {0, 0};
    clock_gettime(clock, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Its time grows with the heap, and redis wants it ten times a second. So a report that took more than a millisecond
 * of the thread's time serves a hundred times as long. */
static void read_report(void)
{
    uint64_t now = je_epoch();
    if (report_epoch == now)
        return;
    report_epoch = now;
    if (report_took_ns > 1000000 && clock_ns(CLOCK_MONOTONIC) - report_end_ns < 100 * report_took_ns)
        return;
    uint64_t begin_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID);
    char *report = je_report(true);
    const char *rows = report ? strstr(report, "\"classes\"") : NULL;
    const char *calls = rows ? strstr(rows, "\"os_calls\"") : NULL;
    if (calls) {
        read_classes(rows);
        read_purges(calls);
    }
    hakmem_free(report);
    report_end_ns = clock_ns(CLOCK_MONOTONIC);
    report_took_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID) - begin_ns;
}

struct je_purges je_purges(void)
{
    read_report();
    return (struct je_purges){purge_calls, purged_bytes};
}

unsigned je_class_count(void)
{
    if (!class_count)
        read_report();
    return class_count;
}

struct je_class je_class(size_t number)
{
    read_report();
    return (struct je_class){classes[number].usable, classes[number].slab_bytes, classes[number].allocated,
                             classes[number].slabs, classes[number].full_slabs};
}
