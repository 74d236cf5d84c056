/* SPDX-License-Identifier: MIT
 * Files by system calls of their own: the C library's functions may end a thread that is cancelled. errno stays. */
#ifndef HAK_FILE_H
#define HAK_FILE_H

#include <sys/types.h>

#include "words.h"

/* The beginning of a small file of the kernel, as a string; false if it cannot be read. */
bool hak_file_read(const char *path, char *text, size_t size);
/* What they return, or -errno. The process survives a pipe without a reader (SIGPIPE), or RLIMIT_FSIZE is in the way
 * (SIGXFSZ): what the library has to tell ends no program. */
ssize_t hak_file_write(int fd, const void *bytes, size_t size);
int hak_file_resize(int fd, size_t size);

#endif
