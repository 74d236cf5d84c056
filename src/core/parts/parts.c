/* SPDX-License-Identifier: MIT
 * See parts.h. */
#include "parts.h"

#include "core/base/clock.h"
#include "core/base/text.h"
#include "core/pages/block_batch.h"
#include "core/pages/page_heap.h"

HAK_SELDOM struct hak_latency hak_stage_latencies[HAK_STAGES + 1];

#define BIN_BYTES (32 * HAK_KIB)

/* --- which parts ------------------------------------------------------------------------------------- */

/* The index of the part of that name in a list that ends with NULL; -1 if it is not built. All contracts begin with
 * the name. */
static int find_part(const void *list, const char *name)
{
    const char *const *const *parts = list;
    for (int i = 0; parts[i]; i++)
        if (hak_text_is(*parts[i], name))
            return i;
    return -1;
}

static void list_parts(const void *list, char *out, size_t size)
{
    const char *const *const *parts = list;
    size_t n = 0;
    hak_text_format(out, size, "no such part in this build, which has");
    for (int i = 0; parts[i] && (n = hak_text_length(out)) + 1 < size; i++)
        hak_text_format(out + n, size - n, "%s %s", i ? "," : "", *parts[i]);
}

/* The index of the part that a setting names; of `fallback` if the setting names none, or one that is not built. */
static unsigned choose(const void *list, const char *setting, const char *wanted, const char *fallback)
{
    int i = find_part(list, wanted[0] ? wanted : fallback);
    if (i < 0) {
        char why[160];
        list_parts(list, why, sizeof why);
        hak_options_reject(&hak_options, setting, wanted, why);
        i = find_part(list, fallback);
    }
    return i < 0 ? 0 : (unsigned)i;
}

/* --- which classes ----------------------------------------------------------------------------------- */

static bool serves(const struct hak_frontend *f, unsigned cls)
{
    return hak_strides[cls] >= f->min_stride && hak_strides[cls] <= f->max_stride &&
           (!f->is_on || f->is_on(&hak_options));
}

static void assign_classes(void)
{
    for (unsigned cls = 0; cls < HAK_NCLASSES; cls++)
        for (unsigned i = 0; hak_frontends[i]; i++) {
            const struct hak_frontend *f = hak_frontends[i], *best = hak_parts.by_class[cls];
            if (serves(f, cls) && (!best || f->max_stride - f->min_stride < best->max_stride - best->min_stride))
                hak_parts.by_class[cls] = f;
        }
    for (unsigned i = 0; hak_frontends[i]; i++)
        if (hak_frontends[i]->span_alloc)
            hak_parts.spans = hak_frontends[i];
}

/* Whether a refill of the class takes more than one block. */
static bool in_batches(const struct hak_option_values *o, uint32_t stride)
{
    if (!o->p0_enable)
        return false;
    return (stride <= 128 || stride > 256 || o->direct_fc) && (stride <= 512 || stride > 1024 || o->direct_fc_c7);
}

static void set_capacities(void)
{
    for (unsigned cls = 0; cls < HAK_NCLASSES; cls++) {
        const struct hak_frontend *f = hak_parts.by_class[cls];
        uint32_t capacity = f->bin_capacity ? f->bin_capacity(cls) : 0;
        if (!capacity)
            capacity = (uint32_t)hak_max(8, hak_min(256, BIN_BYTES / hak_strides[cls]));
        hak_parts.capacity[cls] = (uint16_t)capacity;
        hak_parts.batch[cls] = in_batches(&hak_options, hak_strides[cls]) ? hak_parts.capacity[cls] : 1;
    }
}

void hak_parts_choose(void)
{
    const struct hak_option_values *o = &hak_options;
    hak_parts.backend = hak_backends[choose(hak_backends, "HAKMEM_BACKEND", o->backend, HAK_DEFAULT_BACKEND)];
    hak_parts.release = hak_releases[choose(hak_releases, "HAKMEM_RELEASE", o->release, hak_releases[0]->name)];
    assign_classes();
    set_capacities();
    hak_dirty_queue.at_once = hak_parts.release->at_once;
}

static void check_stages(const struct hak_backend *b)
{
    unsigned n = 0;
    while (b->stages[n].name)
        n++;
    if (n > HAK_STAGES)
        hak_log_fatal("backend %s has %u stages; raise HAK_STAGES, which is %d, in core/base/counters.h", b->name, n,
                      HAK_STAGES);
}

bool hak_parts_init(void)
{
    check_stages(hak_parts.backend);
    const struct hak_option_values *o = &hak_options;
    if (hak_parts.release->init && hak_parts.release->init(o))
        return false;
    if (hak_parts.backend->init && hak_parts.backend->init(o))
        return false;
    for (unsigned i = 0; hak_frontends[i]; i++)
        if (hak_frontends[i]->init && hak_frontends[i]->init(o))
            return false;
    return true;
}

/* The stage that served is the one whose count moved. */
static HAK_NOINLINE struct hak_slab *acquire_timed(struct hak_heap *heap, unsigned cls)
{
    const _Atomic(uint64_t) *counts = (hak_counters_own ? hak_counters_own : &hak_counters_nobodys)->stages;
    uint64_t before[HAK_STAGES];
    hak_move(before, counts, sizeof before);
    uint64_t start = hak_os->clock_ns();
    struct hak_slab *slab = hak_parts.backend->acquire_slab(heap, cls, HAK_ACQUIRE_ANY);
    uint64_t ns = hak_clock_age(start, hak_os->clock_ns());
    unsigned stage = slab ? 0 : HAK_STAGES;
    while (stage < HAK_STAGES && HAK_LOAD_RELAXED(&counts[stage]) == before[stage])
        stage++;
    if (!slab || stage < HAK_STAGES)
        hak_latency_note(&hak_stage_latencies[stage], ns);
    return slab;
}

struct hak_slab *hak_parts_acquire_slab(struct hak_heap *heap, unsigned cls)
{
    return HAK_UNLIKELY(hak_options.stage_stats) ? acquire_timed(heap, cls)
                                                 : hak_parts.backend->acquire_slab(heap, cls, HAK_ACQUIRE_ANY);
}

void hak_parts_empty_slab(struct hak_slab *slab)
{
    if (hak_slab_state(slab) == HAK_SLAB_PARTIAL)
        hak_slab_adopt(slab, NULL);
    hak_block_batches_open(slab); /* stops the process if one block came back twice while another is still in use */
    hak_slab_empty(slab);
}
