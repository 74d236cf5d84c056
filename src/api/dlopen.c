/* SPDX-License-Identifier: MIT
 * dlopen, in the shared library that serves malloc: as the C library's, but see core/process/deepbind.h. The C library
 * identifies the caller by the return address, for $ORIGIN, the run path and the namespace. So this jumps to its dlopen
 * instead of calling it: the return address stays the caller's. */
#include <dlfcn.h>

#include "core/base/log.h"
#include "core/process/deepbind.h"

typedef void *open_function(const char *file, int flags);

#if defined(__clang__)
#define JUMP __attribute__((musttail))
#define JUMPS
#else
#define JUMP
#define JUMPS __attribute__((optimize("O2"), no_sanitize("address", "undefined", "thread")))
#endif

static open_function *behind(void)
{
    static _Atomic(open_function *) found;
    open_function *next = HAK_LOAD_RELAXED(&found);
    if (!next) {
        next = (open_function *)(uintptr_t)dlsym(RTLD_NEXT, "dlopen");
        if (!next)
            hak_log_fatal("dlopen: the C library has none behind this one");
        HAK_STORE_RELAXED(&found, next);
    }
    return next;
}

HAK_EXPORT JUMPS void *dlopen(const char *file, int flags)
{
    open_function *next = behind();
    flags = hak_deepbind_flags(file, flags);
    JUMP return next(file, flags);
}
