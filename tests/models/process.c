/* SPDX-License-Identifier: MIT
 * What happens once in a process or an interval: start (core/process/start.c, life.c), and the purge tick
 * (maintenance.c), as they are, with parts that only record their calls. */
#include <sys/mman.h>

#include "core/heap/heaps.h"
#include "core/heap/thread.h"
#include "core/os/cgroup.h"
#include "core/os/limit.h"
#include "core/os/os.h"
#include "core/pages/budget.h"
#include "core/pages/page_heap.h"
#include "core/pages/run_cache.h"
#include "core/pages/space.h"
#include "core/parts/parts.h"
#include "core/parts/purge.h"
#include "core/process/fork.h"
#include "core/process/life.h"
#include "core/process/maintenance.h"
#include "core/process/report.h"
#include "core/process/signal.h"
#include "core/process/stats_sink.h"
#include "world.h"

/* Of code that the linker may drop. */
HAK_THREAD_LOCAL struct hak_cache hak_self;
_Atomic(uint32_t) hak_flush_request;

static unsigned ready_parts; /* written while the library starts */
static uint64_t now_ms;
static _Atomic(unsigned) ticks;
static bool more;

static int start_part(const struct hak_option_values *options)
{
    (void)options;
    ready_parts++;
    return 0;
}

static bool tick_part(uint64_t now)
{
    (void)now;
    static _Atomic(unsigned) inside;
    unsigned others = atomic_fetch_add_explicit(&inside, 1, memory_order_relaxed);
    MODEL_CHECK(others == 0); /* one thread ticks */
    atomic_fetch_sub_explicit(&inside, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&ticks, 1, memory_order_relaxed);
    return more;
}

static bool waits(void)
{
    return HAK_LOAD_RELAXED(&hak_purge_waits);
}

static const struct hak_stage no_stages[] = {{0}};
static const struct hak_backend backend = {
    .name = HAK_DEFAULT_BACKEND, .stages = no_stages, .init = start_part, .purge_tick = tick_part};
static const struct hak_release release = {.name = "direct"};
static const struct hak_frontend frontend = {.name = "large", .max_stride = SIZE_MAX};
const struct hak_backend *const hak_backends[] = {&backend, NULL};
const struct hak_release *const hak_releases[] = {&release, NULL};
const struct hak_frontend *const hak_frontends[] = {&frontend, NULL};
const struct hak_os hak_os_linux, *hak_os = &hak_os_linux;

/* --- start: the first threads wait for one of them, and find all set up ----------------------------------------- */

static void start(unsigned self)
{
    bool started = self == 2 ? hak_is_ready_for("NO_SETTING") : hak_init();
    model_reached(started);
    MODEL_CHECK(started || self == 2);
    if (started)
        MODEL_CHECK(ready_parts == 1 && hak_parts.backend == &backend);
}

static void expect_started(void)
{
    MODEL_CHECK(ready_parts == 1);
}

/* --- tick: of the threads that find it due, one works ----------------------------------------------------------- */

static void setup_tick(void)
{
    MODEL_CHECK(hak_start());
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
    hak_purge_tick();
}

static void expect_once(void)
{
    MODEL_CHECK(atomic_load_explicit(&ticks, memory_order_relaxed) == 1 && !waits());
}

static void expect_pending(void)
{
    unsigned n = atomic_load_explicit(&ticks, memory_order_relaxed);
    MODEL_CHECK(n >= 1 && waits());
    model_reached(n - 1);
}

static void nothing(void)
{
}

/* --- what the real files call ---------------------------------------------------------------------------------------
 */

void hak_options_defaults(struct hak_option_values *options)
{
    options->purge_delay_ms = 500;
}

/* No settings: they would be parsed in every run. */
void hak_options_parse(struct hak_option_values *options, const char *program, char **environment)
{
    (void)program;
    (void)options, (void)environment;
}

const struct hak_option_info hak_option_table[HAK_OPTION_COUNT];

const char *hak_option_text(const struct hak_option_info *info, enum hak_option_text which)
{
    (void)info, (void)which;
    return "";
}

void hak_options_translate(struct hak_option_values *options)
{
    (void)options;
}

void hak_options_reject(const struct hak_option_values *options, const char *name, const char *value, const char *why)
{
    (void)options;
    model_fail("%s=%s: %s", name, value, why);
}

int hak_space_init(void)
{
    return 0;
}

void hak_limit_look(void)
{
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

uint64_t hak_clock_ms(void)
{
    return now_ms;
}

void hak_thread_make_key(void)
{
}

void hak_fork_register(void)
{
}

_Atomic(int) hak_signal_waiting;

void hak_signal_start(void)
{
}

void hak_signal_send_again(void)
{
}

void hak_stats_at_exit(void)
{
}

/* One tick at a time reads the container, and sees what the previous one wrote. */
bool hak_cgroup_read(struct hak_cgroup *group)
{
    static unsigned reads __attribute__((unused));
    reads++;
    *group = (struct hak_cgroup){.limit = UINT64_MAX};
    return true;
}

bool hak_pages_tick(uint64_t now)
{
    (void)now;
    return false;
}

size_t hak_pages_trim(size_t keep)
{
    (void)keep;
    return 0;
}

size_t hak_budget_held(void)
{
    return HAK_GIB;
}

void hak_budget_look(bool if_untouched)
{
    (void)if_untouched;
}

_Atomic(uint64_t) hak_budget_followed = 1; /* so it asks */

bool hak_budget_allows_some(size_t bytes)
{
    (void)bytes;
    return false;
}

void hak_run_cache_flush(void)
{
}

void hak_run_cache_tick(uint64_t now)
{
    (void)now;
}

_Atomic(bool) hak_dirty_is_busy;

uint64_t hak_purge_delay_ms(void)
{
    return 100;
}

bool hak_heaps_dissolve(uint64_t since_ms, unsigned most)
{
    (void)since_ms, (void)most;
    return false;
}

void hak_budget_follow(uint64_t bytes)
{
    (void)bytes;
}

bool hak_stats_sink_wants_stderr(void)
{
    return false;
}

const struct model models[] = {
    {"start", 3, nothing, start, expect_started, 2},
    {"tick", 3, setup_tick, tick, expect_once, 0},
    {"tick_more", 3, setup_more, tick, expect_pending, 3},
    {0},
};
