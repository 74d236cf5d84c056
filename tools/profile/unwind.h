/* SPDX-License-Identifier: MIT
 * The stack of the calling thread. While walking it, no lock is held, no file is opened and no library is searched
 * for. */
#ifndef HAK_UNWIND_H
#define HAK_UNWIND_H

#include "core/base/words.h"

/* Called once, before the first walk. */
void hak_unwind_start(void);
/* False if the caller is the unwinder itself, which may hold a lock for which the walk would wait. */
bool hak_unwind_is_safe(const void *caller);
/* Stores return addresses, beginning with `caller`; returns how many. */
unsigned hak_unwind(void **frames, unsigned most, void *caller);

#endif
