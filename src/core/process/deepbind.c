/* SPDX-License-Identifier: MIT
 * See deepbind.h. */
#include "deepbind.h"

#include "core/base/log.h"
#include "core/base/memcheck.h"
#include "core/base/sealed.h"
#include "start.h"

#define DEEPBIND 8 /* glibc's RTLD_DEEPBIND; other C libraries have no such flag */

static _Atomic(uint64_t) left_out;

int hak_deepbind_flags(const char *file, int flags)
{
    HAK_UNSEEN;
    if (!(flags & DEEPBIND) || !hak_start() || hak_options.deepbind)
        return flags;
    HAK_ADD_RELAXED(&left_out, 1);
    if (hak_options.verbose)
        hak_log("RTLD_DEEPBIND is left out for %s, so that its free is this malloc's", file ? file : "the program");
    return flags & ~DEEPBIND;
}

void hak_deepbind_stats(struct hak_stats_writer *w)
{
    hak_stats_begin(w, "dlopen");
    hak_stats_number(w, "deepbind_left_out", HAK_LOAD_RELAXED(&left_out));
    hak_stats_end(w);
}
