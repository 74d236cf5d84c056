/* SPDX-License-Identifier: MIT
 * See start.h. */
#include "start.h"

#include <sys/mman.h>

#include "container.h"
#include "core/base/clock.h"
#include "core/base/kernel.h"
#include "core/base/lock.h"
#include "core/base/log.h"
#include "core/base/observer.h"
#include "core/base/secret.h"
#include "core/base/text.h"
#include "core/base/work.h"
#include "core/heap/thread.h"
#include "core/os/limit.h"
#include "core/pages/guard.h"
#include "core/pages/space.h"
#include "core/parts/parts.h"
#include "stats_sink.h"

extern char **environ;

/* Defined by a program that has settings of its own. */
extern const char *hakmem_conf __attribute__((weak));

static HAK_LOCK(init_lock, HAK_RANK_INIT);
static _Atomic(bool) ready; /* stored with release when everything is set up; loaded with acquire */
static bool sealed;
uint64_t hak_started_ms;

/* The dynamic linker may allocate before libc has set `environ`. */
static char **environment(void)
{
    return environ ? environ : hak_kernel_environment();
}

static bool has_setting(const char *name)
{
    for (char **e = environment(); e && *e; e++) {
        const char *rest = hak_text_after(*e, name);
        if (rest && *rest == '=')
            return true;
    }
    return false;
}

static void seal(void)
{
    size_t page = hak_os_page_size();
    if (((uintptr_t)&hak_sealed | sizeof hak_sealed) % page == 0)
        sealed = hak_os_protect(&hak_sealed, sizeof hak_sealed, PROT_READ, HAK_CAUSE_seal) == 0;
}

static void expect_observer(unsigned option, bool is_set, const struct hak_observer *observer)
{
    if (is_set && !observer && !hak_options.quiet)
        hak_log("%s has no effect: its library is not loaded; `hakmem options` says which command loads it",
                hak_option_text(&hak_option_table[option], HAK_TEXT_NAME));
}

static bool init_locked(void)
{
    hak_started_ms = hak_clock_ms();
    hak_options_defaults(&hak_options);
    hak_options_parse(&hak_options, &hakmem_conf ? hakmem_conf : NULL, environment());
    hak_options_translate(&hak_options);
    hak_log_file = hak_options.log_file;
    hak_parts_choose();
    hak_secret_draw();
    hak_limit_look();
    hak_container_look();
    if (hak_space_init() || !hak_parts_init())
        return false;
    if (hak_options.verbose)
        hak_log("version %s, backend %s, release %s, tiny_header %s, cache %s", HAK_VERSION, hak_parts.backend->name,
                hak_parts.release->name, HAK_TINY_HEADER_NAME, HAK_CACHE_NAME);
    expect_observer(HAK_OPTION_trace, hak_options.trace[0], &hak_observer_trace);
    expect_observer(HAK_OPTION_profile, hak_options.profile, &hak_observer_profile);
    if (hak_stats_sink_wants_stderr())
        hak_stats_sink_keep_stderr();
    hak_work_add(HAK_WORK_MAX); /* the first maintenance step is at the end of this slow path: Prometheus's file */
    seal();
    if (HAK_HARDENED && sealed) /* a core would show the secrets of parent and siblings */
        hak_os_advise(&hak_sealed, sizeof hak_sealed, MADV_DONTDUMP, HAK_CAUSE_seal);
    return true;
}

int hak_change_sealed(void *number, uint32_t value)
{
    hak_lock_acquire(&init_lock);
    int error = sealed ? hak_os_protect(&hak_sealed, sizeof hak_sealed, PROT_READ | PROT_WRITE, HAK_CAUSE_seal) : 0;
    if (!error) {
        HAK_STORE_RELAXED((_Atomic(uint32_t) *)number, value);
        seal();
    }
    hak_lock_release(&init_lock);
    return error;
}

bool hak_start(void)
{
    if (HAK_LIKELY(HAK_LOAD_ACQUIRE(&ready)))
        return true;
    hak_thread_make_key();
    hak_lock_acquire(&init_lock);
    bool was = HAK_LOAD_RELAXED(&ready), ok = was || init_locked();
    HAK_STORE_RELEASE(&ready, ok);
    hak_lock_release(&init_lock);
    if (!was && ok && hak_options.guard_rate)
        hak_guard_start(); /* this calls the C library, so it comes after the lock */
    return ok;
}

bool hak_is_ready_for(const char *setting)
{
    return HAK_LOAD_ACQUIRE(&ready) || (has_setting(setting) && hak_start());
}

bool hak_is_sealed(void)
{
    return sealed;
}
