/* SPDX-License-Identifier: MIT
 * The limits RLIMIT_AS and RLIMIT_DATA, which both count address space, used or not; and vm.max_map_count, the most
 * mappings of a process, of which the library takes at most half for what is not the program's memory. */
#ifndef HAK_LIMIT_H
#define HAK_LIMIT_H

#include "core/base/words.h"

/* The lesser of both; SIZE_MAX without a limit. With HAKMEM_SANDBOX=1 as they were at start. */
size_t hak_limit(void);

/* Whether so little was available when the library started that it maps nothing ahead of its use. */
extern HAK_HIDDEN bool hak_limit_is_tight;
/* At start: reads both, with two system calls. */
void hak_limit_look(void);
/* At start, if the kernel refused the mappings made ahead of use: sets hak_limit_is_tight. False if it is set already,
 * or cannot be set. */
bool hak_limit_tighten(void);

/* Half of vm.max_map_count, read when there are many; tests change it. */
extern HAK_HIDDEN _Atomic(uint64_t) hak_limit_mappings;
/* Whether the library may have so many beside those that are counted. */
bool hak_limit_allows(int64_t mappings);
/* Counts mappings that the library splits off, or joins again (negative). False, and none is counted: there would be
 * too many. */
bool hak_limit_split(int64_t mappings);
/* Counts the program's own, which leave less for the library's. */
void hak_limit_note(int64_t mappings);

#endif
