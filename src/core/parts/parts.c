/* SPDX-License-Identifier: MIT
 * See parts.h. */
#include "parts.h"

#include <string.h>

#define BIN_BYTES (32 * HAK_KIB)

/* --- which parts ------------------------------------------------------------------------------------- */

/* The index of the part of that name in a list that ends with NULL; -1 if it is not built. All contracts begin with
 * the name. */
static int find_part(const void *list, const char *name)
{
    const char *const *const *parts = list;
    for (int i = 0; parts[i]; i++)
        if (!strcmp(*parts[i], name))
            return i;
    return -1;
}

/* The same; for a name that is not built says so, and takes `fallback`, or the first. */
static unsigned choose(const void *list, const char *wanted, const char *fallback, const char *setting, const char *value)
{
    int i = find_part(list, wanted);
    if (i < 0) {
        hak_options_reject(&hak_options, setting, value, "no such part in this build");
        i = find_part(list, fallback);
    }
    return i < 0 ? 0 : (unsigned)i;
}

/* HAKMEM_BACKEND wins over HAKMEM_TINY_USE_SUPERSLAB, which wins over the build's default. */
static void choose_backend(const struct hak_option_values *o)
{
    const char *setting = "HAKMEM_BACKEND", *value = o->backend, *wanted = o->backend;
    if (!wanted[0]) {
        setting = "HAKMEM_TINY_USE_SUPERSLAB";
        value = o->tiny_use_superslab ? "1" : "0";
        wanted = !hak_options_is_set(setting) ? HAK_DEFAULT_BACKEND : o->tiny_use_superslab ? "shared_pool" : "legacy";
    }
    hak_parts.backend = hak_backends[choose(hak_backends, wanted, HAK_DEFAULT_BACKEND, setting, value)];
}

static void choose_release(const struct hak_option_values *o)
{
    const char *wanted = o->release[0] ? o->release : o->disable_batch ? "direct" : hak_releases[0]->name;
    hak_parts.release = hak_releases[choose(hak_releases, wanted, "direct", "HAKMEM_RELEASE", o->release)];
}

/* --- which classes ----------------------------------------------------------------------------------- */

static size_t range_width(const struct hak_frontend *f)
{
    return f->max_stride - f->min_stride;
}

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
            if (serves(f, cls) && (!best || range_width(f) < range_width(best)))
                hak_parts.by_class[cls] = f;
        }
    for (unsigned i = 0; hak_frontends[i]; i++)
        if (hak_frontends[i]->span_alloc)
            hak_parts.large = hak_frontends[i];
}

static uint32_t default_capacity(unsigned cls)
{
    return (uint32_t)hak_max(8, hak_min(256, BIN_BYTES / hak_strides[cls]));
}

/* Whether a refill of the class brings more than one block. */
static bool in_batches(const struct hak_option_values *o, uint32_t stride)
{
    if (!o->p0_enable || o->p0_disable)
        return false;
    return (stride <= 128 || stride > 256 || o->direct_fc) && (stride <= 512 || stride > 1024 || o->direct_fc_c7);
}

static void set_capacities(void)
{
    for (unsigned cls = 0; cls < HAK_NCLASSES; cls++) {
        const struct hak_frontend *f = hak_parts.by_class[cls];
        uint32_t capacity = f->bin_capacity ? f->bin_capacity(cls) : 0;
        hak_parts.capacity[cls] = (uint16_t)(capacity ? capacity : default_capacity(cls));
        hak_parts.batch[cls] = in_batches(&hak_options, hak_strides[cls]) ? hak_parts.capacity[cls] : 1;
    }
}

void hak_parts_choose(void)
{
    choose_backend(&hak_options);
    choose_release(&hak_options);
    assign_classes();
    set_capacities();
}

bool hak_parts_init(void)
{
    const struct hak_option_values *o = &hak_options;
    if (hak_parts.release->init && hak_parts.release->init(o))
        return false;
    if (hak_parts.backend->init && hak_parts.backend->init(o))
        return false;
    for (unsigned i = 0; hak_frontends[i]; i++)
        if (hak_frontends[i]->init && hak_frontends[i]->init(o, i))
            return false;
    return true;
}

void hak_parts_release_slab(struct hak_slab *slab)
{
    hak_slab_empty(slab);
    hak_parts.by_class[slab->cls]->slab_release(slab);
}

void hak_parts_reap_slab(struct hak_slab *slab)
{
    hak_slab_adopt(slab, NULL);
    hak_parts_release_slab(slab);
}
