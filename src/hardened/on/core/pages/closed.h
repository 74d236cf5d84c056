/* SPDX-License-Identifier: MIT
 * Hardened builds: closed pages, which are inaccessible while they are free. The pages of a large block close when it
 * is freed, all others when they are purged; they open when they are taken. So a write after free stops the program,
 * and pages that should read as zero do. If the kernel refuses, or the address space is limited, pages stay open. Other
 * builds: nothing. */
#ifndef HAK_CLOSED_H
#define HAK_CLOSED_H

#include "core/base/words.h"

/* Closes free pages that only the caller knows. */
void hak_closed_shut(char *base, size_t size);
/* Opens pages before they are used. False: the kernel refused. */
bool hak_closed_open(char *base, size_t size);

#endif
