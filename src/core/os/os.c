/* SPDX-License-Identifier: MIT
 * The OS layer: the Linux primitives, and around each of them the ledger. See os.h. */
#include "os.h"

#include <sys/auxv.h>
#include <sys/mman.h>

#include "core/base/clock.h"
#include "core/base/kernel.h"
#include "core/base/layout.h"
#include "core/base/log.h"
#include "core/base/memcheck.h"
#include "core/base/probe.h"
#include "core/base/sealed.h"

/* Numbers of the kernel that older headers lack. */
#define FIXED_NOREPLACE 0x100000
#define SET_VMA 0x53564d41
#define SET_VMA_ANON_NAME 0
/* Thread sanitizer replaces a hint within its own range by 0; without MAP_FIXED that does no harm. */
#define MAP_THERE (HAK_SANITIZED ? 0 : FIXED_NOREPLACE)
#define PROCESS_MADVISE 440 /* the number is the same on all machines */
/* Linux 6.14: the calling process without a descriptor, hence right in a forked child too. */
#define SELF_PROCESS (-10001)
#define MAX_VECTOR 1024 /* UIO_MAXIOV */

struct hak_ledger_entry hak_ledger[HAK_NCAUSES][HAK_NOSCALLS];
struct hak_latency hak_latencies[HAK_NCAUSES];

static const char cause_names[][16] = {
#define X(name, meaning) #name,
    HAK_CAUSES(X)
#undef X
};
static const char call_names[][16] = {
#define X(name) #name,
    HAK_OS_CALLS(X)
#undef X
};

const char *hak_cause_name(enum hak_cause cause)
{
    HAK_SHOW_VARIABLE(hak_ledger);
    HAK_SHOW_VARIABLE(hak_latencies);
    HAK_SHOW_SIZE(hak_latency);
    HAK_SHOW_FIELD(hak_latency, worst_ns);
    HAK_SHOW_FIELD(hak_latency, calls);
    HAK_SHOW_NUMBER("latency_lg", HAK_LATENCY_LG);
    HAK_SHOW_SIZE(hak_ledger_entry);
    HAK_SHOW_FIELD(hak_ledger_entry, calls);
    HAK_SHOW_FIELD(hak_ledger_entry, failed);
    HAK_SHOW_FIELD(hak_ledger_entry, bytes);
    HAK_SHOW_FIELD(hak_ledger_entry, ns);
    HAK_SHOW_FIELD(hak_ledger_entry, regret_bytes);
#define X(name, meaning) HAK_SHOW_NUMBER("cause." #name, HAK_CAUSE_##name);
    HAK_CAUSES(X)
#undef X
#define X(name) HAK_SHOW_NUMBER("call." #name, HAK_OS_##name);
    HAK_OS_CALLS(X)
#undef X
    return cause_names[cause];
}

const char *hak_os_call_name(enum hak_os_call call)
{
    return call_names[call];
}

/* Thread sanitizer must know of mappings, and on s390x the call takes a pointer to its arguments. */
static intptr_t linux_map(void *hint, size_t size, int prot, int flags)
{
    flags |= MAP_PRIVATE | MAP_ANONYMOUS;
    if (HAK_OWN_MMAP)
        return HAK_SYSCALL(SYS_mmap, hint, size, prot, flags, -1);
    int saved = errno;
    void *p = mmap(hint, size, prot, flags, -1, 0);
    intptr_t result = p == MAP_FAILED ? -errno : (intptr_t)p;
    errno = saved;
    return result;
}

static intptr_t linux_unmap(void *addr, size_t size)
{
    return HAK_SYSCALL(SYS_munmap, addr, size);
}

static intptr_t linux_protect(void *addr, size_t size, int prot)
{
    return HAK_SYSCALL(SYS_mprotect, addr, size, prot);
}

static intptr_t linux_remap(void *addr, size_t old_size, size_t new_size, int flags, void *to)
{
    return HAK_SYSCALL(SYS_mremap, addr, old_size, new_size, flags, to);
}

static intptr_t linux_advise(void *addr, size_t size, int advice)
{
    return HAK_SYSCALL(SYS_madvise, addr, size, advice);
}

static intptr_t linux_advise_vector(const struct iovec *ranges, size_t count, int advice)
{
    return HAK_SYSCALL(PROCESS_MADVISE, SELF_PROCESS, ranges, count, advice);
}

static intptr_t linux_resident(void *addr, size_t size, unsigned char *each_page)
{
    return HAK_SYSCALL(SYS_mincore, addr, size, each_page);
}

static intptr_t linux_name(void *addr, size_t size, const char *name)
{
    return HAK_SYSCALL(SYS_prctl, SET_VMA, SET_VMA_ANON_NAME, addr, size, name);
}

const struct hak_os hak_os_linux = {
    .map = linux_map,
    .unmap = linux_unmap,
    .protect = linux_protect,
    .remap = linux_remap,
    .advise = linux_advise,
    .advise_vector = linux_advise_vector,
    .resident = linux_resident,
    .name = linux_name,
    .clock_ns = hak_clock_ns,
};
const struct hak_os *hak_os = &hak_os_linux;

/* Makes one call: evaluates EXPR, times and records it; yields the value of EXPR. */
#define CALL_KERNEL(cause, call, nbytes, expr)                                       \
    ({                                                                               \
        uint64_t start_ = hak_os->clock_ns();                                        \
        intptr_t result_ = (expr);                                                   \
        enter_in_ledger(&hak_ledger[cause][HAK_OS_##call], result_, nbytes, start_); \
        result_;                                                                     \
    })

void hak_latency_note(struct hak_latency *l, uint64_t ns)
{
    unsigned lg = 63 - (unsigned)__builtin_clzll(ns | 1);
    HAK_ADD_RELAXED(&l->calls[hak_min(lg - hak_min(lg, HAK_LATENCY_LG), HAK_LATENCIES - 1)], 1);
    if (ns > HAK_LOAD_RELAXED(&l->worst_ns))
        HAK_STORE_RELAXED(&l->worst_ns, ns); /* of two simultaneous maxima one may be lost */
}

uint64_t hak_latency_of(const struct hak_latency *l, unsigned permille)
{
    uint64_t all = 0, below = 0;
    for (unsigned i = 0; i < HAK_LATENCIES; i++)
        all += HAK_LOAD_RELAXED(&l->calls[i]);
    for (unsigned i = 0; i < HAK_LATENCIES; i++)
        if ((below += HAK_LOAD_RELAXED(&l->calls[i])) * 1000 >= all * permille)
            return hak_min((uint64_t)2 << (HAK_LATENCY_LG + i), HAK_LOAD_RELAXED(&l->worst_ns));
    return HAK_LOAD_RELAXED(&l->worst_ns);
}

static void enter_in_ledger(struct hak_ledger_entry *e, intptr_t result, size_t bytes, uint64_t start)
{
    bool failed = result < 0 && result > -4096;
    HAK_PROBE(os_call, hak_os_call_name((enum hak_os_call)((e - hak_ledger[0]) % HAK_NOSCALLS)),
              hak_cause_name((enum hak_cause)((e - hak_ledger[0]) / HAK_NOSCALLS)), result, bytes);
    HAK_ADD_RELAXED(&e->calls, 1);
    if (failed)
        HAK_ADD_RELAXED(&e->failed, 1);
    else
        HAK_ADD_RELAXED(&e->bytes, bytes);
    uint64_t ns = hak_clock_age(start, hak_os->clock_ns());
    HAK_ADD_RELAXED(&e->ns, ns);
    hak_latency_note(&hak_latencies[(e - &hak_ledger[0][0]) / HAK_NOSCALLS], ns);
}

size_t hak_os_page_size(void)
{
    static _Atomic(size_t) found;
    size_t size = HAK_LOAD_RELAXED(&found);
    if (HAK_UNLIKELY(!size)) {
        size = hak_kernel_auxv(AT_PAGESZ);
        HAK_STORE_RELAXED(&found, size);
    }
    return size;
}

int hak_os_map(void **addr, size_t size, int prot, enum hak_cause cause)
{
    int flags = cause == HAK_CAUSE_guard ? MAP_NORESERVE : 0;
    intptr_t p = CALL_KERNEL(cause, mmap, size, hak_os->map(NULL, size, prot, flags));
    if (p < 0 && p > -4096)
        return (int)p;
    *addr = (void *)p;
    hak_memcheck_hide(*addr, size);
    return 0;
}

int hak_os_map_at(void *hint, size_t size, int prot, enum hak_cause cause)
{
    intptr_t p = CALL_KERNEL(cause, mmap, size, hak_os->map(hint, size, prot, MAP_NORESERVE | MAP_THERE));
    if (p < 0 && p > -4096)
        return (int)p;
    if ((void *)p == hint) {
        hak_memcheck_hide(hint, size);
        return 0;
    }
    hak_os_unmap((void *)p, size, cause); /* the kernel took the address as a hint, as before 4.17 */
    return -EEXIST;
}

int hak_os_unmap(void *addr, size_t size, enum hak_cause cause)
{
    return (int)CALL_KERNEL(cause, munmap, size, hak_os->unmap(addr, size));
}

int hak_os_protect(void *addr, size_t size, int prot, enum hak_cause cause)
{
    return (int)CALL_KERNEL(cause, mprotect, size, hak_os->protect(addr, size, prot));
}

int hak_os_remap(void **addr, size_t old_size, size_t new_size, bool may_move, enum hak_cause cause)
{
    intptr_t p = CALL_KERNEL(cause, mremap, new_size,
                             hak_os->remap(*addr, old_size, new_size, may_move ? MREMAP_MAYMOVE : 0, NULL));
    if (p < 0 && p > -4096)
        return (int)p;
    *addr = (void *)p;
    return 0;
}

#if HAK_HARDENED
int hak_os_move(void *addr, size_t old_size, void *to, size_t new_size, enum hak_cause cause)
{
    intptr_t p = CALL_KERNEL(cause, mremap, new_size,
                             hak_os->remap(addr, old_size, new_size, MREMAP_MAYMOVE | MREMAP_FIXED, to));
    return p < 0 && p > -4096 ? (int)p : 0;
}
#endif

int hak_os_advise(void *addr, size_t size, int advice, enum hak_cause cause)
{
    return (int)CALL_KERNEL(cause, madvise, size, hak_os->advise(addr, size, advice));
}

static size_t total_bytes(const struct iovec *ranges, size_t count)
{
    size_t bytes = 0;
    for (size_t i = 0; i < count; i++)
        bytes += ranges[i].iov_len;
    return bytes;
}

static _Atomic(bool) no_vectors; /* the kernel lacks the call, or does not allow this advice */

/* Fewer ranges are purged one by one, which costs some microseconds: so small processes never make the vectored call,
 * at which some sandboxes kill. */
#define MIN_VECTOR 16u

/* One vectored call for all of `ranges`: returns its result. -EBUSY: the call was not made. */
static intptr_t advise_at_once(const struct iovec *ranges, size_t count, int advice, enum hak_cause cause)
{
    if (count < MIN_VECTOR || hak_options.sandbox || HAK_LOAD_RELAXED(&no_vectors))
        return -EBUSY;
    intptr_t done =
        CALL_KERNEL(cause, process_madvise, total_bytes(ranges, count), hak_os->advise_vector(ranges, count, advice));
    if (done == -EBADF || done == -ENOSYS || done == -EPERM)
        HAK_STORE_RELAXED(&no_vectors, true);
    return done;
}

static size_t advise_each(const struct iovec *ranges, size_t count, int advice, enum hak_cause cause)
{
    size_t bytes = 0;
    for (size_t i = 0; i < count; i++)
        if (hak_os_advise(ranges[i].iov_base, ranges[i].iov_len, advice, cause) == 0)
            bytes += ranges[i].iov_len;
    return bytes;
}

/* -EINVAL has two meanings: the first range is locked, or the kernel lacks vectors. Then the ranges are purged one by
 * one. */
static size_t advise_some(const struct iovec *ranges, size_t count, int advice, enum hak_cause cause)
{
    size_t all = total_bytes(ranges, count);
    intptr_t done = advise_at_once(ranges, count, advice, cause);
    if (done >= 0 && (size_t)done == all)
        return all;
    size_t bytes = advise_each(ranges, count, advice, cause);
    if (done == -EINVAL && bytes == all)
        HAK_STORE_RELAXED(&no_vectors, true);
    return bytes;
}

size_t hak_os_advise_vector(const struct iovec *ranges, size_t count, int advice, enum hak_cause cause)
{
    size_t bytes = 0;
    for (size_t i = 0; i < count; i += MAX_VECTOR)
        bytes += advise_some(ranges + i, hak_min(count - i, MAX_VECTOR), advice, cause);
    return bytes;
}

int hak_os_resident(void *addr, size_t size, enum hak_cause cause)
{
    unsigned char each_page[HAK_RESIDENT_MAX / HAK_SYSTEM_PAGE];
    size_t page = hak_os_page_size();
    HAK_ASSERT(size <= HAK_RESIDENT_MAX);
    if (hak_options.sandbox)
        return -ENOSYS;
    int error = cause == HAK_NCAUSES ? (int)hak_os->resident(addr, size, each_page)
                                     : (int)CALL_KERNEL(cause, mincore, size, hak_os->resident(addr, size, each_page));
    size_t resident = 0;
    for (size_t i = 0; !error && i < size / page; i++)
        resident += each_page[i] & 1 ? page : 0;
    return error ? error : (int)resident;
}

/* The kernel reads the signal mask before it refuses to do with it what no number stands for. Every sandbox allows this
 * call, unlike those that copy memory. */
static bool can_read_mask(const char *p)
{
    return HAK_SYSCALL(SYS_rt_sigprocmask, -1, p, NULL, sizeof(uint64_t)) == -EINVAL;
}

bool hak_os_can_read(const void *p, size_t size)
{
    HAK_ASSERT(size >= sizeof(uint64_t) && size <= HAK_SYSTEM_PAGE);
    return can_read_mask(p) && can_read_mask((const char *)p + size - sizeof(uint64_t));
}

void hak_os_name(void *addr, size_t size, const char *name)
{
    if (!hak_options.sandbox)
        CALL_KERNEL(HAK_CAUSE_name, prctl, size, hak_os->name(addr, size, name));
}

void hak_os_regret(enum hak_cause cause, size_t bytes)
{
    struct hak_ledger_entry *vectored = &hak_ledger[cause][HAK_OS_process_madvise],
                            *e = &hak_ledger[cause][HAK_OS_madvise];
    if (HAK_LOAD_RELAXED(&vectored->bytes) > HAK_LOAD_RELAXED(&e->bytes))
        e = vectored;
    HAK_ADD_RELAXED(&e->regret_bytes, bytes);
}
