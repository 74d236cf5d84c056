/* SPDX-License-Identifier: MIT
 * The file of live counters: which users may read it, what it contains, and when it disappears. */
#include "core/process/live.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "unit.h"

static char file_bytes[128 * HAK_KIB];

/* The path by which readers find it; NULL if the process has none. */
static const char *path_of_file(void)
{
    static char path[64];
    char target[64];
    for (int fd = 0; fd < 2000; fd++) {
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        ssize_t n = readlink(path, target, sizeof target - 1);
        target[n > 0 ? n : 0] = 0;
        if (strstr(target, "/memfd:" HAK_LIVE_FILE))
            return path;
    }
    return NULL;
}

static int descriptor_of_file(void)
{
    return atoi(strrchr(path_of_file(), '/') + 1);
}

static const struct hak_live_header *read_file(void)
{
    const char *path = path_of_file();
    assert_non_null(path);
    int fd = open(path, O_RDONLY);
    assert_true(fd >= 0);
    ssize_t n = read(fd, file_bytes, sizeof file_bytes);
    close(fd);
    assert_true(n >= (ssize_t)sizeof(struct hak_live_header));
    return (const struct hak_live_header *)file_bytes;
}

/* A value as a reader finds it; fails the test if there is none. */
static uint64_t value_of(const char *name)
{
    const struct hak_live_header *h = read_file();
    const struct hak_live_record *r = (const struct hak_live_record *)(file_bytes + h->header_size);
    for (uint32_t i = 0; i < h->entries; i++)
        if (!strcmp(r[i].name, name))
            return r[i].value;
    fail_msg("no counter %s", name);
    return 0;
}

static void start(void)
{
    unit_start("HAKMEM_STATS_SHM=1");
    hak_free(hak_malloc(10)); /* the first maintenance makes the file */
}

/* Does fn until it refreshed the file: a refresh may have to wait until the last one took less than 2 % of the time,
 * which is long if a busy machine interrupted that one. */
static void until_refreshed(void (*fn)(void))
{
    uint64_t before = read_file()->updates;
    while (read_file()->updates == before) {
        usleep(10000);
        fn();
    }
    assert_int_equal(read_file()->updates, before + 1);
}

/* Reaches the clock, which then shows that 10 ms have gone by. */
static void work_and_pass(void)
{
    fake_os_pass(11);
    unit_free_blocks(unit_blocks(3000, 1000));
}

TEST(nothing_without_the_setting)
{
    unit_start(NULL);
    unit_free_blocks(unit_blocks(100, 10000));
    assert_null(path_of_file());
}

TEST(the_file_is_there_at_once_and_for_its_user_alone)
{
    struct stat st;
    start();
    assert_int_equal(stat(path_of_file(), &st), 0);
    assert_int_equal(st.st_mode & 07777, 0600);
    const struct hak_live_header *h = read_file();
    assert_memory_equal(h->magic, "HAKSTAT1", 8);
    assert_int_equal(h->header_size, 64);
    assert_int_equal(h->record_size, 64);
    assert_int_equal(h->pid, getpid());
    assert_int_equal(h->updates, 1);
    assert_true(h->entries > 20);
    assert_true(h->started_ns > UINT64_C(1600000000) * 1000000000);
}

TEST(values_are_those_of_the_statistics)
{
    start();
    struct unit_block *list = unit_blocks(100, 10000);
    until_refreshed(hak_live_refresh);
    assert_int_equal(value_of("bins.refills"), unit_stat("bins", "refills"));
    assert_int_equal(value_of("bins.refill_blocks"), unit_stat("bins", "refill_blocks"));
    assert_int_equal(value_of("space.mapped_bytes"), unit_stat("space", "mapped_bytes"));
    assert_int_equal(value_of("conservation.allocated_blocks"), unit_stat("conservation", "allocated_blocks"));
    assert_int_equal(value_of("os_calls.metadata.mmap.calls"), hak_ledger[HAK_CAUSE_metadata][HAK_OS_mmap].calls);
    unit_free_blocks(list);
}

TEST(slow_paths_refresh_it_at_ticks_of_10_ms)
{
    start();
    until_refreshed(work_and_pass);
    until_refreshed(work_and_pass);
    usleep(100000);
    uint64_t before = read_file()->updates;
    unit_free_blocks(unit_blocks(3000, 5000)); /* the coarse clock stands still */
    assert_int_equal(read_file()->updates, before);
}

TEST(records_keep_their_places)
{
    static char names[COUNT(file_bytes) / sizeof(struct hak_live_record)][HAK_LIVE_NAME];
    start();
    const struct hak_live_header *h = read_file();
    const struct hak_live_record *r = (const struct hak_live_record *)(file_bytes + h->header_size);
    uint32_t before = h->entries;
    for (unsigned i = 0; i < before; i++)
        strcpy(names[i], r[i].name);
    unit_free_blocks(unit_blocks(40 * HAK_MIB, 1)); /* further causes, in the middle of the order */
    until_refreshed(hak_live_refresh);
    h = read_file();
    assert_true(h->entries > before);
    for (unsigned i = 0; i < before; i++)
        assert_string_equal(r[i].name, names[i]);
    for (unsigned i = 0; i < h->entries; i++)
        for (unsigned j = 0; j < i; j++)
            assert_string_not_equal(r[i].name, r[j].name);
}

TEST(a_descriptor_in_its_place_is_left_alone)
{
    int pair[2], before = dup(0);
    start();
    int fd = descriptor_of_file();
    assert_true(fd > 100); /* not among the first */
    assert_int_equal(dup(0), before + 1);
    assert_int_equal(pipe(pair), 0);
    assert_int_equal(dup2(pair[1], fd), fd);
    assert_null(path_of_file());
    while (!path_of_file()) {
        usleep(10000);
        hak_live_refresh();
    }
    assert_int_equal(read_file()->pid, getpid());
    assert_int_equal(write(fd, "x", 1), 1);
}

static void start_without_descriptors(void)
{
    struct rlimit before, none;
    getrlimit(RLIMIT_NOFILE, &before);
    none = (struct rlimit){0, before.rlim_max};
    setrlimit(RLIMIT_NOFILE, &none);
    start();
    setrlimit(RLIMIT_NOFILE, &before);
}

TEST(a_file_that_cannot_be_made_is_told_once)
{
    char text[600];
    unit_stderr_of(start_without_descriptors(), text, sizeof text);
    assert_non_null(strstr(text, "HAKMEM_STATS_SHM=1: no file can be made (errno 24)"));
    assert_ptr_equal(strchr(text, '\n'), text + strlen(text) - 1);
    hak_live_refresh();
    unit_free_blocks(unit_blocks(100, 1000));
    assert_null(path_of_file());
}

static const bool refused[] = {false, true};

/* The program closes the file, and the next refresh, at once, makes another one. */
TEST_EACH(a_refused_mapping_leaves_no_file_and_errno_is_kept, refused)
{
    char text[600];
    start();
    close(descriptor_of_file());
    hak_live_fork_child();
    if (*row)
        fake_os_refuse(HAK_OS_mmap, 1, ENOMEM, false);
    errno = 4711;
    unit_stderr_of(hak_live_refresh(), text, sizeof text);
    assert_int_equal(errno, 4711);
    assert_int_equal(path_of_file() == NULL, *row);
    assert_int_equal(strstr(text, "(errno 12)") != NULL, *row);
}

static int report_of_child(void)
{
    if (read_file()->pid != (uint64_t)getppid())
        return 2; /* before its first refresh it has no file of its own */
    unit_free_blocks(unit_blocks(3000, 1000));
    hak_live_refresh();
    return read_file()->pid != (uint64_t)getpid();
}

TEST(a_child_makes_its_own)
{
    start();
    unit_free_blocks(unit_blocks(100, 10));
    uint64_t updates = read_file()->updates;
    unit_in_child(report_of_child);
    assert_true(read_file()->updates >= updates);
}

/* A copy, by no function of the C library's, in a namespace of its own; -1 where that is not allowed. */
static int run_as_first(int (*fn)(void))
{
    int status = -1;
    pid_t pid = (pid_t)syscall(SYS_clone, SIGCHLD | CLONE_NEWPID, 0, 0, 0, 0);
    if (pid == 0)
        _exit(fn());
    return pid > 0 && waitpid(pid, &status, 0) == pid ? status : -1;
}

static ino_t file_number(void)
{
    struct stat st;
    hak_live_fork_child(); /* at once, not step by step */
    hak_live_refresh();
    return stat(path_of_file(), &st) ? 0 : st.st_ino;
}

static ino_t number_of_parents;

static int is_another_file(void)
{
    return getpid() != 1 || file_number() == number_of_parents;
}

static int refresh_beside_a_child(void)
{
    number_of_parents = file_number();
    uint64_t updates = read_file()->updates;
    return getpid() != 1 || run_as_first(is_another_file) || read_file()->updates != updates;
}

TEST(a_child_of_the_same_number_makes_its_own)
{
    start();
    int status = run_as_first(refresh_beside_a_child);
    if (status < 0)
        skip();
    assert_int_equal(status, 0);
}

static void *work(void *unused)
{
    (void)unused;
    for (unsigned i = 0; i < 200; i++) {
        unit_free_blocks(unit_blocks(1 + i * 8, 200));
        hak_live_refresh();
    }
    return NULL;
}

TEST(threads_refresh_by_turns)
{
    pthread_t threads[4];
    start();
    unit_free_blocks(unit_blocks(100, 10));
    for (unsigned i = 0; i < 4; i++)
        threads[i] = unit_begin(work, NULL);
    for (unsigned i = 0; i < 4; i++)
        unit_join(threads[i]);
    until_refreshed(hak_live_refresh);
    assert_int_equal(value_of("threads.started"), unit_stat("threads", "started"));
    assert_int_equal(value_of("bins.refills"), unit_stat("bins", "refills"));
}
