/* SPDX-License-Identifier: MIT
 * File access by system calls (kernel.h). */
#ifndef HAK_FILE_H
#define HAK_FILE_H

#include <sys/types.h>

#include "words.h"

#define HAK_PATH_MAX 272 /* bytes of a name, with its end */

/* The descriptor of a file that exists, which a program that is executed does not inherit, or -errno. */
int hak_file_open(const char *path, int flags);
/* The same for output: the file is made, or emptied unless O_APPEND is among the flags. In a folder to which others may
 * write, as /tmp, no link is followed, and no file that another user made is taken. A pipe needs a reader. */
int hak_file_create(const char *path, int flags, unsigned mode);
/* Whether a file may take its place: there is none, or a regular one; no device, pipe or link. */
bool hak_file_may_be_replaced(const char *path);

void hak_file_close(int fd);
/* The beginning of a small file of the kernel, as a string; false if it cannot be read. */
bool hak_file_read(const char *path, char *text, size_t size);
/* The number with which such a file begins; UINT64_MAX if there is none. */
uint64_t hak_file_number(const char *path);
/* Return the system call's result, or -errno. A pipe without a reader (SIGPIPE) or RLIMIT_FSIZE (SIGXFSZ) does not kill
 * the process: the library's output must not end a program. */
ssize_t hak_file_write(int fd, const void *bytes, size_t size);

int hak_file_resize(int fd, size_t size);

#endif
