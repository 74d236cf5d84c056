/* SPDX-License-Identifier: MIT
 * See fake_os.h. */
#include "fake_os.h"

#include <sys/mman.h>
#include <unistd.h>

#include "core/base/log.h"

struct refusal {
    _Atomic(long) left; /* calls that still pass; negative: none is refused */
    _Atomic(int) error;
    bool onwards;
};

static struct fake_calls count;
static struct refusal refusals[HAK_NOSCALLS], refuse_any;
static size_t map_limit = SIZE_MAX, vector_most = SIZE_MAX;
static int vector_error, place_error;
static _Atomic(uint64_t) now_ms = 1000000;
static _Atomic(size_t) huge_bytes;
static struct iovec kept_small;
static _Atomic(uint64_t) clock_now, clock_step = 100;
static _Atomic(uint64_t) late_ms[HAK_NOSCALLS];
static _Thread_local int64_t skew_ms;
static uintptr_t locked[16];
static unsigned locked_count;

static int refused_by(struct refusal *r)
{
    int error = r->error;
    if (!error || (r->left > 0 && --r->left > 0))
        return 0;
    if (!r->onwards)
        r->error = 0;
    return error;
}

/* Enters a call; its error if it is to be refused, else 0. */
static int arrive(enum hak_os_call call)
{
    count.calls[call]++;
    now_ms += late_ms[call];
    int error = refused_by(&refusals[call]);
    if (!error && call != HAK_OS_prctl)
        error = refused_by(&refuse_any);
    return error;
}

static intptr_t leave(enum hak_os_call call, size_t size, intptr_t result)
{
    if (result < 0 && result > -4096)
        count.failed[call]++;
    else
        count.bytes[call] += size;
    return result;
}

#define PASS(call, size, real)          \
    int error_ = arrive(HAK_OS_##call); \
    return leave(HAK_OS_##call, size, error_ ? -error_ : (real))

static intptr_t fake_map(void *hint, size_t size, int prot, int flags)
{
    PASS(mmap, size,
         hint && place_error ? -place_error
         : size > map_limit  ? -ENOMEM
                             : hak_os_linux.map(hint, size, prot, flags));
}

static intptr_t fake_unmap(void *addr, size_t size)
{
    PASS(munmap, size, hak_os_linux.unmap(addr, size));
}

static intptr_t fake_protect(void *addr, size_t size, int prot)
{
    PASS(mprotect, size, hak_os_linux.protect(addr, size, prot));
}

static intptr_t fake_remap(void *addr, size_t old_size, size_t new_size, int flags, void *to)
{
    PASS(mremap, new_size, new_size > map_limit ? -ENOMEM : hak_os_linux.remap(addr, old_size, new_size, flags, to));
}

/* The lowest locked address in the range, or 0. */
static uintptr_t locked_in(uintptr_t begin, size_t size)
{
    uintptr_t lowest = 0;
    for (unsigned i = 0; i < locked_count; i++)
        if (locked[i] - begin < size && (!lowest || locked[i] < lowest))
            lowest = locked[i];
    return lowest;
}

/* Like the kernel: mapping by mapping, up to the locked page, which is a mapping of its own. */
static size_t long_page; /* 0: the machine's */

/* The kernel treats a part of a page as the whole page. */
static intptr_t advise(void *addr, size_t size, int advice)
{
    if (long_page && (uintptr_t)addr % long_page)
        return -EINVAL;
    size = long_page ? hak_align_up(size, long_page) : size;
    uintptr_t begin = (uintptr_t)addr, page = advice == MADV_HUGEPAGE ? 0 : locked_in(begin, size);
    if (!page)
        return hak_os_linux.advise(addr, size, advice);
    if (page > begin)
        hak_os_linux.advise(addr, page - begin, advice);
    return -EINVAL;
}

static void (*_Atomic before_advice)(void);

static void call_before_advice(void)
{
    void (*fn)(void) = before_advice;
    if (fn)
        fn();
}

static intptr_t fake_advise(void *addr, size_t size, int advice)
{
    if (advice != MADV_HUGEPAGE && advice != MADV_NOHUGEPAGE)
        call_before_advice();
    huge_bytes += advice == MADV_HUGEPAGE ? size : 0;
    if (advice == MADV_NOHUGEPAGE)
        kept_small = (struct iovec){addr, size};
    PASS(madvise, size, advise(addr, size, advice));
}

static size_t total(const struct iovec *ranges, size_t n)
{
    size_t bytes = 0;
    for (size_t i = 0; i < n; i++)
        bytes += ranges[i].iov_len;
    return bytes;
}

static intptr_t advise_each(const struct iovec *ranges, size_t n, int advice)
{
    size_t done = 0;
    n = hak_min(n, vector_most);
    while (done < n && !advise(ranges[done].iov_base, ranges[done].iov_len, advice))
        done++;
    return n && !done ? -EINVAL : (intptr_t)total(ranges, done);
}

static intptr_t fake_advise_vector(const struct iovec *ranges, size_t n, int advice)
{
    call_before_advice();
    PASS(process_madvise, total(ranges, n), vector_error ? -vector_error : advise_each(ranges, n, advice));
}

static intptr_t fake_resident(void *addr, size_t size, unsigned char *each_page)
{
    PASS(mincore, size, hak_os_linux.resident(addr, size, each_page));
}

static intptr_t fake_name(void *addr, size_t size, const char *name)
{
    (void)addr, (void)name;
    PASS(prctl, size, 0);
}

static uint64_t fake_clock_ns(void)
{
    return atomic_fetch_add(&clock_now, clock_step);
}

static const struct hak_os fake = {
    .map = fake_map,
    .unmap = fake_unmap,
    .protect = fake_protect,
    .remap = fake_remap,
    .advise = fake_advise,
    .advise_vector = fake_advise_vector,
    .resident = fake_resident,
    .name = fake_name,
    .clock_ns = fake_clock_ns,
};

void fake_os_install(void)
{
    hak_os = &fake;
}

struct fake_calls fake_os_calls(void)
{
    return count;
}

uint64_t fake_os_count(enum hak_os_call call)
{
    return count.calls[call];
}

uint64_t fake_os_total(void)
{
    uint64_t n = 0;
    for (unsigned i = 0; i < HAK_NOSCALLS; i++)
        n += count.calls[i];
    return n;
}

struct iovec fake_os_kept_small(void)
{
    return kept_small;
}

size_t fake_os_huge_bytes(void)
{
    return huge_bytes;
}

static void set(struct refusal *r, unsigned nth, int error, bool onwards)
{
    r->left = (long)nth;
    r->onwards = onwards;
    r->error = error;
}

void fake_os_refuse(enum hak_os_call call, unsigned nth, int error, bool onwards)
{
    set(&refusals[call], nth, error, onwards);
}

void fake_os_refuse_any(unsigned nth, int error, bool onwards)
{
    set(&refuse_any, nth, error, onwards);
}

void fake_os_allow(void)
{
    for (unsigned i = 0; i < HAK_NOSCALLS; i++) {
        refusals[i].error = 0;
        late_ms[i] = 0;
    }
    refuse_any.error = 0;
    map_limit = SIZE_MAX;
    fake_os_unlock_pages();
    place_error = 0;
}

void fake_os_limit_maps(size_t bytes)
{
    map_limit = bytes;
}

void fake_os_refuse_places(int error)
{
    place_error = error;
}

void fake_os_vector(int error, size_t most)
{
    vector_error = error;
    vector_most = most;
}

void fake_os_lock_page(const void *at)
{
    HAK_CHECK(locked_count < sizeof locked / sizeof *locked);
    locked[locked_count++] = (uintptr_t)at & ~(hak_os_page_size() - 1);
}

void fake_os_unlock_pages(void)
{
    locked_count = 0;
}

void fake_os_before_advice(void (*fn)(void))
{
    before_advice = fn;
}

void fake_os_late(enum hak_os_call call, uint64_t ms)
{
    late_ms[call] = ms;
}

void fake_os_pass(uint64_t ms)
{
    now_ms += ms;
}

void fake_os_long_pages(size_t size)
{
    long_page = size;
}

size_t __wrap_hak_os_page_size(void);
size_t __wrap_hak_os_page_size(void)
{
    return long_page ? long_page : (size_t)sysconf(_SC_PAGESIZE);
}

uint64_t __wrap_hak_clock_ms(void);
uint64_t __wrap_hak_clock_ms(void)
{
    return now_ms + (uint64_t)skew_ms;
}

void fake_os_skew(int64_t ms)
{
    skew_ms = ms;
}

void fake_os_clock(uint64_t step_ns)
{
    clock_step = step_ns;
}
