/* SPDX-License-Identifier: MIT
 * See life.h. */
#include "life.h"

#include "background.h"
#include "core/base/cancel.h"
#include "core/base/memcheck.h"
#include "fork.h"
#include "report.h"

static _Atomic(bool) complete; /* released after the start and all that may allocate; acquired by who finds it true */

bool hak_init(void)
{
    if (HAK_LIKELY(HAK_LOAD_ACQUIRE(&complete)))
        return true;
    if (!hak_start())
        return false;
    hak_fork_register();
    HAK_STORE_RELEASE(&complete, true);
    return true;
}

/* Where the library was opened by dlopen, handlers that are registered from now on do not come by fork.c. */
__attribute__((constructor)) static void construct(void)
{
    hak_fork_register();
}

__attribute__((destructor)) static void destruct(void)
{
    HAK_UNSEEN;
    if (!hak_is_ready_for("HAKMEM_STATS"))
        return;
    int cancel = hak_cancel_suspend();
    hak_background_stop();
    hak_stats_at_exit();
    hak_cancel_resume(cancel);
}
