/* SPDX-License-Identifier: MIT
 * See life.h. */
#include "life.h"

#include "core/base/memcheck.h"
#include "core/base/sealed.h"
#include "fork.h"
#include "report.h"
#include "signal.h"

_Atomic(bool) hak_is_initialised;

bool hak_init_now(void)
{
    if (!hak_start())
        return false;
    hak_fork_register();
    if (hak_options.stats_signal)
        hak_signal_start();
    if (hak_options.log_file[0])
        hak_signal_show_ring_on_abort();
    HAK_STORE_RELEASE(&hak_is_initialised, true);
    return true;
}

/* If the library was opened by dlopen, handlers that are registered from now on do not pass through fork.c. */
__attribute__((constructor)) static void construct(void)
{
    HAK_UNSEEN;
    hak_fork_register();
}

__attribute__((destructor)) static void destruct(void)
{
    HAK_UNSEEN;
    if (hak_is_ready_for("HAKMEM_STATS"))
        hak_stats_at_exit();
}
