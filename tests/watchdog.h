/* SPDX-License-Identifier: MIT
 * Ends a program that hangs, and says where: each thread writes its frames as module and offset, which addr2line
 * turns into lines. Nothing here allocates once it is started, as the hang may be in the allocator. */
#ifndef TESTS_WATCHDOG_H
#define TESTS_WATCHDOG_H

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#if __has_include(<execinfo.h>)
#include <execinfo.h>
#else
static inline int backtrace(void **frames, int n)
{
    (void)frames;
    (void)n;
    return 0;
}

static inline void backtrace_symbols_fd(void *const *frames, int n, int fd)
{
    (void)frames;
    (void)n;
    (void)fd;
}
#endif

enum { WATCHDOG_STATUS = 124 };

static inline void watchdog_tell(int signal_number)
{
    void *frames[40];
    char line[40];
    (void)signal_number;
    int n = backtrace(frames, 40);
    int length = snprintf(line, sizeof line, "thread %ld hangs in\n", (long)syscall(SYS_gettid));
    if (write(STDERR_FILENO, line, (size_t)length) == length)
        backtrace_symbols_fd(frames, n, STDERR_FILENO);
}

/* The entries of a folder in the kernel's format: 8 bytes inode, 8 offset, 2 length, 1 type, the name. */
static inline void watchdog_bark(int signal_number)
{
    char entries[8192];
    int fd = open("/proc/self/task", O_RDONLY | O_DIRECTORY);
    long size = fd < 0 ? 0 : syscall(SYS_getdents64, fd, entries, sizeof entries);
    (void)signal_number;
    for (long at = 0; at < size;) {
        unsigned short length;
        memcpy(&length, entries + at + 16, sizeof length);
        long thread = atol(entries + at + 19);
        if (thread)
            syscall(SYS_tgkill, getpid(), thread, SIGURG);
        nanosleep(&(struct timespec){0, 20000000}, NULL); /* one after the other */
        at += length;
    }
    _exit(WATCHDOG_STATUS);
}

static inline void watchdog_start(unsigned seconds)
{
    void *frame;
    backtrace(&frame, 1); /* loads what it needs */
    signal(SIGURG, watchdog_tell);
    signal(SIGALRM, watchdog_bark);
    alarm(seconds);
}

#endif
