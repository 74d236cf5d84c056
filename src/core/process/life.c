/* SPDX-License-Identifier: MIT
 * See life.h. */
#include "life.h"

#include "core/base/memcheck.h"
#include "core/base/sealed.h"
#include "fork.h"
#include "report.h"
#include "signal.h"

#include <dlfcn.h>
#include <link.h>

_Atomic(bool) hak_is_initialised;

bool hak_init_now(void)
{
    static _Atomic(bool) has_handlers; /* set before: a function of the C library that was replaced may allocate */
    if (!hak_start())
        return false;
    hak_fork_register();
    if (!HAK_EXCHANGE_RELAXED(&has_handlers, true)) {
        if (hak_options.stats_signal)
            hak_signal_start();
        if (hak_options.log_file[0])
            hak_signal_show_ring_on_abort();
    }
    HAK_STORE_RELEASE(&hak_is_initialised, true);
    return true;
}

extern ElfW(Dyn) _DYNAMIC[] __attribute__((weak, visibility("hidden"))); /* a static program has none */

/* A library that contains the archive, and was not linked with -z nodelete as ours is. */
HAK_STARTUP static bool may_be_unloaded(void)
{
    for (const ElfW(Dyn) *d = _DYNAMIC; d && d->d_tag != DT_NULL; d++)
        if (d->d_tag == DT_DEBUG || (d->d_tag == DT_FLAGS_1 && d->d_un.d_val & (DF_1_NODELETE | DF_1_PIE)))
            return false;
    return _DYNAMIC;
}

/* Threads that end, forks and signals run our code after dlclose. The linker warns of dlopen in static programs, so it
 * is looked up. */
HAK_STARTUP static void stay_loaded(void)
{
    Dl_info own;
    __typeof__(dladdr) *address = (__typeof__(address))(uintptr_t)dlsym(RTLD_DEFAULT, "dladdr");
    __typeof__(dlopen) *open = (__typeof__(open))(uintptr_t)dlsym(RTLD_DEFAULT, "dlopen");
    if (address && open && address(_DYNAMIC, &own))
        open(own.dli_fname, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);
}

/* If the library was opened by dlopen, handlers that are registered from now on do not pass through fork.c. */
__attribute__((constructor)) static void construct(void)
{
    HAK_UNSEEN;
    hak_fork_register();
    if (may_be_unloaded())
        stay_loaded();
}

__attribute__((destructor)) static void destruct(void)
{
    HAK_UNSEEN;
    if (hak_is_ready_for("HAKMEM_STATS"))
        hak_stats_at_exit();
}
