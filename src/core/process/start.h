/* SPDX-License-Identifier: MIT
 * Start of the library, at the first slow path of the process. */
#ifndef HAK_START_H
#define HAK_START_H

#include "core/base/words.h"

/* Initialises the library if necessary: settings, parts, address space, backends, frontends, seal.
 * False without memory; a later call tries again. */
bool hak_start(void);
/* True if the library has started. If not, and the environment has `setting`, it starts it. */
bool hak_is_ready_for(const char *setting);
/* Writes a number in the sealed tables, which are writable for that moment. 0 or -errno. */
int hak_change_sealed(void *number, uint32_t value);
/* When hak_start succeeded, by hak_clock_ms. */
extern uint64_t hak_started_ms;
/* Whether the tables are read-only memory now. */
bool hak_is_sealed(void);

#endif
