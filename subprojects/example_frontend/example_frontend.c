/* SPDX-License-Identifier: MIT
 * A small frontend: 2 to 6 KiB, in slabs of the span backend. Where these need new pages, 2 MiB are mapped at once.
 * docs/write-your-own-part.md says what else a frontend may do. */
#include "core/pages/page_heap.h"
#include "core/plugin.h"

static _Atomic(uint64_t) batches;

static size_t map_pages(const struct hak_page_request *r)
{
    (void)r;
    HAK_ADD_RELAXED(&batches, 1);
    return 2 * HAK_MIB / HAK_PAGE;
}

static void stats(struct hak_stats_writer *w)
{
    hak_stats_begin(w, "example_frontend");
    hak_stats_number(w, "batches", HAK_LOAD_RELAXED(&batches));
    hak_stats_end(w);
}

const struct hak_frontend hak_frontend_example_frontend = {
    .name = "example_frontend",
    .min_stride = HAK_EXAMPLE_FRONTEND_MIN,
    .max_stride = HAK_EXAMPLE_FRONTEND_MAX,
    .map_pages = map_pages,
    .stats = stats,
};
