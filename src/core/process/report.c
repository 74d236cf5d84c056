/* SPDX-License-Identifier: MIT
 * What the statistics contain: version and settings with their source, the dispatch table, slab
 * transitions, bins, the ledger of system calls, what is retained and why, and the conservation laws. */
#include "report.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "background.h"
#include "container.h"
#include "core/base/clock.h"
#include "core/base/file.h"
#include "core/base/kernel.h"
#include "core/base/log.h"
#include "core/base/text.h"
#include "core/heap/arena.h"
#include "core/heap/heaps.h"
#include "core/os/huge_page.h"
#include "core/os/meta.h"
#include "core/pages/budget.h"
#include "core/pages/guard.h"
#include "core/pages/page_heap.h"
#include "core/pages/space.h"
#include "core/parts/parts.h"
#include "core/parts/release.h"
#include "deepbind.h"
#include "figures.h"
#include "start.h"
#include "stats_sink.h"

HAK_OPTIONAL(hak_arenas_figures);

#define REWRITE_MS 10000u /* a collector reads the file every 15 s or less often */

/* "tiny pool large": the parts that are built. All contracts begin with the name. */
static void write_names(struct hak_stats_writer *w, const char *key, const void *list)
{
    const char *const *const *parts = list;
    char names[256] = "";
    for (size_t i = 0, n = 0; parts[i] && n + 1 < sizeof names; i++, n = hak_text_length(names))
        hak_text_format(names + n, sizeof names - n, "%s%s", i ? " " : "", *parts[i]);
    hak_stats_text(w, key, names);
}

static void write_allocator(struct hak_stats_writer *w)
{
    hak_stats_begin(w, "allocator");
    hak_stats_text(w, "name", "hakmem");
    hak_stats_text(w, "version", HAK_VERSION);
    hak_stats_number(w, "schema", HAK_STATS_SCHEMA);
    hak_stats_text(w, "build_id", HAK_BUILD_ID);
    hak_stats_text(w, "backend", hak_parts.backend->name);
    hak_stats_text(w, "release", hak_parts.release->name);
    hak_stats_text(w, "tiny_header", HAK_TINY_HEADER_NAME);
    hak_stats_text(w, "cache", HAK_CACHE_NAME);
    write_names(w, "frontends", hak_frontends);
    write_names(w, "backends", hak_backends);
    write_names(w, "releases", hak_releases);
    hak_stats_bool(w, "sealed", hak_is_sealed());
    hak_stats_number(w, "pid", (uint64_t)hak_kernel_pid());
    hak_stats_text(w, "program", program_invocation_short_name);
    hak_stats_end(w);
}

static void write_number_setting(struct hak_stats_writer *w, const struct hak_option_info *info, uint32_t value)
{
    size_t length;
    if (info->type == HAK_TYPE_ENUM) {
        const char *choices = hak_option_text(info, HAK_TEXT_CHOICES);
        const char *choice = hak_option_choice(choices, value, &length);
        hak_stats_text_n(w, "value", choice, length);
        choice = hak_option_choice(choices, info->default_value, &length);
        hak_stats_text_n(w, "default", choice, length);
        hak_stats_text(w, "choices", choices);
        return;
    }
    hak_stats_number(w, "value", value);
    hak_stats_number(w, "default", info->default_value);
    hak_stats_number(w, "min", info->min);
    hak_stats_number(w, "max", info->max);
}

static void write_settings(struct hak_stats_writer *w)
{
    static const char types[][8] = {"bool", "int", "enum", "string"};
    static const char sources[][12] = {"default", "program", "environment"};
    hak_stats_begin_array(w, "settings");
    for (unsigned i = 0; i < HAK_OPTION_COUNT; i++) {
        const struct hak_option_info *info = &hak_option_table[i];
        const char *value = (const char *)&hak_options + info->offset;
        if (w->form != HAK_FORM_JSON && !hak_option_sources[i])
            continue; /* text shows what differs from the defaults */
        hak_stats_begin(w, NULL);
        hak_stats_text(w, "name", hak_option_text(info, HAK_TEXT_NAME));
        if (info->type == HAK_TYPE_TEXT)
            hak_stats_text(w, "value", value);
        else
            write_number_setting(w, info, *(const uint32_t *)value);
        hak_stats_text(w, "source", sources[hak_option_sources[i]]);
        if (w->form == HAK_FORM_JSON) {
            hak_stats_text(w, "type", types[info->type]);
            hak_stats_number(w, "changeable", hak_option_is_changeable(info));
            hak_stats_text(w, "moves", hak_option_text(info, HAK_TEXT_MOVES));
            hak_stats_number(w, "inherited", info->inherited);
        }
        hak_stats_end(w);
    }
    hak_stats_end_array(w);
}

static void write_dispatch(struct hak_stats_writer *w, const struct hak_census *c)
{
    hak_stats_begin_array(w, "classes");
    for (unsigned cls = 0; cls < HAK_NCLASSES; cls++) {
        if (w->form != HAK_FORM_JSON && cls && hak_parts.by_class[cls] == hak_parts.by_class[cls - 1])
            continue; /* text shows where another frontend begins */
        hak_stats_begin(w, NULL);
        hak_stats_number(w, "stride", hak_strides[cls]);
        hak_stats_text(w, "frontend", hak_parts.by_class[cls]->name);
        hak_stats_number(w, "usable", hak_class_usable(cls));
        hak_stats_number(w, "slab_pages", hak_slab_pages[cls]);
        hak_stats_number(w, "bin_limit", hak_parts.capacity[cls]);
        if (w->form == HAK_FORM_JSON) {
            hak_stats_number(w, "allocated_blocks", c->allocated[cls]);
            hak_stats_number(w, "slabs", c->slabs[cls]);
            hak_stats_number(w, "full_slabs", c->full[cls]);
        }
        hak_stats_end(w);
    }
    hak_stats_end_array(w);
}

static void write_slabs(struct hak_stats_writer *w, const struct hak_heaps_totals *t)
{
    hak_stats_begin(w, "slabs");
    for (unsigned from = 0; from < HAK_SLAB_NSTATES; from++)
        for (unsigned to = 0; to < HAK_SLAB_NSTATES; to++) {
            uint64_t n = HAK_LOAD_RELAXED(&t->counters.transitions[from][to]);
            char key[40];
            hak_text_format(key, sizeof key, "%s_to_%s", hak_slab_state_name((enum hak_slab_state)from),
                            hak_slab_state_name((enum hak_slab_state)to));
            if (n)
                hak_stats_number(w, key, n);
        }
    hak_stats_end(w);
}

static void write_threads(struct hak_stats_writer *w, const struct hak_heaps_totals *t)
{
    hak_stats_begin(w, "threads");
    hak_stats_number(w, "live", t->used);
    hak_stats_number(w, "cpus", t->cpus);
    hak_stats_number(w, "started", t->started);
    hak_stats_number(w, "active_slabs", t->active_slabs);
    hak_stats_number(w, "pinned_by_fork", t->pinned_slabs);
    hak_stats_end(w);
    hak_stats_begin(w, "bins");
    for (unsigned i = HAK_COUNTING ? 0 : HAK_COUNTER_refills; i < HAK_NCOUNTERS; i++)
        hak_stats_number(w, hak_counter_names[i], HAK_LOAD_RELAXED((const _Atomic(uint64_t) *)&t->counters + i));
    hak_stats_end(w);
}

/* For each class: how many mallocs its bin served, and how many of them without a refill. Blocks still in bins count as
 * served. */
static void write_hits(struct hak_stats_writer *w, const struct hak_heaps_totals *t)
{
    hak_stats_begin_array(w, "bin_hits");
    for (unsigned cls = 0; cls < HAK_NCLASSES; cls++) {
        const struct hak_class_counters *c = &t->counters.classes[cls];
        uint64_t refills = HAK_LOAD_RELAXED(&c->refills), served = HAK_LOAD_RELAXED(&c->served);
        if (!refills)
            continue;
        hak_stats_begin(w, NULL);
        hak_stats_number(w, "stride", hak_strides[cls]);
        hak_stats_number(w, "served", served);
        hak_stats_number(w, "refills", refills);
        hak_stats_number(w, "hits_permille", (served - hak_min(served, refills)) * 1000 / hak_max(served, 1));
        hak_stats_end(w);
    }
    hak_stats_end_array(w);
}

static void write_ledger(struct hak_stats_writer *w)
{
    hak_stats_begin_array(w, "os_calls");
    for (unsigned cause = 0; cause < HAK_NCAUSES; cause++)
        for (unsigned call = 0; call < HAK_NOSCALLS; call++) {
            const struct hak_ledger_entry *e = &hak_ledger[cause][call];
            if (!HAK_LOAD_RELAXED(&e->calls))
                continue;
            hak_stats_begin(w, NULL);
            hak_stats_text(w, "cause", hak_cause_name((enum hak_cause)cause));
            hak_stats_text(w, "call", hak_os_call_name((enum hak_os_call)call));
            hak_stats_number(w, "calls", HAK_LOAD_RELAXED(&e->calls));
            hak_stats_number(w, "failed", HAK_LOAD_RELAXED(&e->failed));
            hak_stats_number(w, "bytes", HAK_LOAD_RELAXED(&e->bytes));
            hak_stats_number(w, "ns", HAK_LOAD_RELAXED(&e->ns));
            hak_stats_number(w, "regret_bytes", HAK_LOAD_RELAXED(&e->regret_bytes));
            hak_stats_end(w);
        }
    hak_stats_end_array(w);
}

static void write_latency(struct hak_stats_writer *w, const char *label, const char *name, const struct hak_latency *l)
{
    uint64_t worst = HAK_LOAD_RELAXED(&l->worst_ns);
    if (!worst)
        return;
    hak_stats_begin(w, NULL);
    hak_stats_text(w, label, name);
    hak_stats_number(w, "p50_ns", hak_latency_of(l, 500));
    hak_stats_number(w, "p99_ns", hak_latency_of(l, 990));
    hak_stats_number(w, "worst_ns", worst);
    if (w->form == HAK_FORM_JSON) {
        hak_stats_begin_array(w, "log2_ns");
        for (unsigned i = 0; i < HAK_LATENCIES; i++)
            hak_stats_number(w, NULL, HAK_LOAD_RELAXED(&l->calls[i]));
        hak_stats_end_array(w);
    }
    hak_stats_end(w);
}

static void write_latencies(struct hak_stats_writer *w)
{
    hak_stats_begin_array(w, "os_latency");
    for (unsigned cause = 0; cause < HAK_NCAUSES; cause++)
        write_latency(w, "cause", hak_cause_name((enum hak_cause)cause), &hak_latencies[cause]);
    hak_stats_end_array(w);
}

static void write_stage_latencies(struct hak_stats_writer *w)
{
    const struct hak_stage *stages = hak_parts.backend->stages;
    hak_stats_begin_array(w, "stage_latency");
    for (unsigned i = 0; stages[i].name; i++)
        write_latency(w, "stage", stages[i].name, &hak_stage_latencies[i]);
    write_latency(w, "stage", "failed", &hak_stage_latencies[HAK_STAGES]);
    hak_stats_end_array(w);
}

static void write_space(struct hak_stats_writer *w)
{
    struct hak_space_stats s;
    hak_space_stats(&s);
    hak_stats_begin(w, "space");
    hak_stats_number(w, "mapped_bytes", s.mapped);
    hak_stats_number(w, "handed_out_bytes", s.handed_out);
    hak_stats_number(w, "zones", s.zones);
    hak_stats_number(w, "metadata_bytes", hak_meta_bytes());
    hak_stats_end(w);
}

/* carved = free + allocated; blocks on remote lists are allocated. A slab outside the bounds of its state is a
 * violation. */
HAK_SNAPSHOT static void visit_slab(struct hak_slab *page, void *context)
{
    struct hak_census *c = context;
    if (!page->base)
        return;
    enum hak_slab_state state = hak_slab_state(page);
    c->pages[state] += page->pages;
    c->free_runs += state == HAK_SLAB_EMPTY;
    if (state == HAK_SLAB_SPAN || (state == HAK_SLAB_ARENA && page->cls == HAK_CLASS_SPAN)) {
        c->live_large++;
        c->large_bytes += page->pages * HAK_PAGE;
        c->held_bytes += page->requested;
        return;
    }
    if (state != HAK_SLAB_ACTIVE && state != HAK_SLAB_FULL && state != HAK_SLAB_PARTIAL && state != HAK_SLAB_ARENA)
        return;
    uint32_t remote = hak_slab_remote_count(page);
    c->carved += page->carved;
    c->capacity += page->capacity;
    c->free += hak_slab_free_blocks(page);
    c->free_runs += page->carved < page->capacity;
    c->used += page->used;
    c->allocated[page->cls] += page->used;
    c->slabs[page->cls]++;
    c->full[page->cls] += page->used == page->capacity;
    c->free_bytes += (uint64_t)hak_slab_free_blocks(page) * page->stride;
    c->allocated_bytes += (uint64_t)page->used * page->stride;
    c->remote += remote;
    c->remote_bytes += (uint64_t)remote * page->stride;
    c->held_bytes += (uint64_t)(page->used > remote ? page->used - remote : 0) * hak_class_usable(page->cls);
    c->violations += page->used + hak_slab_free_blocks(page) != page->carved;
    c->violations += remote > page->used || page->carved > page->capacity;
    c->violations += state == HAK_SLAB_FULL && (hak_slab_free_blocks(page) || page->carved != page->capacity);
}

void hak_stats_census(struct hak_census *census)
{
    struct hak_pages_count pages = hak_pages_count();
    hak_fill(census, 0, sizeof *census);
    hak_space_each_page(visit_slab, census);
    census->free_runs += pages.runs;
    census->pages[HAK_SLAB_EMPTY] += pages.dirty;
    census->returned = pages.returned;
}

uint64_t hak_stats_held(const struct hak_census *census)
{
    /* other threads run in the meantime */
    return census->held_bytes - hak_min(census->held_bytes, hak_figure_bins()) + hak_guard_bytes();
}

static uint64_t resident_bytes(void)
{
    char text[64];
    uint64_t pages = 0;
    if (!hak_file_read("/proc/self/statm", text, sizeof text))
        return 0;
    for (const char *p = hak_text_until(text, ' '); *p && *++p >= '0' && *p <= '9';)
        pages = pages * 10 + (uint64_t)(*p - '0');
    return pages * hak_os_page_size();
}

/* Adds the pages of free blocks that were purged and not touched since. Pages with a live block are resident, except
 * those that the program never touched. */
HAK_SNAPSHOT static void visit_purged(struct hak_slab *slab, void *context)
{
    uint64_t *bytes = context;
    enum hak_slab_state state = hak_slab_state(slab);
    if (!slab->base || (state != HAK_SLAB_ACTIVE && state != HAK_SLAB_PARTIAL) || !slab->sparse)
        return;
    size_t page = hak_os_page_size(); /* another thread may format the slab anew between two reads: hence the bound */
    size_t carved = hak_min((size_t)slab->carved * slab->stride, HAK_RESIDENT_MAX) / page * page;
    int resident = hak_os_resident(slab->base, carved, HAK_NCAUSES);
    if (resident >= 0)
        *bytes += hak_min(carved - (size_t)resident, (size_t)hak_slab_free_blocks(slab) * slab->stride);
}

/* The five lines at the beginning of a report. Blocks in the bins of other threads count as live: only those threads
 * know.
 */
static void write_memory(struct hak_stats_writer *w, const struct hak_census *c, const struct hak_heaps_totals *t)
{
    size_t blocks = 0, outside = 0;
    uint64_t sparse = c->free_bytes + c->remote_bytes, purged = 0;
    for (unsigned i = 0; hak_frontends[i]; i++)
        if (hak_frontends[i]->count_outside)
            hak_frontends[i]->count_outside(&blocks, &outside);
    hak_space_each_page(visit_purged, &purged);
    hak_stats_begin(w, "memory");
    hak_stats_number(w, "live_bytes", hak_stats_held(c) + outside);
    hak_stats_begin(w, "retained");
    hak_stats_number(w, "bins_bytes", hak_figure_bins());
    hak_stats_number(w, "sparse_bytes", sparse - hak_min(sparse, purged));
    hak_stats_number(w, "dirty_bytes", c->pages[HAK_SLAB_EMPTY] * HAK_PAGE);
    hak_stats_number(w, "metadata_bytes", hak_meta_bytes());
    hak_stats_end(w);
    hak_stats_number(w, "resident_bytes", resident_bytes());
    hak_stats_number(w, "threads", t->used + t->cpus);
    hak_stats_number(w, "age_ms", hak_clock_age(hak_started_ms, hak_clock_ms()));
    hak_stats_end(w);
}

static void write_census(struct hak_stats_writer *w, const struct hak_census *c)
{
    hak_stats_begin(w, "conservation");
    hak_stats_number(w, "carved_blocks", c->carved);
    hak_stats_number(w, "free_blocks", c->free);
    hak_stats_number(w, "free_bytes", c->free_bytes);
    hak_stats_number(w, "allocated_blocks", c->used);
    hak_stats_number(w, "allocated_bytes", c->allocated_bytes);
    hak_stats_number(w, "outstanding_blocks", c->used); /* the old names, for one release */
    hak_stats_number(w, "outstanding_bytes", c->allocated_bytes);
    hak_stats_number(w, "remote_blocks", c->remote);
    hak_stats_number(w, "large_spans", c->live_large);
    hak_stats_number(w, "large_bytes", c->large_bytes);
    if (w->form != HAK_FORM_PATHS) /* other threads run in the meantime: then the sums need not agree */
        hak_stats_number(w, "violations", c->violations);
    hak_stats_end(w);
    hak_stats_begin(w, "pages");
    for (unsigned s = 0; s < HAK_SLAB_NSTATES; s++)
        hak_stats_number(w, hak_slab_state_name((enum hak_slab_state)s), c->pages[s]);
    hak_stats_number(w, "returned", c->returned);
    hak_stats_end(w);
}

static void write_stages(struct hak_stats_writer *w, const struct hak_heaps_totals *t)
{
    const struct hak_stage *stages = hak_parts.backend->stages;
    hak_stats_begin(w, "stages");
    for (unsigned i = 0; stages[i].name; i++)
        hak_stats_number(w, stages[i].name, HAK_LOAD_RELAXED(&t->counters.stages[i]));
    hak_stats_number(w, "failed", HAK_LOAD_RELAXED(&t->counters.slabs_refused));
    hak_stats_end(w);
}

/* Their figures are copied first, since the writer may make system calls. */
static void write_heaps(struct hak_stats_writer *w)
{
    size_t most = hak_arenas_figures ? hak_arenas_figures(NULL, 0) : 0, bytes = most * sizeof(struct hak_arena_figures);
    struct hak_arena_figures *figures = most ? hak_meta_alloc_pages(bytes) : NULL;
    if (!figures && w->form != HAK_FORM_JSON)
        return;
    hak_stats_begin_array(w, "heaps");
    size_t n = figures ? hak_min(most, hak_arenas_figures(figures, most)) : 0;
    for (const struct hak_arena_figures *f = figures; f < figures + n; f++) {
        hak_stats_begin(w, NULL);
        hak_stats_text(w, "name", f->name);
        hak_stats_number(w, "live_bytes", f->live);
        hak_stats_number(w, "blocks", f->blocks);
        hak_stats_number(w, "held_bytes", f->held);
        hak_stats_number(w, "peak_bytes", f->peak);
        hak_stats_number(w, "limit_bytes", f->limit);
        hak_stats_end(w);
    }
    hak_stats_end_array(w);
    if (figures)
        hak_meta_free_pages(figures, bytes);
}

/* The list of stages, for tools that show how often each served. */
static void write_stage_list(struct hak_stats_writer *w)
{
    hak_stats_begin_array(w, "stage_list");
    for (const struct hak_stage *s = hak_parts.backend->stages; s->name; s++) {
        hak_stats_begin(w, NULL);
        hak_stats_text(w, "name", s->name);
        hak_stats_bool(w, "locked", s->locked);
        hak_stats_text(w, "finds", s->finds);
        hak_stats_end(w);
    }
    hak_stats_end_array(w);
}

static void write_counters(struct hak_stats_writer *w, const struct hak_heaps_totals *t)
{
    write_slabs(w, t);
    write_stages(w, t);
    write_stage_latencies(w);
    hak_pages_stats(w);
    if (hak_parts.backend->stats)
        hak_parts.backend->stats(w);
    if (hak_parts.release->stats)
        hak_parts.release->stats(w);
    for (unsigned i = 0; hak_frontends[i]; i++)
        if (hak_frontends[i]->stats)
            hak_frontends[i]->stats(w);
    write_threads(w, t);
    hak_budget_stats(w);
    hak_container_stats(w);
    hak_background_stats(w);
    hak_guard_stats(w);
    hak_deepbind_stats(w);
    hak_huge_page_stats(w);
    write_ledger(w);
    write_latencies(w);
    write_space(w);
}

void hak_stats_collect(struct hak_stats_writer *w)
{
    struct hak_census c;
    struct hak_heaps_totals t;
    hak_stats_census(&c);
    hak_heaps_totals(&t);
    hak_stats_begin(w, NULL);
    write_memory(w, &c, &t);
    if (w->form != HAK_FORM_PATHS) {
        write_heaps(w);
        write_allocator(w);
        write_settings(w);
        write_dispatch(w, &c);
    }
    if (w->form == HAK_FORM_JSON)
        write_stage_list(w);
    write_counters(w, &t);
    write_census(w, &c);
    hak_stats_end(w);
}

int hak_stats_write(int fd, bool json)
{
    struct hak_stats_writer w = {.fd = fd, .form = json ? HAK_FORM_JSON : HAK_FORM_TEXT};
    hak_stats_collect(&w);
    return -w.error;
}

static void print_sections(int fd)
{
    const struct hak_option_values *o = &hak_options;
    struct hak_stats_writer w = {.fd = fd, .form = HAK_FORM_TEXT};
    struct hak_heaps_totals t;
    hak_heaps_totals(&t);
    hak_stats_begin(&w, NULL);
    if (o->fast_stats) {
        write_threads(&w, &t);
        if (HAK_CACHE_ARRAY)
            write_hits(&w, &t);
    }
    if (o->stage_stats) {
        write_stages(&w, &t);
        write_stage_latencies(&w);
    }
    hak_stats_end(&w);
}

/* Each path is a metric family of its own, so the samples of a family stand together, as the format requires. */
static void write_sample(struct hak_stats_writer *w, const char *path, uint64_t value)
{
    char line[200];
    hak_text_format(line, sizeof line, "hakmem_%s{pid=\"%d\"} %llu\n", path, hak_kernel_pid(),
                    (unsigned long long)value);
    for (char *p = line; *p != '{'; p++)
        if (*p == '.' || *p == '-')
            *p = '_';
    if (hak_file_write(w->fd, line, hak_text_length(line)) < 0)
        w->error = EIO;
}

/* Closes the descriptor. False if not all was written. */
static bool write_to(int fd)
{
    static const enum hak_stats_form forms[] = {
        [HAK_STATS_JSON] = HAK_FORM_JSON, [HAK_STATS_PROMETHEUS] = HAK_FORM_PATHS};
    struct hak_stats_writer w = {.fd = fd, .form = forms[hak_options.stats], .take = write_sample};
    if (fd < 0)
        return false;
    hak_stats_collect(&w);
    hak_stats_sink_close(fd);
    return !w.error;
}

/* Prometheus's file is written beside and renamed: its reader never sees a part of it. A device or a pipe stays. False
 * if it cannot be opened. */
static bool write_file(void)
{
    static _Atomic(bool) told;
    char beside[HAK_PATH_MAX], path[HAK_PATH_MAX], pattern[HAK_PATH_MAX];
    hak_text_path(path, hak_options.stats_file);
    bool rewrites = hak_options.stats == HAK_STATS_PROMETHEUS && hak_file_may_be_replaced(path);
    hak_text_format(pattern, sizeof pattern, "%s%s", hak_options.stats_file, rewrites ? ".tmp" : "");
    hak_text_path(beside, pattern);
    int fd = hak_stats_sink_file(pattern);
    bool whole = write_to(fd);
    if (whole && rewrites)
        whole = !HAK_SYSCALL(SYS_renameat2, AT_FDCWD, beside, AT_FDCWD, path, 0);
    if (!whole && fd >= 0 && !HAK_EXCHANGE_RELAXED(&told, true))
        hak_log("HAKMEM_STATS_FILE=%s: not all could be written; make room for it (told once)", path);
    return fd >= 0;
}

void hak_stats_tick(uint64_t now_ms)
{
    static uint64_t due_ms;
    if (now_ms >= due_ms && hak_options.stats_file[0])
        due_ms = write_file() ? now_ms + REWRITE_MS : UINT64_MAX;
}

void hak_stats_now(void)
{
    if (hak_options.stats_file[0])
        write_file();
    else
        write_to(hak_stats_sink_stderr());
}

void hak_stats_at_exit(void)
{
    const struct hak_option_values *o = &hak_options;
    int fd = hak_stats_sink_wants_stderr() ? hak_stats_sink_stderr() : -1;
    if (fd >= 0 && (o->fast_stats || o->stage_stats))
        print_sections(fd);
    if (o->stats && o->stats_file[0])
        write_file();
    else if (o->stats)
        write_to(fd);
    else
        hak_stats_sink_close(fd);
}
