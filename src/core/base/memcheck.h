/* SPDX-License-Identifier: MIT
 * Builds for Valgrind's memcheck (-Dvalgrind=true). All memory that the library maps is marked inaccessible, except for
 * the program's live blocks (src/api/edge.h). So memcheck detects accesses outside of blocks, and its search for leaks
 * is not misled by the library's tables. The library itself accesses that memory unseen: each entry into it begins with
 * HAK_UNSEEN. In other builds all of this is empty. */
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
