/* SPDX-License-Identifier: MIT */
/*
 * bench_phases [--timed] THREADS OBJECTS PHASE_MS SEED: a server whose load changes.
 * It goes through twelve phases, each with its own typical size and its own amount of live memory. A session has
 * 4 to 64 objects of log-normal sizes, an eighth of which grow by realloc; most sessions end soon, some live long,
 * one in five ends on another thread. A phase is OBJECTS allocated objects over all threads, spread over PHASE_MS
 * (0: as fast as it goes); with `--timed` in front it is PHASE_MS of full load. Prints the resident set: its mean,
 * each phase having the same weight, and at the quiet end, when 24 of 128 MiB are live; and the CPU time.
 */
#include "bench.h"
#include "mailboxes.h"

#include <math.h>

enum { THREADS, OBJECTS, PHASE_MS, SEED, PARAMS };
enum { SERVERS_MAX = 64 };

static struct bench_param params[PARAMS] = {
    [THREADS] = {"THREADS", 1, 1, SERVERS_MAX, NULL},
    [OBJECTS] = {"OBJECTS", 1000000, 1000, UINT64_C(1) << 40, NULL},
    [PHASE_MS] = {"PHASE_MS", 0, 0, 86400000, NULL},
    [SEED] = {"SEED", 42, 1, UINT32_MAX, NULL},
};

/* The last phase is the quiet end. */
static const struct {
    uint32_t typical;
    uint32_t live_mib;
} phases[] = {
    {120, 48},  {400, 96},  {60, 32}, {2000, 128}, {9000, 64},  {250, 40},
    {700, 112}, {4000, 80}, {90, 56}, {1500, 120}, {6000, 128}, {180, 24},
};

enum {
    PHASES = sizeof phases / sizeof phases[0],
    SAMPLES = 32, /* of the resident set in each phase */
    SIZES = 4096, /* drawn for each phase before it all begins: no exp in the measured loop */
    SMALLEST = 16,
    LARGEST = 256 * 1024,
    ONE_IN_LONG = 8,  /* sessions that live long */
    ONE_IN_GROWN = 8, /* objects that grow */
    ONE_IN_SENT = 5,  /* sessions that end on another thread */
    ENDS_AT_ONCE = 4, /* sessions that may end while one begins: load drops gradually */
    MAILBOX_SESSIONS = 256,
    CROWD = 1 << 20,
};

struct object {
    void *block;
    size_t size;
};

struct session {
    uint32_t count;
    size_t bytes;
    struct object objects[];
};

/* Sessions with one life expectancy; the one that ends is chosen at random. */
struct crowd {
    struct session **sessions;
    uint32_t count;
    size_t bytes;
};

enum { SHORT, LONG, CROWDS };

struct server {
    _Alignas(BENCH_CACHE_LINE) unsigned index;
    uint64_t random;
    uint64_t objects; /* allocated so far */
    uint64_t sent;    /* sessions that ended elsewhere */
    const uint32_t *sizes;
    struct crowd crowds[CROWDS];
};

static uint32_t sizes[PHASES][SIZES];
static struct server servers[SERVERS_MAX];
static struct mailboxes boxes;
static unsigned server_count;
static bool timed; /* phases end by the clock, not by the number of objects */
static atomic_uint arrivals;

/* Written only by the first server. */
static uint64_t mean_kib, live_kib, quiet_kib;

/* --- sessions --------------------------------------------------------------------------------- */

static struct object new_object(size_t size)
{
    struct object object = {bench_malloc(size), size};
    bench_touch_pages(object.block, size);
    bench_touch_ends(object.block, size);
    return object;
}

static void grow(struct session *session, struct object *object)
{
    size_t more = object->size / 2 + object->size % 64;
    void *block = realloc(object->block, object->size + more);
    if (!block)
        bench_die("realloc to %zu returned NULL; raise the memory limit", object->size + more);
    *object = (struct object){block, object->size + more};
    bench_touch_ends(block, object->size);
    session->bytes += more;
}

static struct session *new_session(struct server *server)
{
    uint32_t count = 4 + bench_below(&server->random, 61);
    struct session *session = bench_malloc(sizeof *session + count * sizeof session->objects[0]);
    session->count = count;
    session->bytes = 0;
    for (uint32_t i = 0; i < count; i++) {
        session->objects[i] = new_object(server->sizes[bench_below(&server->random, SIZES)]);
        session->bytes += session->objects[i].size;
        if (bench_below(&server->random, ONE_IN_GROWN) == 0)
            grow(session, &session->objects[bench_below(&server->random, i + 1)]);
    }
    server->objects += count;
    return session;
}

static void end_session(struct session *session)
{
    for (uint32_t i = 0; i < session->count; i++)
        free(session->objects[i].block);
    free(session);
}

/* One request: writes to each object of a session. */
static void serve(struct server *server)
{
    struct crowd *crowd = &server->crowds[bench_below(&server->random, CROWDS)];
    if (crowd->count == 0)
        return;
    struct session *session = crowd->sessions[bench_below(&server->random, crowd->count)];
    for (uint32_t i = 0; i < session->count; i++)
        bench_touch_ends(session->objects[i].block, session->objects[i].size);
}

static void enter(struct crowd *crowd, struct session *session)
{
    if (crowd->count == CROWD)
        bench_die("more than %u sessions", (unsigned)CROWD);
    crowd->sessions[crowd->count++] = session;
    crowd->bytes += session->bytes;
}

static struct session *leave(struct crowd *crowd, uint32_t at)
{
    struct session *session = crowd->sessions[at];
    crowd->sessions[at] = crowd->sessions[--crowd->count];
    crowd->bytes -= session->bytes;
    return session;
}

/* --- from thread to thread -------------------------------------------------------------------- */

/* Ends at most one session from each other server; false if none had arrived. */
static bool end_foreign(struct server *server)
{
    bool any = false;
    for (unsigned from = 0; from < server_count; from++) {
        struct session *session = ring_get(mailbox(&boxes, from, server->index));
        if (session)
            end_session(session);
        any |= session != NULL;
    }
    return any;
}

/* No server waits: if the mailbox is full, the session ends here. */
static bool send(struct server *server, struct session *session)
{
    if (server_count == 1 || bench_below(&server->random, ONE_IN_SENT) > 0)
        return false;
    unsigned to = (server->index + 1 + bench_below(&server->random, server_count - 1)) % server_count;
    if (!ring_put(mailbox(&boxes, server->index, to), session))
        return false;
    server->sent++;
    return true;
}

/* A barrier for all servers; what was sent before is then visible. */
static void meet(struct server *server, unsigned *meetings)
{
    mailboxes_flush(&boxes, server->index);
    unsigned all = ++*meetings * server_count;
    /* Release and acquire: a thread that sees all of them sees what they wrote. */
    atomic_fetch_add_explicit(&arrivals, 1, memory_order_acq_rel);
    while (atomic_load_explicit(&arrivals, memory_order_acquire) < all) {
        if (!end_foreign(server))
            bench_wait_ms(1);
    }
}

/* --- phases ----------------------------------------------------------------------------------- */

static size_t live(const struct server *server)
{
    return server->crowds[SHORT].bytes + server->crowds[LONG].bytes;
}

/* Long sessions hold up to three quarters of the live bytes. */
static void end_some(struct server *server, size_t target)
{
    for (unsigned i = 0; i < ENDS_AT_ONCE && live(server) > target; i++) {
        struct crowd *crowd = &server->crowds[server->crowds[LONG].bytes > target / 4 * 3 ? LONG : SHORT];
        if (crowd->count == 0)
            return;
        struct session *session = leave(crowd, bench_below(&server->random, crowd->count));
        if (!send(server, session))
            end_session(session);
    }
}

static void step(struct server *server, size_t target)
{
    end_foreign(server);
    enter(&server->crowds[bench_below(&server->random, ONE_IN_LONG) == 0 ? LONG : SHORT], new_session(server));
    serve(server);
    end_some(server, target);
}

static void take_sample(const struct server *server)
{
    if (server->index > 0)
        return;
    mean_kib += bench_rss_kib();
    live_kib += live(server) * server_count / 1024;
}

/* One of SAMPLES parts of a phase, until enough objects are made or, timed, until its end. */
static void run_part(struct server *server, size_t target, uint64_t objects, uint64_t end_ns)
{
    while (timed ? bench_now_ns() < end_ns : server->objects < objects)
        step(server, target);
    uint64_t now = bench_now_ns();
    if (now < end_ns)
        bench_wait_ms((end_ns - now) / 1000000);
    take_sample(server);
}

static void run_phase(struct server *server, unsigned phase)
{
    size_t target = ((size_t)phases[phase].live_mib << 20) / server_count;
    uint64_t share = params[OBJECTS].value / server_count, made = server->objects;
    uint64_t began = bench_now_ns(), length = params[PHASE_MS].value * 1000000;
    server->sizes = sizes[phase];
    for (unsigned i = 1; i <= SAMPLES; i++)
        run_part(server, target, made + share * i / SAMPLES, began + length * i / SAMPLES);
}

static void run(void *arg)
{
    struct server *server = arg;
    unsigned meetings = 0;
    for (unsigned phase = 0; phase < PHASES; phase++) {
        run_phase(server, phase);
        meet(server, &meetings);
    }
    if (server->index == 0)
        quiet_kib = bench_rss_kib();
    meet(server, &meetings);
    while (end_foreign(server))
        ;
    for (unsigned i = 0; i < CROWDS; i++)
        while (server->crowds[i].count > 0)
            end_session(leave(&server->crowds[i], 0));
}

/* The sum of twelve even numbers in [0, 1) is nearly normal, with mean 6 and deviation 1. */
static void draw_sizes(uint64_t random)
{
    const double deviation = 0.8; /* of the logarithm */
    for (unsigned phase = 0; phase < PHASES; phase++) {
        for (unsigned i = 0; i < SIZES; i++) {
            double normal = -6;
            for (int n = 0; n < 12; n++)
                normal += (double)bench_below(&random, 1u << 30) / (1u << 30);
            double size = phases[phase].typical * exp(deviation * normal);
            sizes[phase][i] = (uint32_t)fmin(fmax(size, SMALLEST), LARGEST);
        }
    }
}

static void prepare(void)
{
    draw_sizes(bench_seed(params[SEED].value, SERVERS_MAX));
    mailboxes_init(&boxes, server_count, MAILBOX_SESSIONS);
    for (unsigned i = 0; i < server_count; i++) {
        servers[i].index = i;
        servers[i].random = bench_seed(params[SEED].value, i);
        for (unsigned n = 0; n < CROWDS; n++)
            servers[i].crowds[n].sessions = bench_map(CROWD * sizeof(struct session *));
    }
}

int main(int argc, char **argv)
{
    timed = bench_take_flag(&argc, argv, "--timed");
    bench_parse(argc, argv, params, PARAMS);
    if (timed && params[PHASE_MS].value == 0)
        bench_usage_error("--timed with PHASE_MS 0: a phase needs a length; give PHASE_MS");
    server_count = (unsigned)params[THREADS].value;
    prepare();

    uint64_t cpu = bench_cpu_ns();
    uint64_t ns = bench_run_threads(server_count, run, servers, sizeof servers[0]);
    cpu = bench_cpu_ns() - cpu;
    uint64_t objects = 0, sent = 0;
    for (unsigned i = 0; i < server_count; i++) {
        objects += servers[i].objects;
        sent += servers[i].sent;
    }
    double samples = PHASES * SAMPLES * 1024.0;
    bench_report("phases", objects, ns,
                 "threads=%u sent=%llu cpu_s=%.3f mean_mib=%.1f live_mib=%.1f quiet_mib=%.1f peak_mib=%.1f",
                 server_count, (unsigned long long)sent, (double)cpu / 1e9, (double)mean_kib / samples,
                 (double)live_kib / samples, (double)quiet_kib / 1024, (double)bench_peak_kib() / 1024);
    return 0;
}
