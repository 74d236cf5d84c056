/* SPDX-License-Identifier: MIT
 * libhakmem-trace.so: records what a program asks of its allocator. It is preloaded before the allocator, whichever
 * that is, defines the names of malloc, hands each call on, and under HAKMEM_TRACE=FILE writes an event of it
 * (format.h). A thread writes to a chunk of the file that is mapped: it takes a lock and calls the kernel only for a
 * new chunk. A block is freed after its event has its number, and the event of an allocation gets its number after the
 * call. So the numbers give the order of all events of an address. Nothing here allocates, is a cancellation point, or
 * changes errno. No thread waits for itself, or for another one without end: the event counts as lost. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "format.h"

/* The kernel's numbers, where no header of it is. */
enum { LOCK_PI_PRIVATE = 6 | 128, UNLOCK_PI_PRIVATE = 7 | 128, LOCK_PI2_PRIVATE = 13 | 128, TID_MASK = 0x3fffffff };

#define EXPORT __attribute__((visibility("default")))
#define LIKELY(x) __builtin_expect(!!(x), 1)
#define UNLIKELY(x) __builtin_expect(!!(x), 0)
#define LOAD(p) __atomic_load_n(p, __ATOMIC_RELAXED)
#define STORE(p, v) __atomic_store_n(p, v, __ATOMIC_RELAXED)
#define ADD(p, n) __atomic_fetch_add(p, n, __ATOMIC_RELAXED)

/* libhakmem.so's hook (src/core/base/observer.h): with HAKMEM_TRACE it reports if there is no recorder. */
EXPORT extern const struct hak_observer {
    int (*set)(size_t value);
} hak_observer_trace;
const struct hak_observer hak_observer_trace = {NULL};

/* --- the allocator behind this library ------------------------------------------------------------------- */

static struct {
    void *(*malloc)(size_t);
    void *(*calloc)(size_t, size_t);
    void *(*realloc)(void *, size_t);
    int (*posix_memalign)(void **, size_t, size_t);
    void *(*aligned_alloc)(size_t, size_t);
    void *(*memalign)(size_t, size_t);
    void *(*valloc)(size_t);
    void *(*pvalloc)(size_t);
    size_t (*malloc_usable_size)(void *);
    void (*free)(void *);
} next;

/* Memory for dlsym itself while it looks up the names. */
static _Alignas(16) char early[8192];
static size_t early_used;

static bool is_early(const void *p)
{
    return (uintptr_t)p - (uintptr_t)early < sizeof early;
}

static void *early_alloc(size_t size)
{
    size_t at = ADD(&early_used, (size + 31) & ~(size_t)15);
    if (at > sizeof early || size > sizeof early - at - 16)
        return NULL;
    memcpy(early + at, &size, sizeof size); /* for realloc */
    return early + at + 16;
}

static void find(void *into, const char *name)
{
    void *found = dlsym(RTLD_NEXT, name);
    memcpy(into, &found, sizeof found);
}

static __thread bool finding __attribute__((tls_model("initial-exec")));

/* `free` comes last: a thread that finds it finds all. Threads that come here together find the same. */
static void find_next(void)
{
    finding = true;
    int saved = errno;
    find(&next.malloc, "malloc");
    find(&next.calloc, "calloc");
    find(&next.realloc, "realloc");
    find(&next.posix_memalign, "posix_memalign");
    find(&next.aligned_alloc, "aligned_alloc");
    find(&next.memalign, "memalign");
    find(&next.valloc, "valloc");
    find(&next.pvalloc, "pvalloc");
    find(&next.malloc_usable_size, "malloc_usable_size");
    void (*last)(void *);
    find(&last, "free");
    __atomic_store_n(&next.free, last, __ATOMIC_RELEASE);
    errno = saved;
    finding = false;
}

/* False while this thread looks them up. */
static bool ready(void)
{
    if (LIKELY(__atomic_load_n(&next.free, __ATOMIC_ACQUIRE) != NULL))
        return true;
    if (finding)
        return false;
    find_next();
    return true;
}

/* --- the file and its writers ---------------------------------------------------------------------------- */

/* A chunk that is being written, and the values to which the next event is relative. */
struct writer {
    char *chunk, *at, *end;
    uint64_t number, time, address;
    struct writer *free; /* the next writer without a thread */
    uint32_t thread;     /* who wrote last */
    uint32_t generation;
    bool busy; /* a signal's handler that allocates finds it so, and its event is lost */
};

enum state { UNKNOWN, OFF, ON };

static struct {
    enum state state;
    int fd;
    struct trace_header *header;
    uint32_t generation; /* of this process: a child of a fork has a file, writers and threads of its own */
    struct writer *free;
    struct writer *unmade, *unmade_end;
    bool full;
    char pattern[4096], path[4096 + 16];
} file;

/* In a page that the kernel clears in a child, however it forks: there the lock is free, and no thread's generation
 * matches. */
struct own {
    uint32_t lock;       /* of file.free, file.unmade, and of opening: the kernel's id of the thread that has it */
    uint32_t stuck;      /* a thread waited in vain: others do not wait until the lock is released */
    uint32_t generation; /* 0: no file yet */
    uint64_t lost;       /* events without the lock, until it is released */
};
static struct own none_yet, *own = &none_yet;

/* A thread's own. `writer` counts where the generation is the process's. */
static __thread struct {
    struct writer *writer;
    uint32_t generation;
    uint32_t number; /* plus one */
    bool ended;      /* its key's destructor ran: it borrows a writer for each event */
} self __attribute__((tls_model("initial-exec")));

static pthread_key_t key;
static bool have_key;

static uint64_t now(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static bool wait_for_lock(int call, clockid_t clock)
{
    struct timespec until;
    clock_gettime(clock, &until);
    until.tv_sec++;
    return syscall(SYS_futex, &own->lock, call, 0, &until) == 0;
}

/* False if this thread already has the lock, so that this is a signal handler, or if another thread holds it for a
 * second. While a thread waits, the one that has it runs at its priority. Before Linux 5.14 the second ends by the
 * clock that an administrator may set. */
static bool lock(void)
{
    uint32_t had = 0, thread = (uint32_t)syscall(SYS_gettid);
    if (__atomic_compare_exchange_n(&own->lock, &had, thread, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
        return true;
    if ((had & TID_MASK) == thread || LOAD(&own->stuck))
        return false;
    if (wait_for_lock(LOCK_PI2_PRIVATE, CLOCK_MONOTONIC) ||
        (errno == ENOSYS && wait_for_lock(LOCK_PI_PRIVATE, CLOCK_REALTIME)))
        return true;
    STORE(&own->stuck, 1);
    return false;
}

/* In the child of a handler that forked while this thread had the lock, it is free. */
static void unlock(void)
{
    uint32_t thread = (uint32_t)syscall(SYS_gettid);
    if (LOAD(&file.state) == ON && LOAD(&own->generation))
        ADD(&file.header->lost, __atomic_exchange_n(&own->lost, 0, __ATOMIC_RELAXED));
    STORE(&own->stuck, 0);
    if (!__atomic_compare_exchange_n(&own->lock, &thread, 0, false, __ATOMIC_RELEASE, __ATOMIC_RELAXED) && thread)
        syscall(SYS_futex, &own->lock, UNLOCK_PI_PRIVATE);
}

static void *map_private(size_t size)
{
    void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return p == MAP_FAILED ? NULL : p;
}

static void complain(const char *what)
{
    char line[sizeof file.path + 64];
    size_t n = 0;
    for (const char *const *part = (const char *const[]){"hakmem: HAKMEM_TRACE: ", file.path, what, "\n", NULL}; *part;
         part++)
        for (const char *c = *part; *c && n < sizeof line; c++)
            line[n++] = *c;
    syscall(SYS_write, STDERR_FILENO, line, n);
}

static char *write_decimal(char *out, char *end, uint32_t value)
{
    char digits[10];
    int n = 0;
    do
        digits[n++] = (char)('0' + value % 10);
    while (value /= 10);
    while (n && out < end)
        *out++ = digits[--n];
    return out;
}

/* FILE with %p replaced by the process's id, into file.path; returns its end. */
static char *expand(const char *pattern)
{
    char *out = file.path, *end = file.path + sizeof file.path - 16;
    for (; *pattern && out < end; pattern++) {
        if (pattern[0] == '%' && pattern[1] == 'p') {
            out = write_decimal(out, end, (uint32_t)getpid());
            pattern++;
        } else {
            *out++ = *pattern;
        }
    }
    *out = 0;
    return out;
}

/* An existing file belongs to another process, or to another program before an exec: then appends .1, .2 and so on. */
static int create(void)
{
    char *end = expand(file.pattern);
    int fd = -1;
    for (uint32_t i = 0; i < 100000; i++) {
        if (i) {
            *end = '.';
            *write_decimal(end + 1, file.path + sizeof file.path - 1, i) = 0;
        }
        fd = (int)syscall(SYS_openat, AT_FDCWD, file.path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOCTTY, 0600);
        if (fd >= 0 || errno != EEXIST)
            break;
    }
    if (fd < 0)
        return fd;
    /* A high number, since programs reuse or close low descriptors. */
    int high = fcntl(fd, F_DUPFD_CLOEXEC, 400);
    if (high < 0)
        return fd;
    syscall(SYS_close, fd);
    return high;
}

/* Maps so many bytes of the file at the offset, with disk space reserved; or returns NULL. */
static void *map_file(uint64_t offset, size_t size)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && offset + size > limit.rlim_cur)
        return NULL; /* a signal would come otherwise */
    if (syscall(SYS_fallocate, file.fd, 0, (off_t)offset, (off_t)size)) {
        if (errno != EOPNOTSUPP && errno != ENOSYS)
            return NULL;
        static const char zeros[4096]; /* the file system cannot reserve: written bytes reserve space */
        for (size_t at = 0; at < size; at += sizeof zeros)
            if (syscall(SYS_pwrite64, file.fd, zeros, sizeof zeros, (off_t)(offset + at)) != (long)sizeof zeros)
                return NULL;
    }
    void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, file.fd, (off_t)offset);
    return p == MAP_FAILED ? NULL : p;
}

static void give_back(void)
{
    struct writer *w = self.writer;
    self.writer = NULL;
    if (lock()) {
        w->free = file.free;
        file.free = w;
        unlock();
    }
}

static bool has_writer(void)
{
    return LIKELY(self.writer != NULL) && LIKELY(self.generation == LOAD(&own->generation));
}

static void end_thread(void *writer)
{
    (void)writer;
    self.ended = true;
    if (has_writer())
        give_back();
    self.writer = NULL;
}

/* False if there can be no trace, after a line if one is requested. */
static bool has_own_page(void)
{
    struct own *none = &none_yet;
    if (LIKELY(LOAD(&own) != none))
        return true;
    struct own *page = map_private(sizeof *page);
    if (!page || madvise(page, sizeof *page, MADV_WIPEONFORK)) {
        STORE(&file.state, OFF);
        if (secure_getenv("HAKMEM_TRACE"))
            complain("there is no memory, or no MADV_WIPEONFORK, which is of Linux 4.14");
        return false;
    }
    if (!__atomic_compare_exchange_n(&own, &none, page, false, __ATOMIC_RELEASE, __ATOMIC_RELAXED))
        munmap(page, sizeof *page);
    return true;
}

/* Resets the state that a child inherits from its parent, which other threads may have been changing. Each thing goes
 * once: a handler may fork in here, too. */
static void forget_parent(void)
{
    int fd = file.fd;
    struct trace_header *header = file.header;
    struct writer *w = self.writer;
    file.fd = -1;
    file.header = NULL;
    self.writer = NULL;
    file.unmade = file.unmade_end = NULL;
    if (fd >= 0)
        syscall(SYS_close, fd);
    if (header)
        munmap(header, header->header_bytes);
    if (w && w->chunk && !w->busy)
        munmap(w->chunk, TRACE_CHUNK);
}

static bool make_file(void)
{
    if (!have_key)
        have_key = pthread_key_create(&key, end_thread) == 0;
    file.fd = create();
    if (file.fd < 0) {
        complain(": cannot be created; name a file in a folder that is there");
        return false;
    }
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    struct trace_header *h = file.header = map_file(0, page);
    if (!h) {
        complain(": there is no room for it");
        syscall(SYS_close, file.fd);
        return false;
    }
    h->version = TRACE_VERSION;
    h->header_bytes = (uint32_t)page;
    h->chunk_bytes = TRACE_CHUNK;
    h->time_shift = TRACE_TIME_SHIFT;
    h->pid = (uint32_t)getpid();
    h->parent = (uint32_t)getppid();
    h->began = now(CLOCK_MONOTONIC);
    h->began_day = now(CLOCK_REALTIME);
    if (program_invocation_short_name)
        strncpy(h->program, program_invocation_short_name, sizeof h->program - 1);
    memcpy(h->magic, TRACE_MAGIC, sizeof h->magic);
    file.free = NULL;
    file.full = false;
    return true;
}

/* The caller holds the lock: opens the file of this process, if one is requested. */
static void open_file(void)
{
    enum state state = LOAD(&file.state);
    if (state == ON) {
        forget_parent();
    } else {
        const char *asked = secure_getenv("HAKMEM_TRACE");
        if (asked && strlen(asked) < sizeof file.pattern)
            strcpy(file.pattern, asked);
    }
    STORE(&file.state, file.pattern[0] && make_file() ? ON : OFF);
    if (LOAD(&file.state) == ON)
        STORE(&own->generation, ++file.generation);
}

/* A new chunk for the writer, of this thread from now on. After the first failure, nothing more is recorded. */
static bool next_chunk(struct writer *w)
{
    if (w->chunk)
        munmap(w->chunk, TRACE_CHUNK);
    w->chunk = w->at = w->end = NULL;
    if (!LOAD(&file.full))
        w->chunk = map_file(file.header->header_bytes + ADD(&file.header->chunks, 1) * TRACE_CHUNK, TRACE_CHUNK);
    if (!w->chunk) {
        STORE(&file.full, true);
        return false;
    }
    *(struct trace_chunk *)(void *)w->chunk = (struct trace_chunk){.thread = self.number - 1,
                                                                   .kernel_thread = (uint32_t)syscall(SYS_gettid),
                                                                   .number = w->number,
                                                                   .time = w->time,
                                                                   .address = w->address};
    w->at = w->chunk + sizeof(struct trace_chunk);
    w->end = w->chunk + TRACE_CHUNK - TRACE_EVENT_MAX;
    w->thread = self.number;
    return true;
}

static char *write_number(char *out, uint64_t n)
{
    for (; n >= 128; n >>= 7)
        *out++ = (char)(n | 128);
    *out++ = (char)n;
    return out;
}

static uint64_t zigzag(uint64_t difference)
{
    return difference << 1 ^ (uint64_t)((int64_t)difference >> 63);
}

/* The first byte last: an event that began to be written when the process was killed is none. */
static void finish(struct writer *w, char *out, unsigned op)
{
    __atomic_store_n(w->at, (char)op, __ATOMIC_RELEASE);
    w->at = out;
}

/* Under the lock: a writer without a thread, or a new one. */
static struct writer *take_writer(void)
{
    struct writer *w = file.free;
    if (w) {
        file.free = w->free;
    } else {
        if (file.unmade == file.unmade_end) {
            file.unmade = map_private(65536);
            file.unmade_end = file.unmade ? file.unmade + 65536 / sizeof *w : NULL;
            if (!file.unmade)
                return NULL;
        }
        w = file.unmade++;
    }
    if (w->generation != own->generation) /* new, or the parent's */
        *w = (struct writer){.generation = own->generation};
    return w;
}

/* The slow way to a writer: the first event of a process, of a thread, or of a child. NULL: nothing is recorded. */
static struct writer *find_writer(void)
{
    int saved = errno;
    struct writer *w = NULL;
    if (LOAD(&file.state) == OFF || !has_own_page()) {
        errno = saved;
        return NULL;
    }
    if (lock()) {
        if (LOAD(&file.state) == UNKNOWN || (LOAD(&file.state) == ON && !own->generation))
            open_file();
        if (LOAD(&file.state) == ON)
            w = take_writer();
        unlock();
    }
    if (!w || !w->generation) { /* 0: a handler forked meanwhile, and this is the child */
        ADD(&own->lost, 1);
        errno = saved;
        return NULL;
    }
    if (self.generation != w->generation) {
        self.generation = w->generation;
        self.number = 0;
    }
    if (!self.number)
        self.number = (uint32_t)ADD(&file.header->threads, 1) + 1;
    w->busy = true; /* pthread_setspecific may allocate */
    self.writer = w;
    if (have_key && !self.ended)
        pthread_setspecific(key, w);
    w->busy = false;
    errno = saved;
    return w;
}

/* Makes room for one more event; false if there is none. If another thread used the writer before, writes an event that
 * names this one. */
static bool prepare(struct writer *w)
{
    int saved = errno;
    bool room = w->at < w->end || next_chunk(w);
    errno = saved;
    if (room && w->thread != self.number) {
        char *out = write_number(w->at + 1, self.number - 1);
        out = write_number(out, (uint64_t)syscall(SYS_gettid));
        finish(w, out, TRACE_THREAD);
        w->thread = self.number;
    }
    return room;
}

static void release(struct writer *w)
{
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    w->busy = false;
    if (UNLIKELY(self.ended))
        give_back();
}

/* This thread's writer, with room for an event, which `release` releases; or NULL: then the event is counted as
 * lost. */
static struct writer *claim(void)
{
    struct writer *w = has_writer() ? self.writer : find_writer();
    if (UNLIKELY(!w))
        return NULL;
    if (LIKELY(!w->busy)) {
        w->busy = true;
        __atomic_signal_fence(__ATOMIC_SEQ_CST);
        if (LIKELY(w->at < w->end && w->thread == self.number) || prepare(w))
            return w;
        release(w);
    }
    ADD(&file.header->lost, 1);
    return NULL;
}

/* One event: what it is, its own numbers in the order of format.h, and the address that comes last. */
static void note(enum trace_op op, uint64_t began, const uint64_t *values, int count, uint64_t before,
                 const void *address)
{
    struct writer *w = claim();
    if (UNLIKELY(!w))
        return;
    uint64_t number = __atomic_fetch_add(&file.header->numbers, 1, __ATOMIC_SEQ_CST);
    uint64_t time = (now(CLOCK_MONOTONIC) - file.header->began) >> TRACE_TIME_SHIFT;
    unsigned first = op;
    char *out = w->at + 1;
    if (number - w->number == 1)
        first |= TRACE_NEXT;
    else
        out = write_number(out, number - w->number);
    out = write_number(out, time - w->time);
    if (op == TRACE_REALLOC) {
        out = write_number(out, number - began);
        out = write_number(out, zigzag((before >> TRACE_ADDRESS_SHIFT) - w->address));
        w->address = before >> TRACE_ADDRESS_SHIFT;
    }
    for (int i = 0; i < count; i++)
        out = write_number(out, values[i]);
    uint64_t a = (uint64_t)(uintptr_t)address >> TRACE_ADDRESS_SHIFT;
    out = write_number(out, zigzag(a - w->address));
    w->number = number;
    w->time = time;
    w->address = a;
    finish(w, out, first);
    release(w);
}

/* --- large blocks: how much of them was touched ------------------------------------------------------------ */

/* A bit for each hash of a large block's address, never cleared: what is not in here is not large. */
static uint64_t maybe_large[1024];

static uint64_t *large_word(const void *p, uint64_t *bit)
{
    uint64_t hash = ((uint64_t)(uintptr_t)p >> 4) * 0x9e3779b97f4a7c15 >> 48;
    *bit = (uint64_t)1 << (hash & 63);
    return &maybe_large[hash >> 6];
}

static void note_touched(const void *p)
{
    int saved = errno;
    size_t size = next.malloc_usable_size ? next.malloc_usable_size((void *)(uintptr_t)p) : 0;
    if (size >= TRACE_LARGE) {
        unsigned char pages[1024];
        size_t page = (size_t)sysconf(_SC_PAGESIZE), touched = 0;
        uintptr_t at = (uintptr_t)p & ~(page - 1), end = (uintptr_t)p + size;
        while (at < end) {
            size_t bytes = end - at < page * sizeof pages ? end - at : page * sizeof pages;
            if (mincore((void *)at, bytes, pages) == 0)
                for (size_t i = 0; i < (bytes + page - 1) / page; i++)
                    touched += (pages[i] & 1) * page;
            at += bytes;
        }
        note(TRACE_TOUCHED, 0, (uint64_t[]){touched}, 1, 0, p);
    }
    errno = saved;
}

/* Before a block is freed or moved. */
static void note_going(const void *p)
{
    uint64_t bit;
    if (UNLIKELY(LOAD(large_word(p, &bit)) & bit) && LOAD(&file.state) == ON)
        note_touched(p);
}

static void note_large(const void *p, size_t size)
{
    uint64_t bit, *word = large_word(p, &bit);
    if (size >= TRACE_LARGE)
        __atomic_fetch_or(word, bit, __ATOMIC_RELAXED);
}

static void *note_alloc(enum trace_op op, void *p, size_t size)
{
    if (LIKELY(p != NULL) && LOAD(&file.state) != OFF) {
        note_large(p, size);
        note(op, 0, (uint64_t[]){size}, 1, 0, p);
    }
    return p;
}

static void *note_aligned(void *p, size_t align, size_t size)
{
    if (LIKELY(p != NULL) && LOAD(&file.state) != OFF) {
        note_large(p, size);
        note(TRACE_ALIGNED, 0, (uint64_t[]){(uint64_t)__builtin_ctzll(align | (uint64_t)1 << 62), size}, 2, 0, p);
    }
    return p;
}

/* --- the names of malloc ----------------------------------------------------------------------------------- */

EXPORT void *malloc(size_t size)
{
    return UNLIKELY(!ready()) ? early_alloc(size) : note_alloc(TRACE_MALLOC, next.malloc(size), size);
}

EXPORT void free(void *p)
{
    if (!p || UNLIKELY(is_early(p)) || UNLIKELY(!ready()))
        return;
    if (LOAD(&file.state) != OFF) {
        note_going(p);
        note(TRACE_FREE, 0, NULL, 0, 0, p);
    }
    next.free(p);
}

EXPORT void *calloc(size_t count, size_t size)
{
    if (UNLIKELY(!ready()))
        return early_alloc(count * size); /* zeros, which are there */
    return note_alloc(TRACE_CALLOC, next.calloc(count, size), count * size);
}

EXPORT void *realloc(void *p, size_t size)
{
    if (!p)
        return malloc(size);
    if (UNLIKELY(is_early(p))) {
        size_t old;
        memcpy(&old, (char *)p - 16, sizeof old);
        void *q = malloc(size);
        return q ? memcpy(q, p, old < size ? old : size) : NULL;
    }
    if (UNLIKELY(!ready()))
        return NULL;
    /* A child counts in its own file. */
    if (LOAD(&file.state) == OFF || (UNLIKELY(!has_writer()) && !find_writer()))
        return next.realloc(p, size);
    if (size == 0) { /* a free; some allocators also return a new block */
        note(TRACE_FREE, 0, NULL, 0, 0, p);
        p = next.realloc(p, 0);
        return p ? note_alloc(TRACE_MALLOC, p, 0) : NULL;
    }
    note_going(p);
    /* Another block may have the old address before the call returns: so the number is taken first. */
    uint64_t began = __atomic_fetch_add(&file.header->numbers, 1, __ATOMIC_SEQ_CST), before = (uint64_t)(uintptr_t)p;
    void *q = next.realloc(p, size);
    if (LIKELY(q != NULL)) {
        note_large(q, size);
        note(TRACE_REALLOC, began, (uint64_t[]){size}, 1, before, q);
    }
    return q;
}

EXPORT void *reallocarray(void *p, size_t count, size_t size)
{
    size_t total;
    if (__builtin_mul_overflow(count, size, &total)) {
        errno = ENOMEM;
        return NULL;
    }
    return realloc(p, total);
}

EXPORT int posix_memalign(void **out, size_t align, size_t size)
{
    if (UNLIKELY(!ready()) || UNLIKELY(!next.posix_memalign))
        return ENOMEM;
    int error = next.posix_memalign(out, align, size);
    if (!error)
        note_aligned(*out, align, size);
    return error;
}

EXPORT void *aligned_alloc(size_t align, size_t size)
{
    if (UNLIKELY(!ready()) || UNLIKELY(!next.aligned_alloc))
        return NULL;
    return note_aligned(next.aligned_alloc(align, size), align, size);
}

EXPORT void *memalign(size_t align, size_t size);
EXPORT void *memalign(size_t align, size_t size)
{
    if (UNLIKELY(!ready()) || UNLIKELY(!next.memalign))
        return NULL;
    return note_aligned(next.memalign(align, size), align, size);
}

EXPORT void *valloc(size_t size)
{
    if (UNLIKELY(!ready()) || UNLIKELY(!next.valloc))
        return NULL;
    return note_aligned(next.valloc(size), (size_t)sysconf(_SC_PAGESIZE), size);
}

EXPORT void *pvalloc(size_t size);
EXPORT void *pvalloc(size_t size)
{
    if (UNLIKELY(!ready()) || UNLIKELY(!next.pvalloc))
        return NULL;
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    return note_aligned(next.pvalloc(size), page, (size + page - 1) & ~(page - 1));
}

EXPORT size_t malloc_usable_size(void *p);
EXPORT size_t malloc_usable_size(void *p)
{
    if (!p || is_early(p) || !ready() || !next.malloc_usable_size)
        return 0;
    return next.malloc_usable_size(p);
}

EXPORT void free_sized(void *p, size_t size);
EXPORT void free_sized(void *p, size_t size)
{
    (void)size;
    free(p);
}

EXPORT void free_aligned_sized(void *p, size_t align, size_t size);
EXPORT void free_aligned_sized(void *p, size_t align, size_t size)
{
    (void)align;
    (void)size;
    free(p);
}

/* --- operator new and delete, by the names that compilers give them --------------------------------------- */

/* Where there is no memory, the operator behind this library calls the new handler and throws. */
typedef void *new_function(size_t);
typedef void *new_aligned_function(size_t, size_t);
/* Never by its own name, or a compiler would see through it. */
static void *behind(const char *name)
{
    void *found = dlsym(RTLD_NEXT, name);
    if (!found)
        abort();
    return found;
}

#define NEW(name, plain)                                           \
    EXPORT void *name(size_t size);                                \
    EXPORT void *name(size_t size)                                 \
    {                                                              \
        void *p = malloc(size);                                    \
        if (UNLIKELY(!p)) {                                        \
            new_function *function;                                \
            void *found = behind(plain);                           \
            memcpy(&function, &found, sizeof function);            \
            return note_alloc(TRACE_MALLOC, function(size), size); \
        }                                                          \
        return p;                                                  \
    }
#define NEW_ALIGNED(name, plain)                                     \
    EXPORT void *name(size_t size, size_t align);                    \
    EXPORT void *name(size_t size, size_t align)                     \
    {                                                                \
        void *p = memalign(align, size);                             \
        if (UNLIKELY(!p)) {                                          \
            new_aligned_function *function;                          \
            void *found = behind(plain);                             \
            memcpy(&function, &found, sizeof function);              \
            return note_aligned(function(size, align), align, size); \
        }                                                            \
        return p;                                                    \
    }
#define NEW_NOTHROW(name)                            \
    EXPORT void *name(size_t size, const void *tag); \
    EXPORT void *name(size_t size, const void *tag)  \
    {                                                \
        (void)tag;                                   \
        return malloc(size);                         \
    }
#define NEW_ALIGNED_NOTHROW(name)                                  \
    EXPORT void *name(size_t size, size_t align, const void *tag); \
    EXPORT void *name(size_t size, size_t align, const void *tag)  \
    {                                                              \
        (void)tag;                                                 \
        return memalign(align, size);                              \
    }
/* Further arguments of a delete are in registers, and are not needed. */
#define DELETE(name)           \
    EXPORT void name(void *p); \
    EXPORT void name(void *p)  \
    {                          \
        free(p);               \
    }

#if __SIZEOF_SIZE_T__ == 8
NEW(_Znwm, "_Znwm")
NEW(_Znam, "_Znam")
NEW_NOTHROW(_ZnwmRKSt9nothrow_t)
NEW_NOTHROW(_ZnamRKSt9nothrow_t)
NEW_ALIGNED(_ZnwmSt11align_val_t, "_ZnwmSt11align_val_t")
NEW_ALIGNED(_ZnamSt11align_val_t, "_ZnamSt11align_val_t")
NEW_ALIGNED_NOTHROW(_ZnwmSt11align_val_tRKSt9nothrow_t)
NEW_ALIGNED_NOTHROW(_ZnamSt11align_val_tRKSt9nothrow_t)
DELETE(_ZdlPv)
DELETE(_ZdaPv)
DELETE(_ZdlPvm)
DELETE(_ZdaPvm)
DELETE(_ZdlPvRKSt9nothrow_t)
DELETE(_ZdaPvRKSt9nothrow_t)
DELETE(_ZdlPvSt11align_val_t)
DELETE(_ZdaPvSt11align_val_t)
DELETE(_ZdlPvmSt11align_val_t)
DELETE(_ZdaPvmSt11align_val_t)
DELETE(_ZdlPvSt11align_val_tRKSt9nothrow_t)
DELETE(_ZdaPvSt11align_val_tRKSt9nothrow_t)
#endif
