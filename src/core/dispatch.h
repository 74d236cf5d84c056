/* SPDX-License-Identifier: MIT
 * The run-time dispatch table: which frontend serves a bin, which backend supplies spans, how pages go
 * back, and all settings. Filled once, then read-only memory; consulted on slow paths only. */
#ifndef HAK_DISPATCH_H
#define HAK_DISPATCH_H

#include "plugin.h"

struct hak_dispatch {
    const struct hak_frontend *by_bin[HAK_NBINS];
    const struct hak_frontend *large;
    const struct hak_backend *backend;
    const struct hak_release *release;
    uint16_t bin_limit[HAK_NBINS];
    uint16_t bin_batch[HAK_NBINS];
    uint64_t from_environment; /* bit i: row i of the option table was set */
    struct hak_options options;
};

#if defined(__x86_64__)
#define HAK_SEAL_ALIGN 4096
#else
#define HAK_SEAL_ALIGN 65536
#endif

union hak_sealed {
    struct hak_dispatch d;
    char page[(sizeof(struct hak_dispatch) + HAK_SEAL_ALIGN - 1) / HAK_SEAL_ALIGN * HAK_SEAL_ALIGN];
};
extern union hak_sealed hak_sealed;
#define hak_dispatch (hak_sealed.d)

/* Whether slabs of the bin belong in the zone of blocks with headers. */
HAK_INLINE bool hak_bin_has_header(unsigned bin)
{
    return hak_class_has_header(bin) && hak_dispatch.by_bin[bin]->headers;
}

/* Initialises the library if that has not happened: options, OS, tags, backends, frontends, seal.
 * False without memory; a later call tries again. */
bool hak_init(void);
/* The same only where the library is in use, or the environment has `setting`. */
bool hak_is_ready_for(const char *setting);
/* Whether the tables are read-only memory now. */
bool hak_is_sealed(void);
/* After how long what is free is idle. */
HAK_INLINE uint64_t hak_purge_delay_ms(void)
{
    return hak_dispatch.release->at_once ? 0 : hak_dispatch.options.purge_delay_ms;
}
/* Whether nobody came to a slow path for that long: all that is free is idle then. For a part's `age`, which keeps
 * the time of its last call in *last_ms, 0 at first. */
HAK_INLINE bool hak_has_slept(_Atomic(uint64_t) *last_ms, uint64_t now_ms)
{
    uint64_t last = atomic_exchange_explicit(last_ms, now_ms, memory_order_relaxed);
    return last && now_ms - last >= hak_purge_delay_ms();
}
/* What slow paths do now and then: lets backends give back what has been idle. */
void hak_age(void);
/* All parts give back what is free beyond `keep` bytes, which they share. Returns the bytes. */
size_t hak_give_back(size_t keep);
/* Whether the last call left something to do. */
extern _Atomic(uint64_t) hak_next_age_ms; /* 0: at once */
HAK_INLINE bool hak_age_pending(void)
{
    return !atomic_load_explicit(&hak_next_age_ms, memory_order_relaxed);
}

#endif
