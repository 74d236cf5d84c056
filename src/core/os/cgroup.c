/* SPDX-License-Identifier: MIT
 * See cgroup.h. */
#include "cgroup.h"

#include "core/base/file.h"
#include "core/base/kernel.h"
#include "core/base/log.h"
#include "core/base/sealed.h"
#include "core/base/text.h"
#include "os.h"

#define MOUNT "/sys/fs/cgroup"
#define PATH_SIZE 512

static bool read_in(const char *folder, const char *name, char *text, size_t size)
{
    char path[PATH_SIZE + 32];
    hak_text_format(path, sizeof path, "%s/%s", folder, name);
    return hak_file_read(path, text, size);
}

static uint64_t number_in_text(const char *text)
{
    uint64_t n = 0;
    for (; *text >= '0' && *text <= '9'; text++)
        n = n * 10 + (uint64_t)(*text - '0');
    return n;
}

/* A limit of the folder; "max", and none, are no limit. */
static uint64_t limit_in(const char *folder, const char *name)
{
    char path[PATH_SIZE + 32];
    hak_text_format(path, sizeof path, "%s/%s", folder, name);
    return hak_file_number(path);
}

static uint64_t stalled_in(const char *folder)
{
    char text[160];
    const char *total = read_in(folder, "memory.pressure", text, sizeof text) ? hak_text_behind(text, "total=") : NULL;
    return total ? number_in_text(total) : 0;
}

/* The group's inactive file pages: the kernel reclaims them first, at no cost. Reclaiming anything else costs the group
 * time. */
static uint64_t droppable_in(const char *folder)
{
    char text[1536]; /* the line is one of the first 25 */
    const char *line =
        read_in(folder, "memory.stat", text, sizeof text) ? hak_text_behind(text, "\ninactive_file ") : NULL;
    return line ? number_in_text(line) : 0;
}

/* The folder of the process's own group. */
static bool find_folder(char *folder)
{
    char text[PATH_SIZE];
    const char *chosen = hak_options.cgroup, *line;
    if (hak_options.sandbox || hak_text_is(chosen, "off"))
        return false;
    if (chosen[0]) {
        hak_text_format(folder, PATH_SIZE, "%s", chosen);
        return true;
    }
    if (!hak_file_read("/proc/self/cgroup", text, sizeof text) || !(line = hak_text_behind(text, "0::")))
        return false;
    hak_text_format(folder, PATH_SIZE, MOUNT "%.*s", (int)(hak_text_until(line, '\n') - line), line);
    return true;
}

/* Moves to the parent folder; false at the root of the tree, which has no limits. */
static bool go_up(char *folder)
{
    char *slash = hak_text_last(folder, '/');
    if (!slash || slash == folder || hak_text_is(folder, MOUNT))
        return false;
    *slash = 0;
    return true;
}

bool hak_cgroup_read(struct hak_cgroup *cgroup)
{
    char folder[PATH_SIZE], text[32];
    *cgroup = (struct hak_cgroup){.limit = UINT64_MAX};
    if (!find_folder(folder))
        return false;
    bool found = false;
    do {
        if (!read_in(folder, "memory.current", text, sizeof text))
            continue; /* the root, or a group without the memory controller */
        uint64_t high = limit_in(folder, "memory.high"), max = limit_in(folder, "memory.max");
        uint64_t limit = high < max ? high : max, all = number_in_text(text),
                 used = all - hak_min(all, droppable_in(folder));
        cgroup->near |= used > limit - limit / 8;
        if (!found || limit < cgroup->limit) {
            cgroup->limit = limit;
            cgroup->current = used;
            cgroup->stalled_us = stalled_in(folder);
        }
        found = true;
    } while (go_up(folder));
    return found;
}

/* The second number, in system pages. */
size_t hak_resident_bytes(void)
{
    char text[64];
    bool told = !hak_options.sandbox && hak_file_read("/proc/self/statm", text, sizeof text);
    const char *second = told ? hak_text_until(text, ' ') : "";
    return *second ? number_in_text(second + 1) * hak_os_page_size() : SIZE_MAX;
}

/* The CPUs whose whole time the groups of the process may use; UINT64_MAX if no cpu.max limits it. */
static uint64_t quota(void)
{
    char folder[PATH_SIZE], text[64];
    uint64_t least = UINT64_MAX;
    if (!find_folder(folder))
        return least;
    do {
        bool limited = read_in(folder, "cpu.max", text, sizeof text) && text[0] != 'm';
        const char *period = limited ? hak_text_until(text, ' ') : "";
        uint64_t us = *period ? hak_max(1, number_in_text(period + 1)) : 1;
        if (*period)
            least = hak_min(least, (number_in_text(text) + us - 1) / us);
    } while (go_up(folder));
    return hak_max(1, least);
}

/* The CPUs of the affinity mask; 1 if the kernel does not tell. */
static unsigned allowed_cpus(void)
{
    uint64_t mask[64];
    unsigned n = 0;
    long bytes = hak_options.sandbox ? 0 : HAK_SYSCALL(SYS_sched_getaffinity, 0, sizeof mask, mask);
    for (long i = 0; i < bytes / 8; i++)
        n += (unsigned)__builtin_popcountll(mask[i]);
    return n + !n;
}

unsigned hak_cpus(void)
{
    static _Atomic(unsigned) known;
    unsigned n = HAK_LOAD_RELAXED(&known);
    if (HAK_UNLIKELY(!n)) {
        n = (unsigned)hak_min(allowed_cpus(), quota());
        HAK_STORE_RELAXED(&known, n);
    }
    return n;
}
