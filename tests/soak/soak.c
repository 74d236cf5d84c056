/* SPDX-License-Identifier: MIT
 *
 * soak SECONDS LANES SEED [--long OPERATIONS]
 *
 * Everything at once for a time, and until OPERATIONS are done: LANES lanes allocate, resize and free blocks of all
 * sizes, hand blocks to each other, and are chains of threads that end with their blocks live. Between these steps lie
 * stretches of plain work on whole windows of small blocks. In one second of two the process forks, trims, and is
 * refused address space. Signals interrupt it all the time. Once a second all lanes stand still: then the conservation
 * laws must hold, with at least the lanes' live bytes.
 *
 * The library serves the whole process. Only the calls under test allocate.
 */
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <time.h>

#include "hakmem.h"
#include "shadow.h"

enum {
    MAX_LANES = 64,
    SLOTS = 512,
    MAILBOXES = 256,
    BATCH = 512,  /* steps between two checks of the gate */
    WINDOW = 256, /* cells; a power of two, so that an odd stride meets each of them */
    CELL_MIN = 16,
    SWAPPED = 32,
    ROUNDS = 16,
    LANE_BYTES = 8 << 20,   /* live, at most */
    DIRECT_MIN = 256 << 10, /* a block that grew to this may be a mapping of its own */
    CHILD_BLOCKS = 300,
    CHILD_PATIENCE = 60,
    SIGNAL_US = 2000,
};

struct block {
    unsigned char *ptr; /* NULL: none */
    size_t size, usable;
    unsigned char mark;
};

/* Small blocks that are made, checked and freed quickly. Lanes exchange whole windows. */
struct window {
    struct cell {
        char *ptr; /* NULL: none */
        size_t size;
    } cells[WINDOW];
};

struct lane {
    uint64_t random;
    _Atomic(uint64_t) operations, refused;
    _Atomic(int64_t) live; /* usable bytes of small and large blocks allocated here, minus those freed here */
    uint64_t births;
    pthread_t before;
    bool has_before, ends;
    struct block slots[SLOTS];
    struct window *window;
};

static struct lane lanes[MAX_LANES];
static struct block mailed[MAILBOXES + MAX_LANES];
static _Atomic(struct block *) mail[MAILBOXES];
static struct window windows[MAX_LANES + SWAPPED];
static _Atomic(struct window *) swapped[SWAPPED];
static _Atomic(int64_t) in_windows; /* bytes that are live there */
static _Atomic(bool) stopping;
static volatile sig_atomic_t signals;

static void add(_Atomic(uint64_t) *counter, uint64_t n)
{
    atomic_fetch_add_explicit(counter, n, memory_order_relaxed);
}

/* --- the gate: lanes are inside, or it is closed ------------------------------------------------------- */

static struct {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    unsigned inside;
    bool closed;
} gate = {.mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static void enter(void)
{
    pthread_mutex_lock(&gate.mutex);
    while (gate.closed)
        pthread_cond_wait(&gate.changed, &gate.mutex);
    gate.inside++;
    pthread_mutex_unlock(&gate.mutex);
}

static void leave(void)
{
    pthread_mutex_lock(&gate.mutex);
    gate.inside--;
    pthread_cond_broadcast(&gate.changed);
    pthread_mutex_unlock(&gate.mutex);
}

static void close_gate(void)
{
    pthread_mutex_lock(&gate.mutex);
    gate.closed = true;
    while (gate.inside)
        pthread_cond_wait(&gate.changed, &gate.mutex);
    pthread_mutex_unlock(&gate.mutex);
}

static void open_gate(void)
{
    pthread_mutex_lock(&gate.mutex);
    gate.closed = false;
    pthread_cond_broadcast(&gate.changed);
    pthread_mutex_unlock(&gate.mutex);
}

/* --- blocks --------------------------------------------------------------------------------------------- */

/* Only the ledger counts direct mappings. */
static void count_live(struct lane *l, const struct block *b, int sign)
{
    if (b->usable < DIRECT_MIN)
        atomic_fetch_add_explicit(&l->live, sign * (int64_t)b->usable, memory_order_relaxed);
}

static void refuse(struct lane *l, size_t size)
{
    if (errno != ENOMEM)
        stress_fail("soak: NULL for %zu bytes with errno %d", size, errno);
    add(&l->refused, 1);
}

static void adopt(struct lane *l, struct block *b, void *ptr, size_t size)
{
    add(&l->operations, 1);
    if (!ptr) {
        refuse(l, size);
        return;
    }
    *b = (struct block){ptr, size, hakmem_malloc_usable_size(ptr), (unsigned char)(next_random(&l->random) % 255 + 1)};
    if (b->usable < size)
        stress_fail("soak: %p: %zu bytes asked for, %zu usable", ptr, size, b->usable);
    shadow_claim(ptr, b->usable);
    mark(ptr, b->usable, b->mark);
    count_live(l, b, 1);
}

static void give_up(struct lane *l, struct block *b)
{
    if (!marked(b->ptr, b->usable, b->mark))
        stress_fail("soak: block %p of %zu bytes changed", (void *)b->ptr, b->size);
    shadow_release(b->ptr, b->usable);
    count_live(l, b, -1);
}

static void release(struct lane *l, struct block *b)
{
    give_up(l, b);
    free(b->ptr);
    b->ptr = NULL;
    add(&l->operations, 1);
}

static size_t draw_size(struct lane *l)
{
    bool room = atomic_load_explicit(&l->live, memory_order_relaxed) < LANE_BYTES;
    if (room && next_random(&l->random) % 20000 == 0)
        return 65 * MIB + next_random(&l->random) % MIB; /* a mapping of its own */
    return room ? mixed_size(&l->random) : 1 + next_random(&l->random) % 512;
}

/* Writes the value that it reads: a page that is read before it is written takes two faults. */
static bool zero(void *p, size_t size)
{
    _Atomic(unsigned char) *c = p;
    for (size_t at = 0; at < size; at += 4 * KIB)
        if (atomic_exchange_explicit(&c[at], 0, memory_order_relaxed))
            return false;
    return atomic_exchange_explicit(&c[size - 1], 0, memory_order_relaxed) == 0;
}

static void allocate(struct lane *l, struct block *b)
{
    size_t size = draw_size(l), align = (size_t)16 << next_random(&l->random) % 9;
    unsigned kind = next_random(&l->random) % 16;
    void *p = kind < 10 ? malloc(size) : kind < 14 ? calloc(1, size) : aligned_alloc(align, size);
    if (p && kind >= 10 && kind < 14 && !zero(p, size))
        stress_fail("soak: calloc of %zu gave %p, not zero", size, p);
    if (p && kind >= 14 && (uintptr_t)p % align)
        stress_fail("soak: %p is not aligned to %zu", p, align);
    adopt(l, b, p, size);
}

static void resize(struct lane *l, struct block *b)
{
    size_t size = next_random(&l->random) % 4 ? b->size / 2 + 1 + next_random(&l->random) % b->size : draw_size(l);
    struct block old = *b;
    give_up(l, b);
    b->ptr = NULL;
    unsigned char *p = realloc(old.ptr, size);
    for (size_t at = 0; p && at < size && at < old.size; at += 4 * KIB)
        if (p[at] != old.mark)
            stress_fail("soak: realloc of %p to %zu bytes lost what was at %zu", (void *)old.ptr, size, at);
    adopt(l, b, p, size);
    if (!p) { /* still there, untouched */
        shadow_claim(old.ptr, old.usable);
        count_live(l, &old, 1);
        *b = old;
    }
}

/* A word anywhere. */
struct __attribute__((packed, may_alias)) word {
    uintptr_t value;
};

static struct word *last_word(const struct cell *c)
{
    return (struct word *)(c->ptr + c->size) - 1;
}

/* The first and the last word of a block of a window. */
static void stamp(const struct cell *c, uintptr_t value)
{
    ((struct word *)c->ptr)->value = last_word(c)->value = value;
}

static bool stamped(const struct cell *c, uintptr_t value)
{
    return ((struct word *)c->ptr)->value == value && last_word(c)->value == value;
}

/* Each returns its change of the live bytes. */
static int64_t fill(struct lane *l, struct cell *c, size_t size)
{
    bool zeroed = next_random(&l->random) % 8 == 0;
    c->ptr = zeroed ? calloc(1, size) : malloc(size);
    c->size = size;
    if (!c->ptr) {
        refuse(l, size);
        return 0;
    }
    if (zeroed && !stamped(c, 0))
        stress_fail("soak: calloc of %zu gave %p, not zero", size, (void *)c->ptr);
    stamp(c, (uintptr_t)c->ptr ^ size);
    return (int64_t)size;
}

static int64_t clear(struct cell *c)
{
    if (!stamped(c, (uintptr_t)c->ptr ^ c->size))
        stress_fail("soak: block %p of %zu bytes in a window changed", (void *)c->ptr, c->size);
    free(c->ptr);
    c->ptr = NULL;
    return -(int64_t)c->size;
}

/* Each round fills the window, clears it, or does both for each cell, in its own order. */
static void stretch(struct lane *l)
{
    size_t limit = CELL_MIN << next_random(&l->random) % 8, operations = 0;
    int64_t live = 0;
    for (unsigned round = 0; round < ROUNDS; round++) {
        uint64_t r = next_random(&l->random), size = CELL_MIN + (r >> 32) % limit;
        unsigned at = r % WINDOW, stride = (r >> 8 & 0xff) | 1, kind = (r >> 16) % 4;
        for (unsigned i = 0; i < WINDOW; i++, at = (at + stride) % WINDOW) {
            struct cell *c = &l->window->cells[at];
            if (c->ptr && kind != 0) {
                live += clear(c);
                operations++;
            }
            if (!c->ptr && kind != 1) {
                live += fill(l, c, kind == 3 ? CELL_MIN + next_random(&l->random) % limit : size);
                operations++;
            }
        }
    }
    add(&l->operations, operations);
    atomic_fetch_add_explicit(&in_windows, live, memory_order_relaxed);
    l->window = atomic_exchange_explicit(&swapped[next_random(&l->random) % SWAPPED], l->window, memory_order_acq_rel);
}

/* A block in exchange for another one, or for none. */
static void hand_over(struct lane *l, struct block *b)
{
    static _Atomic(struct block *) spare[MAX_LANES];
    size_t self = (size_t)(l - lanes);
    struct block *mine = atomic_exchange_explicit(&spare[self], NULL, memory_order_relaxed);
    if (!mine)
        mine = &mailed[MAILBOXES + self];
    *mine = *b;
    struct block *theirs =
        atomic_exchange_explicit(&mail[next_random(&l->random) % MAILBOXES], mine, memory_order_acq_rel);
    *b = *theirs;
    atomic_store_explicit(&spare[self], theirs, memory_order_relaxed);
}

static void step(struct lane *l)
{
    struct block *b = &l->slots[next_random(&l->random) % SLOTS];
    unsigned what = next_random(&l->random) % 128;
    if (what < 12)
        hand_over(l, b);
    else if (what < 16)
        stretch(l);
    else if (!b->ptr)
        allocate(l, b);
    else if (what < 90)
        release(l, b);
    else
        resize(l, b);
    if (next_random(&l->random) % (1 << 17) == 0)
        hakmem_trim(next_random(&l->random) % (4 * MIB));
}

/* --- lanes ------------------------------------------------------------------------------------------------ */

static void *live(void *arg);

/* The lane continues in a new thread, inside the gate; this thread has left the gate before that one starts. */
static bool start_successor(struct lane *l)
{
    pthread_t next;
    l->before = pthread_self();
    l->has_before = true;
    return pthread_create(&next, NULL, live, l) == 0;
}

static void *live(void *arg)
{
    struct lane *l = arg;
    if (l->has_before)
        pthread_join(l->before, NULL);
    else
        enter();
    l->births++;
    for (;;) {
        unsigned steps = 1 + next_random(&l->random) % BATCH;
        while (steps--)
            step(l);
        if (next_random(&l->random) % 16 == 0 && start_successor(l))
            return NULL;
        l->has_before = false;
        leave();
        if (atomic_load_explicit(&stopping, memory_order_relaxed))
            break;
        enter();
    }
    l->before = pthread_self();
    pthread_mutex_lock(&gate.mutex);
    l->ends = true;
    pthread_cond_broadcast(&gate.changed);
    pthread_mutex_unlock(&gate.mutex);
    return NULL;
}

static void await(struct lane *l)
{
    pthread_mutex_lock(&gate.mutex);
    while (!l->ends)
        pthread_cond_wait(&gate.changed, &gate.mutex);
    pthread_mutex_unlock(&gate.mutex);
    pthread_join(l->before, NULL);
}

/* --- what happens meanwhile --------------------------------------------------------------------------------- */

static void on_signal(int number)
{
    (void)number;
    signals++;
}

static void interrupt_every(long us)
{
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    struct itimerval timer = {{0, us}, {0, us}};
    sigaction(SIGPROF, &action, NULL);
    if (setitimer(ITIMER_PROF, &timer, NULL))
        stress_fail("soak: setitimer: %s", strerror(errno));
}

/* Blocks of its own and of its parent's. */
static _Noreturn void child(uint64_t random)
{
    void *own[CHILD_BLOCKS];
    alarm(CHILD_PATIENCE);
    for (unsigned i = 0; i < CHILD_BLOCKS; i++)
        if ((own[i] = malloc(mixed_size(&random) % 100000)))
            memset(own[i], 1, 1);
    for (unsigned i = 0; i < CHILD_BLOCKS / 2; i++) {
        free(own[i]);
        own[i] = NULL;
    }
    hakmem_trim(0);
    for (unsigned i = 0; i < CHILD_BLOCKS; i++)
        free(own[i]);
    _exit(0);
}

static void fork_once(uint64_t *random)
{
    pid_t pid = fork();
    if (pid == 0)
        child(next_random(random));
    if (pid > 0)
        expect_success(pid, "soak: a child");
    else if (errno != ENOMEM && errno != EAGAIN)
        stress_fail("soak: fork: %s", strerror(errno));
}

/* Field `i` of /proc/self/statm, in bytes. */
static rlim_t in_use(unsigned i)
{
    char text[128] = {0}, *field = text;
    int fd = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
    if (fd < 0 || read(fd, text, sizeof text - 1) < 1)
        stress_fail("soak: /proc/self/statm: %s", strerror(errno));
    close(fd);
    while (i--)
        strtoull(field, &field, 10);
    return strtoull(field, NULL, 10) * (rlim_t)sysconf(_SC_PAGESIZE);
}

/* Limits address space, or writable memory, to the current amount for a moment. */
static void squeeze(int resource, unsigned field)
{
    struct rlimit before, tight;
    getrlimit(resource, &before);
    tight = before;
    tight.rlim_cur = in_use(field);
    setrlimit(resource, &tight);
    usleep(20000);
    setrlimit(resource, &before);
}

static long violations(char *text, size_t room)
{
    int fd = memfd_create("soak", MFD_CLOEXEC);
    int error = fd < 0 ? -errno : hakmem_stats(fd, 1);
    ssize_t n = error ? -1 : pread(fd, text, room - 1, 0);
    close(fd);
    text[n > 0 ? n : 0] = 0;
    const char *laws = strstr(text, "\"conservation\""), *found = laws ? strstr(laws, "\"violations\"") : NULL;
    if (!found)
        stress_fail("soak: no conservation in the statistics (%d)", error);
    return strtol(found + strcspn(found, ":") + 1, NULL, 10);
}

/* All lanes stand still meanwhile. */
static void check_books(unsigned count)
{
    static char text[1 << 20];
    close_gate();
    int64_t held = atomic_load_explicit(&in_windows, memory_order_relaxed);
    for (unsigned i = 0; i < count; i++)
        held += atomic_load_explicit(&lanes[i].live, memory_order_relaxed);
    struct hakmem_mallinfo2 info = hakmem_mallinfo2();
    long broken = violations(text, sizeof text);
    if (broken)
        stress_fail("soak: %ld conservation laws broken: %.300s", broken, strstr(text, "\"conservation\""));
    if (held < 0 || (size_t)held > info.uordblks)
        stress_fail("soak: %zd bytes are live, %zu are away", (ssize_t)held, info.uordblks);
    open_gate();
}

static uint64_t operations_of(unsigned count)
{
    uint64_t sum = 0;
    for (unsigned i = 0; i < count; i++)
        sum += atomic_load_explicit(&lanes[i].operations, memory_order_relaxed);
    return sum;
}

static void disturb(uint64_t *random)
{
    switch (next_random(random) % 8) {
    case 0:
    case 1:
        fork_once(random);
        break;
    case 2:
        squeeze(RLIMIT_AS, 0);
        break;
    case 3:
        squeeze(RLIMIT_DATA, 5);
        break;
    case 4:
        hakmem_trim(0);
        break;
    default:
        break;
    }
}

static void oversee(unsigned seconds, uint64_t operations, unsigned count, uint64_t seed)
{
    uint64_t random = seed;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    for (time_t end = now.tv_sec + (time_t)seconds, next = now.tv_sec + 1;
         now.tv_sec < end || operations_of(count) < operations;) {
        usleep(50000);
        if (now.tv_sec % 2)
            disturb(&random);
        clock_gettime(CLOCK_MONOTONIC, &now);
        if (now.tv_sec >= next) {
            check_books(count);
            next = now.tv_sec + 1;
        }
    }
}

/* --- all of it ------------------------------------------------------------------------------------------------ */

static void start(unsigned count, uint64_t seed)
{
    for (unsigned i = 0; i < MAILBOXES; i++)
        atomic_store_explicit(&mail[i], &mailed[i], memory_order_relaxed);
    for (unsigned i = 0; i < SWAPPED; i++)
        atomic_store_explicit(&swapped[i], &windows[MAX_LANES + i], memory_order_relaxed);
    for (unsigned i = 0; i < count; i++) {
        pthread_t first;
        lanes[i].random = seed * 1000 + i;
        lanes[i].window = &windows[i];
        if (pthread_create(&first, NULL, live, &lanes[i]))
            stress_fail("soak: no thread");
    }
}

static void finish(unsigned count)
{
    atomic_store_explicit(&stopping, true, memory_order_relaxed);
    for (unsigned i = 0; i < count; i++)
        await(&lanes[i]);
    for (unsigned i = 0; i < count * SLOTS; i++)
        if (lanes[i / SLOTS].slots[i % SLOTS].ptr)
            release(&lanes[0], &lanes[i / SLOTS].slots[i % SLOTS]);
    for (unsigned i = 0; i < MAILBOXES; i++) {
        struct block *b = atomic_load_explicit(&mail[i], memory_order_acquire);
        if (b->ptr)
            release(&lanes[0], b);
    }
    for (unsigned i = 0; i < COUNT(windows) * WINDOW; i++)
        if (windows[i / WINDOW].cells[i % WINDOW].ptr)
            in_windows += clear(&windows[i / WINDOW].cells[i % WINDOW]);
    check_books(count);
}

int main(int argc, char **argv)
{
    unsigned seconds = argc > 3 ? (unsigned)atoi(argv[1]) : 0, count = argc > 3 ? (unsigned)atoi(argv[2]) : 0;
    if (!seconds || !count || count > MAX_LANES || argc == 5)
        die("usage: soak SECONDS LANES SEED [--long OPERATIONS]");
    if (argc > 5 && (!getenv("STRESS_LONG") || strcmp(getenv("STRESS_LONG"), "1")))
        skip("set STRESS_LONG=1 to run it");
    start(count, strtoull(argv[3], NULL, 10));
    interrupt_every(SIGNAL_US);
    oversee(seconds, argc > 5 ? strtoull(argv[5], NULL, 10) : 0, count, strtoull(argv[3], NULL, 10));
    finish(count);
    uint64_t operations = operations_of(count), refused = 0, births = 0;
    for (unsigned i = 0; i < count; i++) {
        refused += lanes[i].refused;
        births += lanes[i].births;
    }
    if (!operations || births <= count || !signals)
        stress_fail("soak: it did not happen");
    printf("%zu operations, %zu refused, %zu threads, %d signals: every block kept its place and its content\n",
           (size_t)operations, (size_t)refused, (size_t)births, (int)signals);
    return 0;
}
