/* SPDX-License-Identifier: MIT
 * An OS layer that counts the calls, refuses those that a test chooses, and imitates older kernels and smaller
 * machines. The calls that it does not refuse really happen. The coarse clock stands still until a test moves it (the
 * linker puts it in place of hak_clock_ms). */
#ifndef TESTS_UNIT_FAKE_OS_H
#define TESTS_UNIT_FAKE_OS_H

#include "core/os/os.h"

/* Before the library's first allocation. */
void fake_os_install(void);

struct fake_calls {
    _Atomic(uint64_t) calls[HAK_NOSCALLS], failed[HAK_NOSCALLS], bytes[HAK_NOSCALLS];
};
struct fake_calls fake_os_calls(void);
uint64_t fake_os_count(enum hak_os_call call);
uint64_t fake_os_total(void);
/* Bytes advised MADV_HUGEPAGE. */
size_t fake_os_huge_bytes(void);
/* The last range advised MADV_NOHUGEPAGE. */
struct iovec fake_os_kept_small(void);

/* The nth call from now (1: the next one) returns -error; with `onwards`, so do all later ones. */
void fake_os_refuse(enum hak_os_call call, unsigned nth, int error, bool onwards);
/* The same, counted over calls of all kinds but names. */
void fake_os_refuse_any(unsigned nth, int error, bool onwards);
/* From now on nothing is refused, locked or late, and maps have neither a limit nor a fixed place. */
void fake_os_allow(void);
/* Imitates a machine on which a map of more than so many bytes returns -ENOMEM. */
void fake_os_limit_maps(size_t bytes);
/* Maps at an address that the library chose return -error. */
void fake_os_refuse_places(int error);

/* process_madvise returns -error if that is not 0; else each call does at most `most` ranges. */
void fake_os_vector(int error, size_t most);

/* The system page at `at` is locked from now on. A purge of a range that contains it gets the kernel's answer: -EINVAL
 * after the pages before it were purged, or the bytes of the ranges before its own. Up to 16 pages. */
void fake_os_lock_page(const void *at);
void fake_os_unlock_pages(void);
/* The coarse clock advances by so much in each call of this kind: the answer comes late. */
void fake_os_late(enum hak_os_call call, uint64_t ms);

/* Called before each madvise and process_madvise but those about huge pages; NULL: nothing. */
void fake_os_before_advice(void (*fn)(void));

/* The kernel's pages have this size from now on, for advice and hak_os_page_size. */
void fake_os_long_pages(size_t size);

/* The fine clock advances only when it is read, each time by so much; by 100 ns at first. */
void fake_os_clock(uint64_t step_ns);
/* Moves the coarse clock. */
void fake_os_pass(uint64_t ms);
/* Only the calling thread reads the coarse clock so much later (below 0: earlier) than the others. */
void fake_os_skew(int64_t ms);

#endif
