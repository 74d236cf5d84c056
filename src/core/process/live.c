/* SPDX-License-Identifier: MIT
 * See live.h. One thread at a time writes (`busy`). The writer of the statistics supplies the numbers by name. If the
 * file cannot be made, this is reported once and not tried again. */
#include "live.h"

#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "core/base/cancel.h"
#include "core/base/file.h"
#include "core/base/identity.h"
#include "core/base/layout.h"
#include "core/base/log.h"
#include "core/base/sealed.h"
#include "core/os/os.h"
#include "report.h"
#include "stats_sink.h"

#define SIZE (64 * HAK_KIB)
#define RECORDS ((SIZE - sizeof(struct hak_live_header)) / sizeof(struct hak_live_record))
#define REST 50 /* times the duration of a refresh */

struct hak_live_file {
    struct hak_live_header header;
    struct hak_live_record records[RECORDS];
};

static _Atomic(bool) busy; /* acquired and released by the thread that writes; protects what follows */
static struct hak_live_file *file;
static unsigned owner; /* the process that made it */
static int file_descriptor;
static HAK_SELDOM struct stat identity; /* of the file behind the descriptor */
static bool refused;
static uint64_t due_ns;
static uint32_t expected_place; /* index of the next number's record: the order seldom changes */

static int open_file(void)
{
    int low = memfd_create(HAK_LIVE_FILE, MFD_CLOEXEC);
    if (low < 0)
        return -errno;
    int fd = hak_stats_sink_copy(low), error = errno;
    close(low);
    return fd < 0 ? -error : fd;
}

static int map_file(void)
{
    void *p = NULL;
    int fd = open_file();
    if (fd < 0)
        return fd;
    int error = hak_file_resize(fd, SIZE);
    if (!error)
        error = fchmod(fd, 0600) || fstat(fd, &identity) ? -errno : hak_os_map_file(&p, SIZE, fd, HAK_CAUSE_metadata);
    if (error) {
        close(fd);
        return error;
    }
    file = p;
    file_descriptor = fd;
    return 0;
}

static bool make_file(void)
{
    HAK_SHOW_VARIABLE(file);
    HAK_SHOW_NUMBER("live_file_bytes", SIZE);
    int cancel = hak_cancel_suspend(), error = map_file();
    hak_cancel_resume(cancel);
    refused = error != 0;
    if (refused) {
        hak_log("HAKMEM_STATS_SHM=1: no file can be made (errno %d); there are no live counters", -error);
        return false;
    }
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    memcpy(file->header.magic, HAK_LIVE_MAGIC, sizeof file->header.magic);
    file->header.header_size = sizeof file->header;
    file->header.record_size = sizeof file->records[0];
    file->header.pid = (uint64_t)getpid();
    owner = hak_identity();
    file->header.started_ns = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
    return true;
}

/* A program may close all descriptors that it did not open, and reuse their numbers. */
static bool has_descriptor(void)
{
    struct stat now;
    return !fstat(file_descriptor, &now) && now.st_dev == identity.st_dev && now.st_ino == identity.st_ino;
}

static void forget_file(void)
{
    int cancel = hak_cancel_suspend();
    if (has_descriptor())
        close(file_descriptor);
    hak_cancel_resume(cancel);
    hak_os_unmap(file, SIZE, HAK_CAUSE_metadata);
    file = NULL;
    refused = false;
}

/* False in a forked child, which has its parent's file. */
static bool is_readable(void)
{
    return owner == hak_identity() && has_descriptor();
}

static bool is_named(const struct hak_live_record *r, const char *name)
{
    return !strncmp(r->name, name, HAK_LIVE_NAME - 1);
}

/* The record of that name: the expected one, else any, else a new one; NULL if the file is full. */
static struct hak_live_record *record_of(const char *name)
{
    uint32_t entries = HAK_LOAD_RELAXED(&file->header.entries);
    if (expected_place < entries && is_named(&file->records[expected_place], name))
        return &file->records[expected_place++];
    for (expected_place = 0; expected_place < entries; expected_place++)
        if (is_named(&file->records[expected_place], name))
            return &file->records[expected_place++];
    if (entries == RECORDS)
        return NULL;
    hak_text_format(file->records[entries].name, HAK_LIVE_NAME, "%s", name);
    return &file->records[expected_place++];
}

static void take_value(struct hak_stats_writer *w, const char *name, uint64_t value)
{
    (void)w;
    struct hak_live_record *r = record_of(name);
    if (!r)
        return;
    HAK_STORE_RELAXED(&r->value, value);
    if (expected_place > HAK_LOAD_RELAXED(&file->header.entries))
        HAK_STORE_RELEASE(&file->header.entries, expected_place); /* acquired by readers */
}

static void write_values(void)
{
    struct hak_stats_writer w = {.form = HAK_FORM_PATHS, .take = take_value};
    expected_place = 0;
    hak_stats_collect(&w);
    HAK_ADD_RELEASE(&file->header.updates, 1); /* acquired by readers */
}

static void refresh(void)
{
    int saved = errno;
    uint64_t start = hak_os->clock_ns();
    if (start >= due_ns) {
        if (file && !is_readable())
            forget_file();
        if (file || (!refused && make_file()))
            write_values();
        uint64_t end = hak_os->clock_ns();
        due_ns = end + REST * (end - start);
    }
    errno = saved;
}

void hak_live_refresh(void)
{
    if (HAK_EXCHANGE_ACQUIRE(&busy, true))
        return;
    refresh();
    HAK_STORE_RELEASE(&busy, false);
}

void hak_live_fork_child(void)
{
    due_ns = 0;
    HAK_STORE_RELAXED(&busy, false); /* the thread that held it does not exist here */
}
