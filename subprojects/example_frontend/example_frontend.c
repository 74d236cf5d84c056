/* SPDX-License-Identifier: MIT
 * A small frontend: 2 to 6 KiB, from slabs of the span backend. A few EMPTY slabs wait for the next request of their
 * class, on a list under one lock. docs/write-your-own-frontend.md tells what else a frontend may do. */
#include "core/plugin.h"

#define KEPT 4u /* slabs of each class */

static HAK_LOCK(lock, HAK_RANK_FRONTEND);
static struct hak_slab *kept[HAK_NCLASSES];
static unsigned counts[HAK_NCLASSES];
static uint64_t reused;

static struct hak_slab *take_kept(unsigned cls)
{
    hak_lock_acquire(&lock);
    struct hak_slab *slab = kept[cls];
    if (slab) {
        hak_slab_list_remove(&kept[cls], slab);
        counts[cls]--;
        reused++;
    }
    hak_lock_release(&lock);
    return slab;
}

static struct hak_slab *slab_acquire(struct hak_thread *t, unsigned cls)
{
    struct hak_slab *slab = hak_parts.backend->adopt(t, cls);
    if (slab)
        return slab;
    if (!(slab = take_kept(cls)))
        return hak_parts.backend->acquire_slab(t, cls);
    hak_slab_format(slab, cls, t);
    return slab;
}

static void slab_release(struct hak_slab *slab)
{
    unsigned cls = slab->cls;
    hak_lock_acquire(&lock);
    bool keep = counts[cls] < KEPT && !hak_parts.release->at_once;
    if (keep) {
        hak_slab_list_push(&kept[cls], slab);
        counts[cls]++;
    }
    hak_lock_release(&lock);
    if (!keep)
        hak_parts.backend->release(slab);
}

/* The backend purges their pages. */
static size_t trim(size_t *keep)
{
    (void)keep;
    for (unsigned cls = 0; cls < HAK_NCLASSES; cls++)
        for (struct hak_slab *slab; (slab = take_kept(cls));)
            hak_parts.backend->release(slab);
    return 0;
}

static void stats(struct hak_stats_writer *w)
{
    hak_lock_acquire(&lock);
    hak_stats_begin(w, "example_frontend");
    hak_stats_number(w, "reused", reused);
    hak_stats_end(w);
    hak_lock_release(&lock);
}

const struct hak_frontend hak_frontend_example_frontend = {
    .name = "example_frontend",
    .min_stride = HAK_EXAMPLE_FRONTEND_MIN,
    .max_stride = HAK_EXAMPLE_FRONTEND_MAX,
    .slab_acquire = slab_acquire,
    .slab_release = slab_release,
    .trim = trim,
    .stats = stats,
};
