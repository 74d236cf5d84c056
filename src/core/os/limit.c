/* SPDX-License-Identifier: MIT
 * See limit.h. */
#include "limit.h"

#include <sys/resource.h>

#include "os.h"

#define TIGHT (256 * HAK_MIB) /* fifty times what start maps ahead of use */

bool hak_limit_is_tight;

static size_t rlimit_of(int resource)
{
    struct rlimit r;
    return getrlimit(resource, &r) ? SIZE_MAX : r.rlim_cur;
}

size_t hak_limit(void)
{
    return hak_min(rlimit_of(RLIMIT_AS), rlimit_of(RLIMIT_DATA));
}

/* Late mapping works in system pages of the usual size only. */
bool hak_limit_tighten(void)
{
    bool was_tight = hak_limit_is_tight;
    hak_limit_is_tight = hak_os_page_size() == HAK_SYSTEM_PAGE;
    return hak_limit_is_tight && !was_tight;
}

void hak_limit_look(void)
{
    if (hak_limit() < TIGHT)
        hak_limit_tighten();
}
