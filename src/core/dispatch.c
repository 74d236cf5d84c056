/* SPDX-License-Identifier: MIT
 * Start of the library: options -> address space -> backends -> frontends -> seal. See dispatch.h. */
#include "dispatch.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "background.h"
#include "fork.h"
#include "live.h"
#include "log.h"

_Alignas(HAK_SEAL_ALIGN) union hak_sealed hak_sealed;

extern char **environ;
/* glibc's dynamic linker keeps where the kernel put argc, argv and the environment; other libraries lack it. */
extern void *__libc_stack_end __attribute__((weak));

static struct hak_lock init_lock = HAK_LOCK_INIT(HAK_RANK_INIT);
static _Atomic(bool) ready; /* released after everything is set up; acquired by whoever finds it true */
static bool sealed;
_Atomic(uint64_t) hak_next_age_ms;

#define AGE_INTERVAL_MS 10
#define BIN_BYTES (32 * HAK_KIB)

static bool is_set(const char *name)
{
    for (unsigned i = 0; i < hak_option_count; i++)
        if (!strcmp(hak_option_table[i].name, name))
            return hak_dispatch.from_environment >> i & 1;
    return false;
}

/* HAKMEM_BACKEND wins over HAKMEM_TINY_USE_SUPERSLAB, which wins over the build's default. */
static const char *wanted_backend(const struct hak_options *o)
{
    if (o->backend[0])
        return o->backend;
    if (is_set("HAKMEM_TINY_USE_SUPERSLAB"))
        return o->tiny_use_superslab ? "shared_pool" : "legacy";
    return HAK_DEFAULT_BACKEND;
}

static const char *wanted_release(const struct hak_options *o)
{
    if (o->release[0])
        return o->release;
    if (o->disable_batch)
        return "direct";
    return hak_releases[0]->name;
}

/* Finds the part called `wanted`; for a name that is not built says so and takes `fallback`. */
#define CHOOSE(list, wanted, fallback, setting, value, out)                                                     \
    do {                                                                                                 \
        out = NULL;                                                                                      \
        for (unsigned i_ = 0; (list)[i_]; i_++)                                                          \
            if (!strcmp((list)[i_]->name, (wanted)))                                                     \
                out = (list)[i_];                                                                        \
        if (!out) {                                                                                      \
            hak_options_reject(&hak_dispatch.options, setting, value, "no such part in this build");    \
            for (unsigned i_ = 0; (list)[i_]; i_++)                                                      \
                if (!out || !strcmp((list)[i_]->name, (fallback)))                                       \
                    out = (list)[i_];                                                                    \
        }                                                                                                \
    } while (0)

static void choose_parts(void)
{
    const struct hak_options *o = &hak_dispatch.options;
    const struct hak_backend *backend;
    const struct hak_release *release;
    CHOOSE(hak_backends, wanted_backend(o), HAK_DEFAULT_BACKEND,
           o->backend[0] ? "HAKMEM_BACKEND" : "HAKMEM_TINY_USE_SUPERSLAB",
           o->backend[0] ? o->backend : o->tiny_use_superslab ? "1" : "0", backend);
    CHOOSE(hak_releases, wanted_release(o), "direct", "HAKMEM_RELEASE", o->release, release);
    hak_dispatch.backend = backend;
    hak_dispatch.release = release;
}

/* The dynamic linker itself may allocate before libc has set `environ`: then the process's own stack has it. */
static char **environment(void)
{
    if (environ || !&__libc_stack_end || !__libc_stack_end)
        return environ;
    intptr_t *stack = __libc_stack_end, argc = stack[0];
    bool plausible = argc >= 0 && argc < 1 << 20 && !stack[1 + argc];
    return plausible ? (char **)&stack[2 + argc] : NULL;
}

static size_t range_width(const struct hak_frontend *f)
{
    return f->max_stride - f->min_stride;
}

static bool is_off(const struct hak_frontend *f)
{
    return !hak_dispatch.options.pool_tls && !strcmp(f->name, "pool");
}

static void assign_bins(void)
{
    for (unsigned bin = 0; bin < HAK_NBINS; bin++)
        for (unsigned i = 0; hak_frontends[i]; i++) {
            const struct hak_frontend *f = hak_frontends[i], *best = hak_dispatch.by_bin[bin];
            if (hak_strides[bin] < f->min_stride || hak_strides[bin] > f->max_stride || is_off(f))
                continue;
            if (!best || range_width(f) < range_width(best))
                hak_dispatch.by_bin[bin] = f;
        }
    for (unsigned i = 0; hak_frontends[i]; i++)
        if (hak_frontends[i]->span_alloc)
            hak_dispatch.large = hak_frontends[i];
}

static uint32_t default_limit(unsigned bin)
{
    return (uint32_t)hak_max(8, hak_min(256, BIN_BYTES / hak_strides[bin]));
}

static void set_limits(void)
{
    const struct hak_options *o = &hak_dispatch.options;
    bool batch = o->p0_enable && !o->p0_disable;
    for (unsigned bin = 0; bin < HAK_NBINS; bin++) {
        const struct hak_frontend *f = hak_dispatch.by_bin[bin];
        uint32_t limit = f->bin_limit ? f->bin_limit(bin) : 0;
        uint32_t stride = hak_strides[bin];
        bool direct = (stride <= 128 || stride > 256 || o->direct_fc) &&
                      (stride <= 512 || stride > 1024 || o->direct_fc_c7);
        hak_dispatch.bin_limit[bin] = (uint16_t)(limit ? limit : default_limit(bin));
        hak_dispatch.bin_batch[bin] = batch && direct ? hak_dispatch.bin_limit[bin] : 1;
    }
}

static bool init_parts(void)
{
    const struct hak_options *o = &hak_dispatch.options;
    if (hak_dispatch.release->init && hak_dispatch.release->init(o))
        return false;
    if (hak_dispatch.backend->init && hak_dispatch.backend->init(o))
        return false;
    for (unsigned i = 0; hak_frontends[i]; i++)
        if (hak_frontends[i]->init && hak_frontends[i]->init(o, i))
            return false;
    return true;
}

static void seal(void)
{
    size_t page = hak_os_page_size();
    if (((uintptr_t)&hak_sealed | sizeof hak_sealed) % page == 0)
        sealed = hak_os_protect(&hak_sealed, sizeof hak_sealed, PROT_READ, HAK_CAUSE_seal) == 0;
}

static bool init_locked(void)
{
    hak_options_defaults(&hak_dispatch.options);
    hak_options_parse(&hak_dispatch.options, environment(), &hak_dispatch.from_environment);
    choose_parts();
    assign_bins();
    set_limits();
    if (hak_space_init() || !init_parts())
        return false;
    if (hak_dispatch.options.verbose)
        hak_log("version %s, backend %s, release %s, tiny_header %s", HAK_VERSION, hak_dispatch.backend->name,
                hak_dispatch.release->name, HAK_TINY_HEADER_NAME);
    seal();
    if (hak_dispatch.options.stats_shm)
        hak_live_start();
    return true;
}

bool hak_init(void)
{
    if (HAK_LIKELY(atomic_load_explicit(&ready, memory_order_acquire)))
        return true;
    hak_lock_acquire(&init_lock);
    bool ok = atomic_load_explicit(&ready, memory_order_relaxed) || init_locked();
    atomic_store_explicit(&ready, ok, memory_order_release);
    hak_lock_release(&init_lock);
    return ok;
}

bool hak_is_ready_for(const char *setting)
{
    return atomic_load_explicit(&ready, memory_order_acquire) || (getenv(setting) && hak_init());
}

bool hak_is_sealed(void)
{
    return sealed;
}

void hak_age(void)
{
    uint64_t now = hak_os_coarse_ms(), due = atomic_load_explicit(&hak_next_age_ms, memory_order_relaxed);
    if (now < due)
        return;
    if (!atomic_compare_exchange_strong_explicit(&hak_next_age_ms, &due, now + AGE_INTERVAL_MS, memory_order_relaxed,
                                                 memory_order_relaxed))
        return;
    if (now >= hak_dispatch.options.purge_delay_ms)
        hak_thread_break_up(now - hak_dispatch.options.purge_delay_ms);
    bool more = hak_dispatch.backend->age && hak_dispatch.backend->age(now);
    for (unsigned i = 0; hak_frontends[i]; i++)
        if (hak_frontends[i]->age)
            more |= hak_frontends[i]->age(now);
    if (more)
        atomic_store_explicit(&hak_next_age_ms, 0, memory_order_relaxed);
    if (HAK_UNLIKELY(hak_dispatch.options.background))
        hak_background_want(now);
    if (HAK_UNLIKELY(hak_dispatch.options.stats_shm))
        hak_live_refresh();
}

size_t hak_give_back(size_t keep)
{
    size_t returned = 0;
    hak_thread_break_up(UINT64_MAX);
    for (unsigned i = 0; hak_frontends[i]; i++)
        if (hak_frontends[i]->trim)
            returned += hak_frontends[i]->trim(&keep);
    return returned + hak_dispatch.backend->trim(keep);
}

__attribute__((constructor)) static void construct(void)
{
    hak_thread_constructor();
    hak_fork_constructor();
}

__attribute__((destructor)) static void destruct(void)
{
    if (!hak_is_ready_for("HAKMEM_STATS"))
        return;
    hak_background_stop();
    hak_stats_at_exit();
    if (hak_dispatch.options.stats_shm)
        hak_live_end();
}
