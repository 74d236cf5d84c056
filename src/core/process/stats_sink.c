/* SPDX-License-Identifier: MIT
 * See stats_sink.h. */
#include "stats_sink.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/file.h"
#include "core/base/kernel.h"
#include "core/base/log.h"
#include "core/base/sealed.h"

#define NUMBER_MAX 1023 /* low numbers are left to programs that use select */

static int kept = -1;
static dev_t device;
static ino_t inode;
static HAK_SELDOM char file_name[256];

static int copy_number(void)
{
    struct rlimit r;
    return HAK_SYSCALL(SYS_prlimit64, 0, RLIMIT_NOFILE, NULL, &r) || r.rlim_cur > NUMBER_MAX ? NUMBER_MAX
                                                                                             : (int)r.rlim_cur - 1;
}

bool hak_stats_sink_wants_stderr(void)
{
    const struct hak_option_values *o = &hak_options;
    return o->fast_stats || o->stage_stats || ((o->stats || o->stats_signal) && !o->stats_file[0]);
}

void hak_stats_sink_keep_stderr(void)
{
    struct stat st;
    if (kept < 0 && HAK_SYSCALL(SYS_fstat, STDERR_FILENO, &st) == 0) {
        device = st.st_dev;
        inode = st.st_ino;
        long n = HAK_SYSCALL(SYS_readlinkat, AT_FDCWD, "/proc/self/fd/2", file_name, sizeof file_name - 1);
        file_name[n > 0 ? n : 0] = 0;
        kept = (int)HAK_SYSCALL(SYS_fcntl, STDERR_FILENO, F_DUPFD_CLOEXEC, copy_number());
    }
}

static bool is_it(int fd)
{
    struct stat st;
    return fd >= 0 && HAK_SYSCALL(SYS_fstat, fd, &st) == 0 && st.st_dev == device && st.st_ino == inode;
}

int hak_stats_sink_stderr(void)
{
    if (is_it(kept))
        return kept;
    if (is_it(STDERR_FILENO))
        return STDERR_FILENO;
    int fd = file_name[0] == '/' ? hak_file_open(file_name, O_WRONLY | O_APPEND) : -1;
    if (is_it(fd))
        return fd;
    if (fd >= 0)
        hak_file_close(fd);
    return -1;
}

int hak_stats_sink_file(const char *pattern)
{
    char path[HAK_PATH_MAX];
    hak_text_path(path, pattern);
    /* The collector of Prometheus's file is another user; other reports, which contain addresses, are not for others.
     */
    int fd = hak_file_create(path, O_WRONLY, hak_options.stats == HAK_STATS_PROMETHEUS ? 0644 : 0600);
    if (fd < 0)
        hak_log("HAKMEM_STATS_FILE=%s: cannot be written (errno %d); name a writable file", path, -fd);
    else
        HAK_SYSCALL(SYS_fcntl, fd, F_SETFL, 0); /* only open must not wait: a pipe may have no reader, or a slow one */
    return fd;
}

void hak_stats_sink_close(int fd)
{
    if (fd > STDERR_FILENO && fd != kept)
        hak_file_close(fd);
}
