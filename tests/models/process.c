/* SPDX-License-Identifier: MIT
 * What happens once in a process or an interval: start (core/dispatch.c), the purge tick, and live counters
 * (core/live.c), as they are, with parts that only note what was done. */
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/background.h"
#include "core/dispatch.h"
#include "core/fork.h"
#include "core/live.h"
#include "core/log.h"
#include "core/thread.h"
#include "world.h"

static unsigned ready_parts; /* written while the library starts */
static uint64_t now_ms;
static _Atomic(unsigned) aged;
static bool more;

static int start_part(const struct hak_options *options)
{
    (void)options;
    ready_parts++;
    return 0;
}

static bool age_part(uint64_t now)
{
    (void)now;
    atomic_fetch_add_explicit(&aged, 1, memory_order_relaxed);
    return more;
}

static const struct hak_backend backend = {.name = HAK_DEFAULT_BACKEND, .init = start_part, .age = age_part};
static const struct hak_release release = {.name = "direct"};
static const struct hak_frontend frontend = {.name = "large", .max_stride = SIZE_MAX};
const struct hak_backend *const hak_backends[] = {&backend, NULL};
const struct hak_release *const hak_releases[] = {&release, NULL};
const struct hak_frontend *const hak_frontends[] = {&frontend, NULL};
/* No settings: they would be read over and over. */
const struct hak_option_info hak_option_table[] = {{.name = "HAKMEM_MODEL"}};
const unsigned hak_option_count = 1;
const struct hak_os hak_os_linux, *hak_os = &hak_os_linux;

/* --- start: all that come first wait for one, and find all set up ------------------------------------------- */

static void start(unsigned self)
{
    (void)self;
    MODEL_CHECK(hak_init());
    MODEL_CHECK(ready_parts == 1 && hak_dispatch.backend == &backend);
}

static void expect_started(void)
{
    MODEL_CHECK(ready_parts == 1);
}

/* --- tick: of all that find it due, one does the work ---------------------------------------------------------- */

static void setup_tick(void)
{
    MODEL_CHECK(hak_init());
    now_ms = 100;
}

static void setup_more(void)
{
    setup_tick();
    more = true;
}

static void tick(unsigned self)
{
    (void)self;
    hak_age();
}

static void expect_once(void)
{
    MODEL_CHECK(atomic_load_explicit(&aged, memory_order_relaxed) == 1 && !hak_age_pending());
}

static void expect_pending(void)
{
    unsigned n = atomic_load_explicit(&aged, memory_order_relaxed);
    MODEL_CHECK(n >= 1 && hak_age_pending());
    model_reached(n - 1);
}

/* --- live counters: one writer at a time ------------------------------------------------------------------------- */

static void refresh(unsigned self)
{
    (void)self;
    hak_live_refresh();
}

static uint64_t clock_ns(void)
{
    return 1000000;
}

static void setup_live(void)
{
    static const struct hak_os os = {.clock_ns = clock_ns};
    hak_os = &os;
}

static void nothing(void)
{
}

/* --- what the real files call --------------------------------------------------------------------------------------- */

void hak_options_defaults(struct hak_options *options)
{
    options->purge_delay_ms = 500;
}

void hak_options_parse(struct hak_options *options, char **environment, uint64_t *set)
{
    (void)options, (void)environment;
    *set = 0;
}

void hak_options_reject(const struct hak_options *options, const char *name, const char *value, const char *why)
{
    (void)options;
    model_fail("%s=%s: %s", name, value, why);
}

int hak_space_init(void)
{
    return 0;
}

size_t hak_os_page_size(void)
{
    return 1; /* nothing can be sealed */
}

int hak_os_protect(void *addr, size_t size, int prot, enum hak_cause cause)
{
    (void)addr, (void)size, (void)prot, (void)cause;
    return -ENOMEM;
}

void hak_text_format(char *out, size_t size, const char *format, ...)
{
    (void)format;
    out[0] = out[size - 1] = 0;
}

uint64_t hak_os_coarse_ms(void)
{
    return now_ms;
}

void hak_thread_constructor(void)
{
}

void hak_fork_constructor(void)
{
}

/* There are no live counters to be had. */
int open(const char *path, int flags, ...)
{
    (void)path, (void)flags;
    errno = EACCES;
    return -1;
}

int unlink(const char *path)
{
    (void)path;
    return 0;
}

const struct model models[] = {
    {"start", 3, nothing, start, expect_started, 0},
    {"tick", 3, setup_tick, tick, expect_once, 0},
    {"tick_more", 3, setup_more, tick, expect_pending, 3},
    {"live", 2, setup_live, refresh, nothing, 0},
    {0},
};
