/* SPDX-License-Identifier: MIT
 * The stack of the calling thread. No lock is held, nothing is opened and no library is looked for meanwhile. */
#ifndef HAK_UNWIND_H
#define HAK_UNWIND_H

#include "core/base/words.h"

/* Once, before the first stack is wanted. */
void hak_unwind_start(void);
/* False where the caller is the unwinder itself, which may own a lock that it would wait for. */
bool hak_unwind_is_safe(const void *caller);
/* Return addresses, beginning with `caller`; how many. */
unsigned hak_unwind(void **frames, unsigned most, void *caller);

#endif
