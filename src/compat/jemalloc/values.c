/* SPDX-License-Identifier: MIT
 * What mallctl answers from the library's figures, settings and options. */
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "handlers.h"

#define LONGEST_DELAY_MS 3600000 /* of HAKMEM_PURGE_DELAY_MS */

static _Atomic(size_t) max_background = 1;
static _Atomic(ssize_t) decay_ms; /* as it was written last */

/* A function that answers with an expression. */
#define GET(name, member, expression)                       \
    int je_##name(const size_t *mib, union je_value *value) \
    {                                                       \
        (void)mib;                                          \
        value->member = (expression);                       \
        return 0;                                           \
    }

/* --- settings --------------------------------------------------------------------------------------------- */

long je_setting(const char *name)
{
    char text[32];
    return hakmem_get(name, text, sizeof text) == 0 ? strtol(text, NULL, 10) : 0;
}

static int change(const char *name, long number)
{
    char text[32];
    snprintf(text, sizeof text, "%ld", number);
    return hakmem_set(name, text) == 0 ? 0 : EFAULT;
}

GET(get_background, flag, je_setting("HAKMEM_BACKGROUND") != 0)
GET(get_max_background, size, max_background)
GET(get_abort_conf, flag, je_conf.abort_conf)
GET(get_confirm_conf, flag, je_conf.confirm_conf)
GET(get_opt_background, flag, je_conf.background)
GET(get_opt_decay, ssize, je_conf.decay_ms)
GET(get_stats_print, flag, je_conf.stats_print)
GET(get_stats_print_opts, text, je_conf.print_options)

int je_set_background(const size_t *mib, const union je_value *value)
{
    (void)mib;
    return change("HAKMEM_BACKGROUND", value->flag);
}

int je_set_max_background(const size_t *mib, const union je_value *value)
{
    (void)mib;
    max_background = value->size;
    return 0;
}

static long delay_of(ssize_t ms)
{
    return ms < 0 || ms > LONGEST_DELAY_MS ? LONGEST_DELAY_MS : (long)ms;
}

int je_get_decay(const size_t *mib, union je_value *value)
{
    (void)mib;
    long delay = je_setting("HAKMEM_PURGE_DELAY_MS");
    value->ssize = delay == delay_of(decay_ms) ? decay_ms : delay;
    return 0;
}

int je_set_decay(const size_t *mib, const union je_value *value)
{
    (void)mib;
    if (value->ssize < -1)
        return EFAULT;
    decay_ms = value->ssize;
    return change("HAKMEM_PURGE_DELAY_MS", delay_of(value->ssize));
}

/* --- figures ---------------------------------------------------------------------------------------------- */

int je_advance(const size_t *mib, const union je_value *value)
{
    (void)mib;
    if (value)
        je_advance_epoch();
    return 0;
}

static size_t system_page(void)
{
    return (size_t)sysconf(_SC_PAGESIZE);
}

static size_t active(void)
{
    size_t bytes = je_figure(HAKMEM_STAT_LIVE) + je_figure(HAKMEM_STAT_BINS) + je_figure(HAKMEM_STAT_SLACK);
    return (bytes + system_page() - 1) & ~(system_page() - 1);
}

static size_t retained(void)
{
    size_t mapped = je_figure(HAKMEM_STAT_MAPPED), used = active() + je_figure(HAKMEM_STAT_DIRTY);
    return mapped > used ? mapped - used : 0;
}

static size_t small(void)
{
    size_t bytes = 0;
    for (unsigned i = 0; i < je_class_count(); i++)
        bytes += je_class(i).allocated * je_class(i).usable;
    size_t bins = je_figure(HAKMEM_STAT_BINS);
    return bytes > bins ? bytes - bins : 0;
}

static size_t large(void)
{
    size_t live = je_figure(HAKMEM_STAT_LIVE), less = small();
    return live > less ? live - less : 0;
}

GET(get_epoch, u64, je_epoch())
GET(get_live, size, je_figure(HAKMEM_STAT_LIVE))
GET(get_active, size, active())
GET(get_metadata, size, je_figure(HAKMEM_STAT_METADATA))
GET(get_resident, size, active() + je_figure(HAKMEM_STAT_DIRTY) + je_figure(HAKMEM_STAT_METADATA))
GET(get_mapped, size, active() + je_figure(HAKMEM_STAT_METADATA))
GET(get_retained, size, retained())
GET(get_background_threads, size, je_setting("HAKMEM_BACKGROUND") != 0)

/* --- sizes ------------------------------------------------------------------------------------------------ */

GET(get_page, size, system_page())
GET(get_nbins, number, je_class_count())
GET(get_tcache_max, size, je_class_count() ? je_class(je_class_count() - 1).usable : 0)
GET(get_bin_size, size, je_class(mib[2]).usable)
GET(get_bin_slab, size, je_class(mib[2]).slab_bytes)
GET(get_bin_regs, u32, je_class(mib[2]).slab_bytes / je_class(mib[2]).usable)
GET(get_large_size, size, (size_t)65536 << mib[2])

/* --- arenas: 0, and all together, have everything ------------------------------------------------------------ */

#define OF_ARENA(name, member, expression) \
    GET(name, member, mib[2] == 0 || mib[2] == MALLCTL_ARENAS_ALL ? (expression) : 0)
/* A created arena has what its heap has. */
#define OF_HEAP(name, member, figure, expression)                                              \
    GET(name, member,                                                                          \
        je_arena_heap(mib[2])                         ? stats_of(je_arena_heap(mib[2])).figure \
        : mib[2] == 0 || mib[2] == MALLCTL_ARENAS_ALL ? (expression)                           \
                                                      : 0)

static struct hakmem_heap_stats stats_of(hakmem_heap *heap)
{
    struct hakmem_heap_stats stats;
    hakmem_heap_stats(heap, &stats);
    return stats;
}

OF_ARENA(get_nthreads, number, (unsigned)je_figure(HAKMEM_STAT_THREADS))
OF_HEAP(get_pactive, size, held / system_page(), active() / system_page())
OF_ARENA(get_pdirty, size, je_figure(HAKMEM_STAT_DIRTY) / system_page())
OF_HEAP(get_arena_mapped, size, held, active() + je_figure(HAKMEM_STAT_METADATA))
OF_ARENA(get_arena_retained, size, retained())
OF_HEAP(get_arena_resident, size, held, active() + je_figure(HAKMEM_STAT_DIRTY) + je_figure(HAKMEM_STAT_METADATA))
OF_ARENA(get_arena_metadata, size, je_figure(HAKMEM_STAT_METADATA))
OF_ARENA(get_tcache_bytes, size, je_figure(HAKMEM_STAT_BINS))
OF_ARENA(get_purges, u64, je_purges().calls)
OF_ARENA(get_purged, u64, je_purges().bytes / system_page())
OF_HEAP(get_small, size, live, small())
OF_ARENA(get_large, size, large())
OF_ARENA(get_bin_blocks, size, je_class(mib[4]).allocated)
OF_ARENA(get_bin_slabs, size, je_class(mib[4]).slabs)
OF_ARENA(get_bin_nonfull, size, je_class(mib[4]).slabs - je_class(mib[4]).full_slabs)
