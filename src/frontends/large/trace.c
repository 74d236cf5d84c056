/* SPDX-License-Identifier: MIT
 * See trace.h. */
#include "trace.h"

#include <sys/resource.h>

#include "core/base/file.h"
#include "core/base/kernel.h"
#include "core/base/text.h"

/* A number from /proc/sys; "?" if it cannot be read. */
static void read_setting(const char *path, char *out, size_t size)
{
    if (hak_file_read(path, out, size))
        *hak_text_until(out, '\n') = 0;
    else
        hak_text_format(out, size, "?");
}

static void format_limit(char *out, size_t size)
{
    struct rlimit r;
    if (HAK_SYSCALL(SYS_prlimit64, 0, RLIMIT_AS, NULL, &r))
        hak_text_format(out, size, "?");
    else if (r.rlim_cur == RLIM_INFINITY)
        hak_text_format(out, size, "unlimited");
    else
        hak_text_format(out, size, "%llu", (unsigned long long)r.rlim_cur);
}

static const char *name_of(int error)
{
    return error == ENOMEM ? "ENOMEM" : error == EAGAIN ? "EAGAIN" : error == EINVAL ? "EINVAL" : "other";
}

void hak_trace_map_fail(size_t size, int error, const char *what)
{
    char address_space[32], maps[32], overcommit[32];
    format_limit(address_space, sizeof address_space);
    read_setting("/proc/sys/vm/max_map_count", maps, sizeof maps);
    read_setting("/proc/sys/vm/overcommit_memory", overcommit, sizeof overcommit);
    hak_log("ACE MapFail: %zu bytes, errno %d (%s), %s; RLIMIT_AS=%s vm.max_map_count=%s vm.overcommit_memory=%s "
            "HAKMEM_LIMIT_MB=%u",
            size, error, name_of(error), what, address_space, maps, overcommit, hak_options.limit_mb);
}
