/* SPDX-License-Identifier: MIT
 * See file.h. */
#include "file.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>

#include "kernel.h"
#include "text.h"

/* Signal sets as the kernel has them, one bit for each signal. Such a signal is directed to the thread, so it is taken
 * before one that another process sent. If one was pending before, the two are merged, and it stays pending. */
#define BIT(signal) ((uint64_t)1 << ((signal)-1))
static const uint64_t ours = BIT(SIGPIPE) | BIT(SIGXFSZ);

int hak_file_open(const char *path, int flags)
{
    return (int)HAK_SYSCALL(SYS_openat, AT_FDCWD, path, flags | O_CLOEXEC | O_NOCTTY, 0);
}

void hak_file_close(int fd)
{
    HAK_SYSCALL(SYS_close, fd);
}

bool hak_file_read(const char *path, char *text, size_t size)
{
    int fd = hak_file_open(path, O_RDONLY);
    long n = -1;
    if (fd >= 0) {
        n = HAK_SYSCALL(SYS_read, fd, text, size - 1);
        hak_file_close(fd);
    }
    text[n > 0 ? n : 0] = 0;
    return n > 0;
}

uint64_t hak_file_number(const char *path)
{
    char text[32];
    uint64_t n = 0;
    if (!hak_file_read(path, text, sizeof text) || text[0] < '0' || text[0] > '9')
        return UINT64_MAX;
    for (const char *c = text; *c >= '0' && *c <= '9'; c++)
        n = n * 10 + (uint64_t)(*c - '0');
    return n;
}

/* False if a seccomp filter refuses. */
static bool take_signal(uint64_t waited)
{
    uint64_t raised = ours & ~waited;
    struct timespec now = {0, 0};
    long taken = HAK_SYSCALL(SYS_rt_sigtimedwait, &raised, NULL, &now, sizeof raised);
    return taken >= 0 || taken == -EAGAIN;
}

/* Makes a system call that may raise these signals; returns its result, or -errno. A signal that cannot be taken stays
 * blocked. */
static long call_kernel(long number, long a, long b, long c)
{
    uint64_t before, waited = 0;
    long result = HAK_SYSCALL(SYS_rt_sigprocmask, SIG_BLOCK, &ours, &before, sizeof before);
    bool blocked = !result;
    if (blocked) {
        HAK_SYSCALL(SYS_rt_sigpending, &waited, sizeof waited);
        result = HAK_SYSCALL(number, a, b, c);
    }
    if (blocked && ((result != -EPIPE && result != -EFBIG) || take_signal(waited)))
        HAK_SYSCALL(SYS_rt_sigprocmask, SIG_SETMASK, &before, NULL, sizeof before);
    return result;
}

ssize_t hak_file_write(int fd, const void *bytes, size_t size)
{
    return call_kernel(SYS_write, fd, (long)bytes, (long)size);
}

int hak_file_resize(int fd, size_t size)
{
    return (int)call_kernel(SYS_ftruncate, fd, (long)size, 0);
}

/* Whether others may put something into the folder. */
static bool is_shared(const char *path, unsigned user)
{
    char folder[HAK_PATH_MAX + 1];
    struct stat st;
    const char *slash = hak_text_last(path, '/');
    size_t length = slash ? (size_t)(slash - path) + 1 : 0;
    hak_move(folder, path, length);
    folder[length] = '.';
    folder[length + 1] = 0;
    return HAK_SYSCALL(SYS_newfstatat, AT_FDCWD, folder, &st, 0) || st.st_mode & (S_IWGRP | S_IWOTH) ||
           (st.st_uid && st.st_uid != user);
}

bool hak_file_may_be_replaced(const char *path)
{
    struct stat st;
    return HAK_SYSCALL(SYS_newfstatat, AT_FDCWD, path, &st, AT_SYMLINK_NOFOLLOW) || S_ISREG(st.st_mode);
}

int hak_file_create(const char *path, int flags, unsigned mode)
{
    struct stat st;
    unsigned user = (unsigned)HAK_SYSCALL(SYS_geteuid, 0);
    int shared = is_shared(path, user) ? O_NOFOLLOW : 0;
    flags |= shared | O_CREAT | O_NONBLOCK | O_CLOEXEC | O_NOCTTY;
    int fd = (int)HAK_SYSCALL(SYS_openat, AT_FDCWD, path, flags, mode), error = fd < 0 ? fd : 0;
    bool is_file = !error && !HAK_SYSCALL(SYS_fstat, fd, &st) && S_ISREG(st.st_mode);
    if (is_file && shared && (st.st_uid != user || st.st_nlink != 1))
        error = -EPERM;
    if (is_file && !error && !(flags & O_APPEND))
        error = hak_file_resize(fd, 0);
    if (error && fd >= 0)
        hak_file_close(fd);
    return error ? error : fd;
}
