/* SPDX-License-Identifier: MIT
 * The OS layer: the only file that makes the kernel's memory calls. Every call carries its cause and is recorded in the
 * ledger: calls, bytes, nanoseconds, and for purges the bytes that were needed again within a second (regret). Each
 * call may fail: functions return 0 or -errno, and leave errno alone.
 * The primitives are a table of functions, so that a test can count them or make the n-th fail. */
#ifndef HAK_OS_H
#define HAK_OS_H

#include <sys/types.h>
#include <sys/uio.h>

#include "core/base/words.h"

/* cause, and what it means */
#define HAK_CAUSES(X)                                                      \
    X(metadata, "tables and descriptors")                                  \
    X(superslab_map, "superslabs mapped")                                  \
    X(large_map, "a large block mapped directly")                          \
    X(large_unmap, "a direct mapping unmapped")                            \
    X(realloc_remap, "a direct mapping resized")                           \
    X(prefault, "pages populated ahead of use")                            \
    X(partial_release, "free pages of a superslab or slab in use")         \
    X(batch_release, "dirty ranges purged together")                       \
    X(direct_release, "one range purged at once")                          \
    X(lru_evict, "a cached superslab beyond the limits")                   \
    X(purge, "dirty pages that were idle for a while")                     \
    X(trim, "requested by hakmem_trim or malloc_trim")                     \
    X(discard, "old pages of a block that realloc moved or calloc clears") \
    X(huge_page, "advice on huge pages, and the check before it")          \
    X(guard, "inaccessible pages: guarded blocks, fences")                 \
    X(seal, "tables made read-only")                                       \
    X(name, "names for /proc/PID/maps")

enum hak_cause {
#define X(name, meaning) HAK_CAUSE_##name,
    HAK_CAUSES(X)
#undef X
        HAK_NCAUSES
};

#define HAK_OS_CALLS(X) X(mmap) X(munmap) X(mprotect) X(mremap) X(madvise) X(process_madvise) X(mincore) X(prctl)

enum hak_os_call {
#define X(name) HAK_OS_##name,
    HAK_OS_CALLS(X)
#undef X
        HAK_NOSCALLS
};

/* The primitives; each returns the system call's result, or -errno. */
struct hak_os {
    intptr_t (*map)(void *hint, size_t size, int prot, int flags);
    intptr_t (*unmap)(void *addr, size_t size);
    intptr_t (*protect)(void *addr, size_t size, int prot);
    intptr_t (*remap)(void *addr, size_t old_size, size_t new_size, int flags, void *to);
    intptr_t (*advise)(void *addr, size_t size, int advice);
    intptr_t (*advise_vector)(const struct iovec *ranges, size_t count, int advice);
    intptr_t (*resident)(void *addr, size_t size, unsigned char *each_page);
    intptr_t (*name)(void *addr, size_t size, const char *name);
    uint64_t (*clock_ns)(void); /* hak_clock_ns */
};

extern const struct hak_os hak_os_linux;
extern const struct hak_os *hak_os; /* hak_os_linux, or a test's table, set before the first allocation */

struct hak_ledger_entry {
    _Atomic(uint64_t) calls, failed, bytes, ns, regret_bytes;
};

extern struct hak_ledger_entry hak_ledger[HAK_NCAUSES][HAK_NOSCALLS];

/* The durations of calls: a histogram whose first bucket ends at 2^9 ns, and each further one at twice as much; the
 * last one counts all longer calls. Here those of a cause; parts.h has those of a backend's stages. */
#define HAK_LATENCY_LG 8u
#define HAK_LATENCIES 22u
struct hak_latency {
    _Atomic(uint64_t) worst_ns;
    _Atomic(uint32_t) calls[HAK_LATENCIES];
};
extern struct hak_latency hak_latencies[HAK_NCAUSES];
void hak_latency_note(struct hak_latency *l, uint64_t ns);
/* The duration, in ns, that `permille` of a thousand calls did not exceed: the end of their bucket. */
uint64_t hak_latency_of(const struct hak_latency *l, unsigned permille);

const char *hak_cause_name(enum hak_cause cause);
const char *hak_os_call_name(enum hak_os_call call);

size_t hak_os_page_size(void);

/* Maps fresh zeroed pages anywhere. prot: PROT_NONE, PROT_READ or PROT_READ | PROT_WRITE. The kernel's policy on
 * overcommit decides, except on guards, which are inaccessible for the most part. */
int hak_os_map(void **addr, size_t size, int prot, enum hak_cause cause);
/* Maps exactly at `hint`, most of it ahead of use, so without that policy; -EEXIST if something is mapped there. */
int hak_os_map_at(void *hint, size_t size, int prot, enum hak_cause cause);
/* May fail at the map count limit: the caller then keeps the range. */
int hak_os_unmap(void *addr, size_t size, enum hak_cause cause);

int hak_os_protect(void *addr, size_t size, int prot, enum hak_cause cause);
/* Resizes a mapping; moves it only if `may_move`. */
int hak_os_remap(void **addr, size_t old_size, size_t new_size, bool may_move, enum hak_cause cause);
/* Hardened builds: moves its pages over another mapping, which is replaced. */
int hak_os_move(void *addr, size_t old_size, void *to, size_t new_size, enum hak_cause cause);
/* Values of MADV_* that older headers lack. */
enum { HAK_ADVICE_FREE = 8, HAK_ADVICE_POPULATE = 23 };
int hak_os_advise(void *addr, size_t size, int advice, enum hak_cause cause);
/* Purges many ranges with as few calls as the kernel allows (process_madvise on the process itself since Linux 6.14,
 * else one madvise per range). Returns the number of bytes purged. */
size_t hak_os_advise_vector(const struct iovec *ranges, size_t count, int advice, enum hak_cause cause);
/* How many bytes of a range of up to HAK_RESIDENT_MAX are resident; -errno where nothing is mapped, or with
 * HAKMEM_SANDBOX=1. With HAK_NCAUSES, for a report, the call is not in the ledger. */
#define HAK_RESIDENT_MAX (2 * HAK_MIB)
int hak_os_resident(void *addr, size_t size, enum hak_cause cause);
/* Whether up to HAK_SYSTEM_PAGE bytes can be read. True only as long as no other thread can change the mapping. */
bool hak_os_can_read(const void *p, size_t size);
/* Names a range in /proc/PID/maps if the kernel supports it; not with HAKMEM_SANDBOX=1. */
void hak_os_name(void *addr, size_t size, const char *name);
/* Records bytes that were handed out again within HAK_REGRET_MS of their purge for `cause`: an upper bound of what the
 * kernel had to supply again. They are added to the call that purges for this cause. */
#define HAK_REGRET_MS 1000u
void hak_os_regret(enum hak_cause cause, size_t bytes);

#endif
