/* SPDX-License-Identifier: MIT
 * Returns memory to the kernel at the program's request. */
#ifndef HAK_TRIM_H
#define HAK_TRIM_H

#include "core/base/words.h"

/* Purges free memory beyond `keep` bytes, of all threads. Returns the bytes purged. */
size_t hak_trim(size_t keep);

#endif
