/* SPDX-License-Identifier: MIT
 * See runs.h. An EMPTY slab is on the list exactly while all its pages are free and dirty: whoever takes or
 * cleans one of them dissolves it first. */
#include "runs.h"

#include "core/parts/parts.h"
#include "core/base/log.h"
#include "core/pages/slab_list.h"
#include "lru.h"

#define CLEAN_BYTES (256 * HAK_MIB) /* that one call gives back, or a quarter of what is dirty */

static struct hak_slab *empty_list; /* the most recent first */
static uint64_t empties;
static uint64_t slept_until_ms; /* everything that was free then is idle */

/* --- descriptors ------------------------------------------------------------------------------------ */

static unsigned index_in(const struct superslab *s, const struct hak_slab *slab)
{
    return (unsigned)((size_t)(slab->base - s->base) / HAK_PAGE);
}

/* Makes the descriptors of a run say that it is one. */
static struct hak_slab *describe(struct superslab *s, char *base, size_t pages)
{
    struct hak_slab *slab = hak_space_page(base);
    slab->base = base;
    slab->region = s;
    slab->pages = (uint16_t)pages;
    hak_space_describe(slab, 0, pages);
    return slab;
}

/* --- EMPTY slabs ------------------------------------------------------------------------------------ */

/* An EMPTY slab stops being one: its pages stay free and dirty. */
static void dissolve(struct hak_slab *slab, enum hak_slab_state to)
{
    hak_slab_list_remove(&empty_list, slab);
    hak_count_transition(HAK_SLAB_EMPTY, to);
    hak_space_forget(slab, 0, slab->pages);
}

/* The EMPTY slabs in these pages of a superslab. */
static void dissolve_pages(const struct superslab *s, uint64_t pages, enum hak_slab_state to)
{
    for (pages &= s->dirty; pages; pages &= pages - 1) {
        struct hak_slab *slab = hak_space_slab(s->base + (size_t)__builtin_ctzll(pages) * HAK_PAGE);
        if (slab && slab->region == s && hak_slab_state(slab) == HAK_SLAB_EMPTY && slab->listed)
            dissolve(slab, to);
    }
}

/* The first of the class among so many; else one of the same length. */
static struct hak_slab *find_empty(unsigned cls, unsigned pages, bool header)
{
    struct hak_slab *other = NULL;
    unsigned left = hak_options.empty_scan_limit;
    for (struct hak_slab *slab = empty_list; slab && left; slab = slab->next, left--) {
        if (slab->pages != pages || hak_tag_in_header_zone(slab->base) != header)
            continue;
        other = slab;
        if (slab->cls == cls)
            break;
    }
    return other;
}

/* --- taking ----------------------------------------------------------------------------------------- */

struct hak_slab *hak_runs_take(struct superslab *s, unsigned pages, bool *clean)
{
    unsigned first = hak_superslab_fit(s, pages);
    *clean = hak_superslab_is_zero(s, superslab_run(first, pages));
    dissolve_pages(s, superslab_run(first, pages), HAK_SLAB_UNUSED);
    return hak_superslab_take_at(s, first, pages) ? describe(s, s->base + first * HAK_PAGE, pages) : NULL;
}

struct hak_slab *hak_runs_take_whole(struct superslab *s, size_t pages, bool *clean)
{
    *clean = hak_superslab_is_zero(s, ALL_PAGES);
    hak_superslab_take_whole(s);
    return describe(s, s->base, pages);
}

struct hak_slab *hak_runs_take_empty(unsigned cls, unsigned pages, bool header)
{
    struct hak_slab *slab = find_empty(cls, pages, header);
    if (slab) {
        struct superslab *s = slab->region;
        hak_slab_list_remove(&empty_list, slab);
        HAK_CHECK(hak_superslab_take_at(s, index_in(s, slab), slab->pages));
    }
    return slab;
}

/* --- pages back to the kernel ------------------------------------------------------------------------ */

void hak_runs_note_sleep(uint64_t now_ms)
{
    slept_until_ms = now_ms;
}

static bool is_idle(const struct superslab *s, uint64_t now_ms)
{
    return s && (now_ms - s->dirty_since_ms >= hak_purge_delay_ms() || s->dirty_since_ms <= slept_until_ms);
}

static bool is_cached(const struct superslab *s)
{
    return s->free == ALL_PAGES;
}

bool hak_runs_age(uint64_t now_ms)
{
    static struct superslab_batch batches[2];
    size_t done = 0, most = hak_max(CLEAN_BYTES, hak_superslab_dirty_bytes() / 4);
    struct superslab *s;
    batches[0].cause = HAK_CAUSE_partial_release;
    batches[1].cause = hak_parts.release->cause;
    for (size_t n = hak_superslab_dirty_regions();
         n && done < most && is_idle(s = hak_superslab_oldest_dirty(), now_ms); n--) {
        uint64_t pages = hak_superslab_idle(s, now_ms, hak_purge_delay_ms());
        if (s->put_ms <= slept_until_ms)
            pages = s->dirty;
        if (!is_cached(s) && !hak_options.ss_partial)
            continue;
        if (s->count == 1)
            dissolve_pages(s, pages, HAK_SLAB_RETURNED);
        done += hak_superslab_batch_add(&batches[is_cached(s)], s, pages);
    }
    hak_superslab_batch_send(&batches[0]);
    hak_superslab_batch_send(&batches[1]);
    return done >= most && is_idle(hak_superslab_oldest_dirty(), now_ms);
}

static size_t clean_region(struct superslab *s, enum hak_cause cause)
{
    if (s->count == 1)
        dissolve_pages(s, ALL_PAGES, HAK_SLAB_RETURNED);
    return hak_superslab_clean(s, cause);
}

size_t hak_runs_trim(size_t keep)
{
    size_t returned = 0;
    struct superslab *s;
    while (hak_superslab_dirty_bytes() > keep && (s = hak_superslab_oldest_dirty())) {
        size_t n = clean_region(s, HAK_CAUSE_trim);
        returned += n;
        if (!n)
            break;
    }
    return returned;
}

/* --- putting back ------------------------------------------------------------------------------------ */

static void cache_if_free(struct superslab *s)
{
    if (s->free != ALL_PAGES)
        return;
    if (s->count == 1)
        dissolve_pages(s, ALL_PAGES, HAK_SLAB_UNUSED);
    hak_superslab_withdraw(s);
    if (hak_options.log_free)
        hak_log("SS_FREE superslab %p is wholly empty", (void *)s->base);
    hak_lru_push(s);
}

static void note_empty(const struct hak_slab *slab)
{
    const struct hak_option_values *o = &hak_options;
    if (HAK_UNLIKELY(o->log_free))
        hak_log("EMPTY slab %p of %u-byte blocks", (void *)slab->base, slab->stride);
    if (++empties % o->ss_partial_interval == 0 && o->ss_partial)
        hak_runs_age(hak_clock_ms());
}

void hak_runs_put_empty(struct hak_slab *slab)
{
    struct superslab *s = slab->region;
    hak_superslab_put(s, index_in(s, slab), slab->pages, true);
    hak_slab_list_push(&empty_list, slab);
    note_empty(slab);
    cache_if_free(s);
}

void hak_runs_put(struct hak_slab *slab)
{
    struct superslab *s = slab->region;
    unsigned first = index_in(s, slab), pages = slab->pages;
    bool dirty = hak_slab_state(slab) != HAK_SLAB_RETURNED;
    hak_space_forget(slab, 0, pages);
    if (s->whole) {
        hak_superslab_put_whole(s, dirty);
        hak_lru_push(s);
    } else {
        hak_superslab_put(s, first, pages, dirty);
        cache_if_free(s);
    }
}

uint64_t hak_runs_empties(void)
{
    return empties;
}
