/* SPDX-License-Identifier: MIT
 * Small files of the kernel, read by system calls of their own: the C library's functions may end a thread that is
 * cancelled. errno stays. */
#ifndef HAK_FILE_H
#define HAK_FILE_H

#include "words.h"

/* The beginning of a file, as a string; false if it cannot be read. */
bool hak_file_read(const char *path, char *text, size_t size);

#endif
