/* SPDX-License-Identifier: MIT
 * See file.h. */
#include "file.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

bool hak_file_read(const char *path, char *text, size_t size)
{
    int saved = errno;
    long fd = syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC), n = -1;
    if (fd >= 0) {
        n = syscall(SYS_read, fd, text, size - 1);
        syscall(SYS_close, fd);
    }
    text[n > 0 ? n : 0] = 0;
    errno = saved;
    return n > 0;
}
