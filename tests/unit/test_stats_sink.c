/* SPDX-License-Identifier: MIT */
#include "core/process/stats_sink.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "unit.h"

static char path[] = "/tmp/outlet.XXXXXX", text[300];

/* Replaces stderr by an empty file, and lets the sink keep it. */
static void begin(void)
{
    int fd = mkstemp(path);
    assert_true(fd >= 0 && dup2(fd, STDERR_FILENO) == STDERR_FILENO);
    close(fd);
    hak_stats_sink_keep_stderr();
}

/* Whether a byte that is written to the sink's stderr arrives in the file. */
static bool arrives(void)
{
    struct stat st;
    int fd = hak_stats_sink_stderr();
    bool written = fd >= 0 && write(fd, "x", 1) == 1;
    hak_stats_sink_close(fd);
    assert_int_equal(stat(path, &st), 0);
    return written && st.st_size == 1;
}

TEST(the_copy_is_out_of_the_way_and_closed_on_exec)
{
    begin();
    close(STDERR_FILENO);
    int fd = hak_stats_sink_stderr();
    assert_true(fd > 100);
    assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
    unlink(path);
}

static const int ends[] = {STDERR_FILENO + 1, 1100};

/* The program closes stderr, or all descriptors. */
TEST_EACH(descriptors_may_be_closed, ends)
{
    begin();
    for (int fd = STDERR_FILENO; fd < *row; fd++)
        close(fd);
    assert_true(arrives());
    unlink(path);
}

TEST(what_has_the_copys_number_now_is_left_alone)
{
    begin();
    for (int fd = STDERR_FILENO; fd < 1100; fd++)
        close(fd);
    int other = open("/dev/null", O_WRONLY);
    for (int fd = other + 1; fd < 1100; fd++)
        dup2(other, fd);
    unlink(path); /* so that it cannot be opened again by its name either */
    assert_int_equal(hak_stats_sink_stderr(), -1);
}

TEST(a_file_is_named_by_the_process_and_gives_one_line_if_it_cannot_be_written)
{
    char start[64], name[64];
    snprintf(name, sizeof name, "/tmp/outlet.%d.end", (int)getpid());
    int fd = hak_stats_sink_file("/tmp/outlet.%p.end");
    assert_true(fd >= 0);
    hak_stats_sink_close(fd);
    assert_int_equal(fcntl(fd, F_GETFD), -1);
    assert_int_equal(unlink(name), 0);
    snprintf(start, sizeof start, "hakmem: HAKMEM_STATS_FILE=/nowhere/%d: cannot be written", (int)getpid());
    unit_stderr_of(assert_int_equal(hak_stats_sink_file("/nowhere/%p"), -ENOENT), text, sizeof text);
    assert_memory_equal(text, start, strlen(start));
    assert_ptr_equal(strchr(text, '\n'), text + strlen(text) - 1);
}

/* Another user's names are in the folder: a link to a file, a second name of a file, or a file of that user. */
static void open_in_shared_folder(void)
{
    char folder[] = "/tmp/sink.XXXXXX", own[64], name[64];
    struct stat st;
    assert_non_null(mkdtemp(folder));
    snprintf(own, sizeof own, "%s/own", folder);
    snprintf(name, sizeof name, "%s/name", folder);
    for (unsigned mode = 0700; mode <= 01777; mode += 01077) {
        bool shared = mode == 01777;
        assert_int_equal(chmod(folder, mode), 0);
        umask(0);
        int fd = hak_stats_sink_file(own);
        assert_true(fd >= 0 && !fstat(fd, &st));
        assert_int_equal(st.st_mode & 0777, 0600);
        assert_int_equal(write(fd, "kept", 4), 4);
        close(fd);
        for (unsigned kind = 0; kind < 2; kind++) {
            assert_int_equal((kind ? link : symlink)(own, name), 0);
            fd = hak_stats_sink_file(name);
            assert_int_equal(fd < 0, shared);
            close(fd);
            unlink(name);
            assert_int_equal(stat(own, &st), 0);
            assert_int_equal(st.st_size, shared ? 4 : 0);
        }
        if (geteuid() == 0 && shared) {
            assert_int_equal(chown(own, 65534, 65534), 0);
            assert_int_equal(hak_stats_sink_file(own), -EPERM);
        }
        unlink(own);
    }
    rmdir(folder);
}

TEST(names_of_others_are_not_followed)
{
    unit_stderr_of(open_in_shared_folder(), text, sizeof text);
    assert_non_null(strstr(text, "cannot be written"));
}

static void open_pipe(void)
{
    char pipe_name[HAK_PATH_MAX];
    hak_text_path(pipe_name, "/tmp/unit-sink-pipe.%p");
    assert_int_equal(mkfifo(pipe_name, 0600), 0);
    assert_int_equal(hak_stats_sink_file(pipe_name), -ENXIO);
    int reader = open(pipe_name, O_RDONLY | O_NONBLOCK), fd = hak_stats_sink_file(pipe_name);
    assert_true(fd >= 0);
    assert_false(fcntl(fd, F_GETFL) & O_NONBLOCK);
    hak_stats_sink_close(fd);
    close(reader);
    unlink(pipe_name);
}

/* With one, which may be slow, it gets all. */
TEST(a_pipe_without_a_reader_cannot_be_written)
{
    unit_stderr_of(open_pipe(), text, sizeof text);
    assert_non_null(strstr(text, "cannot be written"));
}

/* A name that is too long is cut to fit. */
TEST(a_name_of_any_length_ends_within_its_room)
{
    enum { ROOM = HAK_TEXT_MAX + 16, LONG = 400, SLASHES = 200 };
    char pattern[LONG + 1] = "/tmp", cut[ROOM];
    memset(pattern + 4, '/', SLASHES);
    memset(pattern + 4 + SLASHES, 'x', LONG - 4 - SLASHES);
    memcpy(cut, pattern, ROOM - 1);
    cut[ROOM - 1] = 0;
    int fd = hak_stats_sink_file(pattern);
    assert_true(fd >= 0);
    hak_stats_sink_close(fd);
    assert_int_equal(unlink(cut), 0);
}
