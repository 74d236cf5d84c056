/* SPDX-License-Identifier: MIT
 * See limit.h. */
#include "limit.h"

#include <sys/resource.h>

#include "core/base/file.h"
#include "core/base/kernel.h"
#include "core/base/sealed.h"
#include "os.h"

#define TIGHT (256 * HAK_MIB) /* fifty times what start maps ahead of use */

#define USUAL_MAPPINGS 65530u
#define FEW_MAPPINGS 256 /* no setting of the kernel is so low; with fewer, the file is not read */

bool hak_limit_is_tight;
_Atomic(uint64_t) hak_limit_mappings;
static _Atomic(int64_t) split;
static size_t at_start;

static size_t rlimit_of(int resource)
{
    struct rlimit r;
    return HAK_SYSCALL(SYS_prlimit64, 0, resource, NULL, &r) ? SIZE_MAX : r.rlim_cur;
}

size_t hak_limit(void)
{
    if (hak_options.sandbox && at_start)
        return at_start;
    return hak_min(rlimit_of(RLIMIT_AS), rlimit_of(RLIMIT_DATA));
}

/* Late mapping works in system pages of the usual size only. */
bool hak_limit_tighten(void)
{
    bool was_tight = hak_limit_is_tight;
    hak_limit_is_tight = hak_os_page_size() == HAK_SYSTEM_PAGE;
    return hak_limit_is_tight && !was_tight;
}

static int64_t most_mappings(void)
{
    uint64_t most = HAK_LOAD_RELAXED(&hak_limit_mappings);
    if (!most) {
        most = hak_file_number("/proc/sys/vm/max_map_count");
        most = (most < UINT64_MAX ? most : USUAL_MAPPINGS) / 2;
        HAK_STORE_RELAXED(&hak_limit_mappings, most);
    }
    return (int64_t)most;
}

bool hak_limit_allows(int64_t mappings)
{
    int64_t all = HAK_LOAD_RELAXED(&split) + mappings;
    return (all <= FEW_MAPPINGS && !HAK_LOAD_RELAXED(&hak_limit_mappings)) || all <= most_mappings();
}

void hak_limit_note(int64_t mappings)
{
    HAK_ADD_RELAXED(&split, mappings);
}

bool hak_limit_split(int64_t mappings)
{
    HAK_ADD_RELAXED(&split, mappings);
    bool few = mappings < 0 || hak_limit_allows(0);
    if (!few)
        HAK_SUB_RELAXED(&split, mappings);
    return few;
}

void hak_limit_look(void)
{
    at_start = hak_limit();
    if (at_start < TIGHT)
        hak_limit_tighten();
    if (hak_options.sandbox)
        most_mappings(); /* while files may be read */
}
