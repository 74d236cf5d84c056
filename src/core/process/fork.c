/* SPDX-License-Identifier: MIT
 * See fork.h. The child goes on with the forking thread; the other threads' private lists are never walked,
 * since they may have stopped anywhere: their slabs stay pinned and are counted. */
#include "fork.h"

#include "background.h"
#include "core/heap/thread.h"
#include "core/os/meta.h"
#include "core/pages/space.h"
#include "core/parts/parts.h"
#include "live.h"
#include "start.h"

static void each_part(bool prepare, bool in_child)
{
    const struct hak_backend *b = hak_parts.backend;
    if (!prepare && b->fork_done)
        b->fork_done(in_child);
    for (unsigned i = 0; hak_frontends[i]; i++) {
        const struct hak_frontend *f = hak_frontends[i];
        if (prepare && f->fork_prepare)
            f->fork_prepare();
        else if (!prepare && f->fork_done)
            f->fork_done(in_child);
    }
    if (prepare && b->fork_prepare)
        b->fork_prepare();
}

static bool prepared; /* by the forking thread, while it holds the locks */

static void prepare(void)
{
    if (!hak_start())
        return;
    hak_lock_acquire(&hak_orphan_lock);
    hak_lock_acquire(&hak_thread_lock);
    each_part(true, false);
    hak_lock_acquire(&hak_space_lock);
    hak_lock_acquire(&hak_meta_lock);
    prepared = true;
}

static void done(bool in_child)
{
    if (!prepared)
        return;
    prepared = false;
    hak_lock_release(&hak_meta_lock);
    hak_lock_release(&hak_space_lock);
    each_part(false, in_child);
    if (in_child) {
        hak_thread_fork_child();
        hak_background_fork_child();
        if (hak_options.stats_shm)
            hak_live_fork_child();
    }
    hak_lock_release(&hak_thread_lock);
    hak_lock_release(&hak_orphan_lock);
}

static void parent(void)
{
    done(false);
}

static void child(void)
{
    done(true);
}

HAK_STARTUP void hak_fork_constructor(void)
{
    pthread_atfork(prepare, parent, child);
}
