/* SPDX-License-Identifier: MIT
 * See life.h. */
#include "life.h"

#include "background.h"
#include "core/base/sealed.h"
#include "core/heap/thread.h"
#include "fork.h"
#include "live.h"
#include "report.h"

bool hak_init(void)
{
    return hak_start();
}

__attribute__((constructor)) static void construct(void)
{
    hak_thread_constructor();
    hak_fork_constructor();
}

__attribute__((destructor)) static void destruct(void)
{
    if (!hak_is_ready_for("HAKMEM_STATS"))
        return;
    hak_background_stop();
    hak_stats_at_exit();
    if (hak_options.stats_shm)
        hak_live_end();
}
