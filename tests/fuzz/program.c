/* SPDX-License-Identifier: MIT
 * See program.h. The first byte gives the number of threads, and whether the kernel may refuse; each call is one byte
 * for the function and the thread, followed by its arguments. Bytes beyond the end count as zero. */
#include "program.h"

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "core/process/report.h"
#include "fake_os.h"
#include "hakmem.h"
#include "shadow.h"

enum {
    SLOTS = 4096,
    SLOT_STEP = 16, /* a byte names one of 256 slots, which are this far apart; a burst fills the slots between */
    THREADS = 4,
    EDGE = 256,       /* bytes at both ends of a block that all carry its pattern; */
    SPARSE = 1 << 14, /* between them one byte in so many */
    ENDING = 18,      /* the call by which a thread ends */
    EXACT_MAX = 3000, /* up to here the usable size follows from the request alone: no class fallback */
};
#define LIVE_MAX (512 * MIB)

struct slot {
    unsigned char *ptr; /* NULL: none */
    size_t size, usable, align;
    unsigned char key;
    bool exact;
};

static struct slot slots[SLOTS];
static size_t live_bytes;
static unsigned char next_key;
static bool may_fail; /* the kernel refuses calls */
static struct fuzz_trace *trace;
static const uint8_t *at, *end;

static uint8_t next_byte(void)
{
    return at < end ? *at++ : 0;
}

/* Sizes: small ones, those around each power of two, up to the sizes of direct mappings, and absurd ones. */
static size_t next_size(void)
{
    size_t a = next_byte(), b = next_byte(), wide = (a & 31) << 8 | b;
    switch (a >> 5) {
    case 0:
        return b;
    case 1:
        return wide;
    case 2:
        return ((size_t)16 << (a & 15)) + b - 128;
    case 3:
        return wide * 16;
    case 4:
        return wide * KIB;
    case 5:
        return ((a & 31) + 1) * MIB + b * 4 * KIB;
    case 6:
        return (a & 31) * 8 + (b & 7);
    default:
        return a & 1 ? SIZE_MAX - b : a & 2 ? (size_t)PTRDIFF_MAX + 1 + b : ((size_t)1 << 47) + b;
    }
}

static bool absurd(size_t size)
{
    return size >= (size_t)1 << 46;
}

/* Programs stay within a bound of memory that every machine has. */
static size_t bounded(size_t size)
{
    return absurd(size) || live_bytes + size <= LIVE_MAX ? size : size % 4096;
}

/* --- blocks ------------------------------------------------------------------------------------------ */

static size_t after(const struct slot *s, size_t i)
{
    size_t tail = s->usable > EDGE ? s->usable - EDGE : 0;
    return i < EDGE || i >= tail ? i + 1 : i + SPARSE < tail ? i + SPARSE : tail;
}

static unsigned char pattern(const struct slot *s, size_t i)
{
    return (unsigned char)(s->key + i + (i >> 8));
}

static void fill(const struct slot *s)
{
    for (size_t i = 0; i < s->usable; i = after(s, i))
        s->ptr[i] = pattern(s, i);
}

static void verify(const struct slot *s, const unsigned char *ptr, size_t size)
{
    for (size_t i = 0; i < size; i = after(s, i))
        if (ptr[i] != pattern(s, i))
            stress_fail("fuzz: block %p of %zu (%zu usable) changed at %zu", (const void *)ptr, s->size, s->usable, i);
}

static void answer(bool given, size_t usable)
{
    if (trace->length < sizeof trace->answers / sizeof *trace->answers)
        trace->answers[trace->length++] = (struct fuzz_answer){given, (uint32_t)usable};
}

/* Stores the result of a call in an empty slot. */
static void adopt(struct slot *s, void *ptr, size_t size, size_t align, bool exact)
{
    answer(ptr != NULL, ptr && exact ? hakmem_malloc_usable_size(ptr) : 0);
    if (!ptr) {
        if (!absurd(size) && !may_fail)
            stress_fail("fuzz: %zu bytes aligned to %zu refused", size, align);
        return;
    }
    if (absurd(size) || (uintptr_t)ptr % align || (uintptr_t)ptr % 16)
        stress_fail("fuzz: %p for %zu bytes aligned to %zu", ptr, size, align);
    *s = (struct slot){ptr, size, hakmem_malloc_usable_size(ptr), align, next_key += 37, exact};
    if (s->usable < size)
        stress_fail("fuzz: %p: %zu bytes asked for, %zu usable", ptr, size, s->usable);
    live_bytes += size;
    shadow_claim(ptr, s->usable);
    fill(s);
}

/* Checks the content of the block and removes it from the model. */
static void leave(struct slot *s)
{
    verify(s, s->ptr, s->usable);
    shadow_release(s->ptr, s->usable);
    live_bytes -= s->size;
}

static void release(struct slot *s, unsigned how)
{
    if (!s->ptr)
        return;
    leave(s);
    errno = EDOM;
    if (how == 1)
        hakmem_free_sized(s->ptr, s->size);
    else if (how == 2)
        hakmem_free_aligned_sized(s->ptr, s->align, s->size);
    else
        hakmem_free(s->ptr);
    if (errno != EDOM)
        stress_fail("fuzz: free(%p) set errno to %d", (void *)s->ptr, errno);
    s->ptr = NULL;
}

static void expect_errno(const void *p, int error)
{
    if (!p && errno != error)
        stress_fail("fuzz: NULL with errno %d, not %d", errno, error);
}

/* --- the calls ----------------------------------------------------------------------------------------- */

static struct slot *next_slot(void)
{
    return &slots[next_byte() * SLOT_STEP];
}

static void do_malloc(void)
{
    struct slot *s = next_slot();
    size_t size = bounded(next_size());
    if (s->ptr)
        return;
    void *p = hakmem_malloc(size);
    expect_errno(p, ENOMEM);
    adopt(s, p, size, 16, size <= EXACT_MAX);
}

static void do_calloc(void)
{
    struct slot *s = next_slot();
    size_t size = bounded(next_size()), count = next_byte() % 4 + 1u;
    if (s->ptr)
        return;
    unsigned char *p = hakmem_calloc(count, size / count);
    expect_errno(p, ENOMEM);
    size = size / count * count;
    for (size_t i = 0; p && i<size; i += size> MIB && i >= 4 * KIB ? 509 : 1)
        if (p[i] || p[size - 1 - i])
            stress_fail("fuzz: calloc of %zu gave %p, not zero at %zu from an end", size, (void *)p, i);
    adopt(s, p, size, 16, size <= EXACT_MAX);
}

/* count and size whose product does not fit. */
static void do_overflow(void)
{
    struct slot *s = next_slot();
    size_t size = next_size() | 2, count = SIZE_MAX / size + 1 + next_byte() % 16;
    void *p = s->ptr ? hakmem_reallocarray(s->ptr, count, size) : hakmem_calloc(count, size);
    expect_errno(p, ENOMEM);
    if (p)
        stress_fail("fuzz: %zu times %zu bytes gave %p", count, size, p);
}

static void resize(struct slot *s, size_t size, size_t count)
{
    struct slot old = *s;
    if (old.ptr) {
        verify(&old, old.ptr, old.usable);
        shadow_release(old.ptr, old.usable);
    }
    unsigned char *p = count == 1 ? hakmem_realloc(old.ptr, size) : hakmem_reallocarray(old.ptr, count, size / count);
    size = size / count * count;
    if (!p && old.ptr && size) { /* untouched */
        expect_errno(p, ENOMEM);
        answer(false, 0);
        if (!absurd(size) && !may_fail)
            stress_fail("fuzz: realloc to %zu bytes refused", size);
        shadow_claim(old.ptr, old.usable);
        verify(&old, old.ptr, old.usable);
        return;
    }
    live_bytes -= old.ptr ? old.size : 0;
    s->ptr = NULL;
    if (old.ptr && !size) {
        if (p)
            stress_fail("fuzz: realloc of %p to nothing gave %p", (void *)old.ptr, (void *)p);
        return;
    }
    if (p && old.ptr)
        verify(&old, p, size < old.size ? size : old.size);
    adopt(s, p, size, 16, size <= EXACT_MAX && (!old.ptr || old.exact));
}

static void do_realloc(void)
{
    struct slot *s = next_slot();
    resize(s, bounded(next_size()), 1);
}

/* To a similar size, as programs do. */
static void do_grow(void)
{
    struct slot *s = next_slot();
    size_t by = next_byte();
    resize(s, bounded(by & 1 ? s->size + s->size * by / 256 : s->size - s->size * by / 256), 1);
}

static void do_reallocarray(void)
{
    struct slot *s = next_slot();
    size_t size = bounded(next_size());
    resize(s, size, next_byte() % 7 + 1u);
}

/* Most alignments are powers of two. */
static size_t next_align(void)
{
    unsigned b = next_byte();
    return b < 0xe0 ? (size_t)1 << b % 24 : b < 0xf0 ? b : (size_t)1 << (b - 0xf0 + 48);
}

static bool is_power(size_t n)
{
    return n && !(n & (n - 1));
}

static void do_aligned(unsigned kind)
{
    struct slot *s = next_slot();
    size_t size = bounded(next_size()), align = next_align(), page = 4096;
    void *p = NULL;
    if (s->ptr)
        return;
    if (kind == 0) {
        p = hakmem_aligned_alloc(align, size);
        expect_errno(p, is_power(align) ? ENOMEM : EINVAL);
    } else if (kind == 1) {
        p = hakmem_memalign(align, size);
        expect_errno(p, align > (size_t)PTRDIFF_MAX + 1 ? EINVAL : ENOMEM);
    } else if (kind == 2) {
        int error = hakmem_posix_memalign(&p, align, size);
        if (!error != !!p || (error && error != (is_power(align) && align % sizeof p == 0 ? ENOMEM : EINVAL)))
            stress_fail("fuzz: posix_memalign(%zu, %zu) gave %d, %p", align, size, error, p);
    } else {
        align = page;
        p = kind == 3 ? hakmem_valloc(size) : hakmem_pvalloc(size);
        expect_errno(p, ENOMEM);
    }
    bool refusable = !is_power(align) || align % sizeof p || align > 1024 * MIB;
    if (p || !refusable)
        adopt(s, p, size, is_power(align) ? align : 16, size <= EXACT_MAX && align <= page);
}

/* Allocates many blocks of one size, or frees many, in the order of the slots or in reverse. */
static void do_burst(void)
{
    size_t first = next_byte() * SLOT_STEP, count = (next_byte() + 1u) * SLOT_STEP, size = next_size() % (16 * KIB);
    for (size_t i = 0; i < count; i++) {
        struct slot *s = &slots[(first + i) % SLOTS];
        size_t fit = bounded(size);
        if (!s->ptr)
            adopt(s, hakmem_malloc(fit), fit, 16, fit <= EXACT_MAX);
    }
}

static void do_sweep(void)
{
    size_t first = next_byte() * SLOT_STEP, count = (next_byte() + 1u) * SLOT_STEP, how = next_byte();
    for (size_t i = 0; i < count; i += 1 + (how >> 4))
        release(&slots[(how & 1 ? first + i : first + count - 1 - i) % SLOTS], 0);
}

static void do_look(void)
{
    const struct slot *s = next_slot();
    if (hakmem_malloc_usable_size(s->ptr) != (s->ptr ? s->usable : 0))
        stress_fail("fuzz: %p: usable size changed from %zu", (void *)s->ptr, s->usable);
    if (s->ptr)
        verify(s, s->ptr, s->usable);
}

static void do_ask(void)
{
    static FILE *nowhere;
    unsigned what = next_byte();
    if (!nowhere)
        nowhere = fopen("/dev/null", "w");
    struct hakmem_mallinfo2 info = hakmem_mallinfo2();
    if (info.uordblks > info.arena + LIVE_MAX || hakmem_mallopt((int)what, 1) > 1)
        stress_fail("fuzz: mallinfo2: %zu of %zu bytes in use", info.uordblks, info.arena);
    if (hakmem_malloc_info(what & 1, nowhere) != (what & 1 ? EINVAL : 0) || hakmem_stats(fileno(nowhere), what & 2))
        stress_fail("fuzz: malloc_info or stats failed");
}

static void do_give_back(void)
{
    size_t keep = next_size();
    errno = EDOM;
    if (keep & 1)
        hakmem_trim(keep);
    else
        hakmem_malloc_trim(keep);
    if (errno != EDOM)
        stress_fail("fuzz: trim set errno to %d", errno);
}

static void do_refuse(void)
{
    unsigned nth = next_byte();
    if (!may_fail)
        return;
    if (nth)
        fake_os_refuse_any(nth, ENOMEM, nth & 1);
    else
        fake_os_allow();
}

static void do_aligned_alloc(void)
{
    do_aligned(0);
}

static void do_memalign(void)
{
    do_aligned(1);
}

static void do_posix_memalign(void)
{
    do_aligned(2);
}

static void do_page_aligned(void)
{
    do_aligned(3 + next_byte() % 2u);
}

static void do_free(void)
{
    release(next_slot(), 0);
}

static void do_free_sized(void)
{
    release(next_slot(), 1);
}

static void do_free_aligned_sized(void)
{
    release(next_slot(), 2);
}

static void do_pass(void)
{
    fake_os_pass(next_byte() * 8u);
}

/* Calls by their numbers in a program. */
static void (*const calls[])(void) = {
    do_malloc,
    do_malloc,
    do_calloc,
    do_realloc,
    do_grow,
    do_reallocarray,
    do_aligned_alloc,
    do_memalign,
    do_posix_memalign,
    do_page_aligned,
    do_free,
    do_free_sized,
    do_free_aligned_sized,
    do_burst,
    do_sweep,
    do_look,
    do_give_back,
    do_pass,
    [ENDING] = NULL,
    do_ask,
    do_refuse,
};

static void call(unsigned what)
{
    if (what < sizeof calls / sizeof *calls)
        calls[what]();
    else
        do_overflow();
}

/* --- threads: one at a time, when the program says so ---------------------------------------------------- */

static struct worker {
    pthread_t thread;
    sem_t turn, done;
    unsigned what;
    bool alive;
} workers[THREADS];

static void *work(void *arg)
{
    struct worker *w = arg;
    for (;;) {
        while (sem_wait(&w->turn))
            ;
        bool ends = w->what == ENDING;
        if (!ends)
            call(w->what);
        sem_post(&w->done);
        if (ends)
            return NULL;
    }
}

static void pass_to(struct worker *w, unsigned what)
{
    if (!w->alive) {
        if (what == ENDING)
            return;
        sem_init(&w->turn, 0, 0);
        sem_init(&w->done, 0, 0);
        if (pthread_create(&w->thread, NULL, work, w))
            stress_fail("fuzz: no thread");
        w->alive = true;
    }
    w->what = what;
    sem_post(&w->turn);
    while (sem_wait(&w->done))
        ;
    if (what == ENDING) {
        pthread_join(w->thread, NULL);
        w->alive = false;
    }
}

/* --- a whole program ---------------------------------------------------------------------------------------- */

void fuzz_start(void)
{
    fake_os_install();
    hakmem_free(hakmem_malloc(1));
}

/* Frees everything, so that the next program starts from the same state. */
static void clean_up(unsigned threads)
{
    struct hak_census census;
    fake_os_allow();
    for (size_t i = 0; i < SLOTS; i++)
        release(&slots[i], 0);
    for (unsigned i = 1; i < threads; i++)
        pass_to(&workers[i], ENDING);
    hak_stats_census(&census);
    if (census.violations)
        stress_fail("fuzz: %zu conservation laws broken", (size_t)census.violations);
    fake_os_pass(100000);
    hakmem_trim(0);
}

int fuzz_run(const uint8_t *bytes, size_t size, struct fuzz_trace *out)
{
    at = bytes;
    end = bytes + size;
    trace = out;
    trace->length = 0;
    unsigned mode = next_byte(), threads = mode % THREADS + 1;
    may_fail = mode & 4;
    while (at < end) {
        unsigned op = next_byte(), who = (op >> 5) % threads, what = op & 31;
        if (who)
            pass_to(&workers[who], what);
        else if (what != ENDING)
            call(what);
    }
    clean_up(threads);
    return !may_fail;
}
