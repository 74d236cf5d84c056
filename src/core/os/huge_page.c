/* SPDX-License-Identifier: MIT
 * See huge_page.h. */
#include "huge_page.h"

#include <sys/mman.h>

#include "core/base/clock.h"
#include "core/base/sealed.h"
#include "os.h"

#define SLOW_NS 1000000u /* 512 small pages take about as long */
#define SLOW_ROW 3u      /* a single one may be slow since the thread had to wait for a CPU */
#define PAUSE_MS 1000u

static _Atomic(uint64_t) paused_until_ms, timed, slow, kept_small;
static _Atomic(unsigned) slow_row; /* so many were slow since the last fast one */
static _Atomic(bool) advised;      /* for our sake, or for a heap of the program */

/* How long touching the first huge page takes; 0 if the range contains no whole one. Keeps existing content. */
static uint64_t touch_ns(char *base, size_t size)
{
    size_t before = hak_align_up((uintptr_t)base, HAK_HUGE_PAGE) - (uintptr_t)base;
    if (before + HAK_HUGE_PAGE > size)
        return 0;
    volatile char *page = base + before;
    uint64_t start = hak_os->clock_ns();
    *page = *page;
    HAK_ADD_RELAXED(&timed, 1);
    return hak_clock_age(start, hak_os->clock_ns());
}

bool hak_huge_page_advise(void *base, size_t size)
{
    if (hak_clock_ms() < HAK_LOAD_RELAXED(&paused_until_ms) ||
        hak_os_advise(base, size, MADV_HUGEPAGE, HAK_CAUSE_huge_page))
        return false;
    bool fast = touch_ns(base, size) <= SLOW_NS;
    if (fast)
        HAK_STORE_RELAXED(&slow_row, 0);
    else
        HAK_ADD_RELAXED(&slow, 1);
    if (fast || HAK_ADD_RELAXED(&slow_row, 1) + 1 < SLOW_ROW) {
        HAK_STORE_RELAXED(&advised, true);
        return true;
    }
    HAK_STORE_RELAXED(&paused_until_ms, hak_clock_ms() + PAUSE_MS);
    hak_os_advise(base, size, MADV_NOHUGEPAGE, HAK_CAUSE_huge_page);
    return false;
}

void hak_huge_page_request(void *base, size_t size, int wanted)
{
    bool always = hak_options.thp == HAK_THP_ALWAYS;
    if (wanted > 0)
        HAK_STORE_RELAXED(&advised, true);
    hak_os_advise(base, size, wanted > 0 || (!wanted && always) ? MADV_HUGEPAGE : MADV_NOHUGEPAGE, HAK_CAUSE_huge_page);
}

bool hak_huge_page_is_on(void)
{
    return hak_options.thp == HAK_THP_ALWAYS || HAK_LOAD_RELAXED(&advised);
}

void hak_huge_page_keep_small(void *base, size_t size)
{
    hak_os_advise(base, size, MADV_NOHUGEPAGE, HAK_CAUSE_huge_page);
    HAK_ADD_RELAXED(&kept_small, 1);
}

void hak_huge_page_stats(struct hak_stats_writer *w)
{
    hak_stats_begin(w, "huge_pages");
    hak_stats_number(w, "timed", HAK_LOAD_RELAXED(&timed));
    hak_stats_number(w, "slow", HAK_LOAD_RELAXED(&slow));
    hak_stats_number(w, "kept_small", HAK_LOAD_RELAXED(&kept_small));
    hak_stats_end(w);
}
