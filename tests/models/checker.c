/* SPDX-License-Identifier: MIT
 * A stateless model checker for the library's real code: `checker OBJECT [MODEL]...`.
 *
 * It runs a model repeatedly, with another choice each time, until it has made all: which thread continues before each
 * atomic operation, lock or sleep in the kernel, and which of the values that C11 allows each load sees. Threads are
 * coroutines; sleep sets leave out runs that only swap independent steps. Stores enter a location's order when they are
 * made, so loads see old values but none of the future: what x86 does. Arm may also put a later store of another thread
 * first in a location's order, and let loads see the future; no run shows these. Each message of a location carries
 * what its writer had seen, if it was a release; an acquire takes that over. Plain accesses that this does not order
 * are data races, which end the run like a failed check.
 *
 * MODEL_SITES=1 lists the operations with an order, as offsets in the object; MODEL_WEAKEN=OFFSET:ORDER[:FAILURE],...
 * makes them use other ones. Exit status: 0 all runs are right, 1 one is not, 2 unknown. */
#include "checker.h"

#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

enum {
    LOCATIONS = 1200, /* a sum of counters visits each one */
    MESSAGES = 256,
    DEPTH = 8000,
    STACK = 1 << 16,
    TLS = 1 << 16,
    RANGES = 4,
    SITES = 512,
    BUCKETS_LG = 11,
    BUCKETS = 1 << BUCKETS_LG,
    VARIABLES = 8,
};

enum kind { LOAD, STORE, ADD, SUB, OR, AND, XOR, EXCHANGE, CAS, LOCK, UNLOCK, TRY, SLEEP, WAKE, LOOK };
static const char *const kind_names[] = {"load",     "store", "add",  "sub",    "or",    "and",  "xor",
                                         "exchange", "cas",   "lock", "unlock", "sleep", "wake", "look"};
enum order { RELAXED, CONSUME, ACQUIRE, RELEASE, ACQ_REL, SEQ_CST };
static const char *const order_names[] = {"relaxed", "consume", "acquire", "release", "acq_rel", "seq_cst"};

struct operation {
    enum kind kind;
    uintptr_t address, site;
    unsigned size;
    enum order order, failure;
    uint64_t operand, expected;
};

struct view {
    uint8_t seen[LOCATIONS];       /* the oldest message that may still be read */
    uint16_t clock[MODEL_THREADS]; /* the steps of each thread that happened before */
};

struct location {
    uintptr_t address;
    unsigned size, count, floor;
    struct {
        uint64_t value;
        struct view view;
    } messages[MESSAGES];
    struct view held; /* locks: what the last holder had seen */
    int holder;
};

/* The last thread that touched a byte, by the thread's clock. */
struct shadow {
    uint32_t run;
    uint8_t writer;
    uint16_t written;
    uint16_t read[MODEL_THREADS], atomic_read[MODEL_THREADS], atomic_written[MODEL_THREADS];
};

struct thread {
    ucontext_t start;
    jmp_buf context;
    bool started;
    struct operation next;
    uint64_t result;
    struct view view;
    bool finished;
    bool asleep, woken; /* the next operation is a SLEEP that has begun; that may end */
};

/* A choice that leads to the current run. */
struct node {
    uint8_t enabled, sleeping, done, thread, option, options;
};

static struct range {
    char *from, *to;
    struct shadow *shadow;
} ranges[RANGES];
static unsigned range_count;
static char *snapshot;

static const struct model *model;
static jmp_buf scheduler;
static struct thread threads[MODEL_THREADS];
static struct thread *current; /* NULL: setup, check, and between */
static struct location locations[LOCATIONS];
static unsigned location_count;
static uint16_t buckets[BUCKETS];
static struct node nodes[DEPTH];
static unsigned known;
static struct {
    struct operation op;
    uint8_t thread;
    uint64_t value;
} steps[DEPTH];
static unsigned depth;
static unsigned late;         /* sleeps of this run that took too long */
static uint32_t runs, pruned; /* of this model */
static uint32_t serial;       /* of the run, over all models */
static uint64_t outcomes;
static char stacks[MODEL_THREADS][STACK] __attribute__((aligned(64)));
static char tls[MODEL_THREADS + 1][TLS] __attribute__((aligned(64)));

/* --- failures ------------------------------------------------------------------------------------------ */

static uintptr_t base;

/* A model that must fail: this shows that the checker finds its error. */
static bool is_wrong(void)
{
    return !strncmp(model->name, "wrong_", 6);
}

void model_fail(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    printf("%s, run %u: ", model->name, runs + 1);
    vprintf(format, args);
    va_end(args);
    printf("\n");
    for (unsigned i = 0; i < depth; i++)
        printf("  %3u thread %u %-8s %-7s %#zx = %#zx at +%#zx\n", i, steps[i].thread, kind_names[steps[i].op.kind],
               order_names[steps[i].op.order], (size_t)steps[i].op.address - base, (size_t)steps[i].value,
               (size_t)steps[i].op.site - base);
    fflush(stdout);
    _exit(!is_wrong());
}

static _Noreturn void give_up(const char *why)
{
    printf("%s, run %u: %s\n", model ? model->name : "checker", runs + 1, why);
    fflush(stdout);
    _exit(2);
}

void model_reached(unsigned outcome)
{
    outcomes |= (uint64_t)1 << outcome;
}

/* --- plain accesses: races ------------------------------------------------------------------------------ */

void model_track(void *from, size_t size)
{
    for (unsigned i = 0; i < range_count; i++)
        if (ranges[i].from == from)
            return;
    if (range_count == RANGES)
        give_up("too many ranges");
    void *shadow = mmap(NULL, size * sizeof(struct shadow), PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (shadow == MAP_FAILED)
        give_up("no memory");
    ranges[range_count++] = (struct range){from, (char *)from + size, shadow};
}

static struct shadow *shadow_of(uintptr_t address)
{
    for (unsigned i = 0; i < range_count; i++)
        if (address >= (uintptr_t)ranges[i].from && address < (uintptr_t)ranges[i].to) {
            struct shadow *s = &ranges[i].shadow[address - (uintptr_t)ranges[i].from];
            if (s->run != serial)
                *s = (struct shadow){.run = serial};
            return s;
        }
    return NULL;
}

static bool before(const uint16_t *them, const uint16_t *clock)
{
    for (unsigned i = 0; i < MODEL_THREADS; i++)
        if (them[i] > clock[i])
            return false;
    return true;
}

static void access_byte(uintptr_t address, bool writes, bool atomic, uintptr_t site)
{
    struct shadow *s = shadow_of(address);
    if (!s)
        return;
    unsigned self = (unsigned)(current - threads);
    const uint16_t *clock = current->view.clock;
    if (s->written > clock[s->writer] || (writes && !before(s->read, clock)) ||
        (!atomic && (!before(s->atomic_written, clock) || (writes && !before(s->atomic_read, clock)))))
        model_fail("data race: thread %u %s %#zx at +%#zx", self, writes ? "writes" : "reads", (size_t)address - base,
                   (size_t)site - base);
    uint16_t now = clock[self];
    if (!writes) {
        (atomic ? s->atomic_read : s->read)[self] = now;
    } else if (atomic) {
        s->atomic_written[self] = now;
    } else {
        s->writer = (uint8_t)self;
        s->written = now;
    }
}

static void access_plain(uintptr_t address, size_t size, bool writes, uintptr_t site)
{
    for (size_t i = 0; current && i < size; i++)
        access_byte(address + i, writes, false, site);
}

void model_access(const void *from, size_t size, int writes)
{
    access_plain((uintptr_t)from, size, writes, (uintptr_t)__builtin_return_address(0));
}

/* --- atomic operations ------------------------------------------------------------------------------------ */

static uint64_t load_raw(uintptr_t address, unsigned size)
{
    uint64_t value = 0;
    memcpy(&value, (void *)address, size);
    return value;
}

static void store_raw(uintptr_t address, unsigned size, uint64_t value)
{
    memcpy((void *)address, &value, size);
}

static uint64_t truncated(uint64_t value, unsigned size)
{
    return size == 8 ? value : value & (((uint64_t)1 << 8 * size) - 1);
}

static void join(struct view *into, const struct view *from)
{
    for (unsigned i = 0; i < location_count; i++)
        into->seen[i] = from->seen[i] > into->seen[i] ? from->seen[i] : into->seen[i];
    for (unsigned i = 0; i < MODEL_THREADS; i++)
        into->clock[i] = from->clock[i] > into->clock[i] ? from->clock[i] : into->clock[i];
}

static void append(struct location *l, uint64_t value)
{
    if (l->count == MESSAGES)
        give_up("too many stores to one location");
    l->messages[l->count].value = value;
    memset(&l->messages[l->count].view, 0, sizeof l->messages[0].view);
    l->count++;
}

static struct location *location_of(const struct operation *op)
{
    uint16_t *bucket = &buckets[(op->address >> 2) * 0x9e3779b97f4a7c15u >> (64 - BUCKETS_LG)];
    while (*bucket && locations[*bucket - 1].address != op->address)
        bucket = bucket == &buckets[BUCKETS - 1] ? buckets : bucket + 1;
    if (!*bucket) {
        if (location_count == LOCATIONS)
            give_up("too many locations");
        struct location *l = &locations[location_count++];
        *bucket = (uint16_t)location_count;
        l->address = op->address;
        l->size = op->size;
        l->count = l->floor = 0;
        l->holder = -1;
        memset(&l->held, 0, sizeof l->held);
        append(l, op->kind < LOCK ? load_raw(op->address, op->size) : 0);
    }
    struct location *l = &locations[*bucket - 1];
    if (l->size != op->size)
        give_up("one location, two sizes");
    /* Written plainly in the meantime: no thread sees the previous values. */
    if (op->kind < LOCK && l->messages[l->count - 1].value != load_raw(op->address, op->size)) {
        append(l, load_raw(op->address, op->size));
        l->floor = l->count - 1;
    }
    return l;
}

static unsigned oldest(const struct thread *t, const struct location *l)
{
    unsigned seen = t->view.seen[l - locations];
    return seen > l->floor ? seen : l->floor;
}

/* The message that an operation reads under its n-th option, the newest first; count when there are fewer options.
 * Only a load, or a compare that fails, may read an older message than the newest. */
static unsigned message_of(const struct thread *t, const struct location *l, unsigned option)
{
    const struct operation *op = &t->next;
    unsigned last = l->count - 1, first = oldest(t, l);
    if (option == 0 || (op->kind != LOAD && op->kind != CAS))
        return option == 0 ? last : l->count;
    for (unsigned i = last; i-- > first;)
        if ((op->kind == LOAD || l->messages[i].value != op->expected) && --option == 0)
            return i;
    return l->count;
}

/* The n-th thread that a WAKE may reach, or NULL. */
static struct thread *sleeper(const struct operation *op, unsigned n)
{
    for (unsigned i = 0; i < model->threads; i++)
        if (threads[i].asleep && !threads[i].woken && threads[i].next.address == op->address && n-- == 0)
            return &threads[i];
    return NULL;
}

static bool has_option(const struct thread *t, unsigned n)
{
    const struct operation *op = &t->next;
    if (op->kind >= LOCK)
        return op->kind == WAKE && sleeper(op, n);
    const struct location *l = location_of(op);
    return message_of(t, l, n) != l->count;
}

static unsigned count_options(const struct thread *t)
{
    unsigned n = 1;
    while (has_option(t, n))
        n++;
    return n;
}

static bool acquires(enum order order)
{
    return order == ACQUIRE || order == ACQ_REL;
}

static bool releases(enum order order)
{
    return order == RELEASE || order == ACQ_REL;
}

static uint64_t combine(const struct operation *op, uint64_t old)
{
    switch (op->kind) {
    case ADD:
        return truncated(old + op->operand, op->size);
    case SUB:
        return truncated(old - op->operand, op->size);
    case OR:
        return old | op->operand;
    case AND:
        return old & op->operand;
    case XOR:
        return old ^ op->operand;
    default:
        return op->operand;
    }
}

static void read_message(struct thread *t, struct location *l, unsigned i, enum order order)
{
    t->view.seen[l - locations] = (uint8_t)i;
    if (acquires(order))
        join(&t->view, &l->messages[i].view);
}

static void write_message(struct thread *t, struct location *l, uint64_t value, enum order order, bool reads)
{
    const struct operation *op = &t->next;
    append(l, value);
    unsigned i = l->count - 1;
    t->view.seen[l - locations] = (uint8_t)i;
    struct view *view = &l->messages[i].view;
    if (releases(order))
        *view = t->view;
    if (reads) /* a release sequence continues */
        join(view, &l->messages[i - 1].view);
    store_raw(op->address, op->size, value);
}

static bool is_waiting(const struct thread *t)
{
    return !t->finished && ((t->asleep && !t->woken) || (t->next.kind == LOCK && location_of(&t->next)->holder >= 0));
}

/* After that time each store has reached the thread, though earlier stores need not have. */
static void see_all(struct thread *t)
{
    for (unsigned i = 0; i < location_count; i++)
        t->view.seen[i] = (uint8_t)(locations[i].count - 1);
}

/* A SLEEP takes two steps: it begins, unless the word has changed, and it ends. The newest value counts: the kernel's
 * own locks ensure that. */
static void sleep_step(struct thread *t)
{
    const struct operation *op = &t->next;
    bool began = t->asleep;
    t->asleep = !began && load_raw(op->address, op->size) == op->expected;
    t->result = began && !t->woken;
    t->woken = false;
    if (t->result) {
        late++;
        see_all(t);
    }
}

static void operate_kernel(struct thread *t, unsigned option)
{
    const struct operation *op = &t->next;
    if (op->kind == SLEEP) {
        sleep_step(t);
    } else if (op->kind == WAKE) {
        struct thread *other = sleeper(op, option);
        if (other)
            other->woken = true;
    } else {
        t->result = is_waiting(&threads[op->operand]);
    }
}

static void operate(struct thread *t, unsigned option)
{
    const struct operation *op = &t->next;
    if (op->kind >= SLEEP) {
        operate_kernel(t, option);
        return;
    }
    struct location *l = location_of(op);
    if (op->kind == TRY && l->holder >= 0) {
        t->result = false;
    } else if (op->kind == LOCK || op->kind == TRY) {
        l->holder = (int)(t - threads);
        join(&t->view, &l->held);
        t->result = true;
    } else if (op->kind == UNLOCK) {
        if (l->holder != (int)(t - threads))
            model_fail("thread %u releases a lock that it does not hold", (unsigned)(t - threads));
        l->holder = -1;
        l->held = t->view;
    } else if (op->kind == STORE) {
        write_message(t, l, op->operand, op->order, false);
        t->result = op->operand;
    } else {
        unsigned i = message_of(t, l, option);
        t->result = l->messages[i].value;
        bool fails = op->kind == LOAD || (op->kind == CAS && t->result != op->expected);
        read_message(t, l, i, op->kind == CAS && fails ? op->failure : op->order);
        if (!fails)
            write_message(t, l, combine(op, t->result), op->order, true);
    }
}

static void perform(struct thread *t, unsigned option)
{
    const struct operation *op = &t->next;
    unsigned self = (unsigned)(t - threads);
    t->view.clock[self]++;
    current = t;
    if (op->kind < LOCK)
        for (unsigned i = 0; i < op->size; i++)
            access_byte(op->address + i, op->kind != LOAD, true, op->site);
    operate(t, option);
    current = NULL;
    if (depth == DEPTH)
        give_up("too many steps");
    steps[depth].op = *op;
    steps[depth].thread = (uint8_t)self;
    steps[depth].value = t->result;
}

/* --- sites and their orders ------------------------------------------------------------------------------------ */

static struct site {
    uintptr_t at;
    struct operation op;
} sites[SITES];
static unsigned site_count;
static bool list_sites;
static struct weaker {
    uintptr_t at;
    enum order order, failure;
} weaker[SITES];
static unsigned weaker_count;

static void note_site(const struct operation *op)
{
    for (unsigned i = 0; i < site_count; i++)
        if (sites[i].at == op->site)
            return;
    if (site_count < SITES)
        sites[site_count++] = (struct site){op->site, *op};
}

static enum order order_named(const char *name)
{
    for (unsigned i = 0; i <= SEQ_CST; i++)
        if (!strncmp(name, order_names[i], strlen(order_names[i])))
            return (enum order)i;
    give_up("no such order");
}

static void read_weaker(const char *text)
{
    while (text && *text && weaker_count < SITES) {
        char *colon;
        struct weaker *w = &weaker[weaker_count++];
        w->at = base + strtoul(text, &colon, 16);
        w->order = order_named(colon + 1);
        colon = strchr(colon + 1, ':');
        w->failure = colon ? order_named(colon + 1) : RELAXED;
        text = strchr(text, ',');
        text += text != NULL;
    }
}

static void weaken(struct operation *op)
{
    for (unsigned i = 0; i < weaker_count; i++)
        if (weaker[i].at == op->site) {
            op->order = weaker[i].order;
            op->failure = weaker[i].failure;
        }
}

/* --- threads --------------------------------------------------------------------------------------------------- */

/* Continues at `to` until a switch back to `from`; swapcontext would make a system call for the signal mask each
 * time. */
static void switch_to(jmp_buf from, jmp_buf to)
{
    if (!_setjmp(from))
        _longjmp(to, 1);
}

/* Stops the thread before the operation; the scheduler performs it when its turn has come. */
static uint64_t request(struct operation op)
{
    if (op.order == SEQ_CST)
        give_up("seq_cst is not modelled");
    if (op.kind < LOCK && (op.order != RELAXED || op.failure != RELAXED))
        note_site(&op);
    weaken(&op);
    op.operand = truncated(op.operand, op.size);
    op.expected = truncated(op.expected, op.size);
    struct thread *t = current;
    t->next = op;
    current = NULL;
    switch_to(t->context, scheduler);
    return t->result;
}

static uint64_t alone(const struct operation *op)
{
    uint64_t old = load_raw(op->address, op->size);
    if (op->kind == CAS ? old == truncated(op->expected, op->size) : op->kind != LOAD)
        store_raw(op->address, op->size, combine(op, old));
    return old;
}

static uint64_t atomic(enum kind kind, const volatile void *at, unsigned size, uint64_t operand, uint64_t expected,
                       int order, int failure, void *site)
{
    struct operation op = {kind,    (uintptr_t)at, (uintptr_t)site, size, (enum order)order, (enum order)failure,
                           operand, expected};
    return current ? request(op) : alone(&op);
}

static void run_thread(unsigned number)
{
    model->thread(number);
    threads[number].finished = true;
    current = NULL;
    _longjmp(scheduler, 1);
}

static void resume(struct thread *t)
{
    current = t;
    if (t->started) {
        switch_to(scheduler, t->context);
    } else if (!_setjmp(scheduler)) {
        t->started = true;
        setcontext(&t->start);
    }
    current = NULL;
}

static void start_threads(void)
{
    memset(threads, 0, sizeof threads);
    for (unsigned i = 0; i < model->threads; i++) {
        getcontext(&threads[i].start);
        threads[i].start.uc_stack.ss_sp = stacks[i];
        threads[i].start.uc_stack.ss_size = STACK;
        threads[i].view.clock[i] = 1;
        makecontext(&threads[i].start, (void (*)(void))run_thread, 1, i);
    }
    for (unsigned i = 0; i < model->threads; i++)
        resume(&threads[i]);
}

/* --- all choices ------------------------------------------------------------------------------------------------- */

static bool may_go_on(const struct thread *t, bool time_passes)
{
    if (t->finished || t->next.kind == LOCK)
        return !t->finished && !is_waiting(t);
    bool timed = t->next.kind == SLEEP && t->next.operand;
    return !t->asleep || t->woken || (timed && (time_passes || !late));
}

/* Which threads may. */
static uint8_t enabled_threads(bool time_passes)
{
    uint8_t enabled = 0;
    for (unsigned i = 0; i < model->threads; i++)
        enabled |= (uint8_t)((unsigned)may_go_on(&threads[i], time_passes) << i);
    return enabled;
}

/* A sleep that timed out has seen all stores; and any step may change whether a thread waits. */
static bool matters_to_all(const struct thread *t)
{
    return t->next.kind == LOOK || (t->asleep && !t->woken);
}

static bool depend(const struct thread *s, const struct thread *t)
{
    const struct operation *a = &s->next, *b = &t->next;
    if (matters_to_all(s) || matters_to_all(t))
        return true;
    return a->address < b->address + b->size && b->address < a->address + a->size &&
           (a->kind != LOAD || b->kind != LOAD);
}

/* A thread stays in the sleep set as long as no step is made on which its own step depends: an earlier run let it go
 * first. */
static uint8_t still_sleeping(const struct node *n)
{
    uint8_t asleep = 0;
    for (unsigned i = 0; i < model->threads; i++)
        if ((n->sleeping | n->done) >> i & 1 && i != n->thread && !depend(&threads[i], &threads[n->thread]))
            asleep |= (uint8_t)(1u << i);
    return asleep;
}

static bool choose_thread(struct node *n)
{
    unsigned left = n->enabled & ~(unsigned)(n->sleeping | n->done);
    n->option = n->options = 0;
    n->thread = left ? (uint8_t)__builtin_ctz(left) : 0;
    return left;
}

/* False if another run has covered this in another order. */
static bool decide(uint8_t enabled, uint8_t sleeping)
{
    if (depth == DEPTH)
        give_up("too many steps");
    struct node *n = &nodes[depth];
    if (depth == known) {
        *n = (struct node){.enabled = enabled, .sleeping = sleeping};
        if (!choose_thread(n))
            return false;
        known++;
    }
    if (n->enabled != enabled)
        give_up("a run could not be repeated");
    if (!n->options)
        n->options = (uint8_t)count_options(&threads[n->thread]);
    return true;
}

static void one_run(void)
{
    uint8_t sleeping = 0;
    for (;;) {
        uint8_t enabled = enabled_threads(false);
        bool finished = true;
        for (unsigned i = 0; i < model->threads; i++)
            finished &= threads[i].finished;
        if (finished) {
            model->check();
            return;
        }
        if (!enabled)
            enabled = enabled_threads(true);
        if (!enabled)
            model_fail("deadlock");
        if (!decide(enabled, sleeping)) {
            pruned++;
            return;
        }
        const struct node *n = &nodes[depth];
        sleeping = still_sleeping(n);
        perform(&threads[n->thread], n->option);
        depth++;
        if (!threads[n->thread].asleep)
            resume(&threads[n->thread]);
    }
}

static bool next_choice(void)
{
    for (; known; known--) {
        struct node *n = &nodes[known - 1];
        if (++n->option < n->options)
            return true;
        n->done |= (uint8_t)(1u << n->thread);
        if (choose_thread(n))
            return true;
    }
    return false;
}

static void check_model(void)
{
    runs = pruned = known = 0;
    outcomes = 0;
    do {
        serial++;
        memcpy(ranges[0].from, snapshot, (size_t)(ranges[0].to - ranges[0].from));
        memset(buckets, 0, sizeof buckets);
        location_count = depth = late = 0;
        model->setup();
        start_threads();
        one_run();
        runs++;
    } while (next_choice());
    depth = 0;
    if (outcomes != ((uint64_t)1 << model->outcomes) - 1)
        model_fail("of %u outcomes these were reached: %#zx", model->outcomes, (size_t)outcomes);
    printf("%s: %u runs, %u of them cut short\n", model->name, runs, pruned);
    if (is_wrong())
        give_up("nothing wrong was found");
}

/* --- what the compiler calls ------------------------------------------------------------------------------------ */

#define SITE __builtin_return_address(0)
void __tsan_init(void);
void __tsan_init(void)
{
}
void __tsan_func_entry(void *pc);
void __tsan_func_entry(void *pc)
{
    (void)pc;
}
void __tsan_func_exit(void);
void __tsan_func_exit(void)
{
}

#define PLAIN(name, bytes, writes)                                   \
    void __tsan_##name(void *at);                                    \
    void __tsan_##name(void *at)                                     \
    {                                                                \
        access_plain((uintptr_t)at, bytes, writes, (uintptr_t)SITE); \
    }
#define PLAINS(bytes)                          \
    PLAIN(read##bytes, bytes, false)           \
    PLAIN(write##bytes, bytes, true)           \
    PLAIN(unaligned_read##bytes, bytes, false) \
    PLAIN(unaligned_write##bytes, bytes, true)
PLAINS(1)
PLAINS(2)
PLAINS(4)
PLAINS(8)
PLAINS(16)

#define MODIFY(bits, name, kind)                                                                 \
    uint##bits##_t __tsan_atomic##bits##_##name(volatile void *at, uint##bits##_t v, int order); \
    uint##bits##_t __tsan_atomic##bits##_##name(volatile void *at, uint##bits##_t v, int order)  \
    {                                                                                            \
        return (uint##bits##_t)atomic(kind, at, bits / 8, v, 0, order, RELAXED, SITE);           \
    }
#define ATOMICS(bits)                                                                                     \
    MODIFY(bits, exchange, EXCHANGE)                                                                      \
    MODIFY(bits, fetch_add, ADD)                                                                          \
    MODIFY(bits, fetch_sub, SUB)                                                                          \
    MODIFY(bits, fetch_or, OR)                                                                            \
    MODIFY(bits, fetch_and, AND)                                                                          \
    MODIFY(bits, fetch_xor, XOR)                                                                          \
    uint##bits##_t __tsan_atomic##bits##_load(const volatile void *at, int order);                        \
    uint##bits##_t __tsan_atomic##bits##_load(const volatile void *at, int order)                         \
    {                                                                                                     \
        return (uint##bits##_t)atomic(LOAD, at, bits / 8, 0, 0, order, RELAXED, SITE);                    \
    }                                                                                                     \
    void __tsan_atomic##bits##_store(volatile void *at, uint##bits##_t v, int order);                     \
    void __tsan_atomic##bits##_store(volatile void *at, uint##bits##_t v, int order)                      \
    {                                                                                                     \
        atomic(STORE, at, bits / 8, v, 0, order, RELAXED, SITE);                                          \
    }                                                                                                     \
    uint##bits##_t __tsan_atomic##bits##_compare_exchange_val(volatile void *at, uint##bits##_t expected, \
                                                              uint##bits##_t v, int order, int failure);  \
    uint##bits##_t __tsan_atomic##bits##_compare_exchange_val(volatile void *at, uint##bits##_t expected, \
                                                              uint##bits##_t v, int order, int failure)   \
    {                                                                                                     \
        return (uint##bits##_t)atomic(CAS, at, bits / 8, v, expected, order, failure, SITE);              \
    }
ATOMICS(8)
ATOMICS(16)
ATOMICS(32)
ATOMICS(64)

/* Newer compilers call these for copies and fills that they see. */
void *__tsan_memset(void *to, int byte, size_t size);
void *__tsan_memset(void *to, int byte, size_t size)
{
    access_plain((uintptr_t)to, size, true, (uintptr_t)SITE);
    return memset(to, byte, size);
}

void *__tsan_memcpy(void *to, const void *from, size_t size);
void *__tsan_memcpy(void *to, const void *from, size_t size)
{
    access_plain((uintptr_t)from, size, false, (uintptr_t)SITE);
    access_plain((uintptr_t)to, size, true, (uintptr_t)SITE);
    return memcpy(to, from, size);
}

/* Thread-local variables, with -femulated-tls: this is how the compiler describes one. */
struct emulated {
    size_t size, align, unused;
    const void *initial; /* NULL: zero */
};
void *__emutls_get_address(const struct emulated *variable);
void *__emutls_get_address(const struct emulated *variable)
{
    static struct {
        const struct emulated *variable;
        size_t place;
        uint32_t run[MODEL_THREADS + 1];
    } all[VARIABLES];
    static size_t used;
    unsigned i = 0, self = current ? (unsigned)(current - threads) : MODEL_THREADS;
    while (i < VARIABLES && all[i].variable && all[i].variable != variable)
        i++;
    if (i == VARIABLES || (!all[i].variable && used + variable->size > TLS))
        give_up("too many thread-local variables");
    if (!all[i].variable) {
        all[i].variable = variable;
        all[i].place = used;
        used += (variable->size + 63) & ~(size_t)63;
    }
    char *own = tls[self] + all[i].place;
    if (all[i].run[self] != serial) {
        all[i].run[self] = serial;
        memset(own, 0, variable->size);
        if (variable->initial)
            memcpy(own, variable->initial, variable->size);
    }
    return own;
}

/* Lock calls of the object come here, since the program interposes the C library. */
int pthread_mutex_lock(pthread_mutex_t *mutex)
{
    if (current)
        request((struct operation){.kind = LOCK, .address = (uintptr_t)mutex, .size = 1, .site = (uintptr_t)SITE});
    return 0;
}

int pthread_mutex_trylock(pthread_mutex_t *mutex)
{
    struct operation op = {.kind = TRY, .address = (uintptr_t)mutex, .size = 1, .site = (uintptr_t)SITE};
    return !current || request(op) ? 0 : EBUSY;
}

int pthread_mutex_unlock(pthread_mutex_t *mutex)
{
    if (current)
        request((struct operation){.kind = UNLOCK, .address = (uintptr_t)mutex, .size = 1, .site = (uintptr_t)SITE});
    return 0;
}

int model_sleep(const void *word, unsigned value, int timed)
{
    return (int)request((struct operation){.kind = SLEEP,
                                           .address = (uintptr_t)word,
                                           .size = sizeof value,
                                           .expected = value,
                                           .operand = timed != 0,
                                           .site = (uintptr_t)SITE});
}

void model_wake(const void *word)
{
    request((struct operation){
        .kind = WAKE, .address = (uintptr_t)word, .size = sizeof(unsigned), .site = (uintptr_t)SITE});
}

int model_is_waiting(unsigned thread)
{
    return (int)request(
        (struct operation){.kind = LOOK, .size = sizeof thread, .operand = thread, .site = (uintptr_t)SITE});
}

/* --- the object --------------------------------------------------------------------------------------------- */

static int find_data(struct dl_phdr_info *info, size_t size, void *name)
{
    (void)size;
    if (strcmp(info->dlpi_name, name))
        return 0;
    base = info->dlpi_addr;
    for (unsigned i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *p = &info->dlpi_phdr[i];
        if (p->p_type == PT_LOAD && p->p_flags & PF_W)
            model_track((void *)(base + p->p_vaddr), p->p_memsz);
    }
    return 1;
}

static const struct model *open_object(const char *path)
{
    char real[4096];
    void *object = realpath(path, real) ? dlopen(real, RTLD_LAZY | RTLD_LOCAL) : NULL;
    if (!object || !dl_iterate_phdr(find_data, real) || range_count != 1) {
        fprintf(stderr, "checker: %s: %s\n", path, object ? "not one writable segment" : dlerror());
        _exit(2);
    }
    return dlsym(object, "models");
}

static bool wanted(const char *name, int argc, char **argv)
{
    for (int i = 2; i < argc; i++)
        if (!strcmp(argv[i], name))
            return true;
    return argc == 2;
}

int main(int argc, char **argv)
{
    const struct model *all = argc > 1 ? open_object(argv[1]) : NULL;
    unsigned checked = 0;
    if (!all)
        give_up("usage: checker OBJECT [MODEL]...");
    size_t bytes = (size_t)(ranges[0].to - ranges[0].from);
    snapshot = malloc(bytes);
    if (!snapshot)
        give_up("no memory");
    list_sites = getenv("MODEL_SITES") != NULL;
    read_weaker(getenv("MODEL_WEAKEN"));
    for (model = all; model->name; model++)
        if (wanted(model->name, argc, argv)) {
            if (!checked++)
                memcpy(snapshot, ranges[0].from, bytes);
            check_model();
        }
    for (unsigned i = 0; list_sites && i < site_count; i++)
        printf("site %#zx %s %s %s\n", (size_t)(sites[i].at - base), kind_names[sites[i].op.kind],
               order_names[sites[i].op.order], order_names[sites[i].op.failure]);
    fflush(stdout);
    _exit(checked ? 0 : 2); /* excludes the object's own output at exit */
}
