/* SPDX-License-Identifier: MIT
 * Builds for Valgrind's memcheck (-Dvalgrind=true). What the door maps is hidden: memcheck takes it for inaccessible,
 * but for the blocks that the program has (src/api/edge.h tells of them). So it finds what the program does beyond
 * them, and looks for leaks without being led to each slab by the library's own tables. The library goes there unseen:
 * each way into it from outside begins with HAK_UNSEEN. In other builds all of this is nothing. */
#ifndef HAK_MEMCHECK_H
#define HAK_MEMCHECK_H

#include "words.h"

#if HAK_VALGRIND
#include <valgrind/memcheck.h>

HAK_INLINE void hak_memcheck_hide(const void *p, size_t size)
{
    VALGRIND_MAKE_MEM_NOACCESS(p, size);
}

HAK_INLINE bool hak_memcheck_enter(void)
{
    VALGRIND_DISABLE_ERROR_REPORTING;
    return true;
}

HAK_INLINE void hak_memcheck_leave(const bool *entered)
{
    (void)entered;
    VALGRIND_ENABLE_ERROR_REPORTING;
}

/* Until the end of the scope memcheck reports nothing of this thread. */
#define HAK_UNSEEN __attribute__((cleanup(hak_memcheck_leave), unused)) bool unseen_ = hak_memcheck_enter()
#else
HAK_INLINE void hak_memcheck_hide(const void *p, size_t size)
{
    (void)p, (void)size;
}

#define HAK_UNSEEN (void)0
#endif

#endif
