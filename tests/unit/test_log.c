/* SPDX-License-Identifier: MIT */
#include "core/base/log.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "unit.h"

static char text[2048];

static void log_lines(void)
{
    char big[1500];
    memset(big, 'x', sizeof big);
    big[sizeof big - 1] = 0;
    errno = 77;
    hak_log("one %d", 1);
    hak_log("%s %p", "two", (void *)NULL);
    hak_log("%s", big);
}

TEST(a_line_has_a_prefix_and_keeps_errno_and_a_long_one_is_cut)
{
    static const char wanted[] = "hakmem: one 1\nhakmem: two ";
    unit_stderr_of(log_lines(), text, sizeof text);
    assert_int_equal(errno, 77);
    assert_memory_equal(text, wanted, sizeof wanted - 1);
    const char *third = strchr(text + sizeof wanted, '\n') + 1;
    size_t n = strlen(third);
    assert_in_range(n, 400, 512);
    assert_ptr_equal(strchr(third, '\n'), third + n - 1);
}

TEST(text_is_always_terminated)
{
    char out[8];
    memset(out, '#', sizeof out);
    hak_text_format(out, sizeof out, "%s", "abcdefghijkl");
    assert_string_equal(out, "abcdefg");
    hak_text_format(out, sizeof out, "%u", 42u);
    assert_string_equal(out, "42");
}

static bool waits(int signal)
{
    sigset_t pending;
    sigpending(&pending);
    return sigismember(&pending, signal);
}

/* A SIGPIPE that the program raised and blocks stays pending. */
TEST(no_signal_comes_of_a_line_that_nobody_reads)
{
    int ends[2], err = dup(STDERR_FILENO);
    sigset_t set, mask;
    assert_int_equal(pipe(ends), 0);
    close(ends[0]);
    dup2(ends[1], STDERR_FILENO);
    hak_log("one"); /* would end the process with SIGPIPE */
    sigemptyset(&set);
    sigaddset(&set, SIGPIPE);
    sigprocmask(SIG_BLOCK, &set, &mask);
    assert_false(sigismember(&mask, SIGPIPE));
    hak_log("two");
    assert_false(waits(SIGPIPE));
    raise(SIGPIPE);
    hak_log("three");
    assert_true(waits(SIGPIPE));
    assert_int_equal(sigtimedwait(&set, NULL, &(struct timespec){0, 0}), SIGPIPE);
    sigprocmask(SIG_SETMASK, &mask, NULL);
    dup2(err, STDERR_FILENO);
    close(err);
    close(ends[1]);
}

/* The ring has the last 16 KiB, whatever file the lines went to. */
TEST(a_ring_keeps_the_last_lines)
{
    uint32_t before = HAK_LOAD_RELAXED(&hak_log_written);
    hak_log_file = "/dev/null";
    hak_log("%s", "kept");
    assert_int_equal(HAK_LOAD_RELAXED(&hak_log_written), before + strlen("hakmem: kept\n"));
    assert_memory_equal(hak_log_ring + before, "hakmem: kept\n", strlen("hakmem: kept\n"));
    for (unsigned i = 0; i < HAK_LOG_RING / 8; i++)
        hak_log("%u", i % 10);
    assert_memory_not_equal(hak_log_ring + before, "hakmem: kept\n", strlen("hakmem: kept\n"));
    hak_log_file = "";
}

TEST(the_file_is_named_by_the_process)
{
    char path[HAK_PATH_MAX], long_name[2 * HAK_PATH_MAX], name[64];
    snprintf(name, sizeof name, "/tmp/%d.a%d%%", (int)getpid(), (int)getpid());
    hak_text_path(path, "/tmp/%p.a%p%");
    assert_string_equal(path, name);
    memset(long_name, 'x', sizeof long_name - 1);
    memcpy(long_name + HAK_PATH_MAX - 3, "%p", 2); /* where its digits have no room */
    long_name[sizeof long_name - 1] = 0;
    hak_text_path(path, long_name);
    assert_int_equal(strlen(path), HAK_PATH_MAX - 1);
    hak_log_file = "/tmp/unit-log.%p";
    hak_log("there");
    hak_log_file = "";
    hak_text_path(path, "/tmp/unit-log.%p");
    assert_int_equal(unlink(path), 0);
}

static void log_to_pipe(void)
{
    char path[HAK_PATH_MAX];
    hak_text_path(path, "/tmp/unit-log-pipe.%p");
    assert_int_equal(mkfifo(path, 0600), 0);
    hak_log_file = path;
    hak_log("there");
    hak_log_file = "";
    unlink(path);
}

TEST(a_file_that_is_a_pipe_without_a_reader_stops_no_thread)
{
    unit_stderr_of(log_to_pipe(), text, sizeof text);
    assert_string_equal(text, "hakmem: there\n");
}

static void logged_end(void)
{
    hak_log_file = "/dev/null";
    hak_log("what went before");
    hak_log_fatal("the end of %s", "it");
}

TEST(the_process_stops_with_a_line_and_those_before_it)
{
    unit_start(NULL);
    HAK_CHECK(1 == 1);
    assert_dies(logged_end(), "hakmem: what went before\nhakmem: the end of it\n");
    assert_dies(HAK_CHECK(1 == 2), "internal check failed: 1 == 2");
}
